/* volume.c: see volume.h. Both providers are btrfs and share everything but the
 * way to their root directory:
 *
 *   btrfs-loop  S/volume.img -> loop device -> mount at mount_dir
 *   btrfs-dir   S/volume.d, a plain directory of the host's btrfs
 *
 * After kill -9 of the mounter its namespace and so its mount are gone, but the
 * overlays of live sandboxes keep the superblock and the loop device. The device
 * is then found by the image's inode and mounted again: the same superblock. If
 * no device carries the image nobody uses its content, and a new file is made
 * (never the old one formatted again: a dying device may still hold it).
 */
#include "layer/volume.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "layer/btrfs.h"
#include "layer/loopdev.h"

#define MOUNT_RETRY_MS 3000 /* a superblock that is being torn down answers EBUSY until it is gone */
#define SHARE_METADATA_SLACK (1u << 20) /* room of the volume itself, above a share's need, to accept it */

struct volume {
	int root_fd;   /* directory of the shares */
	int state_fd;  /* for the host's free space */
	char *mount_dir; /* NULL: btrfs-dir */
	uint64_t reserve_bytes;
	enum btrfs_quota quota;
	char fsid[37];
	char described[160];
};

extern char **environ;

static int run_mkfs(const char *image)
{
	/* One copy of metadata (the file system below has its own redundancy or
	 * none), no discard of a file that is sparse already. */
	char *argv[] = { "mkfs.btrfs", "-q", "-f", "-K", "-m", "single", "-d", "single", (char *)image, NULL };
	pid_t pid;
	posix_spawn_file_actions_t quiet; /* it talks of changed defaults on every run */
	posix_spawn_file_actions_init(&quiet);
	posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&quiet, 2, "/dev/null", O_WRONLY, 0);
	int r = posix_spawnp(&pid, argv[0], &quiet, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&quiet);
	if (r)
		return -r;
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

static uint64_t default_size(int state_fd)
{
	struct statfs fs;
	if (fstatfs(state_fd, &fs) < 0)
		return VOLUME_SIZE_MIN;
	uint64_t half = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize / 2;
	half &= ~((1ull << 20) - 1);
	return MAX(half, VOLUME_SIZE_MIN);
}

