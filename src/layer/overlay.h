/* overlay.h: the root file system of one sandbox, as a detached mount.
 *
 * Called by the mounter on its only thread; the calling process has
 * SECBIT_NO_SETUID_FIXUP (overlay_prepare_thread). Lower layers and the share are
 * cloned and id-mapped to the sandbox's user namespace, so that owners on disk
 * are 0-based whatever range the sandbox has. The result is the caller's; of what
 * was made on the way the clones are left to it as well, since closing one waits
 * for the kernel's readers (expedited RCU, 0.05 to 1 ms each) and need not be done
 * before somebody gets the result.
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

#define OVERLAY_LAYERS_MAX 64 /* the kernel's own bound is 500 */

struct overlay_clones { /* detached mounts, to be closed by overlay_clones_close */
	int fd[OVERLAY_LAYERS_MAX + 1];
	uint32_t n;
};
void overlay_clones_close(struct overlay_clones *c);

/* Once a thread: changing the fsuid must not take capabilities away. */
int overlay_prepare_thread(void);
/* After a failure there are no clones. */
int overlay_make(const struct overlay_spec *s, int *ret_mount_fd, struct overlay_clones *ret_clones, struct dsec_error *e);
