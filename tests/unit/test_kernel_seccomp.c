/* The broad filter: refuses what it lists, lets the rest through, is inherited.
 * Each case is a child, since a filter cannot be taken off again. */
#include "unit.h"
#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "kernel/seccomp.h"

/* Wait status of body() in a child, with the filter or without. */
static int in_child(int (*body)(void), bool filter)
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (filter && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load_broad() < 0))
			_exit(99);
		_exit(body());
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* errno of calls with arguments that the kernel itself would never refuse by EPERM. */
static int call_bpf(void)
{
	return syscall(SYS_bpf, -1, NULL, 0) < 0 ? errno : 0;
}

static int call_uring(void)
{
	return syscall(SYS_io_uring_setup, 0, NULL) < 0 ? errno : 0;
}

static int call_last_of_the_list(void)
{
	return syscall(SYS_fanotify_init, ~0u, 0) < 0 ? errno : 0;
}

static int call_umount(void)
{
	return umount2("/nowhere/at/all", 0) < 0 ? errno : 0;
}

static int call_of_a_child(void)
{
	pid_t pid = fork();
	if (!pid)
		_exit(call_uring());
	int status = 0;
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static int call_x32(void)
{
	return syscall(0x40000000 | SYS_getpid) < 0 ? errno : 0;
}

/* getpid by the i386 table; the result is a negative errno. */
static int call_i386(void)
{
	long r = 20;
	__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	return r < 0 ? (int)-r : 0;
}

static void test_i386_is_not_there(void **state)
{
	int with = in_child(call_i386, true);
	assert_true(WIFEXITED(with));
	assert_int_equal(WEXITSTATUS(with), ENOSYS);
}

static void test_refuses(void **state)
{
	int (*const calls[])(void) = { call_bpf, call_uring, call_last_of_the_list, call_of_a_child, call_x32 };
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		int with = in_child(calls[i], true), without = in_child(calls[i], false);
		assert_true(WIFEXITED(with));
		assert_int_equal(WEXITSTATUS(with), EPERM);
		assert_int_not_equal(WEXITSTATUS(without), EPERM); /* it is the filter that refused */
	}
}

static void test_lets_through(void **state)
{
	assert_int_equal(WEXITSTATUS(in_child(call_umount, true)), WEXITSTATUS(in_child(call_umount, false)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_lets_through),
		cmocka_unit_test(test_i386_is_not_there),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
