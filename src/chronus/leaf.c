/* leaf.c: a cgroup2 leaf a command.
 *
 * The leaf is bare (no controllers): it exists to find, count and kill the tree
 * of one command, whatever its processes do with sessions and groups. Limits
 * are on its parent (v2) or on the sandbox's v1 cgroups. chronus may write here
 * because the sandbox's cgroup directory belongs to its outer id. The interface
 * files are opened below a directory descriptor inherited at boot, so no path of
 * the sandbox is involved. */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

int leaf_make(int work_fd, const char *name, struct leaf *ret)
{
	*ret = (struct leaf){ .dirfd = -1 };
	if ((size_t)snprintf(ret->name, sizeof(ret->name), "%s", name) >= sizeof(ret->name))
		return -ENAMETOOLONG;
	if (mkdirat(work_fd, ret->name, 0755) < 0)
		return -errno;
	ret->dirfd = openat(work_fd, ret->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->dirfd < 0) {
		int r = -errno;
		unlinkat(work_fd, ret->name, AT_REMOVEDIR);
		return r;
	}
	return 0;
}

pid_t leaf_fork(const struct leaf *l)
{
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)l->dirfd,
	};
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	return pid < 0 ? -errno : pid;
}

void leaf_kill(const struct leaf *l)
{
	if (l->dirfd >= 0)
		write_file_at(l->dirfd, "cgroup.kill", "1");
}

void leaf_signal(const struct leaf *l, int sig)
{
	if (l->dirfd < 0)
		return;
	if (sig == SIGKILL) {
		leaf_kill(l);
		return;
	}
	_cleanup_close_ int fd = openat(l->dirfd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	_cleanup_fclose_ FILE *f = fd < 0 ? NULL : fdopen(fd, "re");
	if (!f)
		return;
	TAKE_FD(fd);
	/* Pids are those of our pid namespace. One that is reused between the read
	 * and the kill is a process of the same sandbox; 0 (outside) is skipped. */
	char line[32];
	while (fgets(line, sizeof(line), f)) {
		pid_t pid = (pid_t)strtol(line, NULL, 10);
		if (pid > 1)
			kill(pid, sig);
	}
}

/* The number after "KEY " in a small flat-keyed control file; 0 if absent. */
static uint64_t read_key(int dirfd, const char *file, const char *key)
{
	char text[1024];
	_cleanup_close_ int fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read_all(fd, text, sizeof(text) - 1);
	if (n <= 0)
		return 0;
	text[n] = 0;
	size_t k = strlen(key);
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, key, k) && line[k] == ' ')
			return strtoull(line + k + 1, NULL, 10);
	}
	return 0;
}

bool leaf_populated(const struct leaf *l)
{
	return l->dirfd >= 0 && read_key(l->dirfd, "cgroup.events", "populated") != 0;
}

uint64_t leaf_cpu_usec(const struct leaf *l)
{
	return l->dirfd < 0 ? 0 : read_key(l->dirfd, "cpu.stat", "usage_usec");
}

int leaf_remove(int work_fd, struct leaf *l)
{
	if (l->dirfd < 0)
		return 0;
	if (unlinkat(work_fd, l->name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	close(l->dirfd);
	l->dirfd = -1;
	return 0;
}
