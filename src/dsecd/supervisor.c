/* supervisor.c: the life of `dsecd up`. See supervisor.h.
 *
 * Theory of operation. One thread around one poll(2). Each program is a small
 * state machine (program.h); `open_phase` is the highest phase that may run, and
 * moves on when every program of it has been ready once. After the last phase the
 * platform is announced (run/url, the detached caller). A death at any time means
 * back-off and a new start of that program alone: the others reconnect by
 * themselves.
 *  1. Programs never depend on the supervisor: own session, output to a file, no
 *     parent-death signal. kill -9 of the supervisor changes nothing for clients.
 *  2. A supervisor that starts on a used state directory first ends what an earlier
 *     one left (pid file + start ticks + boot id), by SIGKILL: every program is
 *     built to be killed, and an edge that is asked politely would stop its
 *     sandboxes. The new edge adopts them.
 *  3. On the way out everything is ended in the opposite order, then swept
 *     (sweep.h), so that nothing is left in the kernel whoever failed.
 *  4. A program that dies START_TRIES times before it was ever ready makes `up`
 *     fail with the end of its log, but only before the announcement: afterwards
 *     a broken program is retried for ever.
 */
#include "dsecd/supervisor.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "dsecd/detach.h"
#include "dsecd/ending.h"
#include "dsecd/options.h"
#include "dsecd/plan.h"
#include "dsecd/readiness.h"
#include "dsecd/sweep.h"
#include "kernel/process.h"

#define START_TRIES 5
#define READY_LOOK_MS 20  /* between two looks at a program that is starting */
#define IDLE_LOOK_MS 2000 /* between two looks at the logs */

struct supervisor {
	struct state state;
	struct plan plan;
	struct up_options options;
	int signal_fd;
	int ready_fd; /* detached: the parent waits here; -1 afterwards */
	int open_phase;
	bool announced;
	struct program *broken; /* why `up` gives up */
};

static void start_program(struct supervisor *u, struct program *p)
{
	int r = program_start(p, &u->state);
	if (r < 0)
		log_error("cannot start %s: %s", p->name, strerror(-r));
	else
		log_debug("started %s, pid %d", p->name, (int)p->pid);
}

static void drive_program(struct supervisor *u, struct program *p, uint64_t now)
{
	switch (p->state) {
	case PROGRAM_IDLE:
		start_program(u, p);
		break;
	case PROGRAM_STARTING:
		if (program_check_ready(p))
			log_info("%s is ready, pid %d", p->name, (int)p->pid);
		else if (now - p->since_ms > PROGRAM_START_LIMIT_MS) {
			log_error("%s is not ready after %d s: killed", p->name, PROGRAM_START_LIMIT_MS / 1000);
			pidfd_kill(p->pidfd, SIGKILL);
		}
		break;
	case PROGRAM_BACKOFF:
		if (now >= p->retry_at_ms)
			start_program(u, p);
		break;
	case PROGRAM_READY:
		break;
	}
	if (!u->announced && p->deaths_before_ready >= START_TRIES)
		u->broken = p;
}

static void announce(struct supervisor *u)
{
	char host[LISTEN_HOST_MAX], port[6];
	_cleanup_free_ char *url = NULL;
	listen_split(u->options.listen, host, port);
	const char *reach = !strcmp(host, "0.0.0.0") ? "127.0.0.1" : !strcmp(host, "::") ? "::1" : host;
	bool v6 = strchr(reach, ':');
	int n = asprintf(&url, "http://%s%s%s:%s\n", v6 ? "[" : "", reach, v6 ? "]" : "", port);
	if (n < 0) {
		url = NULL;
		return;
	}
	int r = write_file_atomic(AT_FDCWD, u->state.url_file, url, (size_t)n, 0600);
	if (r < 0)
		log_error("cannot write %s: %s", u->state.url_file, strerror(-r));
	log_info("the platform is ready at %.*s, state in %s", n - 1, url, u->state.dir);
	if (u->ready_fd >= 0) {
		(void)!write(u->ready_fd, url, (size_t)n);
		u->ready_fd = base_close(u->ready_fd);
	} else if (u->options.json) {
		ready_print(&u->state, url, true);
		fflush(stdout); /* whoever reads it waits for it, and we stay */
	}
	u->announced = true;
}

