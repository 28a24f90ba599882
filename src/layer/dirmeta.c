/* dirmeta.c: see dirmeta.h. */
#include "layer/dirmeta.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"

struct dirmeta_entry {
	struct timespec mtime;
	uint32_t mode;
	char path[]; /* the map's key; "" is the root */
};

static const struct {
	const char *path;
	mode_t mode;
} mount_points[] = {
	{ "proc", 0555 }, { "sys", 0555 }, { "dev", 0755 }, { "dev/shm", 01777 },
	{ "dev/pts", 0755 }, { "tmp", 01777 }, { "run", 0755 },
};

int dirmeta_set(struct dirmeta *d, const char *path, uint32_t mode, int64_t mtime, uint32_t mtime_nsec)
{
	struct dirmeta_entry *m = hashmap_get(&d->by_path, path);
	if (!m) {
		size_t n = strlen(path) + 1;
		m = malloc(sizeof(*m) + n);
		if (!m)
			return -ENOMEM;
		memcpy(m->path, path, n);
		int r = hashmap_put(&d->by_path, m->path, m);
		if (r < 0) {
			free(m);
			return r;
		}
	}
	m->mode = mode;
	m->mtime = (struct timespec){ .tv_sec = mtime, .tv_nsec = mtime_nsec };
	return 0;
}

int dirmeta_implicit(struct dirmeta *d, const char *path)
{
	return hashmap_get(&d->by_path, path) ? 0 : dirmeta_set(d, path, 0755, 0, 0);
}

static int resolve_dir(int stage_fd, const char *path)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, stage_fd, *path ? path : ".", &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

/* A missing mount point, or one the stream has as something else: a root with
 * /tmp a symbolic link would send our mounts astray. */
static int add_mount_points(struct dirmeta *d, int stage_fd, uint64_t *files, struct dsec_error *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(mount_points); i++) {
		const char *path = mount_points[i].path, *slash = strchr(path, '/');
		_cleanup_close_ int up = slash ? resolve_dir(stage_fd, "dev") : -1;
		int at = slash ? up : stage_fd;
		const char *name = slash ? slash + 1 : path;
		struct stat st;
		if (slash && up < 0)
			return dsec_error_errno(e, up, "/dev of the layer");
		if (mkdirat(at, name, 0755) == 0) {
			*files += 1;
			int r = dirmeta_set(d, path, mount_points[i].mode, 0, 0);
			if (r < 0)
				return dsec_error_errno(e, r, "/%s of the layer", path);
		} else if (errno != EEXIST) {
			return dsec_error_errno(e, -errno, "/%s of the layer", path);
		} else if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
			return dsec_error_set(e, -ENOTDIR, DSEC_E_PATH_UNSAFE,
					      "/%s must be a directory in a layer that is to be a root", path);
		}
	}
	return 0;
}

static int apply(int stage_fd, const struct dirmeta_entry *m)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, m->mtime };
	_cleanup_close_ int fd = resolve_dir(stage_fd, m->path);
	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
		return 0; /* a later entry took its place */
	if (fd < 0)
		return fd;
	/* The order does not matter: root enters a directory whatever its mode, and
	 * neither call changes a parent. */
	return fchmod(fd, m->mode) < 0 || futimens(fd, times) < 0 ? -errno : 0;
}

int dirmeta_finish(struct dirmeta *d, int stage_fd, uint64_t *files, struct dsec_error *e)
{
	int r = dirmeta_implicit(d, "");
	if (r < 0)
		return dsec_error_errno(e, r, "directories");
	r = add_mount_points(d, stage_fd, files, e);
	size_t it = 0;
	struct dirmeta_entry *m;
	while (!r && (m = hashmap_next(&d->by_path, &it))) {
		r = apply(stage_fd, m);
		if (r < 0)
			dsec_error_errno(e, r, "directory %.200s", m->path);
	}
	return r;
}

void dirmeta_done(struct dirmeta *d)
{
	size_t it = 0;
	struct dirmeta_entry *m;
	while ((m = hashmap_next(&d->by_path, &it)))
		free(m);
	hashmap_done(&d->by_path);
}
