/* ending.c: see ending.h. */
#include "dsecd/ending.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "kernel/process.h"

/* Together below the minute that callers of `dsec down` are promised. */
unsigned ending_grace_ms(enum program_phase phase)
{
	switch (phase) {
	case PHASE_APISERVER:
		return 5000;
	case PHASE_EDGE:
		return 30000;
	case PHASE_MOUNTER:
		return 10000;
	default:
		return 3000;
	}
}

/* The number of processes that live on after at most wait_ms. */
static size_t wait_for_end(const int *pidfds, size_t n, unsigned wait_ms, int signal_fd, bool *gone)
{
	struct pollfd polls[PIDFILE_COUNT_MAX + 1];
	uint64_t deadline = now_mono_ms() + wait_ms;
	for (;;) {
		size_t left = 0;
		for (size_t i = 0; i < n; i++)
			if (!gone[i])
				polls[left++] = (struct pollfd){ .fd = pidfds[i], .events = POLLIN };
		uint64_t now = now_mono_ms();
		if (!left || now >= deadline)
			return left;
		polls[left] = (struct pollfd){ .fd = signal_fd, .events = POLLIN }; /* -1 is skipped */
		if (poll(polls, left + 1, (int)(deadline - now)) < 0 && errno != EINTR)
			return left;
		for (size_t i = 0, k = 0; i < n; i++)
			if (!gone[i] && polls[k++].revents)
				gone[i] = true;
		if (polls[left].revents)
			return left;
	}
}

int ending_of(const int *pidfds, size_t n, int sig, unsigned grace_ms, int signal_fd)
{
	bool gone[PIDFILE_COUNT_MAX] = { 0 };
	if (n > PIDFILE_COUNT_MAX)
		return -E2BIG;
	for (size_t i = 0; i < n; i++)
		gone[i] = pidfds[i] < 0 || pidfd_kill(pidfds[i], sig) == -ESRCH;
	wait_for_end(pidfds, n, sig == SIGKILL ? 0 : grace_ms, signal_fd, gone);
	int killed = 0;
	for (size_t i = 0; i < n; i++)
		if (!gone[i] && !pidfd_kill(pidfds[i], SIGKILL))
			killed++;
	return wait_for_end(pidfds, n, ENDING_KILL_WAIT_MS, -1, gone) ? -ETIMEDOUT : killed;
}

struct found {
	const struct state *s;
	enum program_phase phase;
	int fds[PIDFILE_COUNT_MAX];
	char names[PIDFILE_COUNT_MAX][PIDFILE_NAME_MAX + 1];
	size_t n;
};

static enum program_phase phase_of(const char *name)
{
	if (!strcmp(name, "apiserver"))
		return PHASE_APISERVER;
	if (!strncmp(name, "edge-", 5))
		return PHASE_EDGE;
	if (!strncmp(name, "spawner-", 8))
		return PHASE_SPAWNER;
	if (!strcmp(name, "mounter"))
		return PHASE_MOUNTER;
	return PHASE_COUNT; /* not a program that the supervisor starts */
}

static int collect(const char *name, void *user)
{
	struct found *f = user;
	if (phase_of(name) != f->phase)
		return 0;
	int fd = pidfile_open(f->s->run_dir, name, NULL);
	if (fd < 0 && fd != -ESRCH)
		return fd;
	f->fds[f->n] = fd;
	strcpy(f->names[f->n++], name);
	return 0;
}

int ending_of_earlier(const struct state *s, bool gently, int signal_fd)
{
	_cleanup_free_ struct found *f = malloc(sizeof(*f));
	if (!f)
		return -ENOMEM;
	int total = 0, r = 0;
	for (int phase = PHASE_COUNT - 1; phase >= 0 && r >= 0; phase--) {
		f->s = s;
		f->phase = (enum program_phase)phase;
		f->n = 0;
		r = pidfile_each(s->run_dir, collect, f);
		int killed = r < 0 ? 0
				   : ending_of(f->fds, f->n, gently ? SIGTERM : SIGKILL,
					       ending_grace_ms(f->phase), signal_fd);
		for (size_t i = 0; i < f->n; i++) {
			total += f->fds[i] >= 0;
			base_close(f->fds[i]);
			if (r >= 0 && killed >= 0)
				pidfile_remove(s->run_dir, f->names[i]);
		}
		if (gently && killed > 0)
			log_warn("%d program(s) did not end in time and were killed", killed);
		r = r < 0 ? r : killed;
	}
	return r < 0 ? r : total;
}
