/* volume.h: the writable volume, where every sandbox's changes go.
 *
 * One directory a sandbox ("share"), each with a hard limit on the bytes it may
 * hold. Called by the mounter, on its only thread, inside its private mount
 * namespace. The volume owns its mount and its loop device. Its content lives as
 * long as a sandbox uses it and never survives a reboot: a volume nobody has
 * mounted is made anew, so it is run without barriers and cannot be found broken.
 *
 * Providers, probed in this order:
 *   btrfs-dir   the state directory is on btrfs with quotas on: a subvolume of it
 *   btrfs-loop  a sparse file S/volume.img behind a loop device
 * Without any the mounter refuses to start (host_lacks): a disk limit that is
 * not kept would be worse than none.
 */
#pragma once
#include <stdint.h>
#include "base/error.h"

#define VOLUME_LIMIT_MIN (4u << 20) /* below it even an empty share would be over its limit */
#define VOLUME_SIZE_MIN (1ull << 30)

struct volume;

struct volume_options { /* all borrowed for the call */
	const char *state_dir;
	const char *mount_dir; /* existing empty directory of the caller's namespace */
	uint64_t size_bytes;   /* of a loop file; 0: half of what is free */
	uint64_t reserve_bytes; /* of the host's file system: shares are refused below it */
};

int volume_open(const struct volume_options *o, struct volume **ret, struct dsec_error *e);
void volume_close(struct volume *v); /* unmounts; the loop device follows its last user */
const char *volume_describe(const struct volume *v); /* for doctor */

/* A new empty share with the directories "upper" and "work" of root, mode 0755.
 * *ret_fd: the share's directory. -EEXIST; disk_full when the host is short. */
int volume_create(struct volume *v, const char *id, uint64_t limit_bytes, int *ret_fd, struct dsec_error *e);
int volume_delete(struct volume *v, const char *id); /* absent is success */
int volume_usage(struct volume *v, const char *id, uint64_t *ret_limit, uint64_t *ret_used);
/* Every share's id. cb returns 0 to go on. It may delete the share it is told of. */
int volume_list(struct volume *v, int (*cb)(const char *id, void *user), void *user);
