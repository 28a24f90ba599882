/* session.c: see session.h. */
#include "cli/session.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/terminal.h"

#define STDIN_CHUNK (128 * 1024)
#define STDIN_RETRIES 20
#define SIGNAL_LOOK_MS 100

struct running {
	struct session *s;
	char exec_id[65];
	int done_fd; /* eventfd: readable when the command has ended */
	atomic_bool done, started;
	atomic_int signals; /* that ask to stop */
	pthread_t signal_thread, stdin_thread;
	bool has_stdin_thread;
};

static void session_signals(sigset_t *ret)
{
	sigemptyset(ret);
	sigaddset(ret, SIGINT);
	sigaddset(ret, SIGTERM);
	sigaddset(ret, SIGHUP);
	sigaddset(ret, SIGWINCH);
}

void session_block_signals(void)
{
	sigset_t set;
	session_signals(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int session_pending_signal(void)
{
	sigset_t set;
	session_signals(&set);
	sigdelset(&set, SIGWINCH);
	int sig = sigtimedwait(&set, NULL, &(struct timespec){ 0 });
	return sig > 0 ? sig : 0;
}

static void resize(struct running *run)
{
	unsigned rows, cols;
	if (run->s->terminal && atomic_load(&run->started) && terminal_size(&rows, &cols))
		dsec_exec_resize(run->s->client, run->s->sandbox_id, run->exec_id, rows, cols, NULL);
}

static void on_stop_signal(struct running *run, int sig)
{
	bool first = !atomic_fetch_add(&run->signals, 1);
	if (first && !run->s->stop_on_signal && atomic_load(&run->started)) {
		const char *name = sig == SIGINT ? "INT" : sig == SIGHUP ? "HUP" : "TERM";
		if (!dsec_exec_signal(run->s->client, run->s->sandbox_id, run->exec_id, name, true, NULL))
			return;
	}
	run->s->stopped_by = sig;
	dsec_client_interrupt(run->s->client);
}

static void *signal_main(void *user)
{
	struct running *run = user;
	sigset_t set;
	session_signals(&set);
	while (!atomic_load(&run->done)) {
		struct timespec ts = { .tv_nsec = SIGNAL_LOOK_MS * 1000000L };
		int sig = sigtimedwait(&set, NULL, &ts);
		if (sig == SIGWINCH)
			resize(run);
		else if (sig > 0)
			on_stop_signal(run, sig);
	}
	return NULL;
}

/* Gives one piece, again after a break: the offset makes a repeat harmless. */
static int give(struct running *run, uint64_t *offset, const void *p, size_t n, bool eof, bool *ret_closed)
{
	struct dsec_error e;
	const uint64_t start = *offset;
	for (int tries = 0;; tries++) {
		uint64_t taken = *offset;
		size_t skip = (size_t)(*offset - start);
		int r = dsec_exec_stdin(run->s->client, run->s->sandbox_id, run->exec_id, *offset,
					(const char *)p + skip, n - skip, eof, &taken, ret_closed, &e);
		if (taken > *offset && taken <= start + n)
			*offset = taken;
		if (!r && (*ret_closed || *offset == start + n))
			return 0;
		if (r < 0 && (!e.retry || tries >= STDIN_RETRIES || atomic_load(&run->done)))
			return r;
		if (r < 0)
			poll(&(struct pollfd){ .fd = run->done_fd, .events = POLLIN }, 1, SIGNAL_LOOK_MS);
	}
}

static void *stdin_main(void *user)
{
	struct running *run = user;
	_cleanup_free_ char *chunk = malloc(STDIN_CHUNK);
	uint64_t offset = 0;
	bool closed = false;
	while (chunk && !closed) {
		struct pollfd p[] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = run->done_fd, .events = POLLIN } };
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			break;
		if (p[1].revents)
			break;
		if (!p[0].revents)
			continue;
		ssize_t n = read(STDIN_FILENO, chunk, STDIN_CHUNK);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			n = 0; /* as its end: the program must not wait for ever */
		if (give(run, &offset, chunk, (size_t)n, n == 0, &closed) < 0 || !n)
			break;
	}
	return NULL;
}

