/* layer_table.c: see layer_table.h. */
#include "layer/layer_table.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hashmap.h"
#include "layer/erofs_mount.h"
#include "layer/store.h"

struct layer_mount {
	char digest[LAYER_DIGEST_LEN + 1]; /* the map's key */
	int fd;                            /* keeps the mount busy: closed before unmounting */
	uint64_t used_ms;
};

struct layer_table {
	char *layer_dir, *mount_dir;
	struct hashmap by_digest;
	unsigned n_file, n_loop; /* mounts made so far, by kind */
	char described[96];
};

int layer_table_new(const char *layer_dir, const char *mount_dir, struct layer_table **ret)
{
	struct layer_table *t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->layer_dir = strdup(layer_dir);
	t->mount_dir = strdup(mount_dir);
	if (!t->layer_dir || !t->mount_dir) {
		layer_table_free(t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

static int mount_point(const struct layer_table *t, const char *digest, char path[PATH_MAX])
{
	char name[LAYER_DIR_NAME_LEN + 1];
	layer_dir_name(digest, name);
	return snprintf(path, PATH_MAX, "%s/%s", t->mount_dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static void drop(struct layer_table *t, struct layer_mount *m)
{
	char path[PATH_MAX];
	close(m->fd);
	if (mount_point(t, m->digest, path) == 0) {
		umount2(path, MNT_DETACH);
		rmdir(path);
	}
	free(m);
}

void layer_table_free(struct layer_table *t)
{
	if (!t)
		return;
	size_t it = 0;
	struct layer_mount *m;
	while ((m = hashmap_next(&t->by_digest, &it)))
		drop(t, m);
	hashmap_done(&t->by_digest);
	free(t->layer_dir);
	free(t->mount_dir);
	free(t);
}

static int mount_layer(struct layer_table *t, const char *digest, struct layer_mount **ret, struct dsec_error *e)
{
	char image[PATH_MAX], path[PATH_MAX];
	int r = layer_image_path(t->layer_dir, digest, image, sizeof(image), e);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = -1;
	enum erofs_how how;
	r = erofs_mount(image, &fd, &how, e);
	if (r < 0)
		return r;
	r = mount_point(t, digest, path);
	if (!r && mkdir(path, 0700) < 0 && errno != EEXIST)
		r = -errno;
	/* Attached, not kept loose: kernels before 6.15 clone only attached mounts. */
	if (!r && move_mount(fd, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		r = -errno;
	struct layer_mount *m = r < 0 ? NULL : calloc(1, sizeof(*m));
	if (!m) {
		if (!r)
			umount2(path, MNT_DETACH);
		return dsec_error_errno(e, r < 0 ? r : -ENOMEM, "layer mount point");
	}
	snprintf(m->digest, sizeof(m->digest), "%s", digest);
	m->fd = TAKE_FD(fd);
	*(how == EROFS_FILE ? &t->n_file : &t->n_loop) += 1;
	*ret = m;
	return 0;
}

int layer_table_get(struct layer_table *t, const char *digest, int *ret_mount_fd, struct dsec_error *e)
{
	struct layer_mount *m = hashmap_get(&t->by_digest, digest);
	if (!m) {
		int r = mount_layer(t, digest, &m, e);
		if (r < 0)
			return r;
		r = hashmap_put(&t->by_digest, m->digest, m);
		if (r < 0) {
			drop(t, m);
			return dsec_error_errno(e, r, "layer table");
		}
	}
	m->used_ms = now_mono_ms();
	*ret_mount_fd = m->fd;
	return 0;
}

int layer_table_forget(struct layer_table *t, const char *digest)
{
	struct layer_mount *m = hashmap_get(&t->by_digest, digest);
	if (!m)
		return 0;
	if (now_mono_ms() - m->used_ms < LAYER_FORGET_IDLE_MS)
		return -EBUSY;
	hashmap_remove(&t->by_digest, digest);
	drop(t, m);
	return 0;
}

unsigned layer_table_sweep(struct layer_table *t)
{
	unsigned dropped = 0;
	size_t it = 0;
	struct layer_mount *m;
	while ((m = hashmap_next(&t->by_digest, &it))) {
		char image[PATH_MAX];
		if (layer_image_path(t->layer_dir, m->digest, image, sizeof(image), NULL) != -ENOENT)
			continue;
		hashmap_remove(&t->by_digest, m->digest);
		drop(t, m);
		dropped++;
	}
	return dropped;
}

const char *layer_table_describe(const struct layer_table *t)
{
	struct layer_table *w = (struct layer_table *)t; /* the text is a cache of the counts */
	snprintf(w->described, sizeof(w->described), "%zu layers mounted (erofs: %u by file, %u by loop so far)",
		 hashmap_len(&t->by_digest), t->n_file, t->n_loop);
	return t->described;
}
