/* enter.c: how a forked child of PID 1 goes into the sandbox.
 *
 * Used between fork and exec of a command, and by file workers that never exec.
 * Order matters. The cgroups come first (limits before anything else), then the
 * user namespace; setns gives every capability in it back, so the bounding set
 * falls after it; seccomp is loaded while CAP_SYS_ADMIN is still there (without
 * it no_new_privs would be needed, and sudo would not work); the capabilities go
 * last. Until exec the child's memory belongs to the outer user namespace: root
 * inside cannot trace or read it, only stop or kill it (the caller's deadline
 * covers that). No path of the sandbox is opened before setns. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "chronus/chronus-internal.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#define CAP_BIT(c) (UINT64_C(1) << (c))
/* What container engines give root by default; all of it counts only inside the
 * sandbox's user namespace. */
#define ROOT_CAPS                                                                                          \
	(CAP_BIT(CAP_CHOWN) | CAP_BIT(CAP_DAC_OVERRIDE) | CAP_BIT(CAP_FSETID) | CAP_BIT(CAP_FOWNER) |      \
	 CAP_BIT(CAP_MKNOD) | CAP_BIT(CAP_NET_RAW) | CAP_BIT(CAP_SETGID) | CAP_BIT(CAP_SETUID) |           \
	 CAP_BIT(CAP_SETFCAP) | CAP_BIT(CAP_SETPCAP) | CAP_BIT(CAP_NET_BIND_SERVICE) |                     \
	 CAP_BIT(CAP_SYS_CHROOT) | CAP_BIT(CAP_KILL) | CAP_BIT(CAP_AUDIT_WRITE))

static int by_number(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Whatever runs here next parses hostile input: it holds nothing of PID 1's. */
static void close_all_but(const int *keep, size_t n)
{
	int sorted[8], at = 3;
	size_t m = 0;
	for (size_t i = 0; i < n && m < ARRAY_SIZE(sorted); i++)
		if (keep[i] > 2)
			sorted[m++] = keep[i];
	qsort(sorted, m, sizeof(int), by_number);
	for (size_t i = 0; i < m; i++) {
		if (sorted[i] > at)
			syscall(SYS_close_range, at, sorted[i] - 1, 0);
		at = sorted[i] + 1;
	}
	syscall(SYS_close_range, at, ~0u, 0);
}

/* cpus cpu_first .. cpu_first + cpus - 1, counted over those we may use. */
static void set_affinity(const struct chronus_boot *b)
{
	cpu_set_t have, want;
	int usable[CPU_SETSIZE], n = 0;
	if (!b->cpus || sched_getaffinity(0, sizeof(have), &have) < 0)
		return;
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &have))
			usable[n++] = i;
	if (!n || b->cpus >= (uint32_t)n)
		return;
	CPU_ZERO(&want);
	for (uint32_t i = 0; i < b->cpus; i++)
		CPU_SET(usable[((uint64_t)b->cpu_first + i) % (uint32_t)n], &want);
	sched_setaffinity(0, sizeof(want), &want);
}

int enter_userns(const struct chronus *c, const int *keep, size_t n_keep, struct dsec_error *e)
{
	setsid();
	if (setns(c->boot.userns_fd, CLONE_NEWUSER) < 0)
		return dsec_error_errno(e, -errno, "cannot enter the sandbox's user namespace");
	close_all_but(keep, n_keep);
	return 0;
}

int enter_sandbox(const struct chronus *c, const int *keep, size_t n_keep, struct dsec_error *e)
{
	for (int i = 0; i < CHRONUS_V1_MAX; i++) {
		int fd = c->boot.v1_tasks_fd[i];
		if (fd >= 0 && write(fd, "0", 1) < 0)
			return dsec_error_errno(e, -errno, "cannot join the sandbox's cgroup %d", i);
	}
	set_affinity(&c->boot);
	return enter_userns(c, keep, n_keep, e);
}

/* Raw system calls: the C library's versions would stop threads that are not there. */
int enter_become(const struct sandbox_user *u, struct dsec_error *e)
{
	if (syscall(SYS_setgroups, u->n_groups, u->groups) < 0 ||
	    syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 || syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		return dsec_error_errno(e, -errno, "cannot become user %s", u->name);
	return 0;
}

static int drop_bounding_set(void)
{
	for (int cap = 0; cap < 64; cap++) {
		if (ROOT_CAPS & CAP_BIT(cap))
			continue;
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL ? 0 : -errno; /* past the kernel's last one */
	}
	return 0;
}

static int set_caps(uint64_t caps)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = {
		{ .effective = (uint32_t)caps, .permitted = (uint32_t)caps },
		{ .effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32) },
	};
	return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

static int load_filter(bool notify, int *ret_listener)
{
	struct sock_filter program[SECCOMP_PROGRAM_MAX];
	int n = seccomp_build(program, SECCOMP_PROGRAM_MAX, notify);
	if (n < 0)
		return n;
	int r = seccomp_load(program, (size_t)n, notify);
	if (r < 0)
		return r;
	if (notify)
		*ret_listener = r;
	return 0;
}

int enter_lock_down(const struct chronus *c, const struct sandbox_user *u, bool no_new_privs, int *ret_listener,
		    struct dsec_error *e)
{
	int r = drop_bounding_set();
	if (r < 0)
		return dsec_error_errno(e, r, "cannot drop the capability bounding set");
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if ((no_new_privs || c->boot.no_new_privs) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return dsec_error_errno(e, -errno, "cannot set no_new_privs");
	if (ret_listener)
		*ret_listener = -1;
	/* A kernel, or an outer filter, that gives no listener: `df` shows the pool then. */
	r = ret_listener ? load_filter(true, ret_listener) : -ENOTSUP;
	if (r < 0)
		r = load_filter(false, NULL);
	if (r < 0)
		return dsec_error_errno(e, r, "cannot load the seccomp filter");
	r = set_caps(u->uid == 0 ? ROOT_CAPS : 0);
	return r < 0 ? dsec_error_errno(e, r, "cannot drop capabilities") : 0;
}
