/* cleanup_main.c: `dsecd cleanup` and `dsecd down`. See supervisor.h.
 *
 * down asks a living supervisor to end and waits for it; when there is none it
 * does the work itself: ends the programs by their pid files (politely, so that an
 * edge stops its sandboxes) and sweeps the kernel. cleanup is the second half
 * alone, and refuses while a supervisor lives.
 */
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/log.h"
#include "dsecd/ending.h"
#include "dsecd/pidfile.h"
#include "dsecd/state.h"
#include "dsecd/supervisor.h"
#include "dsecd/sweep.h"
#include "kernel/process.h"

/* All graces of ending.h, each with its kill, and the sweep. */
#define DOWN_WAIT_MS 90000

static int parse(const char *verb, int argc, char **argv, const char **ret_dir, bool *ret_json)
{
	static const struct option table[] = { { "state-dir", required_argument, NULL, 's' },
					       { "json", no_argument, NULL, 'j' },
					       { "help", no_argument, NULL, 'h' },
					       { 0 } };
	const char *env = getenv("DSEC_STATE_DIR");
	*ret_dir = env && *env ? env : STATE_DIR_DEFAULT;
	optind = 0;
	for (int c; (c = getopt_long(argc, argv, "+h", table, NULL)) >= 0;) {
		if (c == 's')
			*ret_dir = optarg;
		else if (c == 'j')
			*ret_json = true;
		else if (c == 'h') {
			printf("usage: dsecd %s [--state-dir DIR] [--json]\n", verb);
			return 1;
		} else
			return -EINVAL;
	}
	if (optind < argc) {
		fprintf(stderr, "dsecd %s: \"%s\" is not understood\n", verb, argv[optind]);
		return -EINVAL;
	}
	if (geteuid()) {
		fprintf(stderr, "dsecd %s: needs root; run it with sudo\n", verb);
		return -EPERM;
	}
	return 0;
}

/* was_running: what had been started was there until now. */
static void tell(const char *verb, const char *dir, bool json, bool was_running, int swept)
{
	if (json) {
		json_t *o = json_pack("{s:s,s:b}", "state_dir", dir, "was_running", was_running);
		if (o && !json_dumpf(o, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER))
			putchar('\n');
		json_decref(o);
	} else if (was_running)
		fprintf(stderr, "dsecd %s: the platform of %s has ended\n", verb, dir);
	else if (!swept)
		fprintf(stderr, "dsecd %s: nothing was running in %s\n", verb, dir);
}

static int clean(struct state *s, const char *verb, bool json, bool was_running)
{
	int holder = 0;
	int r = state_lock(s, &holder);
	if (r == -EBUSY) {
		fprintf(stderr, "dsecd %s: a supervisor (pid %d) serves %s\n", verb, holder, s->dir);
		return 1;
	}
	int ended = r < 0 ? r : ending_of_earlier(s, true, -1);
	if (ended < 0) {
		fprintf(stderr, "dsecd %s: cannot end the programs of %s: %s\n", verb, s->dir, strerror(-ended));
		return 1;
	}
	int swept = sweep(s);
	if (ended || swept)
		log_info("ended %d program(s), removed %d leftover(s) of %s", ended, swept, s->dir);
	pidfile_remove(s->run_dir, "up");
	tell(verb, s->dir, json, was_running || ended, swept);
	return 0;
}

static int open_state(const char *verb, const char *dir, bool json, struct state *s)
{
	int r = state_open(dir, false, s);
	if (!r && access(s->run_dir, F_OK) < 0)
		r = -errno;
	if (r == -ENOENT && json)
		tell(verb, dir, true, false, 0);
	else if (r == -ENOENT)
		fprintf(stderr, "dsecd %s: nothing was ever started in %s\n", verb, dir);
	else if (r < 0)
		fprintf(stderr, "dsecd %s: %s: %s\n", verb, dir, strerror(-r));
	return r;
}

int cleanup_main(int argc, char **argv)
{
	_cleanup_state_ struct state s = STATE_INIT;
	const char *dir;
	bool json = false;
	log_init("cleanup");
	int r = parse("cleanup", argc, argv, &dir, &json);
	if (r)
		return r == -EINVAL ? 2 : r < 0;
	r = open_state("cleanup", dir, json, &s);
	return r < 0 ? r != -ENOENT : clean(&s, "cleanup", json, false);
}

int down_main(int argc, char **argv)
{
	_cleanup_state_ struct state s = STATE_INIT;
	const char *dir;
	bool json = false;
	log_init("down");
	int r = parse("down", argc, argv, &dir, &json);
	if (r)
		return r == -EINVAL ? 2 : r < 0;
	r = open_state("down", dir, json, &s);
	if (r < 0)
		return r != -ENOENT; /* nothing to end is what was asked for */
	pid_t pid = 0;
	_cleanup_close_ int fd = pidfile_open(s.run_dir, "up", &pid);
	bool was_running = fd >= 0 && !pidfd_kill(fd, SIGTERM);
	if (was_running) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		if (poll(&p, 1, DOWN_WAIT_MS) != 1) {
			fprintf(stderr, "dsecd down: the supervisor (pid %d) has not ended after %d s; see %s/up.log\n",
				(int)pid, DOWN_WAIT_MS / 1000, s.log_dir);
			return 1;
		}
	}
	return clean(&s, "down", json, was_running);
}
