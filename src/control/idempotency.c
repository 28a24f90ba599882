/* idempotency.c: see idempotency.h. */
#include "control/idempotency.h"
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/limits.h"

#define KEY_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

static bool key_valid(const char *key)
{
	size_t n = strspn(key, KEY_LETTERS);
	return n > 0 && n <= LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX && !key[n];
}

int idempotency_choose(const char *in_body, const char *in_header, const char **ret, struct dsec_error *e)
{
	const char *key = in_body ? in_body : in_header;
	if (in_body && in_header && strcmp(in_body, in_header))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD,
				      "idempotency_key and the header Idempotency-Key differ");
	if (key && !key_valid(key))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD,
				      "an idempotency key is 1 to %d letters, digits, \"-\", \"_\", \".\"",
				      LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX);
	*ret = key;
	return 0;
}

int idempotency_hash(const json_t *body, uint8_t ret[IDEMPOTENCY_HASH_LEN])
{
	json_t *bare = json_copy((json_t *)body); /* shallow; the cast: jansson counts references */
	if (!bare)
		return -ENOMEM;
	json_object_del(bare, "idempotency_key");
	_cleanup_free_ char *text = json_dumps(bare, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(bare);
	if (!text)
		return -ENOMEM;
	SHA256((const uint8_t *)text, strlen(text), ret);
	return 0;
}

/* HMAC-SHA256 of "use NUL project NUL key NUL edge": none of them holds a NUL.
 * `use` keeps ids apart from weights, which decide what others can observe. */
static void mac(const uint8_t secret[STORE_SECRET_LEN], const char *use, const char *project, const char *key,
		const char *edge, uint8_t ret[SHA256_DIGEST_LENGTH])
{
	char text[8 + NAME_MAX_LEN + IDEMPOTENCY_KEY_MAX + EDGE_NAME_MAX + 4];
	int n = snprintf(text, sizeof(text), "%s%c%s%c%s%c%s", use, 0, project, 0, key, 0, edge);
	if (!HMAC(EVP_sha256(), secret, STORE_SECRET_LEN, (const uint8_t *)text, (size_t)n, ret, NULL))
		abort(); /* only without SHA-256 in libcrypto, or no memory for a digest context */
}

uint64_t idempotency_weight(const uint8_t secret[STORE_SECRET_LEN], const char *project, const char *key,
			    const char *edge)
{
	uint8_t m[SHA256_DIGEST_LENGTH];
	uint64_t w;
	mac(secret, "edge", project, key, edge, m);
	memcpy(&w, m, sizeof(w));
	return w;
}

void idempotency_id(const uint8_t secret[STORE_SECRET_LEN], const char *project, const char *key,
		    const char *edge, char ret[SANDBOX_ID_MAX + 1])
{
	uint8_t m[SHA256_DIGEST_LENGTH];
	_Static_assert(sizeof(m) >= ID_RANDOM_LEN, "one HMAC holds an id");
	mac(secret, "id", project, key, edge, m);
	id_sandbox_of(edge, m, ret);
}
