/* request.h: one HTTP request as a handler sees it.
 *
 * Loop thread only. A handler is called once (router.h says when). It either
 * answers at once (request_json, request_fail...) or sets operations and
 * answers later. Exactly one of the answers is given; `release` then comes once,
 * always, also when the client left before (then it is how the handler learns
 * it, and it cancels its work). After release the request is gone.
 *
 * Back-pressure. Upload: `body` takes what it can; taking less stops the reading
 * of the socket until request_body_more. Download: request_write always takes
 * all, so a handler bounds itself: it gives credit to its source only from
 * `drained`, which says how much is still unsent.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/error.h"
#include "control/control.h"

struct request;

struct request_ops {
	size_t (*body)(struct request *r, const uint8_t *p, size_t n); /* STREAM bodies */
	void (*body_end)(struct request *r);                           /* STREAM bodies, once */
	void (*drained)(struct request *r, size_t unsent);             /* after request_stream */
	void (*release)(struct request *r);
};

/* ---- what was asked ---- */
struct control *request_control(struct request *r);
const char *request_id(struct request *r);
const char *request_project(struct request *r);
const char *request_var(struct request *r, int at); /* of the path template */
const char *request_query(struct request *r, const char *name); /* NULL: not there */
const char *request_header_in(struct request *r, const char *name); /* NULL: not there */
void request_query_each(struct request *r, const char *name, void (*fn)(const char *value, void *user),
			void *user);
const json_t *request_body(struct request *r); /* JSON bodies; borrowed */
bool request_accepts(struct request *r, const char *type);
/* Query values of a type; absent leaves *ret. False: answered with bad_field. */
bool request_query_bool(struct request *r, const char *name, bool *ret);
bool request_query_uint(struct request *r, const char *name, uint64_t max, uint64_t *ret);

void request_set(struct request *r, const struct request_ops *ops, void *state);
void *request_state(struct request *r);

/* ---- answers; all but the stream end the request ---- */
void request_header(struct request *r, const char *name, const char *value); /* before the answer */
void request_json(struct request *r, int status, json_t *body_take);
void request_text(struct request *r, int status, const char *type, struct buf *body_take);
void request_fail(struct request *r, const struct dsec_error *e, uint32_t retry_after_ms);
void request_failf(struct request *r, enum dsec_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

void request_stream(struct request *r, int status, const char *type); /* body follows */
int request_write(struct request *r, const void *p, size_t n);      /* -ENOMEM: aborted */
size_t request_unsent(struct request *r); /* written and not yet given to the connection */
void request_stream_end(struct request *r);
void request_abort(struct request *r); /* cut so that the client sees it was not whole */
void request_body_more(struct request *r);
