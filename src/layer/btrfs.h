/* btrfs.h: the few btrfs operations that the writable volume needs, by ioctl.
 *
 * Called by volume_btrfs.c only, on the mounter's thread. Stateless: every call
 * takes a descriptor of an open directory of the file system (never O_PATH).
 * Negative errno on failure.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <linux/magic.h>

enum btrfs_quota { BTRFS_QUOTA_NONE, BTRFS_QUOTA_SIMPLE, BTRFS_QUOTA_QGROUPS };

int btrfs_subvol_create(int dirfd, const char *name);
int btrfs_subvol_delete(int dirfd, const char *name); /* -ENOENT when absent */
/* The id of the subvolume that fd is in: also its quota group's number. */
int btrfs_subvol_id(int fd, uint64_t *ret);
/* Simple quotas where the kernel has them (6.7), quota groups otherwise. Waits
 * for the first scan of quota groups. Already enabled is success. */
int btrfs_quota_enable(int fd, enum btrfs_quota *ret);
/* Bounds what the subvolume of fd may hold, tree blocks included. */
int btrfs_quota_limit(int fd, uint64_t bytes);
/* Bytes held now (reservations included) and the limit, from sysfs. */
int btrfs_quota_usage(const char *fsid, uint64_t subvol, uint64_t *ret_limit, uint64_t *ret_used);
/* Drops the group of a deleted subvolume; kernels that do it themselves answer
 * -EBUSY or -ENOENT, which callers ignore. */
int btrfs_quota_forget(int fd, uint64_t subvol);
int btrfs_fsid(int fd, char ret[37]); /* textual, as sysfs names it */
int btrfs_commit(int fd);             /* everything so far is on the device */
