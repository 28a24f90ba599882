/* sweep.c: see sweep.h. Cgroups are in sweep_cgroup.c. */
#include "dsecd/sweep.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/log.h"
#include "dsecd/sweep_cgroup.h"

#define MOUNTINFO_MAX (64u << 20)
#define MOUNT_PASSES 8 /* mounts lie on one another */

/* true for S itself and what lies below it. */
static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	return !strncmp(path, dir, n) && (!path[n] || path[n] == '/');
}

/* mountinfo writes space, tab, newline and backslash as \ooo. */
static void unescape(char *s)
{
	char *to = s;
	for (; *s; s++) {
		if (s[0] == '\\' && s[1] && s[2] && s[3]) {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else
			*to++ = *s;
	}
	*to = 0;
}

static int unmount_pass(const struct state *s)
{
	_cleanup_free_ char *info = NULL;
	int count = 0;
	if (read_file_at(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &info, NULL) < 0)
		return 0;
	char *save = NULL;
	for (char *line = strtok_r(info, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char point[PATH_MAX];
		if (sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1)
			continue;
		unescape(point);
		/* S itself may be a mount of the host's. */
		if (is_below(point, s->dir) && strcmp(point, s->dir) && !umount2(point, MNT_DETACH | UMOUNT_NOFOLLOW))
			count++;
	}
	return count;
}

static int sweep_mounts(const struct state *s)
{
	int total = 0, k;
	for (int pass = 0; pass < MOUNT_PASSES && (k = unmount_pass(s)); pass++)
		total += k;
	return total;
}

static int sweep_loops(const struct state *s)
{
	_cleanup_closedir_ DIR *d = opendir("/sys/block");
	int count = 0;
	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));) {
		char path[PATH_MAX];
		_cleanup_free_ char *backing = NULL;
		if (strncmp(e->d_name, "loop", 4))
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/loop/backing_file", e->d_name);
		if (read_file_at(AT_FDCWD, path, 2 * PATH_MAX, &backing, NULL) < 0 || !is_below(backing, s->dir))
			continue;
		snprintf(path, sizeof(path), "/dev/%s", e->d_name);
		_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && !ioctl(fd, LOOP_CLR_FD, 0))
			count++;
		else if (errno != ENXIO)
			log_warn("cannot detach %s (%s): %s", path, s->dir, strerror(errno));
	}
	return count;
}

/* Sockets, pid files, the address: nobody is behind them any more. */
static int sweep_run(const struct state *s)
{
	_cleanup_closedir_ DIR *d = opendir(s->run_dir);
	int count = 0;
	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));) {
		const char *dot = strrchr(e->d_name, '.');
		bool ours = !strcmp(e->d_name, "url") || (dot && (!strcmp(dot, ".sock") || !strcmp(dot, ".pid")));
		if (ours && strcmp(e->d_name, "up.pid") && !unlinkat(dirfd(d), e->d_name, 0))
			count++;
	}
	return count;
}

int sweep(const struct state *s)
{
	int total = sweep_cgroups(s);
	total += sweep_mounts(s);
	total += sweep_loops(s);
	return total + sweep_run(s);
}
