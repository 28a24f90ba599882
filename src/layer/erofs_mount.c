/* erofs_mount.c: see erofs_mount.h. */
#include "layer/erofs_mount.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include "base/cleanup.h"
#include "layer/loopdev.h"

static int mount_source(const char *source, int *ret_mount_fd)
{
	_cleanup_close_ int fs = fsopen("erofs", FSOPEN_CLOEXEC);
	if (fs < 0)
		return -errno;
	/* The flag comes before the source: a read-only loop device answers EACCES
	 * to a superblock that is not known to be read-only yet. */
	if (fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "source", source, 0) < 0)
		return -errno;
	/* Past the page cache of the image, or every page is held twice (a third of
	 * the memory at the same speed: docs/decisions/0202). Kernels before 6.15 and
	 * loop devices do not know the flag, and lose nothing else. */
	fsconfig(fs, FSCONFIG_SET_FLAG, "directio", NULL, 0);
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	int fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
	if (fd < 0)
		return -errno;
	*ret_mount_fd = fd;
	return 0;
}

int erofs_mount(const char *image, int *ret_mount_fd, enum erofs_how *ret_how, struct dsec_error *e)
{
	_cleanup_close_ int file = open(image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (file < 0)
		return dsec_error_errno(e, -errno, "%s", image);
	int r = mount_source(image, ret_mount_fd);
	if (!r) {
		*ret_how = EROFS_FILE;
		return 0;
	}
	if (r != -ENOTBLK) /* the only answer of a kernel that wants a block device */
		return dsec_error_set(e, r, r == -ENODEV ? DSEC_E_HOST_LACKS : DSEC_E_IMAGE_BROKEN,
				      r == -ENODEV ? "the kernel has no EROFS: load the module erofs" :
						     "%s does not mount: %s", image, strerror(-r));
	char device[LOOPDEV_PATH_MAX];
	_cleanup_close_ int loop = -1;
	r = loopdev_find(file, device, &loop);
	if (r < 0)
		r = loopdev_attach(file, true, false, device, &loop);
	if (r < 0)
		return dsec_error_set(e, r, DSEC_E_HOST_LACKS, "no loop device for a layer: %s", strerror(-r));
	r = mount_source(device, ret_mount_fd);
	if (r < 0)
		return dsec_error_set(e, r, DSEC_E_IMAGE_BROKEN, "%s does not mount through %s: %s", image, device,
				      strerror(-r));
	*ret_how = EROFS_LOOP;
	return 0;
}
