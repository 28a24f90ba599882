/* sdk-internal.h: what the files of libdsec share: the client, one HTTP call,
 * JSON helpers. Private; every symbol begins with sdk_ because the static library
 * cannot hide them.
 *
 * Threads: a struct dsec_client is shared; `lock` guards its list of idle
 * transports and the list of calls in flight. A struct sdk_transport (a curl multi
 * and easy handle with its kept-alive connection) belongs to one call at a time.
 */
#pragma once
#include <curl/curl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "dsec/dsec.h"

#define SDK_REPLY_MAX (64u << 20)     /* a JSON answer; more is bad_reply */
#define SDK_TRANSPORTS_IDLE_MAX 8     /* kept for later calls */
#define SDK_STREAM_SILENCE_S 30       /* the server sends a keepalive every 10 s */
#define SDK_PATH_MAX 16384

struct sdk_transport {
	CURLM *multi;
	CURL *easy;
	atomic_bool interrupted;
	struct sdk_transport *next, *prev; /* in the list of calls in flight */
};

struct dsec_client {
	char *url, *key, *agent;
	unsigned connect_timeout_ms, call_timeout_ms, reconnect_ms;
	bool local; /* no proxy is asked for a server on this host */
	pthread_mutex_t lock;
	struct sdk_transport *idle[SDK_TRANSPORTS_IDLE_MAX];
	unsigned n_idle;
	struct sdk_transport *in_flight; /* list head */
};

struct sdk_call {
	const char *method, *path; /* path with its query, encoded */
	const void *body;          /* or */
	size_t n_body;
	dsec_read_fn read;         /* a streamed body */
	void *read_user;
	const char *content_type;  /* NULL: application/json */
	const char *accept;
	dsec_write_fn sink;        /* takes the body of a 2xx answer; NULL: into `text` */
	void *sink_user;
	uint64_t timeout_ms;       /* 0: none */
	unsigned silence_s;        /* the answer may pause this long; 0: no limit */
	/* results */
	long status;
	char *text; /* owned; NUL-terminated */
	size_t n_text;
	int callback_err; /* what read or sink gave up with */
	bool read_began;  /* some of a streamed body is used up: not to be repeated */
};

/* 0 on 2xx. Otherwise negative errno with *e filled. sdk_call_done releases. */
int sdk_perform(struct dsec_client *c, struct sdk_call *call, struct dsec_error *e);
void sdk_call_done(struct sdk_call *call);

/* The path, printf-like; %s arguments must be encoded already (sdk_encode). */
int sdk_path(char ret[SDK_PATH_MAX], struct dsec_error *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Percent-encodes into a new string. NULL: out of memory. */
char *sdk_encode(const char *text);

/* One JSON call: body (reference stolen, NULL: none), answer as JSON. ret may be NULL. */
int sdk_json_call(struct dsec_client *c, const char *method, const char *path, json_t *body_take,
		  uint64_t timeout_ms, json_t **ret, struct dsec_error *e);

int sdk_fail(struct dsec_error *e, int ret, const char *code, enum dsec_fault fault, bool retry,
	     const char *fmt, ...) __attribute__((format(printf, 6, 7)));
int sdk_no_memory(struct dsec_error *e);
int sdk_bad_reply(struct dsec_error *e, const char *what);
/* From an error body of the server; `status` when it is none. Returns negative errno. */
int sdk_fail_json(struct dsec_error *e, const char *text, size_t n, int status);
int sdk_fail_object(struct dsec_error *e, const json_t *error, int status);

/* Fields of an answer; missing or null: "" / 0 / false. */
const char *sdk_str(const json_t *o, const char *key);
double sdk_num(const json_t *o, const char *key);
uint64_t sdk_u64(const json_t *o, const char *key);
bool sdk_bool(const json_t *o, const char *key);
/* {"a": "b"} from pairs. */
json_t *sdk_pairs_json(const struct dsec_pair *pairs, size_t n);
/* A whole number where it is one. */
json_t *sdk_seconds_json(double seconds);
/* A string, or {"b64": "..."} when it is not UTF-8. */
json_t *sdk_bytes_json(const char *text);
char *sdk_b64(const void *data, size_t n);
char *sdk_unb64(const char *text); /* NUL-terminated; NULL: not base64 or no memory */

/* What the structs' `internal` holds. */
struct sdk_holder {
	json_t *json;   /* owned reference: the strings point into it */
	char *text;     /* the same as text */
	void *extra[2]; /* owned allocations */
};
struct sdk_holder *sdk_holder_new(json_t *json);
void sdk_holder_free(struct sdk_holder *h);

/* sandbox.c, exec.c: fill from an answer; the JSON is referenced, not stolen. */
int sdk_exec_fill(struct dsec_exec *x, json_t *json);
void sdk_exec_done(struct dsec_exec *x);
/* exec.c: the start body. `id` replaces o->id. */
int sdk_exec_body(const struct dsec_exec_options *o, const char *id, json_t **ret, struct dsec_error *e);
void sdk_exec_make_id(char ret[65]);
