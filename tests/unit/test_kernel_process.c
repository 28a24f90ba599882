/* Children by clone3 in both ways, and telling a process from a later one. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "kernel/process.h"

#define STACK 65536

static int proc_open(void)
{
	int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static int set_seven(void *arg)
{
	*(volatile int *)arg = 7;
	return 5;
}

static void test_shared_memory_and_status(void **state)
{
	int *result = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 100; i++) { /* again and again on one stack */
		struct clone_request req = { .cgroup_fd = -1, .stack = stack, .stack_size = STACK };
		int pidfd = -1, status = 0;
		*result = 0;
		pid_t pid = clone_shared(&req, set_seven, result, &pidfd);
		assert_true(pid > 0);
		assert_true(pidfd >= 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(*result, 7);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 5);
		assert_int_equal(fcntl(pidfd, F_GETFD), FD_CLOEXEC);
		close(pidfd);
	}
	munmap(result, 4096);
	munmap(stack, STACK);
}

static void test_copied_and_killed(void **state)
{
	struct clone_request req = { .cgroup_fd = -1 };
	int pidfd = -1, status;
	pid_t pid = clone_copied(&req, &pidfd);
	assert_true(pid >= 0);
	if (!pid)
		for (;;)
			pause();
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(pidfd_kill(pidfd, SIGKILL), 0);
	assert_int_equal(poll(&p, 1, 5000), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WTERMSIG(status), SIGKILL);
	assert_int_equal(pidfd_kill(pidfd, SIGKILL), -ESRCH);
	close(pidfd);
}

static void test_clone_failure_is_an_errno(void **state)
{
	struct clone_request req = { .cgroup_fd = 0 }; /* no cgroup directory */
	int pidfd = -1;
	assert_true(clone_copied(&req, &pidfd) < 0);
	assert_int_equal(pidfd, -1);
}

static void test_identity(void **state)
{
	_cleanup_close_ int proc = proc_open();
	uint64_t ticks = 0, again = 0;
	prctl(PR_SET_NAME, "a) b (c 1 2"); /* the name field of stat */
	assert_int_equal(process_start_ticks(proc, getpid(), &ticks), 0);
	prctl(PR_SET_NAME, "plain");
	assert_int_equal(process_start_ticks(proc, getpid(), &again), 0);
	assert_true(ticks > 0);
	assert_int_equal(ticks, again);
	assert_true(process_is(proc, getpid(), ticks));
	assert_false(process_is(proc, getpid(), ticks + 1));
	assert_false(process_is(proc, 0, ticks));
	assert_false(process_is(proc, -1, ticks));
	assert_int_equal(process_start_ticks(proc, 1 << 30, &again), -ESRCH);
}

static void test_zombie_is_not_alive(void **state)
{
	_cleanup_close_ int proc = proc_open();
	struct clone_request req = { .cgroup_fd = -1 };
	_cleanup_close_ int pidfd = -1;
	pid_t pid = clone_copied(&req, &pidfd);
	if (!pid)
		_exit(0);
	struct pollfd p = { .fd = pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 5000), 1);
	uint64_t ticks;
	assert_int_equal(process_start_ticks(proc, pid, &ticks), 0);
	assert_false(process_is(proc, pid, ticks));
	waitpid(pid, NULL, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared_memory_and_status), cmocka_unit_test(test_copied_and_killed),
		cmocka_unit_test(test_clone_failure_is_an_errno), cmocka_unit_test(test_identity),
		cmocka_unit_test(test_zombie_is_not_alive),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
