/* overlay.h: the root file system of one sandbox, as a detached mount.
 *
 * Called by the mounter on its only thread; the calling process has
 * SECBIT_NO_SETUID_FIXUP (overlay_prepare_thread). Lower layers and the share are
 * cloned and id-mapped to the sandbox's user namespace, so that owners on disk
 * are 0-based whatever range the sandbox has. Everything made on the way is
 * released again; the result is the caller's.
 */
#pragma once
#include <stdint.h>
#include "base/error.h"

struct overlay_spec { /* descriptors borrowed */
	const int *layers;  /* mounts, attached in this namespace, bottom first */
	uint32_t n_layers;
	int share;          /* directory with "upper" and "work", in an attached mount */
	int userns;
	uint32_t root_uid, root_gid; /* what the namespace maps 0 to */
	const char *scratch; /* a directory of ours to attach to, for kernels that need it */
};

/* Once a thread: changing the fsuid must not take capabilities away. */
int overlay_prepare_thread(void);
int overlay_make(const struct overlay_spec *s, int *ret_mount_fd, struct dsec_error *e);
