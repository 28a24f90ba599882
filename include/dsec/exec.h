/* dsec/exec.h: running commands in a sandbox and following their output.
 *
 * Threads, blocking and errors as in dsec/client.h. A command (exec) has an id
 * and lives on the server: its output is kept there with byte offsets, so that a
 * lost connection loses nothing. dsec_exec_run and dsec_exec_follow reconnect on
 * their own, up to the client's reconnect_ms without progress, and continue
 * without gap or repeat.
 *
 * That a command could not be started (command_not_found, bad_user, ...) is an
 * error of the start call, never an exit code.
 */
#ifndef DSEC_EXEC_H
#define DSEC_EXEC_H
#include "dsec/client.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DSEC_STDIN_BYTES_MAX (1u << 20)

/* Zero and NULL fields mean the sandbox's or server's default. Borrowed for the
 * call. Either argv or shell. */
struct dsec_exec_options {
	const char *id;  /* [A-Za-z0-9._-]{1,64}; starting a known id again attaches to it; NULL: made here */
	const char *const *argv; /* NULL-terminated; any bytes */
	const char *shell;       /* text for /bin/sh -c */
	const struct dsec_pair *env;
	size_t n_env;
	const char *cwd, *user;
	bool stdin_open;       /* input comes by dsec_exec_stdin; otherwise it is closed */
	const void *stdin_bytes; /* the whole input, at most DSEC_STDIN_BYTES_MAX */
	size_t n_stdin_bytes;
	bool pty;              /* a terminal; its output is all on stdout */
	unsigned rows, cols;   /* of the terminal; 0: 24 and 80 */
	uint64_t timeout_ms;   /* 0: none */
	unsigned kill_grace_ms; /* SIGTERM first, SIGKILL this much later; 0: SIGKILL at once */
	uint64_t output_limit_bytes; /* kept of each stream */
};

struct dsec_exec {
	const char *id, *sandbox_id;
	const char *state; /* starting, running, finished, failed */
	const char *killed_by; /* "", user, timeout, oom, sandbox */
	double started_at, finished_at; /* seconds since 1970; 0: not yet */
	bool has_exit_code; /* false while it runs and when a signal ended it */
	int exit_code;
	const char *signal; /* "KILL", or NULL */
	bool timed_out, oom_killed, background_alive, drain_cut, stdout_truncated, stderr_truncated, pty;
	double cpu_seconds, wall_seconds;
	uint64_t max_rss_bytes, stdout_bytes, stderr_bytes, stdin_offset;
	const char *json; /* the server's whole answer about it */
	void *internal;
};

struct dsec_exec_list {
	struct dsec_exec *items; /* owned by the list */
	size_t n;
};

enum dsec_stream { DSEC_STDOUT = 1, DSEC_STDERR = 2 };

/* Called on the thread of the following call. Each may be NULL. Data is borrowed.
 * A negative return ends the call with "interrupted"; the command goes on. */
struct dsec_output_callbacks {
	int (*on_started)(const struct dsec_exec *exec, void *user); /* once */
	int (*on_output)(enum dsec_stream stream, uint64_t offset, const void *data, size_t n, void *user);
	/* Bytes [from, to) were dropped by the bound on kept output. */
	int (*on_gap)(enum dsec_stream stream, uint64_t from, uint64_t to, void *user);
	void *user;
};

/* Starts; returns when it runs. */
DSEC_API int dsec_exec_start(struct dsec_client *c, const char *sandbox_id, const struct dsec_exec_options *o,
			     struct dsec_exec **ret, struct dsec_error *e);
/* Starts and follows to the end on one stream. */
DSEC_API int dsec_exec_run(struct dsec_client *c, const char *sandbox_id, const struct dsec_exec_options *o,
			   const struct dsec_output_callbacks *callbacks, struct dsec_exec **ret,
			   struct dsec_error *e);
/* Output from the offsets on. follow: to the command's end, *ret its result;
 * otherwise what is there now, *ret its present state. */
DSEC_API int dsec_exec_follow(struct dsec_client *c, const char *sandbox_id, const char *exec_id,
			      uint64_t stdout_offset, uint64_t stderr_offset, bool follow,
			      const struct dsec_output_callbacks *callbacks, struct dsec_exec **ret,
			      struct dsec_error *e);
DSEC_API int dsec_exec_get(struct dsec_client *c, const char *sandbox_id, const char *exec_id,
			   struct dsec_exec **ret, struct dsec_error *e);
DSEC_API int dsec_exec_list(struct dsec_client *c, const char *sandbox_id, struct dsec_exec_list **ret,
			    struct dsec_error *e);
/* Until it is finished or failed. -ETIMEDOUT (deadline_exceeded) when it is still
 * running after timeout_ms (0: no limit). */
DSEC_API int dsec_exec_wait(struct dsec_client *c, const char *sandbox_id, const char *exec_id,
			    uint64_t timeout_ms, struct dsec_exec **ret, struct dsec_error *e);

/* Gives n bytes to the input at `offset`, the number of bytes given before; eof
 * closes it after them. Blocks while the program does not read. *ret_offset: what
 * has been taken in all (a repeat of bytes it already has is no harm);
 * *ret_closed: the program reads no more. Either may be NULL. */
DSEC_API int dsec_exec_stdin(struct dsec_client *c, const char *sandbox_id, const char *exec_id, uint64_t offset,
			     const void *data, size_t n, bool eof, uint64_t *ret_offset, bool *ret_closed,
			     struct dsec_error *e);
/* signal: "TERM" or "15". whole_tree: every process of the command. */
DSEC_API int dsec_exec_signal(struct dsec_client *c, const char *sandbox_id, const char *exec_id,
			      const char *signal, bool whole_tree, struct dsec_error *e);
DSEC_API int dsec_exec_resize(struct dsec_client *c, const char *sandbox_id, const char *exec_id, unsigned rows,
			      unsigned cols, struct dsec_error *e);

DSEC_API void dsec_exec_free(struct dsec_exec *x);
DSEC_API void dsec_exec_list_free(struct dsec_exec_list *l);

#ifdef __cplusplus
}
#endif
#endif
