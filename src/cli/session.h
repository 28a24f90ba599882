/* session.h: one command in a sandbox with this process's terminal and pipes.
 *
 * Used by run and exec on the main thread, once a process. While it runs two
 * helper threads exist: one waits for signals (they are blocked everywhere else),
 * one carries standard input. Both are joined before session_run returns.
 *
 * SIGINT, SIGTERM, SIGHUP: with stop_on_signal the session ends at once and says
 * which came; without, the first is passed on to the command and the second ends
 * the session. SIGWINCH resizes the command's terminal.
 */
#pragma once
#include "base/buf.h"
#include "cli/cli.h"

#define SESSION_KEEP_MAX (64u << 20) /* output kept of each stream with `keep` */

struct session {
	struct dsec_client *client;
	const char *sandbox_id;
	bool interactive;    /* standard input goes to the command */
	bool terminal;       /* it gets a terminal; ours becomes raw if we have one */
	bool stop_on_signal;
	bool keep;           /* output goes to out and err below, not to ours */
	/* results */
	struct buf out, err;
	int stopped_by;      /* a signal number, 0: none */
	bool output_broken;  /* nobody reads our output any more */
};

/* Blocks the signals of a session in this thread; before any thread is started. */
void session_block_signals(void);
/* A signal that came since, or 0: for the time before and after session_run. */
int session_pending_signal(void);
int session_run(struct session *s, struct dsec_exec_options *o, struct dsec_exec **ret, struct dsec_error *e);
void session_done(struct session *s);

/* The exit status of a shell: the code, 128 + N after signal N, EXIT_NOT_RUN when
 * it never ran. Says on stderr what ended it, unless quiet. */
int session_status(const struct dsec_exec *x, bool quiet);
/* "KILL" -> 9, "15" -> 15; 0: no such signal. */
int signal_number(const char *name);