/* One pass over all programs; the milliseconds until the next one is due. */
static int drive(struct supervisor *u)
{
	uint64_t now = now_mono_ms(), due = now + IDLE_LOOK_MS;
	bool all_ready = true;
	for (unsigned i = 0; i < u->plan.n && !u->broken; i++) {
		struct program *p = &u->plan.programs[i];
		if ((int)p->phase > u->open_phase)
			continue;
		drive_program(u, p, now);
		if (p->state != PROGRAM_READY)
			all_ready = false;
		if (p->state == PROGRAM_STARTING)
			due = MIN(due, now + READY_LOOK_MS);
		if (p->state == PROGRAM_BACKOFF)
			due = MIN(due, p->retry_at_ms);
	}
	if (all_ready && u->open_phase < PHASE_COUNT) {
		u->open_phase++;
		due = now;
	}
	if (u->open_phase == PHASE_COUNT && !u->announced)
		announce(u);
	now = now_mono_ms();
	return due > now ? (int)(due - now) : 0;
}

static void rotate_logs(struct supervisor *u, uint64_t *last_ms)
{
	uint64_t now = now_mono_ms();
	if (now - *last_ms < IDLE_LOOK_MS)
		return;
	*last_ms = now;
	for (unsigned i = 0; i < u->plan.n; i++)
		log_rotate(u->plan.programs[i].log_path, PROGRAM_LOG_MAX_BYTES);
	if (u->options.detach)
		log_rotate(u->plan.own_log, PROGRAM_LOG_MAX_BYTES);
}

static void reap(struct supervisor *u, struct program *p)
{
	char how[64];
	program_reap(p, &u->state, how, sizeof(how));
	log_warn("%s %s, next start in %u ms (log: %s)", p->name, how, p->backoff_ms, p->log_path);
}

/* Until a signal says stop (0) or a program cannot be started (-1). */
static int run(struct supervisor *u)
{
	struct pollfd polls[PLAN_PROGRAMS_MAX + 1];
	struct program *of[PLAN_PROGRAMS_MAX];
	uint64_t logs_ms = 0;
	for (;;) {
		int wait_ms = drive(u);
		if (u->broken)
			return -1;
		rotate_logs(u, &logs_ms);
		nfds_t n = 0;
		for (unsigned i = 0; i < u->plan.n; i++)
			if (u->plan.programs[i].pidfd >= 0) {
				of[n] = &u->plan.programs[i];
				polls[n] = (struct pollfd){ .fd = of[n]->pidfd, .events = POLLIN };
				n++;
			}
		polls[n] = (struct pollfd){ .fd = u->signal_fd, .events = POLLIN };
		if (poll(polls, n + 1, wait_ms) < 0 && errno != EINTR)
			return -1;
		for (nfds_t i = 0; i < n; i++)
			if (polls[i].revents)
				reap(u, of[i]);
		struct signalfd_siginfo si;
		if (polls[n].revents && read(u->signal_fd, &si, sizeof(si)) == sizeof(si)) {
			log_info("signal %u: ending the platform", si.ssi_signo);
			return 0;
		}
	}
}

static void stop_all(struct supervisor *u)
{
	unlink(u->state.url_file);
	for (int phase = PHASE_COUNT - 1; phase >= 0; phase--) {
		int fds[PLAN_PROGRAMS_MAX];
		struct program *of[PLAN_PROGRAMS_MAX];
		size_t n = 0;
		for (unsigned i = 0; i < u->plan.n; i++) {
			struct program *p = &u->plan.programs[i];
			if ((int)p->phase == phase && p->pidfd >= 0) {
				of[n] = p;
				fds[n++] = p->pidfd;
			}
		}
		int killed = ending_of(fds, n, SIGTERM, ending_grace_ms((enum program_phase)phase), u->signal_fd);
		if (killed)
			log_warn("%s: %s", of[0]->name, killed < 0 ? "does not end even when killed" : "did not end in time, killed");
		for (size_t i = 0; i < n && killed >= 0; i++) {
			char how[64];
			program_reap(of[i], &u->state, how, sizeof(how));
			log_debug("%s %s", of[i]->name, how);
		}
	}
}

