/* auth.c: see auth.h. */
#include "control/auth.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/id.h"
#include "control/limits.h"

static bool key_valid(const char *key)
{
	size_t n = strlen(key);
	for (size_t i = 0; i < n; i++)
		if (key[i] <= ' ' || key[i] >= 0x7f)
			return false;
	return n >= LIMIT_API_KEY_MIN && n <= LIMIT_API_KEY_MAX;
}

int auth_check(struct store *store, const char *header, char ret_project[NAME_MAX_LEN + 1],
	       struct dsec_error *e)
{
	uint8_t hash[STORE_KEY_HASH_LEN];
	if (!header)
		return dsec_error_set(e, -EACCES, DSEC_E_UNAUTHENTICATED,
				      "send the API key in the header \"Authorization: Bearer KEY\"");
	if (strncasecmp(header, "Bearer ", 7) || !key_valid(header + 7))
		return dsec_error_set(e, -EACCES, DSEC_E_UNAUTHENTICATED,
				      "the Authorization header must be \"Bearer KEY\" with a valid key");
	SHA256((const uint8_t *)header + 7, strlen(header + 7), hash);
	int r = store_key_find(store, hash, ret_project);
	if (r == -ENOENT)
		return dsec_error_set(e, -EACCES, DSEC_E_UNAUTHENTICATED, "this API key is not known here");
	return r ? dsec_error_errno(e, r, "the store did not answer") : 0;
}

/* O_EXCL, so that two that start together agree on one key. */
static int make_key_file(const char *path)
{
	char a[ID_RANDOM_LEN + 1], b[ID_RANDOM_LEN + 1], text[96];
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno == EEXIST ? 0 : -errno;
	id_random(a);
	id_random(b);
	int n = snprintf(text, sizeof(text), "dsk-%s%s\n", a, b);
	int r = write_all(fd, text, (size_t)n);
	if (!r && fsync(fd) < 0)
		r = -errno;
	if (r)
		unlink(path);
	return r;
}

int auth_key_file(struct store *store, const char *path, struct dsec_error *e)
{
	_cleanup_free_ char *text = NULL;
	uint8_t hash[STORE_KEY_HASH_LEN];
	size_t n;
	int r = make_key_file(path);
	if (r)
		return dsec_error_errno(e, r, "cannot make the key file %s", path);
	r = read_file_at(AT_FDCWD, path, 4096, &text, &n);
	if (r)
		return dsec_error_errno(e, r, "cannot read the key file %s", path);
	text[strcspn(text, "\r\n")] = 0;
	if (!key_valid(text))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_REQUEST,
				      "the key file %s must hold one line of %d to %d printable letters", path,
				      LIMIT_API_KEY_MIN, LIMIT_API_KEY_MAX);
	SHA256((const uint8_t *)text, strlen(text), hash);
	r = store_project_put(store, DEFAULT_PROJECT);
	if (!r)
		r = store_key_put(store, hash, DEFAULT_PROJECT, "key-file");
	return r ? dsec_error_errno(e, r, "cannot store the key") : 0;
}
