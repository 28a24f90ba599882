/* dsec/layer.h: layers, the file trees that environments are made of.
 *
 * Threads, blocking and errors as in dsec/client.h. A layer is immutable, named
 * by the digest of its content and by "name@version".
 */
#ifndef DSEC_LAYER_H
#define DSEC_LAYER_H
#include "dsec/client.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dsec_layer {
	const char *name, *version, *digest, *source;
	uint64_t size_bytes, files;
	double created_at; /* seconds since 1970 */
	const char *json;
	void *internal;
};

struct dsec_layer_list {
	struct dsec_layer *items; /* owned by the list */
	size_t n;
};

DSEC_API int dsec_layer_list(struct dsec_client *c, struct dsec_layer_list **ret, struct dsec_error *e);
/* name: "name@version", or "name" for the newest. */
DSEC_API int dsec_layer_get(struct dsec_client *c, const char *name, struct dsec_layer **ret,
			    struct dsec_error *e);
/* A tar stream (plain, gzip or zstd) becomes name@version. source: a word on where
 * it comes from, may be NULL. Returns when the layer can be used; no time limit. */
DSEC_API int dsec_layer_put(struct dsec_client *c, const char *name_at_version, const char *source,
			    dsec_read_fn tar, void *tar_user, struct dsec_layer **ret, struct dsec_error *e);
DSEC_API int dsec_layer_remove(struct dsec_client *c, const char *name_at_version, struct dsec_error *e);

DSEC_API void dsec_layer_free(struct dsec_layer *l);
DSEC_API void dsec_layer_list_free(struct dsec_layer_list *l);

#ifdef __cplusplus
}
#endif
#endif
