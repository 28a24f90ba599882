/* edge_client.h: the apiserver's connections to its edges, and calls over them.
 *
 * Loop thread only. One aether connection an edge, made again with back-off when
 * it breaks. A call is one stream: an EdgeRequest goes out, EdgeReply messages
 * and data come back, then it ends, once. The caller owns nothing but its own
 * `user`; a struct edge_call is valid until on_end returned or edge_call_cancel
 * was called, whichever is first.
 *
 * What happens when an edge is away is the call's policy:
 *   wait_unsent_ms  how long it may wait for a connection before it fails
 *                   with edge_unavailable (0: at once, from edge_call_start)
 *   wait_sent_ms    the connection broke after it was sent and before any answer
 *                   came: how long it may wait to be sent again. Only for calls
 *                   that may run twice. After the first answer a break is an
 *                   error: a stream never ends silently.
 *   deadline_ms     whole time allowed on the wire; 0: none. Then deadline_exceeded.
 */
#pragma once
#include <uv.h>
#include "base/error.h"
#include "control/limits.h"
#include "control/placement.h"
#include "edge.pb-c.h"

struct edges;
struct edge_call;

struct edge_call_ops {
	/* Any answer but an error. Borrowed. */
	void (*reply)(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user);
	/* Optional. Credit for the n bytes is given back with edge_call_consume. */
	void (*data)(struct edge_call *c, uint8_t channel, const uint8_t *p, size_t n, void *user);
	/* Optional: edge_call_send may go on. */
	void (*writable)(struct edge_call *c, void *user);
	/* e NULL: the edge ended the call in good order. */
	void (*end)(const struct dsec_error *e, uint32_t retry_after_ms, void *user);
};

struct edge_call_policy {
	uint32_t wait_unsent_ms, wait_sent_ms;
	uint64_t deadline_ms;
	bool upload; /* data will be sent; else our side is closed at once */
};

int edges_new(uv_loop_t *loop, struct edges **ret);
/* where: "unix:PATH". Before the loop runs. -EEXIST, -EINVAL, -ENOSPC. */
int edges_add(struct edges *es, const char *name, const char *where);
void edges_start(struct edges *es);
/* Every call ends with edge_unavailable; freed once the loop has run again. */
void edges_close(struct edges *es);

size_t edges_count(const struct edges *es);
const char *edges_name(const struct edges *es, size_t i);
int edges_find(const struct edges *es, const char *name); /* index or -ENOENT */
bool edges_connected(const struct edges *es, size_t i);
/* What the edge last said of itself; NULL before the first time. Asked for every
 * EDGE_INFO_EVERY_MS while connected. */
const Dsec__Edge__EdgeInfo *edges_info(const struct edges *es, size_t i);
void edges_snapshot(const struct edges *es, struct placement_edge *ret); /* edges_count entries */
void edges_pending_add(struct edges *es, size_t i, int delta); /* creates on their way */
#define EDGE_INFO_EVERY_MS 1000

/* Packs and sends. On failure nothing was started and *e says why. */
int edge_call_start(struct edges *es, size_t edge, const Dsec__Edge__EdgeRequest *request,
		    const struct edge_call_policy *policy, const struct edge_call_ops *ops, void *user,
		    struct edge_call **ret, struct dsec_error *e);
/* Bytes taken now, 0..n; fewer than n promises ops->writable. 0 as well while the
 * call is not on the wire. */
size_t edge_call_send(struct edge_call *c, const void *p, size_t n);
void edge_call_send_end(struct edge_call *c); /* all sent bytes stay in order before it */
void edge_call_consume(struct edge_call *c, size_t n);
void edge_call_cancel(struct edge_call *c); /* no end follows; NULL accepted */
