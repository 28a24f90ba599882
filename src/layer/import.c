/* import.c: see import.h. */
#include "layer/import.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"
#include "layer/erofs_build.h"

static int build(const char *layer_dir, const struct layer_temp *t, bool compress,
		 const volatile sig_atomic_t *stop, struct import_result *ret, struct dsec_error *e)
{
	char tree[PATH_MAX], image[PATH_MAX];
	int n = snprintf(tree, sizeof(tree), "%s/%s/stage", layer_dir, t->name);
	int k = snprintf(image, sizeof(image), "%s/%s/out/" LAYER_IMAGE, layer_dir, t->name);
	if (n < 0 || n >= (int)sizeof(tree) || k < 0 || k >= (int)sizeof(image))
		return dsec_error_errno(e, -ENAMETOOLONG, "layer directory");
	int r = erofs_build(tree, image, compress, stop, e);
	return r < 0 ? r : erofs_digest(image, ret->digest, &ret->info.size_bytes, e);
}

int layer_import(const char *layer_dir, int tar_fd, bool compress, const volatile sig_atomic_t *stop,
		 struct import_result *ret, struct dsec_error *e)
{
	struct layer_temp t;
	layer_store_sweep(layer_dir);
	int r = layer_temp_open(layer_dir, &t, e);
	if (r < 0)
		return r;
	_cleanup_close_ int stage = openat(t.dir_fd, "stage", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	*ret = (struct import_result){ 0 };
	r = stage < 0 ? dsec_error_errno(e, -errno, "staging directory") : untar(tar_fd, stage, stop, &ret->counts, e);
	if (!r)
		r = build(layer_dir, &t, compress, stop, ret, e);
	if (!r) {
		ret->info.files = ret->counts.files;
		ret->info.config = json_pack("{s:{}, s:s, s:s}", "env", "cwd", "", "user", "");
		r = ret->info.config ? layer_temp_publish(&t, ret->digest, &ret->info, e) :
				       dsec_error_errno(e, -ENOMEM, "layer configuration");
		if (r < 0)
			layer_info_done(&ret->info);
	}
	layer_temp_close(&t);
	return r;
}
