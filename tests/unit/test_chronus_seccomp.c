/* The strict filter: run here instruction by instruction over every system call,
 * and loaded for real in a child. */
#include "unit.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "base/cleanup.h"
#include "chronus/chronus-internal.h"

#define DENIED (SECCOMP_RET_ERRNO | EPERM)
#define ABSENT (SECCOMP_RET_ERRNO | ENOSYS)

static struct sock_filter program[SECCOMP_PROGRAM_MAX];
static int length;
static unsigned steps; /* of the last run */

/* Classic BPF as the kernel runs it, for the instructions the generator uses. */
static uint32_t run3(uint32_t arch, uint32_t nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
	struct seccomp_data d = { .nr = (int)nr, .arch = arch, .args = { a0, a1, a2 } };
	uint32_t acc = 0;
	steps = 0;
	for (int pc = 0; pc < length; pc++) {
		const struct sock_filter *f = &program[pc];
		steps++;
		switch (f->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			assert_true(f->k + 4 <= sizeof(d));
			memcpy(&acc, (char *)&d + f->k, 4);
			break;
		case BPF_JMP | BPF_JA:
			pc += (int)f->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			pc += acc >= f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JEQ | BPF_K:
			pc += acc == f->k ? f->jt : f->jf;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			pc += acc & f->k ? f->jt : f->jf;
			break;
		case BPF_RET | BPF_K:
			return f->k;
		default:
			fail_msg("instruction %#x", f->code);
		}
	}
	fail_msg("ran off the end");
	return 0;
}

static uint32_t run(uint32_t arch, uint32_t nr, uint64_t a0, uint64_t a1)
{
	return run3(arch, nr, a0, a1, 0);
}

static uint32_t call(uint32_t nr, uint64_t a0, uint64_t a1)
{
	return run(AUDIT_ARCH_X86_64, nr, a0, a1);
}

static const uint32_t denied[] = {
	SYS_syslog, SYS_vhangup, SYS_pivot_root, SYS_acct, SYS_settimeofday, SYS_mount, SYS_umount2, SYS_swapon, SYS_swapoff,
	SYS_reboot, SYS_iopl, SYS_ioperm, SYS_init_module, SYS_delete_module, SYS_quotactl, SYS_clock_settime, SYS_kexec_load,
	SYS_add_key, SYS_request_key, SYS_keyctl, SYS_perf_event_open, SYS_open_by_handle_at, SYS_setns, SYS_finit_module,
	320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 442, 443, 134, 139, 174, 177, 178, 180, 212,
};
static const uint32_t special[] = { SYS_ioctl, SYS_socket, SYS_socketpair, SYS_setsockopt, SYS_clone,
				    SYS_unshare, 137, 138, 156, 435 };

static bool in(const uint32_t *list, size_t n, uint32_t v)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == v)
			return true;
	return false;
}

static void test_every_call(void **state)
{
	for (int notify = 0; notify < 2; notify++) {
		length = seccomp_build(program, SECCOMP_PROGRAM_MAX, notify);
		assert_true(length > 0);
		for (uint32_t nr = 0; nr < 1000; nr++) {
			if (in(special, ARRAY_SIZE(special), nr))
				continue;
			uint32_t want = nr > 466 ? ABSENT : in(denied, ARRAY_SIZE(denied), nr) ? DENIED : SECCOMP_RET_ALLOW;
			if (call(nr, 0, 0) != want)
				fail_msg("call %u: %#x, not %#x", nr, call(nr, 0, 0), want);
			assert_true(steps <= 14);
		}
		assert_int_equal(call(137, 0, 0), notify ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW);
		assert_int_equal(call(138, 0, 0), notify ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ALLOW);
		assert_int_equal(call(156, 0, 0), ABSENT);
		assert_int_equal(call(435, 0, 0), ABSENT);
	}
	assert_true(length < 256);
}

static void test_other_architectures(void **state)
{
	length = seccomp_build(program, SECCOMP_PROGRAM_MAX, true);
	for (uint32_t nr = 0; nr < 500; nr++) {
		assert_int_equal(run(AUDIT_ARCH_I386, nr, 0, 0), ABSENT);
		assert_int_equal(call(0x40000000 + nr, 0, 0), ABSENT);
		assert_int_equal(call(0xffffffff - nr, 0, 0), ABSENT);
	}
}

