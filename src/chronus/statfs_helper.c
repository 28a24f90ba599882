/* statfs_helper.c: looks at what a statfs call means, from inside the sandbox.
 *
 * A child of PID 1 in the user namespace, as its root with all capabilities of
 * it; root inside may stop or kill it, not trace it. It answers for one call at a
 * time. Names are resolved as the caller would: its root, its working directory,
 * its ids, so that nobody learns of files he may not reach. Whatever is not
 * clearly the sandbox's root filesystem is left to the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/statfs.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define CALL_FSTATFS 138
#define STATUS_MAX 4096

struct helper {
	int sock, root_fd;
	struct statfs root, found;
	int mem; /* of the caller, since LOOK */
	uint64_t address;
};

/* ---- The caller ---- */

static int open_of(int tid, const char *what, int flags)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/%s", tid, what);
	int fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int read_path(const struct helper *h, uint64_t at, char path[4096])
{
	/* Not past the page: the next one may not be there. */
	size_t n = 0;
	while (n < 4096) {
		size_t part = MIN(4096 - (size_t)((at + n) & 4095), 4096 - n);
		ssize_t k = pread(h->mem, path + n, part, (off_t)(at + n));
		if (k <= 0)
			return -EFAULT;
		if (memchr(path + n, 0, (size_t)k))
			return 0;
		n += (size_t)k;
	}
	return -ENAMETOOLONG;
}

/* The numbers after "KEY:" in a status file. How many were found. */
static size_t status_ids(const char *text, const char *key, unsigned *ids, size_t max)
{
	const char *line = strstr(text, key);
	size_t n = 0;
	if (!line)
		return 0;
	char *at = (char *)line + strlen(key);
	while (n < max) {
		while (*at == ' ' || *at == '\t')
			at++;
		if (*at < '0' || *at > '9')
			break;
		ids[n++] = (unsigned)strtoul(at, &at, 10);
	}
	return n;
}

/* Takes the caller's filesystem ids; with another id than root's the kernel drops
 * the capabilities that would pass over permissions. */
static int become_caller(int tid)
{
	char text[STATUS_MAX + 1];
	unsigned uid[4], gid[4], groups[64];
	_cleanup_close_ int fd = open_of(tid, "status", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read_all(fd, text, STATUS_MAX);
	if (n <= 0)
		return -ESRCH;
	text[n] = 0;
	if (status_ids(text, "\nUid:", uid, 4) < 4 || status_ids(text, "\nGid:", gid, 4) < 4)
		return -EBADMSG;
	size_t n_groups = status_ids(text, "\nGroups:", groups, ARRAY_SIZE(groups));
	if (syscall(SYS_setgroups, n_groups, groups) < 0)
		return -errno;
	setfsgid(gid[3]);
	setfsuid(uid[3]);
	return 0;
}

static void become_helper(void)
{
	setfsuid(0);
	setfsgid(0);
	syscall(SYS_setgroups, 0, NULL);
}

/* ---- What it asks about ---- */

static int open_by_path(const struct helper *h, int tid)
{
	char path[4096];
	struct open_how how = { .flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS };
	int r = read_path(h, h->address, path);
	if (r < 0)
		return r;
	/* The common cases that are never the root (every `ls` asks for selinux). */
	if (!strncmp(path, "/sys/", 5) || !strncmp(path, "/proc/", 6) || !strncmp(path, "/dev/", 5) || !*path)
		return -ENOENT;
	_cleanup_close_ int base = open_of(tid, *path == '/' ? "root" : "cwd", O_PATH | O_DIRECTORY);
	if (base < 0)
		return base;
	if (*path == '/')
		how.resolve |= RESOLVE_IN_ROOT;
	r = become_caller(tid);
	int fd = r < 0 ? r : (int)syscall(SYS_openat2, base, path, &how, sizeof(how));
	if (r == 0 && fd < 0)
		fd = -errno;
	become_helper();
	return fd;
}

/* A thread's descriptors are its process's: the leader's number is in status. */
static int open_by_number(int tid, int number)
{
	char text[STATUS_MAX + 1];
	unsigned tgid;
	_cleanup_close_ int status = open_of(tid, "status", O_RDONLY);
	ssize_t n = status < 0 ? -1 : read_all(status, text, STATUS_MAX);
	if (n <= 0)
		return -ESRCH;
	text[n] = 0;
	if (!status_ids(text, "\nTgid:", &tgid, 1))
		return -EBADMSG;
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, tgid, 0);
	int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	return fd < 0 ? -errno : fd;
}

static bool is_root(const struct helper *h, const struct statfs *s)
{
	return s->f_type == h->root.f_type && !memcmp(&s->f_fsid, &h->root.f_fsid, sizeof(s->f_fsid));
}

static enum statfs_answer look(struct helper *h, const struct statfs_question *q)
{
	h->mem = base_close(h->mem);
	h->mem = open_of(q->tid, "mem", O_RDWR);
	h->address = q->args[0];
	if (h->mem < 0)
		return STATFS_CONTINUE;
	_cleanup_close_ int fd = q->nr == CALL_FSTATFS ? open_by_number(q->tid, (int)q->args[0]) : open_by_path(h, q->tid);
	if (fd < 0 || fstatfs(fd, &h->found) < 0 || !is_root(h, &h->found))
		return STATFS_CONTINUE;
	h->address = q->args[1];
	return STATFS_IS_ROOT;
}

static enum statfs_answer fill(struct helper *h, const struct statfs_question *q)
{
	struct statfs *s = &h->found;
	uint64_t block = s->f_bsize ? (uint64_t)s->f_bsize : 4096;
	uint64_t used = MIN(q->used_bytes, q->limit_bytes);
	uint64_t pool = MIN((uint64_t)s->f_bavail, UINT64_MAX / block) * block;
	s->f_blocks = q->limit_bytes / block;
	s->f_bfree = s->f_bavail = MIN(q->limit_bytes - used, pool) / block;
	ssize_t n = pwrite(h->mem, s, sizeof(*s), (off_t)h->address);
	h->mem = base_close(h->mem);
	/* A bad address: the kernel says EFAULT better than we do. */
	return n == sizeof(*s) ? STATFS_DONE : STATFS_CONTINUE;
}

_Noreturn void statfs_helper(const struct chronus *c, int sock)
{
	static struct helper h;
	struct dsec_error e;
	struct statfs_question q;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	h.sock = sock;
	h.mem = -1;
	if (enter_userns(c, &sock, 1, &e) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0 || statfs("/", &h.root) < 0)
		_exit(1);
	while (recv(sock, &q, sizeof(q), 0) == sizeof(q)) {
		uint32_t word = q.ask == STATFS_LOOK ? look(&h, &q) : fill(&h, &q);
		if (send(sock, &word, sizeof(word), MSG_NOSIGNAL) != sizeof(word))
			break;
	}
	_exit(0);
}