static int on_started(const struct dsec_exec *x, void *user)
{
	struct running *run = user;
	snprintf(run->exec_id, sizeof(run->exec_id), "%s", x->id);
	atomic_store(&run->started, true);
	if (run->s->interactive && !pthread_create(&run->stdin_thread, NULL, stdin_main, run))
		run->has_stdin_thread = true;
	resize(run); /* it may have changed meanwhile */
	return run->s->interactive && !run->has_stdin_thread ? -EAGAIN : 0;
}

static int on_output(enum dsec_stream stream, uint64_t offset, const void *p, size_t n, void *user)
{
	struct running *run = user;
	struct session *s = run->s;
	if (s->keep)
		return buf_append(stream == DSEC_STDERR ? &s->err : &s->out, p, n);
	int r = write_all(stream == DSEC_STDERR ? STDERR_FILENO : STDOUT_FILENO, p, n);
	if (r < 0)
		s->output_broken = true;
	return r;
}

static int on_gap(enum dsec_stream stream, uint64_t from, uint64_t to, void *user)
{
	fprintf(stderr, "dsec: %llu bytes of %s were dropped by the output limit\n", (unsigned long long)(to - from),
		stream == DSEC_STDERR ? "stderr" : "stdout");
	return 0;
}

int session_run(struct session *s, struct dsec_exec_options *o, struct dsec_exec **ret, struct dsec_error *e)
{
	struct running run = { .s = s, .done_fd = eventfd(0, EFD_CLOEXEC) };
	struct dsec_output_callbacks cb = { on_started, on_output, on_gap, &run };
	s->out = s->err = BUF_INIT(SESSION_KEEP_MAX);
	o->stdin_open = s->interactive;
	o->pty = s->terminal;
	if (s->terminal)
		terminal_size(&o->rows, &o->cols);
	if (run.done_fd < 0 || pthread_create(&run.signal_thread, NULL, signal_main, &run)) {
		base_close(run.done_fd);
		snprintf(e->code, sizeof(e->code), "capacity_exhausted");
		snprintf(e->message, sizeof(e->message), "no thread can be started in this program");
		return -EAGAIN;
	}
	if (s->terminal && s->interactive)
		terminal_raw();
	int r = dsec_exec_run(s->client, s->sandbox_id, o, &cb, ret, e);
	if (r < 0 && s->output_broken && atomic_load(&run.started)) /* as a pipe would have done */
		dsec_exec_signal(s->client, s->sandbox_id, run.exec_id, "PIPE", true, NULL);
	atomic_store(&run.done, true);
	(void)!write(run.done_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	dsec_client_interrupt(s->client); /* a piece of input that nobody will read */
	if (run.has_stdin_thread)
		pthread_join(run.stdin_thread, NULL);
	pthread_join(run.signal_thread, NULL);
	terminal_restore();
	base_close(run.done_fd);
	return r;
}

void session_done(struct session *s)
{
	buf_done(&s->out);
	buf_done(&s->err);
}

int signal_number(const char *name)
{
	char *end;
	long n = strtol(name, &end, 10);
	if (*name && !*end)
		return n > 0 && n < NSIG ? (int)n : 0;
	if (!strncmp(name, "SIG", 3))
		name += 3;
	for (int i = 1; i < NSIG; i++) {
		const char *known = sigabbrev_np(i);
		if (known && !strcmp(known, name))
			return i;
	}
	if (!strncmp(name, "RTMIN", 5))
		return SIGRTMIN + atoi(name + 5);
	return 0;
}

int session_status(const struct dsec_exec *x, bool quiet)
{
	if (x->has_exit_code)
		return x->exit_code & 255;
	if (!x->signal)
		return EXIT_NOT_RUN;
	const char *why = x->timed_out ? ", its time limit was over"
			  : x->oom_killed ? ", it ran out of memory"
			  : !strcmp(x->killed_by, "user") ? ", as was asked"
			  : !strcmp(x->killed_by, "sandbox") ? ", its sandbox was stopped" : "";
	if (!quiet)
		fprintf(stderr, "dsec: signal %s ended the command%s\n", x->signal, why);
	return 128 + signal_number(x->signal);
}
