/* store.h: what the control plane must remember: projects, API keys, layers, secrets.
 *
 * Called by the apiserver on its loop thread (and by tests); one handle belongs
 * to one thread. Calls are synchronous: every one is an indexed look-up or one
 * small transaction, so with the local SQLite file it is cheaper than a trip
 * through the thread pool. Writes are rare (a key, a layer) and cost one
 * fdatasync. A provider over a network must be driven from a worker thread by
 * its caller: the contract itself never promises an answer without waiting.
 *
 * Durability: when a write call returns 0 the change survives kill -9 and power
 * loss. Several processes may open the same store at the same time.
 *
 * A key is stored as the SHA-256 of its text only; the text cannot be had back.
 * A layer row names content: any number of name@version rows may refer to one
 * digest, and the file behind a digest may go only when no row refers to it
 * (store_layer_refs). No sandbox state is kept here.
 *
 * Errors: -ENOENT (no such row), -EEXIST, -EINVAL (a name beyond its limit),
 * -EBUSY (locked longer than STORE_BUSY_MS), -EPROTONOSUPPORT (made by a newer
 * version), -EBADMSG (not a store, or damaged), -ENOMEM, -EIO, -ENOSPC.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/id.h"

#define STORE_BUSY_MS 2000           /* how long a call waits for another process's lock */
#define STORE_KEY_HASH_LEN 32        /* SHA-256 */
#define STORE_SECRET_LEN 32
#define STORE_DIGEST_LEN 71          /* "sha256:" + 64 hex digits */
#define STORE_SOURCE_MAX 1024        /* bytes of a layer's source text */
#define STORE_CONFIG_MAX (64 * 1024) /* bytes of a layer's config, JSON text */
#define STORE_LIST_MAX 100000        /* rows that a list gives at most */

struct store;

/* Opens or makes the store at `where` (a file path for SQLite), mode 0600, and
 * brings an older schema up to date in one transaction. */
int store_open(const char *where, struct store **ret);
void store_close(struct store *s); /* NULL accepted */
/* 0 when a read gets an answer now. */
int store_ping(struct store *s);
int store_schema_version(struct store *s, uint32_t *ret);

/* Projects. Names as id_name_valid. */
int store_project_put(struct store *s, const char *name); /* present already: 0 */
typedef void (*store_project_fn)(const char *name, void *user);
int store_project_each(struct store *s, store_project_fn fn, void *user); /* by name */

/* API keys. `label` is for people (at most NAME_MAX_LEN bytes). Putting a hash
 * again moves it to the given project. */
int store_key_put(struct store *s, const uint8_t hash[STORE_KEY_HASH_LEN], const char *project,
		  const char *label);
/* The project of the key with this hash. The look-up goes by the first half of
 * the hash; the whole is compared in constant time. -ENOENT: no such key. */
int store_key_find(struct store *s, const uint8_t hash[STORE_KEY_HASH_LEN],
		   char ret_project[NAME_MAX_LEN + 1]);
int store_key_remove(struct store *s, const uint8_t hash[STORE_KEY_HASH_LEN]);

/* A secret that all processes on this store share: drawn at random when it is
 * first asked for, the same ever after. Names as id_name_valid. */
int store_secret(struct store *s, const char *name, uint8_t ret[STORE_SECRET_LEN]);

/* Layers. Strings are borrowed for the call, in both directions. */
struct store_layer {
	const char *name, *version; /* id_name_valid */
	const char *digest;         /* "sha256:..." */
	uint64_t size_bytes, files;
	const char *config; /* JSON object text; "" = {} */
	const char *source;
	uint64_t created_at_ms; /* real time; 0 on put = now */
};
/* -EEXIST when name@version is there with another digest; the same digest again
 * is 0 and changes nothing. */
int store_layer_put(struct store *s, const struct store_layer *layer);
/* version NULL or "": the newest, that is the one created last. The callback
 * runs once, before the call returns. */
typedef void (*store_layer_fn)(const struct store_layer *layer, void *user);
int store_layer_get(struct store *s, const char *name, const char *version, store_layer_fn fn,
		    void *user);
int store_layer_each(struct store *s, store_layer_fn fn, void *user); /* by name, then creation */
/* Removes the row; *ret_refs = rows that still refer to its digest. */
int store_layer_remove(struct store *s, const char *name, const char *version, uint64_t *ret_refs);
int store_layer_refs(struct store *s, const char *digest, uint64_t *ret);
