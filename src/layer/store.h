/* store.h: the layer store, a directory L that any number of processes share.
 *
 *   L/sha256-<64 hex>/image.erofs   the layer, named by its own SHA-256
 *   L/sha256-<64 hex>/layer.json    format version, size, files, default env/cwd/user
 *   L/.tmp-<random>/                an import in progress, held by flock of its owner
 *
 * Used by the importer (writes), the mounter and the apiserver (read). A layer
 * appears whole, by one rename of a directory whose files are on disk already,
 * and never changes after. Two imports of the same content race harmlessly: the
 * second finds the name taken and drops its own. What a crash leaves is a .tmp-
 * directory without a lock holder; layer_store_sweep removes those.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>
#include "base/error.h"

#define LAYER_FORMAT_VERSION 1
#define LAYER_DIGEST_LEN 71 /* "sha256:" + 64 lower-case hex digits */
#define LAYER_DIR_NAME_LEN LAYER_DIGEST_LEN /* the same with '-' for ':' */
#define LAYER_IMAGE "image.erofs"
#define LAYER_META "layer.json"

bool layer_digest_valid(const char *digest);
/* "sha256:ab.." -> "sha256-ab..". The digest is valid. */
void layer_dir_name(const char *digest, char ret[LAYER_DIR_NAME_LEN + 1]);
/* L/sha256-.../image.erofs; layer_not_found when there is no such layer. */
int layer_image_path(const char *layer_dir, const char *digest, char *ret, size_t n, struct dsec_error *e);

struct layer_info {
	uint64_t size_bytes, files;
	json_t *config; /* {"env": {}, "cwd": "", "user": ""} */
};
int layer_info_read(const char *layer_dir, const char *digest, struct layer_info *ret, struct dsec_error *e);
void layer_info_done(struct layer_info *i);

/* A private 0700 directory in L for one import: dirfd and lock in one descriptor. */
struct layer_temp {
	int store_fd, dir_fd;
	char name[32]; /* ".tmp-..." */
};
int layer_temp_open(const char *layer_dir, struct layer_temp *ret, struct dsec_error *e);
void layer_temp_close(struct layer_temp *t); /* removes whatever is left of it */
/* Makes t/out (image.erofs written and closed by the caller) the layer `digest`:
 * writes layer.json, syncs, renames. Success also when it was there before. */
int layer_temp_publish(struct layer_temp *t, const char *digest, const struct layer_info *info,
		       struct dsec_error *e);

/* Removes temporaries nobody holds. How many, or negative errno. */
int layer_store_sweep(const char *layer_dir);
