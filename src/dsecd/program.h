/* program.h: one program that the supervisor keeps running.
 *
 * Used by the supervisor's single thread. A struct program owns its words, its
 * pidfd and its log path; it is never moved while the process runs. The process
 * gets a session of its own (a terminal's Ctrl-C is for the supervisor), standard
 * input from /dev/null and its log file as output, so it does not notice when the
 * supervisor dies. Life: IDLE -> STARTING -> READY, from either to BACKOFF when
 * it dies, from BACKOFF to STARTING when its time has come.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "dsecd/pidfile.h"
#include "dsecd/state.h"

#define PROGRAM_WORDS_MAX 24
#define PROGRAM_BACKOFF_MIN_MS 100
#define PROGRAM_BACKOFF_MAX_MS 5000
#define PROGRAM_STEADY_MS 30000      /* ready this long: the next back-off starts small again */
#define PROGRAM_START_LIMIT_MS 60000 /* not ready by then: killed and started anew */
#define PROGRAM_LOG_MAX_BYTES (8u << 20) /* then it becomes NAME.log.1, one generation is kept */

/* Programs of one phase start together, when all of the phase before are ready;
 * they end in the opposite order. */
enum program_phase { PHASE_MOUNTER, PHASE_SPAWNER, PHASE_EDGE, PHASE_APISERVER, PHASE_COUNT };

enum program_state { PROGRAM_IDLE, PROGRAM_STARTING, PROGRAM_READY, PROGRAM_BACKOFF };

struct program {
	char name[PIDFILE_NAME_MAX + 1];
	enum program_phase phase;
	char *words[PROGRAM_WORDS_MAX + 1]; /* argv, owned; words[0] is the path */
	unsigned n_words;
	char *socket;       /* owned; ready when it accepts a connection; NULL: `listen` instead */
	const char *listen; /* borrowed "HOST:PORT"; ready when /readyz answers 200 there */
	char *log_path;     /* owned */
	off_t log_start;    /* where the words of the present try to start begin */
	enum program_state state;
	pid_t pid;
	int pidfd; /* -1: no process */
	uint64_t since_ms;   /* of the state, monotonic */
	uint64_t retry_at_ms;
	unsigned backoff_ms;
	unsigned deaths_before_ready; /* in a row */
};

int program_init(struct program *p, const struct state *s, enum program_phase phase, const char *name);
int program_add_word(struct program *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void program_done(struct program *p); /* the process is not touched */

/* Starts the process and writes its pid file. On failure the program is in BACKOFF. */
int program_start(struct program *p, const struct state *s);
/* The process has ended (its pidfd polled readable): reaps it, removes the pid
 * file, plans the next start. Writes how it ended into `ret_how`. */
void program_reap(struct program *p, const struct state *s, char *ret_how, size_t n);
/* STARTING: looks whether it is ready by now (short, may take up to
 * READINESS_PROBE_MS) and moves on. true when it became ready. */
bool program_check_ready(struct program *p);
/* One generation of old log at most, the present one bounded. */
void log_rotate(const char *path, uint64_t max_bytes);
