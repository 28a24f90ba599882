/* btrfs.c: see btrfs.h. */
#include "layer/btrfs.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include "base/cleanup.h"
#include "base/fdio.h"

#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4 /* headers before 6.7 */
#endif

int btrfs_subvol_create(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args_v2 args = { .fd = dirfd };
	if (strlen(name) > BTRFS_SUBVOL_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(args.name, name, strlen(name) + 1);
	return ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0 ? -errno : 0;
}

int btrfs_subvol_delete(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args args = { 0 };
	if (strlen(name) > BTRFS_PATH_NAME_MAX)
		return -ENAMETOOLONG;
	memcpy(args.name, name, strlen(name) + 1);
	return ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : 0;
}

int btrfs_subvol_id(int fd, uint64_t *ret)
{
	struct btrfs_ioctl_ino_lookup_args args = { .treeid = 0, .objectid = BTRFS_FIRST_FREE_OBJECTID };
	if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
		return -errno;
	*ret = args.treeid;
	return 0;
}

int btrfs_quota_enable(int fd, enum btrfs_quota *ret)
{
	struct btrfs_ioctl_quota_ctl_args ctl = { .cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA };
	if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &ctl) == 0) {
		*ret = BTRFS_QUOTA_SIMPLE;
		return 0;
	}
	/* EINVAL: the kernel does not know the command, or the other kind is on. */
	ctl = (struct btrfs_ioctl_quota_ctl_args){ .cmd = BTRFS_QUOTA_CTL_ENABLE };
	if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &ctl) < 0 && errno != EEXIST)
		return -errno;
	if (ioctl(fd, BTRFS_IOC_QUOTA_RESCAN_WAIT) < 0 && errno != EINVAL)
		return -errno;
	*ret = BTRFS_QUOTA_QGROUPS;
	return 0;
}

int btrfs_quota_limit(int fd, uint64_t bytes)
{
	/* Group 0 means the group of the subvolume that fd is in. */
	struct btrfs_ioctl_qgroup_limit_args args = {
		.lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER, .max_rfer = bytes },
	};
	return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 ? -errno : 0;
}

static int sysfs_u64(int dirfd, const char *name, uint64_t *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(dirfd, name, 64, &text, NULL);
	if (r < 0)
		return r;
	*ret = strtoull(text, NULL, 10); /* "none" where there is no limit: 0 */
	return 0;
}

int btrfs_quota_usage(const char *fsid, uint64_t subvol, uint64_t *ret_limit, uint64_t *ret_used)
{
	char path[128];
	snprintf(path, sizeof(path), "/sys/fs/btrfs/%s/qgroups/0_%llu", fsid, (unsigned long long)subvol);
	_cleanup_close_ int dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	/* What is written but not yet allocated stands as a reservation. */
	uint64_t limit = 0, held = 0, reserved = 0;
	int r = sysfs_u64(dir, "max_referenced", &limit);
	if (r >= 0)
		r = sysfs_u64(dir, "referenced", &held);
	if (r >= 0)
		r = sysfs_u64(dir, "rsv_data", &reserved);
	if (r < 0)
		return r;
	*ret_limit = limit;
	*ret_used = held + reserved;
	return 0;
}

int btrfs_quota_forget(int fd, uint64_t subvol)
{
	struct btrfs_ioctl_qgroup_create_args args = { .create = 0, .qgroupid = subvol };
	return ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &args) < 0 ? -errno : 0;
}

int btrfs_fsid(int fd, char ret[37])
{
	struct btrfs_ioctl_fs_info_args args = { 0 };
	if (ioctl(fd, BTRFS_IOC_FS_INFO, &args) < 0)
		return -errno;
	char *p = ret;
	for (int i = 0; i < BTRFS_FSID_SIZE; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*p++ = '-';
		p += sprintf(p, "%02x", args.fsid[i]);
	}
	return 0;
}

int btrfs_commit(int fd)
{
	return ioctl(fd, BTRFS_IOC_SYNC) < 0 ? -errno : 0;
}
