/* sweep_cgroup.c: see sweep_cgroup.h. */
#include "dsecd/sweep_cgroup.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "dsecd/sweep.h"
#include "kernel/process.h"

#define RECORD_MAX (64 * 1024)
#define DEPTH_MAX 8 /* BASE/sb-N/work/e-ID and what a program may add */
#define PROCS_MAX (16u << 20)

static bool is_base(const char *path)
{
	const char *name = strrchr(path, '/');
	struct statfs fs;
	if (*path != '/' || !name || strncmp(name, "/dsec-", 6) || strlen(name) != 14 ||
	    strspn(name + 6, "0123456789abcdef") != 8 || statfs(path, &fs) < 0)
		return false;
	return fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC;
}

/* The pid may have changed hands since it was read: hold it, then ask again. */
static bool kill_if_in(pid_t pid, const char *base_name)
{
	char path[64];
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = pidfd_of(pid);
	snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
	if (fd < 0 || read_file_at(AT_FDCWD, path, 1 << 16, &text, NULL) < 0 || !strstr(text, base_name))
		return false;
	return !pidfd_kill(fd, SIGKILL);
}

static int kill_listed(int dirfd, const char *base_name)
{
	_cleanup_free_ char *text = NULL;
	int count = 0;
	if (read_file_at(dirfd, "cgroup.procs", PROCS_MAX, &text, NULL) < 0)
		return 0;
	for (char *p = text, *end; *p; p = *end ? end + 1 : end) {
		long pid = strtol(p, &end, 10);
		if (end == p)
			break;
		if (pid > 1 && kill_if_in((pid_t)pid, base_name))
			count++;
	}
	return count;
}

/* Kills what is listed in dirfd and below; with `remove` also removes the
 * directories below. Returns the number killed. */
static int walk(int dirfd, const char *base_name, bool remove, int depth)
{
	int count = kill_listed(dirfd, base_name);
	int own = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	_cleanup_closedir_ DIR *d = own < 0 ? NULL : fdopendir(own);
	if (!d) {
		base_close(own);
		return count;
	}
	rewinddir(d);
	for (struct dirent *e; (e = readdir(d));) {
		if (e->d_type != DT_DIR || !strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		_cleanup_close_ int sub = openat(dirfd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (sub >= 0 && depth < DEPTH_MAX)
			count += walk(sub, base_name, remove, depth + 1);
		if (remove)
			unlinkat(dirfd, e->d_name, AT_REMOVEDIR);
	}
	return count;
}

static int sweep_base(const char *path)
{
	const char *name = strrchr(path, '/') + 1;
	uint64_t deadline = now_mono_ms() + SWEEP_WAIT_MS;
	int killed = 0;
	for (;;) {
		_cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0)
			return killed + 1;
		write_file_at(fd, "cgroup.kill", "1"); /* cgroup2: all at once; the walk does the same elsewhere */
		killed += walk(fd, name, true, 0);
		if (!rmdir(path) || errno == ENOENT)
			return killed + 1;
		if (now_mono_ms() > deadline) {
			log_warn("the cgroup %s cannot be removed: %s", path, strerror(errno));
			return killed;
		}
		nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
	}
}

/* A record lists one hierarchy a line: a kind and a path. */
static int sweep_record(int dirfd, const char *name)
{
	_cleanup_free_ char *text = NULL;
	int count = 0;
	bool all = true;
	if (read_file_at(dirfd, name, RECORD_MAX, &text, NULL) < 0)
		return 0;
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		const char *path = strchr(line, ' ');
		if (!path || !is_base(path + 1))
			continue;
		count += sweep_base(path + 1);
		all = all && access(path + 1, F_OK) < 0;
	}
	if (all)
		unlinkat(dirfd, name, 0);
	return count;
}

int sweep_cgroups(const struct state *s)
{
	_cleanup_closedir_ DIR *d = opendir(s->edge_dir);
	int count = 0;
	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_type == DT_REG && !strncmp(e->d_name, "cgroup", 6))
			count += sweep_record(dirfd(d), e->d_name);
	return count;
}
