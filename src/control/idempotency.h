/* idempotency.h: idempotency keys of creates: from a key to a sandbox id.
 *
 * The same key in a project gives the same id and the same edge, on every
 * apiserver of the store and after any restart, and nothing is remembered here:
 * both come from an HMAC under a secret that is kept in the store. An edge makes
 * one sandbox an id, so it adopts by itself, for as long as it knows the sandbox.
 * Who lacks the secret cannot guess an id from a key (130 bits of the HMAC).
 *
 * The edge is chosen among all configured ones, also those that are away or full:
 * a second choice would make a second sandbox. (Rendezvous hashing: an edge that
 * is added takes over its share of the keys and moves no other.)
 *
 * Pure but for what it is given; any thread.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/id.h"
#include "control/limits.h"
#include "store/store.h"

#define IDEMPOTENCY_SECRET_NAME "idempotency"
#define IDEMPOTENCY_HASH_LEN 32
#define IDEMPOTENCY_KEY_MAX (LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX + 8) /* with "#INDEX" of a batch */

/* The key of a request that gives it in its body, its header or both (NULL: not
 * there); *ret NULL when it has none. -EINVAL and *e: it is no key, or two. */
int idempotency_choose(const char *in_body, const char *in_header, const char **ret, struct dsec_error *e);
/* SHA-256 of a create body without its key; the order of members does not count. */
int idempotency_hash(const json_t *body, uint8_t ret[IDEMPOTENCY_HASH_LEN]);

/* How much an edge wants this key: the highest is asked. */
uint64_t idempotency_weight(const uint8_t secret[STORE_SECRET_LEN], const char *project, const char *key,
			    const char *edge);
void idempotency_id(const uint8_t secret[STORE_SECRET_LEN], const char *project, const char *key,
		    const char *edge, char ret[SANDBOX_ID_MAX + 1]);
