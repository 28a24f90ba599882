/* mounts.h: the descriptor-based mount calls, each with the options we use.
 *
 * Called by the spawner (in a child, so nothing here allocates) and by the
 * mounter. A mount made here is detached and owned by its descriptor until
 * mount_attach. Every function works on kernel 6.1. Negative errno on failure.
 *
 * Paths inside a sandbox's tree are written by strangers: mount_dir_beneath
 * resolves one name without following any link, and makes it when absent.
 */
#pragma once
#include <stdint.h>
#include <sys/types.h>

struct mount_option {
	const char *key;
	const char *value; /* NULL: a flag */
};

#define MOUNT_OPTIONS_MAX 8

/* A new file system. options end with a NULL key. attr: MOUNT_ATTR_*. */
int mount_new(const char *type, const struct mount_option *options, uint64_t attr);
/* A detached copy of what lies at path (of the caller's own mount namespace). */
int mount_copy(int dirfd, const char *path, uint64_t attr_set);
int mount_set(int mount_fd, uint64_t attr_set);
int mount_attach(int mount_fd, int dirfd, const char *path);
/* Copy `from`, set attributes, attach over `to`: one over-mount. */
int mount_over(int from_dirfd, const char *from, int to_dirfd, const char *to, uint64_t attr_set);
/* O_PATH descriptor of the directory `name` in dirfd, never through a link. */
int mount_dir_beneath(int dirfd, const char *name, mode_t make_mode);
