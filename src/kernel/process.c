/* process.c: see process.h. */
#include "kernel/process.h"
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

static void fill_args(struct clone_args *a, const struct clone_request *req, int *pidfd)
{
	*a = (struct clone_args){
		.flags = req->flags | CLONE_PIDFD,
		.pidfd = (uint64_t)(uintptr_t)pidfd,
		.exit_signal = SIGCHLD,
	};
	if (req->cgroup_fd >= 0) {
		a->flags |= CLONE_INTO_CGROUP;
		a->cgroup = (uint64_t)req->cgroup_fd;
	}
}

pid_t clone_copied(const struct clone_request *req, int *ret_pidfd)
{
	struct clone_args a;
	int pidfd = -1;
	fill_args(&a, req, &pidfd);
	long pid = syscall(SYS_clone3, &a, sizeof(a));
	if (pid < 0)
		return -errno;
	if (pid > 0)
		*ret_pidfd = pidfd;
	return (pid_t)pid;
}

#if defined(__x86_64__)
/* The child comes back from the system call on its own empty stack, so it must
 * not return from any frame of its parent: it calls fn and exits right here. */
static long clone3_call(struct clone_args *a, int (*fn)(void *), void *arg)
{
	register long rax __asm__("rax") = SYS_clone3;
	register void *rdi __asm__("rdi") = a;
	register size_t rsi __asm__("rsi") = sizeof(*a);
	register void *r12 __asm__("r12") = (void *)fn;
	register void *r13 __asm__("r13") = arg;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[nr_exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:\n"
			 : "+r"(rax), "+r"(rdi), "+r"(rsi)
			 : "r"(r12), "r"(r13), [nr_exit] "i"(SYS_exit_group)
			 : "rcx", "r11", "memory", "cc");
	return rax;
}

pid_t clone_shared(const struct clone_request *req, int (*fn)(void *), void *arg, int *ret_pidfd)
{
	struct clone_args a;
	int pidfd = -1;
	fill_args(&a, req, &pidfd);
	a.flags |= CLONE_VM | CLONE_VFORK;
	a.stack = (uint64_t)(uintptr_t)req->stack;
	a.stack_size = req->stack_size & ~(size_t)15;
	long pid = clone3_call(&a, fn, arg);
	if (pid > 0)
		*ret_pidfd = pidfd;
	return (pid_t)pid;
}
#else
pid_t clone_shared(const struct clone_request *req, int (*fn)(void *), void *arg, int *ret_pidfd)
{
	pid_t pid = clone_copied(req, ret_pidfd);
	if (!pid)
		_exit(fn(arg));
	return pid;
}
#endif

int pidfd_of(pid_t pid)
{
	long fd = syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : (int)fd;
}

int pidfd_kill(int pidfd, int sig)
{
	return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

/* The second field may hold spaces and brackets: parse from the last ')'. */
static int read_stat(int proc_dirfd, pid_t pid, char *ret_state, uint64_t *ret_ticks)
{
	char path[32];
	snprintf(path, sizeof(path), "%d/stat", (int)pid);
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(proc_dirfd, path, 4096, &text, NULL);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	const char *p = strrchr(text, ')');
	if (!p || p[1] != ' ')
		return -EBADMSG;
	*ret_state = p[2];
	p += 2;
	for (int field = 3; field < 22; field++) {
		p = strchr(p, ' ');
		if (!p)
			return -EBADMSG;
		p++;
	}
	*ret_ticks = strtoull(p, NULL, 10);
	return 0;
}

int process_start_ticks(int proc_dirfd, pid_t pid, uint64_t *ret_ticks)
{
	char state;
	return read_stat(proc_dirfd, pid, &state, ret_ticks);
}

bool process_is(int proc_dirfd, pid_t pid, uint64_t start_ticks)
{
	char state;
	uint64_t ticks;
	if (pid <= 0 || read_stat(proc_dirfd, pid, &state, &ticks) < 0)
		return false;
	return ticks == start_ticks && state != 'Z' && state != 'X';
}
