/* auth.h: API keys: hashing, the first key, and who a request is.
 *
 * Loop thread. A key is any text of LIMIT_API_KEY_MIN..MAX printable letters;
 * the store keeps SHA-256 of it.
 */
#pragma once
#include "base/error.h"
#include "store/store.h"

/* header: the Authorization header or NULL. 0 and the project, or a typed
 * error (unauthenticated). */
int auth_check(struct store *store, const char *header, char ret_project[NAME_MAX_LEN + 1],
	       struct dsec_error *e);
/* Makes the key file (0600) when it is missing and puts its key into the store
 * for the default project. */
int auth_key_file(struct store *store, const char *path, struct dsec_error *e);
