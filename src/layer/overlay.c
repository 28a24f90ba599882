/* overlay.c: see overlay.h.
 *
 * Two ways to name the directories. Kernels from 6.13 take descriptors of
 * detached mounts ("lowerdir+", "upperdir", "workdir"). Older ones refuse that
 * with EINVAL, EOPNOTSUPP or (6.12) EBADF and want attached mounts: then the clones are
 * attached below `scratch`, named by path, and detached when the overlay (which
 * keeps its own private clones) is made. Which way works is found out once.
 *
 * The superblock's owner of all copying up is whoever creates it. With an
 * id-mapped upper an unmapped fsuid cannot make the work directory, and overlayfs
 * then silently mounts read-only; so the fsuid is the mapped root's around the
 * create, and the result is checked.
 */
#include "layer/overlay.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/cleanup.h"


static bool by_path; /* this kernel wants attached mounts */

int overlay_prepare_thread(void)
{
	int bits = prctl(PR_GET_SECUREBITS);
	if (bits < 0)
		return -errno;
	return prctl(PR_SET_SECUREBITS, (unsigned long)(bits | SECBIT_NO_SETUID_FIXUP)) < 0 ? -errno : 0;
}

static int clone_idmapped(int dirfd, int userns, int *ret)
{
	_cleanup_close_ int fd = open_tree(dirfd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (fd < 0)
		return -errno;
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns };
	if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return -errno;
	*ret = TAKE_FD(fd);
	return 0;
}

/* Options that do not name directories. Why each: docs/decisions/0201 */
static int set_options(int fs)
{
	static const char *const options[][2] = {
		{ "redirect_dir", "on" }, { "metacopy", "off" }, { "index", "off" }, { "xino", "on" },
	};
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		if (fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1], 0) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
		return -errno;
	return fsconfig(fs, FSCONFIG_SET_STRING, "source", "overlay", 0) < 0 ? -errno : 0;
}

static int create_as_mapped_root(int fs, uint32_t uid, uint32_t gid)
{
	/* setfsuid reports no failure; the read-only check afterwards would. */
	setfsgid(gid);
	setfsuid(uid);
	int r = fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0 ? -errno : 0;
	setfsuid(0);
	setfsgid(0);
	return r;
}

static int finish(int fs, const struct overlay_spec *s, int *ret)
{
	int r = create_as_mapped_root(fs, s->root_uid, s->root_gid);
	if (r < 0)
		return r;
	/* No MOUNT_ATTR_NOSUID: sudo and su work inside. */
	_cleanup_close_ int fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
	if (fd < 0)
		return -errno;
	struct statvfs vfs;
	if (fstatvfs(fd, &vfs) < 0)
		return -errno;
	if (vfs.f_flag & ST_RDONLY)
		return -EROFS;
	*ret = TAKE_FD(fd);
	return 0;
}

static int make_by_fd(const struct overlay_spec *s, const int *lowers, int share, int *ret)
{
	_cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	_cleanup_close_ int upper = openat(share, "upper", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_close_ int work = openat(share, "work", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fs < 0 || upper < 0 || work < 0)
		return -errno;
	for (uint32_t i = s->n_layers; i-- > 0;) /* the topmost lower comes first */
		if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, lowers[i]) < 0)
			return -errno;
	if (fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, upper) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, work) < 0)
		return -errno;
	int r = set_options(fs);
	return r < 0 ? r : finish(fs, s, ret);
}

static int attach(int mount_fd, const char *path)
{
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	return move_mount(mount_fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int make_attached(const struct overlay_spec *s, int *ret)
{
	char lower[OVERLAY_LAYERS_MAX * 80], path[512];
	size_t n = 0;
	for (uint32_t i = s->n_layers; i-- > 0;) {
		int k = snprintf(lower + n, sizeof(lower) - n, "%s%s/l%u", n ? ":" : "", s->scratch, i);
		if (k < 0 || (size_t)k >= sizeof(lower) - n)
			return -ENAMETOOLONG;
		n += (size_t)k;
	}
	_cleanup_close_ int fs = fsopen("overlay", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_STRING, "lowerdir", lower, 0) < 0)
		return -errno;
	static const char *const dirs[][2] = { { "upperdir", "upper" }, { "workdir", "work" } };
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		if (snprintf(path, sizeof(path), "%s/share/%s", s->scratch, dirs[i][1]) >= (int)sizeof(path))
			return -ENAMETOOLONG;
		if (fsconfig(fs, FSCONFIG_SET_STRING, dirs[i][0], path, 0) < 0)
			return -errno;
	}
	int r = set_options(fs);
	return r < 0 ? r : finish(fs, s, ret);
}

static int make_by_path(const struct overlay_spec *s, const int *lowers, int share, int *ret)
{
	char path[512];
	uint32_t attached = 0;
	bool share_attached = false;
	int r = 0;
	for (; !r && attached < s->n_layers; attached++) {
		snprintf(path, sizeof(path), "%s/l%u", s->scratch, attached);
		r = attach(lowers[attached], path);
		if (r < 0)
			break;
	}
	snprintf(path, sizeof(path), "%s/share", s->scratch);
	if (!r) {
		r = attach(share, path);
		share_attached = !r;
	}
	if (!r)
		r = make_attached(s, ret);
	if (share_attached)
		umount2(path, MNT_DETACH);
	while (attached-- > 0) {
		snprintf(path, sizeof(path), "%s/l%u", s->scratch, attached);
		umount2(path, MNT_DETACH);
	}
	return r;
}

void overlay_clones_close(struct overlay_clones *c)
{
	while (c->n > 0)
		close(c->fd[--c->n]);
}

int overlay_make(const struct overlay_spec *s, int *ret_mount_fd, struct overlay_clones *ret_clones, struct dsec_error *e)
{
	struct overlay_clones c = { .n = 0 };
	if (!s->n_layers || s->n_layers > OVERLAY_LAYERS_MAX)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "1 to %d layers make a root", OVERLAY_LAYERS_MAX);
	int r = 0;
	for (; !r && c.n <= s->n_layers; c.n++) { /* the share comes last */
		r = clone_idmapped(c.n < s->n_layers ? s->layers[c.n] : s->share, s->userns, &c.fd[c.n]);
		if (r < 0)
			break;
	}
	if (r < 0) {
		dsec_error_set(e, r, r == -EPERM ? DSEC_E_INTERNAL : DSEC_E_HOST_LACKS,
			       "a mount cannot be id-mapped to the sandbox's user namespace: %s", strerror(-r));
	} else {
		int share = c.fd[s->n_layers];
		r = by_path ? -EOPNOTSUPP : make_by_fd(s, c.fd, share, ret_mount_fd);
		if (r == -EOPNOTSUPP || r == -EINVAL || r == -EBADF) {
			r = make_by_path(s, c.fd, share, ret_mount_fd);
			by_path |= !r;
		}
		if (r < 0)
			dsec_error_set(e, r, DSEC_E_INTERNAL, "overlay: %s", r == -EROFS ?
				       "became read-only, the mapped root cannot write the share" : strerror(-r));
	}
	if (r < 0)
		overlay_clones_close(&c);
	else
		*ret_clones = c;
	return r;
}