/* A new sparse image under a temporary name, formatted, then put in place. */
static int make_image(int state_fd, const char *state_dir, uint64_t size, int *ret_fd, struct dsec_error *e)
{
	_cleanup_free_ char *tmp = NULL;
	if (asprintf(&tmp, "%s/volume.img.new", state_dir) < 0) {
		tmp = NULL;
		return dsec_error_errno(e, -ENOMEM, "volume");
	}
	unlinkat(state_fd, "volume.img.new", 0);
	_cleanup_close_ int fd = openat(state_fd, "volume.img.new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return dsec_error_errno(e, -errno, "%s", tmp);
	int r = ftruncate(fd, (off_t)size) < 0 ? -errno : 0;
	if (r < 0)
		dsec_error_errno(e, r, "%s of %llu bytes", tmp, (unsigned long long)size);
	if (!r && (r = run_mkfs(tmp)) < 0)
		dsec_error_set(e, r, r == -ENOENT ? DSEC_E_HOST_LACKS : DSEC_E_INTERNAL,
			       "mkfs.btrfs failed; it makes the volume of the sandboxes' disks (package btrfs-progs)");
	if (!r && renameat(state_fd, "volume.img.new", state_fd, "volume.img") < 0)
		r = dsec_error_errno(e, -errno, "%s", tmp);
	if (r < 0) {
		unlinkat(state_fd, "volume.img.new", 0);
		return r;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int mount_device(const char *device, const char *dir)
{
	/* nobarrier: nothing in it outlives a crash of the machine. discard: what
	 * a deleted share held goes back to the host's file system. commit: a removed
	 * file counts against its share until then (or until the share runs into its
	 * limit, which commits at once). */
	uint64_t deadline = now_mono_ms() + MOUNT_RETRY_MS;
	for (;;) {
		if (mount(device, dir, "btrfs", MS_NOATIME, "nobarrier,discard=async,commit=10") == 0)
			return 0;
		if (errno != EBUSY || now_mono_ms() > deadline)
			return -errno;
		usleep(20000);
	}
}

static int open_loop(struct volume *v, const struct volume_options *o, struct dsec_error *e)
{
	char device[LOOPDEV_PATH_MAX];
	_cleanup_close_ int loop = -1;
	_cleanup_close_ int image = openat(v->state_fd, "volume.img", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	int r = image < 0 ? -ENOENT : loopdev_find(image, device, &loop);
	const char *how = "found again";
	if (r < 0) {
		base_closep(&image);
		uint64_t size = o->size_bytes ? MAX(o->size_bytes, VOLUME_SIZE_MIN) : default_size(v->state_fd);
		r = make_image(v->state_fd, o->state_dir, size, &image, e);
		if (r < 0)
			return r;
		r = loopdev_attach(image, false, true, device, &loop);
		if (r < 0)
			return dsec_error_set(e, r, DSEC_E_HOST_LACKS, "no loop device for %s/volume.img: %s",
					      o->state_dir, strerror(-r));
		how = "new";
	}
	r = mount_device(device, o->mount_dir);
	if (r < 0)
		return dsec_error_set(e, r, DSEC_E_HOST_LACKS, "btrfs on %s does not mount: %s", device, strerror(-r));
	v->mount_dir = strdup(o->mount_dir);
	v->root_fd = open(o->mount_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!v->mount_dir || v->root_fd < 0) {
		r = v->mount_dir ? -errno : -ENOMEM;
		umount2(o->mount_dir, MNT_DETACH);
		return dsec_error_errno(e, r, "%s", o->mount_dir);
	}
	struct stat st;
	fstat(image, &st);
	snprintf(v->described, sizeof(v->described), "btrfs-loop %llu MiB on %s (%s)",
		 (unsigned long long)st.st_size >> 20, device, how);
	return 0;
}

/* The host's own btrfs, only if it limits subvolumes already: switching quotas
 * on for a file system that is not ours would change it for everybody. */
static int open_dir(struct volume *v, const struct volume_options *o)
{
	struct statfs fs;
	if (fstatfs(v->state_fd, &fs) < 0 || fs.f_type != BTRFS_SUPER_MAGIC)
		return -EOPNOTSUPP;
	if (mkdirat(v->state_fd, "volume.d", 0700) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_close_ int fd = openat(v->state_fd, "volume.d", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	btrfs_subvol_delete(fd, ".probe");
	int r = btrfs_subvol_create(fd, ".probe");
	if (r < 0)
		return r;
	_cleanup_close_ int probe = openat(fd, ".probe", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = probe < 0 ? -errno : btrfs_quota_limit(probe, VOLUME_LIMIT_MIN);
	btrfs_subvol_delete(fd, ".probe");
	if (r < 0)
		return r;
	v->root_fd = TAKE_FD(fd);
	v->quota = BTRFS_QUOTA_QGROUPS;
	snprintf(v->described, sizeof(v->described), "btrfs-dir %s/volume.d", o->state_dir);
	return 0;
}

int volume_open(const struct volume_options *o, struct volume **ret, struct dsec_error *e)
{
	struct volume *v = calloc(1, sizeof(*v));
	if (!v)
		return dsec_error_errno(e, -ENOMEM, "volume");
	v->root_fd = -1;
	v->reserve_bytes = o->reserve_bytes;
	v->state_fd = open(o->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = v->state_fd < 0 ? dsec_error_errno(e, -errno, "%s", o->state_dir) : 0;
	if (!r && open_dir(v, o) < 0) {
		r = open_loop(v, o, e);
		if (!r && (r = btrfs_quota_enable(v->root_fd, &v->quota)) < 0)
			dsec_error_set(e, r, DSEC_E_HOST_LACKS, "btrfs quotas cannot be enabled: %s", strerror(-r));
	}
	if (!r && (r = btrfs_fsid(v->root_fd, v->fsid)) < 0)
		dsec_error_errno(e, r, "btrfs fsid");
	if (!r && fchmod(v->root_fd, 0700) < 0)
		r = dsec_error_errno(e, -errno, "volume root");
	if (r < 0) {
		volume_close(v);
		return r;
	}
	size_t n = strlen(v->described);
	snprintf(v->described + n, sizeof(v->described) - n, ", %s",
		 v->quota == BTRFS_QUOTA_SIMPLE ? "simple quotas" : "quota groups");
	*ret = v;
	return 0;
}

void volume_close(struct volume *v)
{
	if (!v)
		return;
	base_closep(&v->root_fd);
	base_closep(&v->state_fd);
	if (v->mount_dir && umount2(v->mount_dir, 0) < 0)
		umount2(v->mount_dir, MNT_DETACH);
	free(v->mount_dir);
	free(v);
}

const char *volume_describe(const struct volume *v)
{
	return v->described;
}

/* The sparse image can run the host's file system full, which would turn every
 * sandbox's disk into I/O errors: stop giving out shares before that. */
static int check_room(struct volume *v, struct dsec_error *e)
{
	struct statfs host, fs;
	if (fstatfs(v->state_fd, &host) < 0 || fstatfs(v->root_fd, &fs) < 0)
		return dsec_error_errno(e, -errno, "statfs of the volume");
	uint64_t host_free = (uint64_t)host.f_bavail * (uint64_t)host.f_bsize;
	if (host_free < v->reserve_bytes)
		return dsec_error_set(e, -ENOSPC, DSEC_E_CAPACITY,
				      "the host's disk has %llu MiB free, sandboxes are refused below %llu MiB",
				      (unsigned long long)host_free >> 20, (unsigned long long)v->reserve_bytes >> 20);
	uint64_t free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
	if (free_bytes < SHARE_METADATA_SLACK + VOLUME_LIMIT_MIN)
		return dsec_error_set(e, -ENOSPC, DSEC_E_CAPACITY,
				      "the sandbox volume is full (%llu MiB free); remove sandboxes or enlarge it",
				      (unsigned long long)free_bytes >> 20);
	return 0;
}

static int fill_share(struct volume *v, const char *id, uint64_t limit_bytes, int *ret_fd)
{
	_cleanup_close_ int fd = openat(v->root_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	if (mkdirat(fd, "upper", 0755) < 0 || mkdirat(fd, "work", 0755) < 0)
		return -errno;
	/* Limited last: the two directories are the share's, but making them must
	 * not depend on how the kernel reserves for a nearly empty group. */
	int r = btrfs_quota_limit(fd, limit_bytes);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int volume_create(struct volume *v, const char *id, uint64_t limit_bytes, int *ret_fd, struct dsec_error *e)
{
	if (limit_bytes < VOLUME_LIMIT_MIN)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "a disk limit is at least %u MiB",
				      VOLUME_LIMIT_MIN >> 20);
	int r = check_room(v, e);
	if (r < 0)
		return r;
	r = btrfs_subvol_create(v->root_fd, id);
	if (r == -EEXIST)
		return dsec_error_set(e, r, DSEC_E_CONFLICT, "a disk named %s exists already; release it first", id);
	if (r < 0)
		return dsec_error_errno(e, r, "subvolume %s", id);
	r = fill_share(v, id, limit_bytes, ret_fd);
	if (r < 0) {
		volume_delete(v, id);
		return dsec_error_errno(e, r, "subvolume %s", id);
	}
	return 0;
}

static int share_subvol(struct volume *v, const char *id, uint64_t *ret)
{
	_cleanup_close_ int fd = openat(v->root_fd, id, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : btrfs_subvol_id(fd, ret);
}

int volume_delete(struct volume *v, const char *id)
{
	uint64_t subvol = 0;
	/* Kernels before 6.12 leave the quota group behind; simple quotas never do. */
	if (v->quota == BTRFS_QUOTA_QGROUPS && share_subvol(v, id, &subvol) < 0)
		subvol = 0;
	int r = btrfs_subvol_delete(v->root_fd, id);
	if (r == -ENOENT)
		return 0;
	if (!r && subvol)
		btrfs_quota_forget(v->root_fd, subvol);
	return r;
}

int volume_usage(struct volume *v, const char *id, uint64_t *ret_limit, uint64_t *ret_used)
{
	uint64_t subvol;
	int r = share_subvol(v, id, &subvol);
	return r < 0 ? r : btrfs_quota_usage(v->fsid, subvol, ret_limit, ret_used);
}

int volume_list(struct volume *v, int (*cb)(const char *id, void *user), void *user)
{
	int fd = openat(v->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = -errno;
		base_close(fd);
		return r;
	}
	struct dirent *ent;
	while ((ent = readdir(d))) {
		if (ent->d_name[0] == '.')
			continue;
		int r = cb(ent->d_name, user);
		if (r < 0)
			return r;
	}
	return 0;
}
