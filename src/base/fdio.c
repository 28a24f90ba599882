/* fdio.c: see fdio.h. */
#include "base/fdio.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/cleanup.h"

int write_all(int fd, const void *p, size_t n)
{
	while (n) {
		ssize_t k = write(fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p = (const char *)p + k;
		n -= (size_t)k;
	}
	return 0;
}

int pwrite_all(int fd, const void *p, size_t n, off_t at)
{
	while (n) {
		ssize_t k = pwrite(fd, p, n, at);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		p = (const char *)p + k;
		n -= (size_t)k;
		at += k;
	}
	return 0;
}

ssize_t read_all(int fd, void *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		ssize_t k = read(fd, (char *)p + done, n - done);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			break;
		done += (size_t)k;
	}
	return (ssize_t)done;
}

int read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_n)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	_cleanup_free_ char *text = NULL;
	size_t len = 0, cap = 0;
	for (;;) {
		if (cap - len < 2) {
			cap = cap ? cap * 2 : 4096;
			char *t = realloc(text, cap);
			if (!t)
				return -ENOMEM;
			text = t;
		}
		ssize_t k = read(fd, text + len, cap - len - 1);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		if (!k)
			break;
		len += (size_t)k;
		if (len > max)
			return -EFBIG;
	}
	text[len] = 0;
	*ret = TAKE_PTR(text);
	if (ret_n)
		*ret_n = len;
	return 0;
}

int write_file_at(int dirfd, const char *path, const char *text)
{
	_cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t k = write(fd, text, strlen(text));
	if (k < 0)
		return -errno;
	return (size_t)k == strlen(text) ? 0 : -EIO;
}

int write_file_atomic(int dirfd, const char *path, const void *p, size_t n, unsigned mode)
{
	_cleanup_free_ char *tmp = NULL;
	if (asprintf(&tmp, "%s.tmp-%d", path, (int)getpid()) < 0) {
		tmp = NULL;
		return -ENOMEM;
	}
	_cleanup_close_ int fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	int r = write_all(fd, p, n);
	if (!r && fchmod(fd, mode) < 0)
		r = -errno;
	if (!r && fdatasync(fd) < 0)
		r = -errno;
	if (!r && renameat(dirfd, tmp, dirfd, path) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, tmp, 0);
	return r;
}

/* Opens the directory of `path` and writes "/proc/self/fd/N/name" into *sun. */
static int unix_address(const char *path, struct sockaddr_un *sun, int *ret_dirfd, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	_cleanup_free_ char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
	if (!dir)
		return -ENOMEM;
	_cleanup_close_ int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dirfd < 0)
		return -errno;
	*sun = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int n = snprintf(sun->sun_path, sizeof(sun->sun_path), "/proc/self/fd/%d/%s", dirfd, name);
	if (n < 0 || (size_t)n >= sizeof(sun->sun_path))
		return -ENAMETOOLONG;
	*ret_dirfd = TAKE_FD(dirfd);
	*ret_name = name;
	return 0;
}

int unix_listen(const char *path, int type, int backlog)
{
	struct sockaddr_un sun;
	_cleanup_close_ int dirfd = -1;
	const char *name;
	int r = unix_address(path, &sun, &dirfd, &name);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	/* fchmod before bind decides the mode of the socket file on Linux. */
	if (fchmod(fd, 0600) < 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 ||
	    listen(fd, backlog) < 0)
		return -errno;
	return TAKE_FD(fd);
}

int unix_connect(const char *path, int type)
{
	struct sockaddr_un sun;
	_cleanup_close_ int dirfd = -1;
	const char *name;
	int r = unix_address(path, &sun, &dirfd, &name);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

ssize_t send_fds(int sock, const void *p, size_t n, const int *fds, size_t nfds)
{
	union {
		struct cmsghdr hdr;
		char space[CMSG_SPACE(sizeof(int) * FDIO_FDS_MAX)];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)p, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	if (nfds > FDIO_FDS_MAX)
		return -E2BIG;
	if (nfds) {
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
		memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
	}
	ssize_t k;
	do
		k = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	return k < 0 ? -errno : k;
}

ssize_t recv_fds(int sock, void *p, size_t n, int *fds, size_t *nfds)
{
	union {
		struct cmsghdr hdr;
		char space[CMSG_SPACE(sizeof(int) * FDIO_FDS_MAX)];
	} control;
	struct iovec iov = { .iov_base = p, .iov_len = n };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = &control,
			      .msg_controllen = sizeof(control) };
	size_t cap = nfds ? *nfds : 0, got = 0;
	int excess = 0;
	ssize_t k;
	do
		k = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (k < 0 && errno == EINTR);
	if (nfds)
		*nfds = 0;
	if (k < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t m = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < m; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (got < cap)
				fds[got++] = fd;
			else {
				close(fd);
				excess = 1;
			}
		}
	}
	if (excess || (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
		while (got)
			close(fds[--got]);
		return -EMSGSIZE;
	}
	if (nfds)
		*nfds = got;
	return k;
}
