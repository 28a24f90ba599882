/* erofs_build.h: makes the canonical EROFS image of a tree, and its digest.
 *
 * Called by the importer. The bytes depend on the tree alone: mkfs.erofs walks it
 * in name order with a fixed UUID, a fixed superblock time, each file's own mtime,
 * and every extended attribute inline (sharing them would depend on the order the
 * directory was read in). The digest names the layer.
 */
#pragma once
#include <signal.h>
#include <stdbool.h>
#include "base/error.h"
#include "layer/store.h"

/* tree and image are paths. compress: lz4, else stored as it is. Returns -EINTR
 * soon after *stop is set. The child dies with the caller. */
int erofs_build(const char *tree, const char *image, bool compress, const volatile sig_atomic_t *stop,
		struct dsec_error *e);
int erofs_digest(const char *image, char ret_digest[LAYER_DIGEST_LEN + 1], uint64_t *ret_size,
		 struct dsec_error *e);
