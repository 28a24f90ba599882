/* layer_table.h: the node's layer mounts, one a layer, made on first use.
 *
 * Owned by the mounter, used on its only thread. A mount is attached below
 * mount_dir in the mounter's private namespace; overlays made from it keep the
 * superblock by themselves, so forgetting a layer never disturbs a sandbox.
 */
#pragma once
#include <stdint.h>
#include "base/error.h"

#define LAYER_FORGET_IDLE_MS 60000 /* "lately": a layer used since then stays */

struct layer_table;

int layer_table_new(const char *layer_dir, const char *mount_dir, struct layer_table **ret);
void layer_table_free(struct layer_table *t); /* unmounts all */
/* The layer's mount, borrowed: valid until the next call. */
int layer_table_get(struct layer_table *t, const char *digest, int *ret_mount_fd, struct dsec_error *e);
/* -EBUSY when used within LAYER_FORGET_IDLE_MS; absent is success. */
int layer_table_forget(struct layer_table *t, const char *digest);
/* Drops the mounts of layers that were removed from the store: they would keep
 * the space. To be called now and then. How many. */
unsigned layer_table_sweep(struct layer_table *t);
const char *layer_table_describe(const struct layer_table *t);
