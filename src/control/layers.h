/* layers.h: what the layer handlers share. Loop thread. */
#pragma once
#include "control/request.h"

struct layer_ref {
	char name[NAME_MAX_LEN + 1], version[NAME_MAX_LEN + 1];
};

/* "{name}@{version}" of the path; answers and returns false when it is not. */
bool layer_ref_of(struct request *r, struct layer_ref *ret);
/* Removes L/sha256-... of a digest no row refers to: renamed first, so that it
 * is either whole or gone; what a crash leaves is swept by the store's owner. */
int layer_files_remove(const char *layer_dir, const char *digest);
