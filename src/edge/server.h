/* server.h: the aether server of the edge, and what a call is.
 *
 * One struct call is one stream that an apiserver opened. It is made by
 * server.c from the OPEN frame (and the pieces that follow it), handed to
 * calls_dispatch, and lives until call_end, an error, or the client's going;
 * `release` of its handler runs exactly once, whichever comes first, and after
 * it nobody may keep the pointer. Answers that the window has no room for are
 * queued here (CALL_QUEUE_MAX), so handlers of short answers need not care.
 */
#pragma once
#include <stdbool.h>
#include "base/buf.h"
#include "base/error.h"
#include "edge.pb-c.h"
#include "edge/list.h"
#include "loop/conn.h"

#define CALL_REQUEST_MAX (2 * 1024 * 1024)     /* OPEN and the pieces after it */
#define CALL_QUEUE_MAX (64 * 1024 * 1024)      /* a list of all sandboxes fits */
#define CLIENT_STREAMS_MAX 16384

struct node;
struct server;
struct client;
struct call;

struct call_ops {
	void (*data)(struct call *c, uint8_t channel, const void *p, size_t n); /* credit is the callee's */
	void (*half_closed)(struct call *c);
	void (*writable)(struct call *c);
	void (*release)(struct call *c);
};

struct call {
	struct node *node;
	struct client *client;
	uint32_t stream;
	struct link in_client; /* all calls of the connection */
	struct link waiting;   /* on the list of what the handler waits for */
	const struct call_ops *ops; /* NULL: nothing to be told */
	void *data;            /* the handler's */
	Dsec__Edge__EdgeRequest *request; /* owned */
	struct buf pieces;     /* request not whole yet */
	size_t pieces_due;
	struct buf queue;      /* answers: length and bytes each */
	bool ending, upload_ended;
	bool adopted;          /* a create whose sandbox was there before it */
};

int edge_server_start(struct node *n, const char *socket_path, struct server **ret);
void edge_server_stop_listening(struct server *s);
void edge_server_free(struct server *s); /* all calls are released */

int call_reply(struct call *c, const Dsec__Edge__EdgeReply *reply); /* queued if need be */
void call_end(struct call *c); /* the call is gone for the handler; queued answers still go */
void call_ok(struct call *c);  /* Ok, end */
void call_fail(struct call *c, enum dsec_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4))); /* error, end */
void call_fail_error(struct call *c, const struct dsec_error *e);
void call_fail_retry(struct call *c, uint32_t retry_after_ms, const struct dsec_error *e);
size_t call_sendable(struct call *c); /* 0 while answers are queued */
long call_send_data(struct call *c, uint8_t channel, const void *p, size_t n);
void call_consume(struct call *c, size_t n);

/* calls.c */
void calls_dispatch(struct call *c);
