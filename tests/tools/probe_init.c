/* probe_init.c: a tiny PID 1 for tests and benches of the container backend.
 *
 * Takes chronus's place (base/chronus_boot.h) without its protocol: on the channel
 * socket it reads one line and answers with bytes until it closes. "sh CMD" runs
 * /bin/sh -c CMD and "run PATH" executes PATH, both as root of the sandbox's user
 * namespace, in its v1 cgroups and a cgroup2 leaf of their own, output on the
 * connection, then "\nexit N\n". "self CMD" does the same as PID 1's own outer id,
 * to look at things from outside the user namespace. One connection at a time.
 */
#include <errno.h>
#include <grp.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/chronus_boot.h"

static struct chronus_boot boot;

static void pin(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	long online = sysconf(_SC_NPROCESSORS_CONF);
	for (unsigned i = 0; i < boot.cpus; i++)
		CPU_SET((boot.cpu_first + i) % (unsigned)online, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static int join_leaf(void)
{
	if (mkdirat(boot.work_fd, "e-0", 0755) < 0 && errno != EEXIST)
		return -errno;
	int procs = openat(boot.work_fd, "e-0/cgroup.procs", O_WRONLY | O_CLOEXEC);
	return procs < 0 || write(procs, "0", 1) != 1 ? -errno : 0;
}

static void enter_and_run(const char *line, int out)
{
	for (int i = 0; i < CHRONUS_V1_MAX; i++)
		if (boot.v1_tasks_fd[i] >= 0 && write(boot.v1_tasks_fd[i], "0", 1) != 1)
			dprintf(out, "join v1 %d: %s\n", i, strerror(errno));
	int r = join_leaf();
	if (r < 0)
		dprintf(out, "join leaf: %s\n", strerror(-r));
	if (*line != 'S' && (setns(boot.userns_fd, CLONE_NEWUSER) < 0 || setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
			     setresuid(0, 0, 0) < 0))
		dprintf(out, "enter the user namespace: %s\n", strerror(errno));
	pin();
	setsid();
	dup2(out, 1);
	dup2(out, 2);
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	if (*line == 'r')
		execle(line + 4, line + 4, (char *)NULL, (char *[]){ NULL });
	else
		execle("/bin/sh", "sh", "-c", strchr(line, ' ') + 1, (char *)NULL,
		       (char *[]){ (char *)"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL });
	dprintf(out, "exec: %s\n", strerror(errno));
	_exit(127);
}

static void serve(int conn)
{
	char line[4096];
	size_t n = 0;
	while (n < sizeof(line) - 1 && read(conn, line + n, 1) == 1 && line[n] != '\n')
		n++;
	line[n] = 0;
	if (!strncmp(line, "self ", 5))
		line[0] = 'S';
	else if (strncmp(line, "sh ", 3) && strncmp(line, "run ", 4))
		return;
	pid_t pid = fork();
	if (!pid)
		enter_and_run(line, conn);
	int status = 0;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	dprintf(conn, "\nexit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* As chronus does it: MemTotal is the limit. */
static void write_meminfo(void)
{
	char text[128];
	unsigned long long kib = boot.memory_bytes / 1024;
	int n = snprintf(text, sizeof(text), "MemTotal:       %8llu kB\nMemFree:        %8llu kB\nMemAvailable:   %8llu kB\n",
			 kib, kib, kib);
	if (boot.meminfo_fd >= 0)
		(void)!pwrite(boot.meminfo_fd, text, (size_t)n, 0);
}

int main(void)
{
	if (read(CHRONUS_BOOT_FD, &boot, sizeof(boot)) != sizeof(boot) || boot.version != CHRONUS_BOOT_VERSION)
		return 1;
	close(CHRONUS_BOOT_FD);
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	write_meminfo();
	fcntl(boot.listen_fd, F_SETFL, 0);
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int conn = accept4(boot.listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (conn < 0)
			continue;
		serve(conn);
		close(conn);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
}
