/* mounts.c: see mounts.h. */
#include "kernel/mounts.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"

int mount_new(const char *type, const struct mount_option *options, uint64_t attr)
{
	_cleanup_close_ int fs = fsopen(type, FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	for (; options && options->key; options++) {
		unsigned cmd = options->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
		if (fsconfig(fs, cmd, options->key, options->value, 0) < 0)
			return -errno;
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attr);
	return fd < 0 ? -errno : fd;
}

int mount_copy(int dirfd, const char *path, uint64_t attr_set)
{
	_cleanup_close_ int fd = open_tree(dirfd, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH |
						       AT_SYMLINK_NOFOLLOW);
	if (fd < 0)
		return -errno;
	int r = attr_set ? mount_set(fd, attr_set) : 0;
	return r < 0 ? r : TAKE_FD(fd);
}

int mount_set(int mount_fd, uint64_t attr_set)
{
	struct mount_attr a = { .attr_set = attr_set };
	return mount_setattr(mount_fd, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0 ? -errno : 0;
}

int mount_attach(int mount_fd, int dirfd, const char *path)
{
	/* move_mount follows no link of the target unless asked to. */
	unsigned flags = MOVE_MOUNT_F_EMPTY_PATH;
	if (!*path)
		flags |= MOVE_MOUNT_T_EMPTY_PATH;
	return move_mount(mount_fd, "", dirfd, path, flags) < 0 ? -errno : 0;
}

int mount_over(int from_dirfd, const char *from, int to_dirfd, const char *to, uint64_t attr_set)
{
	_cleanup_close_ int fd = mount_copy(from_dirfd, from, attr_set);
	return fd < 0 ? fd : mount_attach(fd, to_dirfd, to);
}

int mount_dir_beneath(int dirfd, const char *name, mode_t make_mode)
{
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};
	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, dirfd, name, &how, sizeof(how));
		if (fd >= 0)
			return (int)fd;
		if (errno == EAGAIN && tries < 8)
			continue; /* a rename raced with the walk */
		if (errno != ENOENT || tries)
			return -errno;
		if (mkdirat(dirfd, name, make_mode) < 0 && errno != EEXIST)
			return -errno;
	}
}
