/* fdio.h: whole reads and writes, small files, unix sockets with descriptors.
 *
 * Blocking helpers for start-up, helpers and tests; an event loop uses only the
 * nonblocking ones (send_fds, recv_fds). Every descriptor made here is
 * close-on-exec. Negative errno on failure. Any thread.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

int write_all(int fd, const void *p, size_t n);
int pwrite_all(int fd, const void *p, size_t n, off_t at);
ssize_t read_all(int fd, void *p, size_t n); /* until n or EOF; bytes read */

/* A whole small file into a NUL-terminated string (caller frees), at most max
 * bytes (-EFBIG beyond). dirfd may be AT_FDCWD. */
int read_file_at(int dirfd, const char *path, size_t max, char **ret, size_t *ret_n);
/* One write(2), as control files of the kernel want it. */
int write_file_at(int dirfd, const char *path, const char *text);
/* Replaces path atomically: temporary beside it, fsync, rename. */
int write_file_atomic(int dirfd, const char *path, const void *p, size_t n, unsigned mode);

/* Pathname sockets of any path length: bound and connected through
 * /proc/self/fd of the directory, since sun_path holds 107 bytes only.
 * type: SOCK_STREAM or SOCK_SEQPACKET, may be or-ed with SOCK_NONBLOCK.
 * unix_listen replaces a stale socket file; mode 0600. */
int unix_listen(const char *path, int type, int backlog);
int unix_connect(const char *path, int type);

#define FDIO_FDS_MAX 16
/* One message with up to FDIO_FDS_MAX descriptors. recv: *nfds is the capacity
 * on entry and the count received on return; the descriptors are the caller's.
 * Returns bytes, 0 at EOF, negative errno (-EAGAIN when nonblocking). A message
 * that carried more descriptors than fit closes all of them: -EMSGSIZE. */
ssize_t send_fds(int sock, const void *p, size_t n, const int *fds, size_t nfds);
ssize_t recv_fds(int sock, void *p, size_t n, int *fds, size_t *nfds);
