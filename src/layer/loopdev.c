/* loopdev.c: see loopdev.h. */
#include "layer/loopdev.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "base/cleanup.h"

#define LOOPDEV_TRIES 64 /* another process may take the free device between the two calls */

int loopdev_attach(int file_fd, bool read_only, bool direct_io, char ret_path[LOOPDEV_PATH_MAX], int *ret_fd)
{
	_cleanup_close_ int ctl = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	if (ctl < 0)
		return -errno;
	for (int i = 0; i < LOOPDEV_TRIES; i++) {
		int n = ioctl(ctl, LOOP_CTL_GET_FREE);
		if (n < 0)
			return -errno;
		char path[LOOPDEV_PATH_MAX];
		snprintf(path, sizeof(path), "/dev/loop%d", n);
		_cleanup_close_ int fd = open(path, (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		struct loop_config config = {
			.fd = (unsigned)file_fd,
			.info.lo_flags = LO_FLAGS_AUTOCLEAR | (read_only ? LO_FLAGS_READ_ONLY : 0) |
					 (direct_io ? LO_FLAGS_DIRECT_IO : 0),
		};
		if (ioctl(fd, LOOP_CONFIGURE, &config) == 0) {
			memcpy(ret_path, path, sizeof(path));
			*ret_fd = TAKE_FD(fd);
			return 0;
		}
		if (errno != EBUSY)
			return -errno;
	}
	return -EBUSY;
}

/* Does /dev/NAME carry the file? Then *ret_fd holds it open. */
static int loop_matches(const char *name, const struct stat *file, char ret_path[LOOPDEV_PATH_MAX], int *ret_fd)
{
	char path[LOOPDEV_PATH_MAX];
	if (snprintf(path, sizeof(path), "/dev/%s", name) >= (int)sizeof(path))
		return -ENOENT;
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	struct loop_info64 info;
	if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0)
		return -errno;
	/* The kernel encodes lo_device as it does in old stat calls. */
	if (info.lo_inode != file->st_ino ||
	    (info.lo_device != file->st_dev && info.lo_device != (uint64_t)((major(file->st_dev) << 8) | minor(file->st_dev))))
		return -ENOENT;
	memcpy(ret_path, path, sizeof(path));
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int loopdev_find(int file_fd, char ret_path[LOOPDEV_PATH_MAX], int *ret_fd)
{
	struct stat st;
	if (fstat(file_fd, &st) < 0)
		return -errno;
	_cleanup_closedir_ DIR *d = opendir("/sys/block");
	if (!d)
		return -errno;
	struct dirent *e;
	while ((e = readdir(d))) {
		if (strncmp(e->d_name, "loop", 4))
			continue;
		/* The attribute is there only while a file is attached. */
		char attr[sizeof("/sys/block//loop/backing_file") + NAME_MAX];
		snprintf(attr, sizeof(attr), "/sys/block/%s/loop/backing_file", e->d_name);
		if (access(attr, F_OK) < 0)
			continue;
		if (loop_matches(e->d_name, &st, ret_path, ret_fd) == 0)
			return 0;
	}
	return -ENOENT;
}
