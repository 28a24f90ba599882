/* edge_client-internal.h: what edge_client.c (connections) and edge_call.c (calls) share.
 *
 * Loop thread. A call is on exactly one of its edge's lists:
 *   waiting  not on the wire: no connection, or the output was full
 *   sent     on the wire
 *   timed    on the wire with a deadline (looked at by every tick)
 */
#pragma once
#include "control/edge_client.h"
#include "loop/conn.h"

struct call_list {
	struct edge_call *first, *last;
	size_t n;
};

struct edge {
	struct edges *owner;
	char name[EDGE_NAME_MAX + 1];
	char *path;
	struct conn *conn; /* NULL while down */
	bool ready;
	uint64_t backoff_ms, next_connect_ms, next_info_ms;
	bool told_down; /* the loss was logged */
	struct call_list waiting, sent, timed;
	uint32_t pending_creates;
	Dsec__Edge__EdgeInfo *info; /* owned; NULL until first heard */
	struct edge_call *info_call;
};

struct edges {
	uv_loop_t *loop;
	uv_timer_t tick;
	struct edge edge[LIMIT_EDGES_MAX];
	size_t n;
	bool closing;
};

struct edge_call {
	struct edge *edge;
	struct call_list *list; /* which one; NULL while ending */
	struct edge_call *prev, *next;
	const struct edge_call_ops *ops;
	void *user;
	struct edge_call_policy policy;
	uint32_t stream;
	uint8_t *request; /* packed, owned; kept for sending again */
	size_t request_len, head_len, request_sent; /* head_len: prefix that is OPEN's payload */
	bool end_wanted, end_sent, answered;
	uint64_t wait_until_ms;  /* on waiting */
	uint64_t deadline_at_ms; /* 0: none */
};

/* edge_call.c */
void edge_calls_event(struct conn *conn, const struct aether_event *ev, void *edge);
void edge_calls_flush(struct edge *edge);                /* sends what waits, as room allows */
void edge_calls_lost(struct edge *edge);                 /* the connection is gone (and forgotten) */
void edge_calls_expire(struct edge *edge, uint64_t now); /* ends what waited or took too long */