static void test_arguments(void **state)
{
	static const uint64_t ns[] = { 0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000 };
	length = seccomp_build(program, SECCOMP_PROGRAM_MAX, true);
	for (size_t i = 0; i < ARRAY_SIZE(ns); i++) {
		assert_int_equal(call(SYS_clone, ns[i] | 17, 0), DENIED);
		assert_int_equal(call(SYS_unshare, ns[i], 0), DENIED);
		assert_int_equal(call(SYS_unshare, ns[i] | 0x400, 0), DENIED);
	}
	assert_int_equal(call(SYS_unshare, 0x80, 0), DENIED);                      /* time */
	assert_int_equal(call(SYS_unshare, 0x600, 0), SECCOMP_RET_ALLOW);          /* FILES, FS */
	assert_int_equal(call(SYS_clone, 0x3d0f00, 0), SECCOMP_RET_ALLOW);         /* a thread */
	assert_int_equal(call(SYS_clone, 17, 0), SECCOMP_RET_ALLOW);               /* fork */
	static const uint64_t cmds[] = { 0x5412, 0x541c, 0x5423, 0xc0c0586d };
	for (size_t i = 0; i < ARRAY_SIZE(cmds); i++) {
		assert_int_equal(call(SYS_ioctl, 0, cmds[i]), DENIED);
		/* The kernel looks at 32 bits of it: so does the filter. */
		assert_int_equal(call(SYS_ioctl, 0, cmds[i] | 0xdead00000000), DENIED);
	}
	assert_int_equal(call(SYS_ioctl, 0, 0x5401), SECCOMP_RET_ALLOW);
	assert_int_equal(call(SYS_ioctl, 0x5412, 0x5413), SECCOMP_RET_ALLOW);
}

static void test_sockets(void **state)
{
	static const uint32_t families[] = { 1, 2, 10, 16, 17 }; /* unix, inet, inet6, netlink, packet */
	static const uint32_t netlink[] = { 0, 4, 9, 16 }, inet[] = { 0, 1, 6, 17, 58, 136, 255, 262 };
	length = seccomp_build(program, SECCOMP_PROGRAM_MAX, true);
	for (uint32_t i = 0; i < 300; i++) {
		uint32_t want = in(families, ARRAY_SIZE(families), i) ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EAFNOSUPPORT;
		assert_int_equal(call(SYS_socket, i, 0), want);
		assert_int_equal(call(SYS_socketpair, i, 0), want);
		want = in(netlink, ARRAY_SIZE(netlink), i) ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPROTONOSUPPORT;
		assert_int_equal(run3(AUDIT_ARCH_X86_64, SYS_socket, 16, 3, i), want);
		want = in(inet, ARRAY_SIZE(inet), i) ? SECCOMP_RET_ALLOW : SECCOMP_RET_ERRNO | EPROTONOSUPPORT;
		assert_int_equal(run3(AUDIT_ARCH_X86_64, SYS_socket, 2, 1, i), want);
		assert_int_equal(run3(AUDIT_ARCH_X86_64, SYS_socket, 10, 1, i), want);
		assert_int_equal(run3(AUDIT_ARCH_X86_64, SYS_socket, 1, 1, i), SECCOMP_RET_ALLOW);
		want = i == 26 || (i >= 50 && i <= 52) ? DENIED : SECCOMP_RET_ALLOW;
		assert_int_equal(run3(AUDIT_ARCH_X86_64, SYS_setsockopt, 5, 1, i), want);
		assert_int_equal(run3(AUDIT_ARCH_X86_64, SYS_setsockopt, 5, 6, i), SECCOMP_RET_ALLOW);
	}
}

static void test_too_small_a_buffer(void **state)
{
	struct sock_filter small[SECCOMP_PROGRAM_MAX];
	length = seccomp_build(program, SECCOMP_PROGRAM_MAX, true);
	for (int cap = 0; cap < length; cap++)
		assert_int_equal(seccomp_build(small, (size_t)cap, true), -E2BIG);
	assert_int_equal(seccomp_build(small, (size_t)length, true), length);
}

static void test_loaded(void **state)
{
	pid_t pid = fork();
	if (pid == 0) {
		length = seccomp_build(program, SECCOMP_PROGRAM_MAX, false);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (seccomp_load(program, (size_t)length, false) != 0)
			_exit(2);
		if (syscall(SYS_getpid) != getpid() || fork() < 0)
			_exit(3);
		if (syscall(SYS_keyctl, 0, 0, 0, 0, 0) != -1 || errno != EPERM)
			_exit(4);
		if (syscall(435, NULL, 0) != -1 || errno != ENOSYS)
			_exit(5);
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_call),
		cmocka_unit_test(test_other_architectures),
		cmocka_unit_test(test_arguments),
		cmocka_unit_test(test_sockets),
		cmocka_unit_test(test_too_small_a_buffer),
		cmocka_unit_test(test_loaded),
	};
	return cmocka_run_group_tests_name("chronus_seccomp", tests, NULL, NULL);
}
