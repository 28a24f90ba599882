/* dsec/client.h: the connection to one DSec server.
 *
 * A client holds the server's address, the key and a few kept-alive connections.
 * It may be used by any number of threads at once: each call takes a connection
 * of its own. Calls block until they are done. No call raises or needs signals.
 * Everything a call returns belongs to the caller and is released with the _free
 * function of its type, which accepts NULL.
 */
#ifndef DSEC_CLIENT_H
#define DSEC_CLIENT_H
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "dsec/error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dsec_client;

/* All fields may be 0 or NULL; strings are copied. */
struct dsec_client_options {
	/* "http://HOST:PORT". NULL: the environment's DSEC_URL, else the server of
	 * this machine: STATE_DIR/run/url with the key STATE_DIR/api-key. */
	const char *url;
	const char *api_key;   /* NULL: DSEC_API_KEY, or the file as above */
	const char *state_dir; /* NULL: DSEC_STATE_DIR, else /var/lib/dsec */
	unsigned connect_timeout_ms; /* 0: 10000 */
	unsigned call_timeout_ms;    /* of calls that are not streams; 0: 120000 */
	unsigned reconnect_ms; /* how long a broken output stream is tried again; 0: 30000 */
	const char *user_agent; /* NULL: "libdsec/VERSION" */
};

/* Does not talk to the server yet. options may be NULL. */
DSEC_API int dsec_client_new(const struct dsec_client_options *options, struct dsec_client **ret,
			     struct dsec_error *e);
/* No call may be in flight. */
DSEC_API void dsec_client_free(struct dsec_client *c);
DSEC_API const char *dsec_client_url(const struct dsec_client *c); /* borrowed from the client */

/* Ends the calls that are in flight now with "interrupted"; later calls work.
 * From any thread, not from a signal handler. */
DSEC_API void dsec_client_interrupt(struct dsec_client *c);

/* Any call of the API by hand: path begins with "/v1/..." and is already
 * percent-encoded; json_body may be NULL. *ret_json: the answer's text (free it
 * with free), "" when there is none. */
DSEC_API int dsec_client_call(struct dsec_client *c, const char *method, const char *path,
			      const char *json_body, char **ret_json, struct dsec_error *e);

DSEC_API const char *dsec_version(void); /* of this library, static */

/* Where bytes of an upload come from: writes up to n bytes to buf, returns how
 * many, 0 at the end, negative errno to give up. */
typedef ssize_t (*dsec_read_fn)(void *buf, size_t n, void *user);
/* Where bytes of a download go: 0 to go on, negative errno to give up. data is
 * borrowed for the call. */
typedef int (*dsec_write_fn)(const void *data, size_t n, void *user);

struct dsec_pair {
	const char *name, *value;
};

#ifdef __cplusplus
}
#endif
#endif
