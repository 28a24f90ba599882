/* store.c: see store.h. */
#include "layer/store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/id.h"
#include "layer/rmtree.h"

#define TEMP_PREFIX ".tmp-"
#define TEMP_TRIES 8
#define META_MAX (1u << 20)

bool layer_digest_valid(const char *digest)
{
	if (strlen(digest) != LAYER_DIGEST_LEN || strncmp(digest, "sha256:", 7))
		return false;
	return strspn(digest + 7, "0123456789abcdef") == 64;
}

void layer_dir_name(const char *digest, char ret[LAYER_DIR_NAME_LEN + 1])
{
	memcpy(ret, digest, LAYER_DIGEST_LEN + 1);
	ret[6] = '-';
}

int layer_image_path(const char *layer_dir, const char *digest, char *ret, size_t n, struct dsec_error *e)
{
	char name[LAYER_DIR_NAME_LEN + 1];
	if (!layer_digest_valid(digest))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "a layer digest is sha256: and 64 hex digits");
	layer_dir_name(digest, name);
	int k = snprintf(ret, n, "%s/%s/" LAYER_IMAGE, layer_dir, name);
	if (k < 0 || (size_t)k >= n)
		return dsec_error_errno(e, -ENAMETOOLONG, "layer directory");
	if (access(ret, R_OK) < 0)
		return dsec_error_set(e, -errno, DSEC_E_LAYER_NOT_FOUND, "the layer %s is not in the store", digest);
	return 0;
}

int layer_info_read(const char *layer_dir, const char *digest, struct layer_info *ret, struct dsec_error *e)
{
	char path[PATH_MAX];
	int r = layer_image_path(layer_dir, digest, path, sizeof(path), e);
	if (r < 0)
		return r;
	memcpy(strrchr(path, '/') + 1, LAYER_META, sizeof(LAYER_META)); /* shorter than image.erofs */
	_cleanup_free_ char *text = NULL;
	r = read_file_at(AT_FDCWD, path, META_MAX, &text, NULL);
	if (r < 0)
		return dsec_error_set(e, r, DSEC_E_IMAGE_BROKEN, "%s: %s", path, strerror(-r));
	json_t *root = json_loads(text, 0, NULL), *config = json_object_get(root, "config");
	json_int_t version = json_integer_value(json_object_get(root, "format_version"));
	if (version != LAYER_FORMAT_VERSION || !json_is_object(config)) {
		json_decref(root);
		return dsec_error_set(e, -EBADMSG, DSEC_E_IMAGE_BROKEN, "%s is not of format version %d", path,
				      LAYER_FORMAT_VERSION);
	}
	ret->size_bytes = (uint64_t)json_integer_value(json_object_get(root, "size_bytes"));
	ret->files = (uint64_t)json_integer_value(json_object_get(root, "files"));
	ret->config = json_incref(config);
	json_decref(root);
	return 0;
}

void layer_info_done(struct layer_info *i)
{
	json_decref(i->config);
	i->config = NULL;
}

/* The sweeper may take a new directory for an abandoned one between mkdir and
 * flock: then the name is gone or another inode's, and we try again. */
static int temp_try(struct layer_temp *t)
{
	char random[ID_RANDOM_LEN + 1];
	id_random(random);
	snprintf(t->name, sizeof(t->name), TEMP_PREFIX "%.20s", random);
	if (mkdirat(t->store_fd, t->name, 0700) < 0)
		return -errno;
	t->dir_fd = openat(t->store_fd, t->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat ours, named;
	if (t->dir_fd < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	if (flock(t->dir_fd, LOCK_EX | LOCK_NB) < 0 || fstat(t->dir_fd, &ours) < 0 ||
	    fstatat(t->store_fd, t->name, &named, AT_SYMLINK_NOFOLLOW) < 0 || ours.st_ino != named.st_ino) {
		base_closep(&t->dir_fd);
		return -EAGAIN;
	}
	return 0;
}

int layer_temp_open(const char *layer_dir, struct layer_temp *ret, struct dsec_error *e)
{
	struct layer_temp t = { .dir_fd = -1 };
	t.store_fd = open(layer_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t.store_fd < 0)
		return dsec_error_errno(e, -errno, "layer store %s", layer_dir);
	int r = -EAGAIN;
	for (int i = 0; i < TEMP_TRIES && r == -EAGAIN; i++)
		r = temp_try(&t);
	if (!r && (mkdirat(t.dir_fd, "stage", 0755) < 0 || mkdirat(t.dir_fd, "out", 0755) < 0))
		r = -errno;
	*ret = t;
	if (r < 0) {
		layer_temp_close(ret);
		return dsec_error_errno(e, r, "layer store %s", layer_dir);
	}
	return 0;
}

void layer_temp_close(struct layer_temp *t)
{
	if (t->dir_fd >= 0) {
		rmtree_at(t->store_fd, t->name);
		base_closep(&t->dir_fd);
	}
	base_closep(&t->store_fd);
}

static int write_meta(int out, const struct layer_info *info)
{
	json_t *root = json_pack("{s:i, s:I, s:I, s:O}", "format_version", LAYER_FORMAT_VERSION, "size_bytes",
				 (json_int_t)info->size_bytes, "files", (json_int_t)info->files, "config", info->config);
	_cleanup_free_ char *text = json_dumps(root, JSON_SORT_KEYS | JSON_COMPACT);
	json_decref(root);
	return text ? write_file_atomic(out, LAYER_META, text, strlen(text), 0644) : -ENOMEM;
}

static int sync_file(int dirfd, const char *name)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int layer_temp_publish(struct layer_temp *t, const char *digest, const struct layer_info *info,
		       struct dsec_error *e)
{
	char name[LAYER_DIR_NAME_LEN + 1];
	layer_dir_name(digest, name);
	_cleanup_close_ int out = openat(t->dir_fd, "out", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r = out < 0 ? -errno : write_meta(out, info);
	if (!r)
		r = sync_file(out, LAYER_IMAGE);
	if (!r && fsync(out) < 0)
		r = -errno;
	if (!r && syscall(SYS_renameat2, t->dir_fd, "out", t->store_fd, name, 1 /* RENAME_NOREPLACE */) < 0)
		r = errno == EEXIST ? 0 : -errno; /* the same content is there: ours goes with the temporary */
	if (!r && fsync(t->store_fd) < 0)
		r = -errno;
	return r < 0 ? dsec_error_errno(e, r, "publishing the layer") : 0;
}

static int sweep_one(int store, const char *name)
{
	_cleanup_close_ int fd = openat(store, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno; /* its import is alive */
	return rmtree_at(store, name);
}

int layer_store_sweep(const char *layer_dir)
{
	_cleanup_closedir_ DIR *d = opendir(layer_dir);
	if (!d)
		return -errno;
	int removed = 0;
	struct dirent *ent;
	while ((ent = readdir(d)))
		if (!strncmp(ent->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) && sweep_one(dirfd(d), ent->d_name) == 0)
			removed++;
	return removed;
}
