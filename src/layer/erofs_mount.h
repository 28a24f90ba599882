/* erofs_mount.h: mounts one EROFS image, read-only, as a detached mount.
 *
 * Called by the mounter. A file is mounted directly where the kernel does that
 * (6.12 and later, probed by trying), else through a read-only loop device. An
 * image whose device is still attached (live sandboxes of a killed mounter) is
 * found again, so that its page cache is shared.
 */
#pragma once
#include "base/error.h"

enum erofs_how { EROFS_FILE, EROFS_LOOP };

int erofs_mount(const char *image, int *ret_mount_fd, enum erofs_how *ret_how, struct dsec_error *e);
