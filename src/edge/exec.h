/* exec.h: one command in a sandbox, from the intent to the kept result.
 *
 * Owned by its sandbox (sb->execs, sb->exec_list); loop thread. States:
 *   starting (journaled; chronus may not have heard of it) -> running -> finished
 *          \-> failed (could not be started; a typed error)
 * A restart of the edge puts starting and running ones back and asks chronus.
 * exec.c owns the state and speaks with chronus, stdin.c what goes in,
 * output.c the readers of what came out.
 */
#pragma once
#include "edge/node.h"
#include "edge/server.h"

enum exec_state { EXEC_STARTING, EXEC_RUNNING, EXEC_FINISHED, EXEC_FAILED };

struct exec_result { /* of EXEC_FINISHED */
	bool has_exit_code, timed_out, user_killed, oom_killed, background_alive, drain_cut;
	uint8_t exit_code, signal;
	const char *killed_by; /* static: "" user timeout oom sandbox */
	uint64_t cpu_usec, max_rss_bytes, wall_ms;
};

struct stdin_pipe {
	uint64_t sent;         /* next byte that chronus expects */
	uint64_t given;        /* what the program has been given, as chronus reports */
	bool open;             /* bytes may still come */
	bool eof_due, eof_sent;
	bool closed;           /* the program's end, or ours after EOF, is closed */
	struct call *uploader; /* at most one at a time */
	int file_fd;           /* inline input; -1: none */
	uint64_t file_bytes;
};

struct exec {
	struct peer peer; /* the stream to chronus */
	struct sandbox *sb;
	char id[EXEC_ID_MAX + 1];
	struct link link;          /* sb->exec_list */
	struct link starting_link; /* node->starting */
	Dsec__Edge__ExecStart *spec; /* owned; argv is all that is needed once it runs */
	uint64_t start_hash;       /* of the request, to tell a retry from a conflict */
	enum exec_state state;
	uint64_t created_ms;       /* monotonic: start deadline */
	uint64_t started_at_ms, finished_at_ms;
	struct exec_result result;
	struct dsec_error *error;  /* owned; of EXEC_FAILED */
	struct spool out[2];       /* stdout, stderr */
	uint64_t acked[2];
	bool ack_due;
	bool unrecorded;           /* it ended, and the journal did not take that */
	uint64_t oom_base;         /* the sandbox's oom kills when it started */
	bool shared;               /* something else ran beside it: the counter is not its alone */
	struct stdin_pipe in;
	struct link readers;       /* calls that follow (output.c) */
	struct link waiters;       /* calls that wait for the end */
};

/* exec.c. start: journals, then starts or queues it. spec_take is taken also on
 * failure. -EEXIST with *ret set: the id is known and the request the same. */
int exec_create(struct sandbox *sb, const char *id, Dsec__Edge__ExecStart *spec_take, uint64_t hash,
		struct exec **ret, struct dsec_error *e);
int exec_new(struct sandbox *sb, const char *id, Dsec__Edge__ExecStart *spec_take, struct exec **ret);
void exec_free(struct exec *x); /* memory and stream; who reads or waits is told; NULL accepted */
void exec_remove(struct exec *x); /* and its files */
/* The channel is ready: attach what chronus knows, start what it does not. */
void exec_resume_all(struct sandbox *sb, const Dsec__Chronus__HelloReply *hello);
/* The sandbox is gone: every exec that has no result gets one. */
void exec_sandbox_gone(struct sandbox *sb);
void exec_check_starting(struct node *n, uint64_t now_ms);
static inline bool exec_ended(const struct exec *x)
{
	return x->state == EXEC_FINISHED || x->state == EXEC_FAILED;
}
struct exec *exec_find(struct sandbox *sb, const char *id);
int exec_signal(struct exec *x, uint32_t sig, bool whole_tree);
int exec_resize(struct exec *x, uint32_t rows, uint32_t cols);
void exec_drop_old(struct sandbox *sb); /* keeps the limits of what is kept */

/* forget.c: chronus drops what has ended here, and what is unknown here is killed. */
void forget_ended(struct sandbox *sb, const Dsec__Chronus__HelloReply *hello);

/* stdin.c */
int stdin_save(struct exec *x, const void *p, size_t n); /* inline input to its file */
void stdin_remove(struct exec *x);
void stdin_attached(struct exec *x, uint64_t offset, bool closed);
void stdin_state(struct exec *x, uint64_t offset, bool closed);
void stdin_pump(struct exec *x);
void stdin_ended(struct exec *x); /* the exec is over: the uploader is answered */
void stdin_call(struct call *c, struct exec *x, const Dsec__Edge__ExecStdin *req);

/* output.c */
int output_follow(struct call *c, struct exec *x, uint64_t stdout_at, uint64_t stderr_at, bool follow);
void output_wait(struct call *c, struct exec *x, uint64_t timeout_ms);
void output_wait_started(struct call *c, struct exec *x);
void output_progress(struct exec *x); /* new bytes, started, or the end */