/* The end of the log of what does not start, for whoever typed `up`. */
static void tell_broken(const struct supervisor *u)
{
	char text[2048];
	const struct program *p = u->broken;
	fprintf(stderr, "dsecd up: %s does not start; the end of %s:\n", p->name, p->log_path);
	_cleanup_close_ int fd = open(p->log_path, O_RDONLY | O_CLOEXEC);
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	off_t from = MAX(p->log_start, size - (off_t)sizeof(text));
	ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text), from);
	if (n > 0)
		fwrite(text, 1, (size_t)n, stderr);
}

/* Somebody else's server there would answer our readiness probe. */
static int check_listen(const char *listen)
{
	char host[LISTEN_HOST_MAX], port[6];
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *list;
	listen_split(listen, host, port);
	if (getaddrinfo(host, port, &hints, &list))
		return -EADDRNOTAVAIL;
	int r = -EADDRNOTAVAIL, one = 1;
	_cleanup_close_ int fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		r = bind(fd, list->ai_addr, list->ai_addrlen) < 0 ? -errno : 0;
	}
	freeaddrinfo(list);
	return r;
}

static int open_signals(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static void raise_open_files(void)
{
	struct rlimit l;
	if (!getrlimit(RLIMIT_NOFILE, &l) && l.rlim_cur < l.rlim_max) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l); /* best effort: doctor tells when it is low */
	}
}

/* The state directory, its lock, what earlier runs left, the key, the plan. */
static int prepare(struct supervisor *u)
{
	int holder = 0;
	int r = state_open(u->options.state_dir, true, &u->state);
	if (r < 0) {
		log_error("cannot use the state directory %s: %s", u->options.state_dir,
			  r == -EPERM ? "it is open to other users and holds other things" : strerror(-r));
		return r;
	}
	(void)!chdir("/"); /* keep nobody's mount busy */
	r = state_lock(&u->state, &holder);
	if (r < 0) {
		if (r == -EBUSY)
			log_error("a supervisor (pid %d) already serves %s; `dsec down` ends it", holder, u->state.dir);
		else
			log_error("cannot lock %s: %s", u->state.run_dir, strerror(-r));
		return r;
	}
	r = ending_of_earlier(&u->state, false, -1);
	if (r > 0)
		log_info("took over from an earlier supervisor: ended its %d program(s)", r);
	if (r >= 0 && state_is_of_earlier_boot(&u->state))
		sweep(&u->state);
	if (r >= 0)
		r = state_record_boot(&u->state);
	r = r < 0 ? r : state_make_key(&u->state);
	r = r < 0 ? r : pidfile_write(u->state.run_dir, "up", getpid());
	if (r < 0) {
		log_error("cannot prepare %s: %s", u->state.dir, strerror(-r));
		return r;
	}
	r = check_listen(u->options.listen);
	if (r < 0) {
		log_error("cannot listen on %s: %s%s", u->options.listen, strerror(-r),
			  r == -EADDRINUSE ? "; --listen HOST:PORT chooses another" : "");
		return r;
	}
	return plan_make(&u->plan, &u->state, &u->options);
}

int supervisor_main(int argc, char **argv)
{
	struct supervisor u = { .state = STATE_INIT, .signal_fd = -1, .ready_fd = -1 };
	log_init("up");
	if (up_options_parse(argc, argv, &u.options) < 0)
		return 2;
	if (u.options.help) {
		up_options_help();
		return 0;
	}
	if (geteuid()) {
		fprintf(stderr, "dsecd up: making sandboxes needs root; run it with sudo\n");
		return 1;
	}
	umask(077);
	if (u.options.detach) {
		int status = detach(u.options.state_dir, u.options.json, &u.ready_fd);
		if (status >= 0)
			return status; /* the caller's side */
	}
	raise_open_files();
	u.signal_fd = open_signals();
	int r = u.signal_fd < 0 ? u.signal_fd : prepare(&u);
	if (!r) {
		r = run(&u);
		if (u.broken)
			tell_broken(&u);
		stop_all(&u);
		sweep(&u.state);
		log_info("ended");
	}
	if (u.state.lock_fd >= 0)
		pidfile_remove(u.state.run_dir, "up");
	plan_done(&u.plan);
	base_close(u.ready_fd);
	base_close(u.signal_fd);
	state_done(&u.state);
	return r < 0 ? 1 : 0;
}
