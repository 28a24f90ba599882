/* wire.h: chronus's side of proto/chronus.proto, encoded and decoded by hand.
 *
 * Called by conn.c, exec*.c and files.c on chronus's one thread and, for
 * reports, by file workers. Nothing here allocates: decoded slices point into
 * the caller's payload and live as long as it does; encoders write into a buffer
 * of the caller and remember overflow. Input comes from the edge, which is
 * trusted with the sandbox but not with chronus's memory: every length is
 * checked, unknown fields are skipped, a wrong wire type is -EBADMSG. Fields are
 * at most AETHER_PAYLOAD_MAX long because a payload is.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct slice {
	const uint8_t *p;
	size_t n;
};

/* ---- The wire itself ---- */
struct pb_in {
	const uint8_t *p, *end;
};
struct pb_field {
	uint32_t number;
	uint8_t type; /* 0 varint, 1 fixed64, 2 bytes, 5 fixed32 */
	uint64_t value;
	struct slice bytes;
};
int pb_next(struct pb_in *in, struct pb_field *ret); /* 1, 0 at the end, -EBADMSG */

struct pb_out {
	uint8_t *p;
	size_t n, cap;
	bool full; /* something did not fit: the result must not be used */
};
void pb_uint(struct pb_out *o, uint32_t field, uint64_t v); /* 0 is the default: left out */
void pb_bytes(struct pb_out *o, uint32_t field, const void *p, size_t n); /* same for empty */
void pb_str(struct pb_out *o, uint32_t field, const char *s);
size_t pb_open(struct pb_out *o, uint32_t field); /* embedded message; close with its mark */
void pb_close(struct pb_out *o, size_t mark);

/* ---- From the edge ---- */
enum wire_what { WIRE_HELLO = 1, WIRE_EXEC_START, WIRE_EXEC_ATTACH, WIRE_FILE, WIRE_FOLLOW = 15 };
#define WIRE_FOLLOW_MAX (1024 * 1024) /* bytes of a large start beyond its OPEN */

struct wire_exec_start {
	struct slice id, cwd, user, raw;
	uint32_t n_argv, n_env;
	size_t string_bytes; /* of argv and NAME=VALUE strings with their NULs */
	bool stdin_open, pty, no_new_privs;
	uint32_t rows, cols, kill_grace_ms, drain_ms;
	uint64_t timeout_ms;
};
struct wire_exec_attach {
	struct slice id;
	uint64_t out_offset[2];
};
enum wire_file_op {
	FILE_STAT, FILE_LIST, FILE_READ, FILE_WRITE, FILE_MKDIR, FILE_MOVE, FILE_REMOVE,
	FILE_TAR_OUT, FILE_TAR_IN, FILE_OP_COUNT_
};
struct wire_file {
	uint32_t op, mode;
	struct slice path, to, user;
	uint64_t offset, length;
	bool parents, recursive, follow, overwrite;
};
struct wire_open {
	enum wire_what what;
	union {
		struct wire_exec_start start;
		struct wire_exec_attach attach;
		struct wire_file file;
		uint32_t protocol; /* hello */
		uint32_t follow_bytes; /* follow: the rest comes in messages */
	};
};
int wire_decode_open(const void *p, size_t n, struct wire_open *ret);
/* Fills argv (n_argv + 1), env (n_env + 1, "NAME=VALUE") with strings laid out
 * in `bytes` (string_bytes long). -EINVAL: a NUL inside, or a bad name. */
int wire_exec_strings(const struct wire_exec_start *s, char **argv, char **env, char *bytes);

enum wire_command_what { WIRE_ACK = 1, WIRE_SIGNAL, WIRE_RESIZE, WIRE_STDIN_EOF, WIRE_FORGET };
struct wire_command {
	enum wire_command_what what;
	uint64_t out_offset[2];          /* ack */
	uint32_t signal, rows, cols;     /* signal; resize */
	bool whole_tree, by_user_kill;   /* signal */
};
int wire_decode_command(const void *p, size_t n, struct wire_command *ret);

int wire_decode_file_command(const void *p, size_t n, uint64_t *ret_commit_bytes); /* -ENOMSG: not a commit */

struct wire_disk_usage {
	uint32_t token;
	uint64_t limit_bytes, used_bytes;
};
int wire_decode_hello_message(const void *p, size_t n, struct wire_disk_usage *ret); /* -ENOMSG: another kind */

/* ---- To the edge ---- */
struct wire_started {
	uint32_t pid;
	uint64_t stdin_offset, started_at_ms, out_offset[2];
	bool stdin_closed;
};
struct wire_exited {
	bool signaled, timed_out, user_killed, background_alive, drain_cut;
	uint32_t exit_code, signal;
	uint64_t cpu_usec, max_rss_bytes, wall_ms, out_total[2];
};
struct wire_entry {
	struct slice name, link;
	uint32_t mode, uid, gid, nlink;
	uint64_t size, mtime_ns, inode;
};
void wire_hello_begin(struct pb_out *o, const char *version, size_t *ret_mark);
void wire_hello_exec(struct pb_out *o, const char *id, bool running);
void wire_disk_usage_request(struct pb_out *o, uint32_t token);
void wire_started(struct pb_out *o, const struct wire_started *s);
void wire_failed(struct pb_out *o, const char *code, const char *message); /* ExecFailed */
void wire_exited(struct pb_out *o, const struct wire_exited *x);
void wire_stdin_state(struct pb_out *o, uint64_t offset, bool closed);
void wire_file_stat(struct pb_out *o, const struct wire_entry *e);
void wire_file_entry(struct pb_out *o, const struct wire_entry *e); /* inside entries */
void wire_file_done(struct pb_out *o, uint64_t bytes, uint64_t entries);
void wire_file_failed(struct pb_out *o, const char *code, const char *message, uint32_t err);
#define WIRE_FILE_ENTRIES 2 /* field of FileReport that wire_file_entry goes into */
