/* import.h: a tar stream becomes a layer of the store.
 *
 * One call, blocking, as root, one thread: unpack beside the store's layers, build
 * the EROFS image, name it by its digest, publish. Whatever was staged is gone
 * when it returns; what a kill -9 leaves the next layer_store_sweep removes.
 */
#pragma once
#include <signal.h>
#include <stdbool.h>
#include "base/error.h"
#include "layer/store.h"
#include "layer/untar.h"

struct import_result {
	char digest[LAYER_DIGEST_LEN + 1];
	struct layer_info info;
	struct untar_counts counts;
};

/* On success the caller does layer_info_done(&ret->info). */
int layer_import(const char *layer_dir, int tar_fd, bool compress, const volatile sig_atomic_t *stop,
		 struct import_result *ret, struct dsec_error *e);
