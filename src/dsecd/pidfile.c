/* pidfile.c: see pidfile.h. */
#include "dsecd/pidfile.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "kernel/process.h"

#define PIDFILE_SUFFIX ".pid"
#define PIDFILE_BYTES_MAX 256

static int file_path(const char *run_dir, const char *name, char ret[PATH_MAX])
{
	int n = snprintf(ret, PATH_MAX, "%s/%s" PIDFILE_SUFFIX, run_dir, name);
	return n > 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int boot_id(char ret[64])
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 63, &text, NULL);
	if (r < 0)
		return r;
	text[strcspn(text, "\n")] = 0;
	snprintf(ret, 64, "%s", text);
	return 0;
}

static int open_proc(void)
{
	int fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int pidfile_write(const char *run_dir, const char *name, pid_t pid)
{
	char path[PATH_MAX], boot[64], text[PIDFILE_BYTES_MAX];
	uint64_t ticks;
	_cleanup_close_ int proc = open_proc();
	int r = proc < 0 ? proc : file_path(run_dir, name, path);
	r = r < 0 ? r : boot_id(boot);
	r = r < 0 ? r : process_start_ticks(proc, pid, &ticks);
	if (r < 0)
		return r;
	int n = snprintf(text, sizeof(text), "%d %" PRIu64 " %s\n", (int)pid, ticks, boot);
	return write_file_atomic(AT_FDCWD, path, text, (size_t)n, 0600);
}

void pidfile_remove(const char *run_dir, const char *name)
{
	char path[PATH_MAX];
	if (!file_path(run_dir, name, path))
		unlink(path);
}

int pidfile_open(const char *run_dir, const char *name, pid_t *ret_pid)
{
	char path[PATH_MAX], boot[64], then[64];
	_cleanup_free_ char *text = NULL;
	int pid;
	uint64_t ticks;
	int r = file_path(run_dir, name, path);
	if (r < 0)
		return r;
	r = read_file_at(AT_FDCWD, path, PIDFILE_BYTES_MAX, &text, NULL);
	if (r < 0)
		return r == -ENOENT || r == -EFBIG ? -ESRCH : r;
	if (sscanf(text, "%d %" SCNu64 " %63s", &pid, &ticks, then) != 3 || pid <= 1)
		return -ESRCH;
	r = boot_id(boot);
	if (r < 0)
		return r;
	if (strcmp(boot, then))
		return -ESRCH;
	_cleanup_close_ int proc = open_proc();
	if (proc < 0)
		return proc;
	/* First the descriptor, then the question: afterwards the pid cannot change
	 * hands unnoticed. */
	_cleanup_close_ int fd = pidfd_of(pid);
	if (fd < 0)
		return fd == -EINVAL ? -ESRCH : fd;
	if (!process_is(proc, pid, ticks))
		return -ESRCH;
	if (ret_pid)
		*ret_pid = pid;
	return TAKE_FD(fd);
}

int pidfile_each(const char *run_dir, int (*cb)(const char *name, void *user), void *user)
{
	_cleanup_closedir_ DIR *d = opendir(run_dir);
	if (!d)
		return errno == ENOENT ? 0 : -errno;
	size_t count = 0;
	for (struct dirent *e; (e = readdir(d));) {
		size_t n = strlen(e->d_name), k = strlen(PIDFILE_SUFFIX);
		if (n <= k || n - k > PIDFILE_NAME_MAX || strcmp(e->d_name + n - k, PIDFILE_SUFFIX))
			continue;
		if (++count > PIDFILE_COUNT_MAX)
			return -E2BIG;
		char name[PIDFILE_NAME_MAX + 1];
		snprintf(name, sizeof(name), "%.*s", (int)(n - k), e->d_name);
		int r = cb(name, user);
		if (r < 0)
			return r;
	}
	return 0;
}
