/* One slot's cgroups on this host's layout: made, limited, counted, killed, used again. Needs root. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "kernel/cgroup.h"
#include "kernel/process.h"

#define OUTER 0xEFFF0000u

struct fixture {
	char dir[32], record[64];
	struct cgroup_tree *t;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct dsec_error e = { 0 };
	if (geteuid() != 0) {
		free(f);
		*state = NULL;
		return 0;
	}
	strcpy(f->dir, "/tmp/cgroup-unit-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	snprintf(f->record, sizeof(f->record), "%s/cgroups", f->dir);
	char tag[16];
	snprintf(tag, sizeof(tag), "%08x", 0xabc00000u + (unsigned)getpid());
	if (cgroup_tree_open(tag, f->record, &f->t, &e) < 0) {
		print_error("%s\n", e.message);
		return -1;
	}
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	if (!f)
		return 0;
	for (uint32_t slot = 0; slot < 4; slot++)
		cgroup_remove(f->t, slot);
	int r = cgroup_tree_delete(f->t);
	cgroup_tree_close(f->t);
	struct stat st;
	r |= stat(f->record, &st) == 0; /* nothing is left, so neither is the record */
	rmdir(f->dir);
	free(f);
	return r ? -1 : 0;
}

#define NEEDS_ROOT(state, f)                  \
	struct fixture *f = *(state);         \
	if (!f)                               \
		skip()

/* A child in the slot: PID 1's leaf, or `work` and the v1 groups, as commands are. */
static pid_t child_in(struct cgroup_fds *fds, bool command)
{
	struct clone_request req = { .cgroup_fd = command ? fds->work : fds->chronus };
	int pidfd = -1;
	pid_t pid = clone_copied(&req, &pidfd);
	assert_true(pid >= 0);
	if (!pid) {
		for (int i = 0; command && i < CGROUP_V1_MAX; i++)
			if (fds->v1_tasks[i] >= 0 && write(fds->v1_tasks[i], "0", 1) != 1)
				_exit(1);
		for (;;)
			pause();
	}
	close(pidfd);
	return pid;
}

static void make(struct fixture *f, uint32_t slot, struct cgroup_fds *fds)
{
	assert_int_equal(cgroup_make(f->t, slot, OUTER), 0);
	assert_int_equal(cgroup_open_helper(f->t, slot, fds), 0);
	assert_int_equal(cgroup_enable(f->t, slot), 0);
	assert_int_equal(cgroup_open_fds(f->t, slot, fds), 0);
	assert_true(fds->sandbox >= 0 && fds->chronus >= 0 && fds->work >= 0);
	assert_true(fds->memory_usage >= 0 && fds->memory_stat >= 0);
}

static void test_owned_where_it_must_be(void **state)
{
	NEEDS_ROOT(state, f);
	struct cgroup_fds fds;
	struct stat st;
	make(f, 0, &fds);
	assert_int_equal(fstat(fds.sandbox, &st), 0);
	assert_int_equal(st.st_uid, OUTER);
	assert_int_equal(fstatat(fds.sandbox, "cgroup.procs", &st, 0), 0);
	assert_int_equal(st.st_uid, OUTER);
	assert_int_equal(fstatat(fds.work, "cgroup.procs", &st, 0), 0);
	assert_int_equal(st.st_uid, OUTER);
	assert_int_equal(fstatat(fds.work, "cgroup.subtree_control", &st, 0), 0);
	assert_int_equal(st.st_uid, 0); /* what it may use is ours to say */
	if (!fstatat(fds.work, "memory.max", &st, 0))
		assert_int_equal(st.st_uid, 0);
	cgroup_close_fds(&fds);
}

static void test_limit_count_kill_and_again(void **state)
{
	NEEDS_ROOT(state, f);
	struct cgroup_limits limits = { .cpu_millis = 500, .memory_bytes = 32 << 20, .pids = 4 };
	struct cgroup_fds fds;
	struct cgroup_usage u;
	make(f, 1, &fds);
	assert_int_equal(cgroup_limit(f->t, 1, &limits), 0);
	pid_t one = child_in(&fds, false), command = child_in(&fds, true);
	usleep(20000); /* it joins the v1 groups by itself */
	assert_true(cgroup_populated(f->t, 1));
	assert_int_equal(cgroup_usage(f->t, 1, &u), 0);
	assert_int_equal(u.pids, 1); /* PID 1 is not counted */
	assert_int_equal(u.oom_kills, 0);
	assert_true(u.memory_peak_bytes <= limits.memory_bytes);
	assert_int_equal(cgroup_recycle(f->t, 1), -EBUSY); /* somebody lives in it */
	assert_int_equal(cgroup_kill(f->t, 1), 0);
	int status;
	assert_int_equal(waitpid(one, &status, 0), one);
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_int_equal(waitpid(command, &status, 0), command);
	assert_int_equal(WTERMSIG(status), SIGKILL);
	cgroup_close_fds(&fds);
	int r = -EBUSY;
	for (int i = 0; i < 100 && r == -EBUSY; i++, usleep(10000))
		r = cgroup_recycle(f->t, 1);
	assert_int_equal(r, 0);
	assert_false(cgroup_populated(f->t, 1));
	make(f, 1, &fds);
	assert_int_equal(cgroup_limit(f->t, 1, &limits), 0);
	assert_int_equal(cgroup_usage(f->t, 1, &u), 0);
	assert_int_equal(u.cpu_usec, 0);
	assert_int_equal(u.pids, 0);
	cgroup_close_fds(&fds);
}

static void test_limits_may_grow_and_shrink(void **state)
{
	NEEDS_ROOT(state, f);
	struct cgroup_fds fds;
	make(f, 2, &fds);
	static const uint64_t sizes[] = { 64 << 20, 16 << 20, 256 << 20, 4 << 20 };
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct cgroup_limits l = { .cpu_millis = i ? 0 : 100, .memory_bytes = sizes[i], .pids = (uint32_t)i + 1 };
		assert_int_equal(cgroup_limit(f->t, 2, &l), 0);
	}
	cgroup_close_fds(&fds);
}

static void count_slot(uint32_t slot, void *user)
{
	((unsigned *)user)[slot]++;
}

static void test_found_again(void **state)
{
	NEEDS_ROOT(state, f);
	unsigned seen[CGROUP_SLOTS_MAX] = { 0 };
	assert_int_equal(cgroup_make(f->t, 0, OUTER), 0);
	assert_int_equal(cgroup_make(f->t, 3, OUTER), 0);
	struct cgroup_tree *t = NULL;
	struct dsec_error e = { 0 };
	/* Another tag: the record wins as long as its directories are there. */
	assert_int_equal(cgroup_tree_open("ffffffff", f->record, &t, &e), 0);
	assert_int_equal(cgroup_each_slot(t, count_slot, seen), 0);
	assert_true(seen[0] && seen[3] && !seen[1]);
	cgroup_tree_close(t);
	assert_int_equal(cgroup_remove(f->t, 0), 0);
	assert_int_equal(cgroup_remove(f->t, 3), 0);
	assert_int_equal(cgroup_remove(f->t, 3), 0); /* absent is success */
	assert_int_equal(cgroup_kill(f->t, 3), 0);
	memset(seen, 0, sizeof(seen));
	assert_int_equal(cgroup_each_slot(f->t, count_slot, seen), 0);
	assert_false(seen[0] || seen[3]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_owned_where_it_must_be, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limit_count_kill_and_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limits_may_grow_and_shrink, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_found_again, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
