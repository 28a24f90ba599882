/* floor_init.c: PID 1 of the floor (floor.c): runs the payload once, as chronus
 * would in the kernel's eyes, and waits to be killed.
 *
 * The same steps as chronus takes for a command: v1 cgroups, a cgroup2 leaf, the user
 * namespace, affinity, the bounding set, the same seccomp filter (chronus/seccomp.c),
 * credentials, exec. No protocol, no output kept: the payload's standard output is the
 * pipe that floor.c passed as listen_fd.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/chronus_boot.h"
#include "chronus/chronus-internal.h"

static struct chronus_boot boot;

static int load_filter(void)
{
	static struct sock_filter program[SECCOMP_PROGRAM_MAX];
	int n = seccomp_build(program, SECCOMP_PROGRAM_MAX, true);
	return n < 0 ? n : seccomp_load(program, (size_t)n, true);
}

static void run_payload(void)
{
	for (int i = 0; i < CHRONUS_V1_MAX; i++)
		if (boot.v1_tasks_fd[i] >= 0 && write(boot.v1_tasks_fd[i], "0", 1) != 1)
			_exit(120);
	if (setns(boot.userns_fd, CLONE_NEWUSER) < 0)
		_exit(121);
	cpu_set_t set;
	CPU_ZERO(&set);
	for (unsigned i = 0; i < boot.cpus; i++)
		CPU_SET(i, &set);
	sched_setaffinity(0, sizeof(set), &set);
	for (int cap = 0; cap <= 40; cap++)
		prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (load_filter() < 0)
		_exit(122);
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		_exit(123);
	setsid();
	dup2(boot.listen_fd, 1);
	syscall(SYS_close_range, 3, ~0u, 0);
	char *argv[] = { (char *)"/bin/hello", NULL }, *envp[] = { NULL };
	execve(argv[0], argv, envp);
	_exit(127);
}

int main(void)
{
	if (read(CHRONUS_BOOT_FD, &boot, sizeof(boot)) != sizeof(boot))
		return 1;
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	if (mkdirat(boot.work_fd, "e-0", 0755) < 0)
		return 2;
	int leaf = openat(boot.work_fd, "e-0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct clone_args a = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)leaf };
	long pid = syscall(SYS_clone3, &a, sizeof(a));
	if (pid == 0)
		run_payload();
	close(boot.listen_fd);
	int status;
	if (pid < 0 || waitpid((pid_t)pid, &status, 0) < 0 || status)
		return 3; /* the floor sees PID 1 end by itself and stops */
	unlinkat(boot.work_fd, "e-0", AT_REMOVEDIR);
	for (;;)
		pause();
}
