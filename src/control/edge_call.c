/* edge_call.c: calls of edge_client.h: sending, receiving, ending.
 *
 * Invariants:
 *  I1 A call's stream user pointer is set exactly while it is on sent or timed;
 *     events of a stream without one are credited and dropped.
 *  I2 A call leaves its list before any of its callbacks that may free it runs
 *     (end); after reply, data and writable the call is not touched again, since
 *     they may cancel it.
 *  I3 After a connection broke it is forgotten before any call is told, so that
 *     a callback that starts a call finds no dead connection.
 * Requests beyond one aether payload go as a short OPEN and MSG pieces (edge.proto).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "control/edge_client-internal.h"

#define FOLLOW_MAX (2 * 1024 * 1024)

/* ---- lists ---- */

static void list_add(struct call_list *l, struct edge_call *c)
{
	c->list = l;
	c->next = NULL;
	c->prev = l->last;
	if (l->last)
		l->last->next = c;
	else
		l->first = c;
	l->last = c;
	l->n++;
}

static void list_remove(struct edge_call *c)
{
	struct call_list *l = c->list;
	if (!l)
		return;
	if (c->prev)
		c->prev->next = c->next;
	else
		l->first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		l->last = c->prev;
	l->n--;
	c->list = NULL;
}

static bool on_wire(const struct edge_call *c)
{
	return c->list == &c->edge->sent || c->list == &c->edge->timed;
}

static void call_free(struct edge_call *c)
{
	free(c->request);
	free(c);
}

/* Takes the call off its list and the wire, tells the owner, frees it. */
static void call_end(struct edge_call *c, const struct dsec_error *e, uint32_t retry_after_ms)
{
	struct edge *edge = c->edge;
	if (on_wire(c) && edge->conn) {
		conn_set_user(edge->conn, c->stream, NULL);
		if (!c->end_sent)
			conn_close_stream(edge->conn, c->stream);
	}
	list_remove(c);
	c->ops->end(e, retry_after_ms, c->user);
	call_free(c);
}

static void call_end_code(struct edge_call *c, enum dsec_code code, const char *text)
{
	struct dsec_error e;
	dsec_error_set(&e, 0, code, text, c->edge->name);
	call_end(c, &e, 0);
}

#define TEXT_AWAY "edge %s cannot be reached at the moment"
#define TEXT_BROKE "the connection to edge %s broke in the middle of the call"
#define TEXT_DROPPED "edge %s dropped the call"
#define TEXT_SLOW "edge %s did not answer in time"

/* ---- sending ---- */

/* Sends what is left of a request in pieces, then the half-close if it is due.
 * Short of room: goes on at WRITABLE. */
static void push_request(struct edge_call *c)
{
	struct conn *conn = c->edge->conn;
	while (c->request_sent < c->request_len) {
		size_t n = MIN(c->request_len - c->request_sent, (size_t)AETHER_PAYLOAD_MAX / 2);
		if (conn_send_msg(conn, c->stream, c->request + c->request_sent, n) < 0)
			return;
		c->request_sent += n;
	}
	if (c->end_wanted && !c->end_sent) {
		c->end_sent = true;
		conn_close_stream(conn, c->stream);
	}
}

/* 0: on the wire. -EAGAIN: no room, stays where it is. */
static int put_on_wire(struct edge_call *c)
{
	struct edge *edge = c->edge;
	uint32_t stream;
	int r = conn_open(edge->conn, c->request, c->head_len, &stream);
	if (r < 0)
		return -EAGAIN;
	list_remove(c);
	c->stream = stream;
	c->request_sent = c->head_len;
	c->end_sent = false;
	if (c->policy.deadline_ms && !c->deadline_at_ms)
		c->deadline_at_ms = now_mono_ms() + c->policy.deadline_ms;
	list_add(c->deadline_at_ms ? &edge->timed : &edge->sent, c);
	conn_set_user(edge->conn, stream, c);
	push_request(c);
	return 0;
}

void edge_calls_flush(struct edge *edge)
{
	while (edge->ready && edge->waiting.first) {
		struct edge_call *c = edge->waiting.first;
		bool upload = c->policy.upload;
		if (put_on_wire(c) < 0)
			return;
		if (upload && c->ops->writable)
			c->ops->writable(c, c->user);
	}
}

/* Packs the request, with a short head in front when it exceeds one payload. */
static int pack(struct edge_call *c, const Dsec__Edge__EdgeRequest *request)
{
	size_t n = dsec__edge__edge_request__get_packed_size(request), head = 0;
	Dsec__Edge__EdgeRequest h = DSEC__EDGE__EDGE_REQUEST__INIT;
	if (n > FOLLOW_MAX)
		return -EMSGSIZE;
	if (n > AETHER_PAYLOAD_MAX) {
		h.request_id = request->request_id;
		h.project = request->project;
		h.follow_bytes = (uint32_t)n;
		head = dsec__edge__edge_request__get_packed_size(&h);
	}
	c->request = malloc(head + n + 1);
	if (!c->request)
		return -ENOMEM;
	if (head)
		dsec__edge__edge_request__pack(&h, c->request);
	dsec__edge__edge_request__pack(request, c->request + head);
	c->request_len = head + n;
	c->head_len = head ? head : n;
	return 0;
}

int edge_call_start(struct edges *es, size_t at, const Dsec__Edge__EdgeRequest *request,
		    const struct edge_call_policy *policy, const struct edge_call_ops *ops, void *user,
		    struct edge_call **ret, struct dsec_error *e)
{
	struct edge *edge = &es->edge[at];
	if (es->closing || (!edge->ready && !policy->wait_unsent_ms))
		return dsec_error_set(e, -EHOSTUNREACH, DSEC_E_EDGE_UNAVAILABLE, TEXT_AWAY, edge->name);
	if (edge->waiting.n + edge->sent.n + edge->timed.n >= LIMIT_EDGE_CALLS_MAX)
		return dsec_error_set(e, -EBUSY, DSEC_E_OVERLOADED, "edge %s has %d calls under way already",
				      edge->name, LIMIT_EDGE_CALLS_MAX);
	struct edge_call *c = calloc(1, sizeof(*c));
	int r = c ? pack(c, request) : -ENOMEM;
	if (r) {
		free(c);
		return dsec_error_errno(e, r, "call to edge %s", edge->name);
	}
	c->edge = edge;
	c->ops = ops;
	c->user = user;
	c->policy = *policy;
	c->end_wanted = !policy->upload;
	/* A call that finds the output full waits like a read does. */
	c->wait_until_ms = now_mono_ms() + MAX(policy->wait_unsent_ms, (uint32_t)LIMIT_EDGE_READ_RETRY_MS);
	if (!edge->ready)
		c->wait_until_ms = now_mono_ms() + policy->wait_unsent_ms;
	bool first = !edge->waiting.first;
	list_add(&edge->waiting, c);
	if (edge->ready && first)
		put_on_wire(c);
	*ret = c;
	return 0;
}

size_t edge_call_send(struct edge_call *c, const void *p, size_t n)
{
	if (!on_wire(c) || c->request_sent < c->request_len || c->end_wanted)
		return 0;
	long taken = conn_send_data(c->edge->conn, c->stream, 0, p, n);
	/* The stream may be dead to sending (the edge reset it): its event follows. */
	return taken < 0 ? 0 : (size_t)taken;
}

void edge_call_send_end(struct edge_call *c)
{
	c->end_wanted = true;
	if (on_wire(c))
		push_request(c);
}

void edge_call_consume(struct edge_call *c, size_t n)
{
	if (on_wire(c) && n)
		conn_consume(c->edge->conn, c->stream, n);
}

void edge_call_cancel(struct edge_call *c)
{
	if (!c)
		return;
	if (on_wire(c) && c->edge->conn) {
		conn_set_user(c->edge->conn, c->stream, NULL);
		conn_reset(c->edge->conn, c->stream, AETHER_RESET_CANCELLED);
	}
	list_remove(c);
	call_free(c);
}

/* ---- receiving ---- */

static void on_message(struct edge_call *c, const struct aether_event *ev)
{
	Dsec__Edge__EdgeReply *reply = dsec__edge__edge_reply__unpack(NULL, ev->n, ev->payload);
	conn_consume(c->edge->conn, c->stream, ev->n);
	c->answered = true;
	if (!reply) {
		call_end_code(c, DSEC_E_INTERNAL, "edge %s sent an answer that cannot be read");
		return;
	}
	if (reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_ERROR) {
		struct dsec_error e;
		dsec_error_set(&e, 0, dsec_code_from_name(reply->error->code), "%s", reply->error->message);
		call_end(c, &e, reply->error->retry_after_ms);
	} else {
		c->ops->reply(c, reply, c->user);
	}
	dsec__edge__edge_reply__free_unpacked(reply, NULL);
}

void edge_calls_event(struct conn *conn, const struct aether_event *ev, void *user)
{
	struct edge *edge = user;
	struct edge_call *c = ev->stream ? conn_user(conn, ev->stream) : NULL;
	if (!c) {
		if (ev->type == AETHER_EV_OPEN)
			conn_reset(conn, ev->stream, AETHER_RESET_REFUSED);
		else if (ev->type == AETHER_EV_MSG || ev->type == AETHER_EV_DATA)
			conn_consume(conn, ev->stream, ev->n);
		else if (ev->type == AETHER_EV_WRITABLE)
			edge_calls_flush(edge);
		return;
	}
	switch (ev->type) {
	case AETHER_EV_MSG:
		on_message(c, ev);
		break;
	case AETHER_EV_DATA:
		c->answered = true;
		if (c->ops->data)
			c->ops->data(c, ev->channel, ev->payload, ev->n, c->user);
		else
			conn_consume(conn, ev->stream, ev->n);
		break;
	case AETHER_EV_CLOSE:
		call_end(c, NULL, 0);
		break;
	case AETHER_EV_RESET:
		c->end_sent = true; /* the stream is gone: nothing to close */
		call_end_code(c, ev->code == AETHER_RESET_REFUSED ? DSEC_E_OVERLOADED : DSEC_E_EDGE_UNAVAILABLE,
			      TEXT_DROPPED);
		break;
	case AETHER_EV_WRITABLE:
		push_request(c);
		if (c->ops->writable && c->request_sent == c->request_len)
			c->ops->writable(c, c->user);
		break;
	default:
		break;
	}
}

/* ---- ends that come from outside ---- */

/* Calls that may run twice wait to be sent again; the others end. */
static void drop_calls(struct call_list *from, struct edge *edge)
{
	struct call_list lost = *from;
	*from = (struct call_list){ 0 };
	for (struct edge_call *c = lost.first; c; c = c->next)
		c->list = &lost; /* so that a cancel from a callback unlinks it here */
	while (lost.first) {
		struct edge_call *c = lost.first;
		list_remove(c);
		if (c->policy.wait_sent_ms && !c->answered && !edge->owner->closing) {
			c->wait_until_ms = now_mono_ms() + c->policy.wait_sent_ms;
			list_add(&edge->waiting, c);
		} else {
			call_end_code(c, DSEC_E_EDGE_UNAVAILABLE, TEXT_BROKE);
		}
	}
}

void edge_calls_lost(struct edge *edge)
{
	drop_calls(&edge->sent, edge);
	drop_calls(&edge->timed, edge);
	if (edge->owner->closing)
		drop_calls(&edge->waiting, edge);
}

void edge_calls_expire(struct edge *edge, uint64_t now)
{
	/* A callback may cancel any call: start over after each one that ended. */
	for (struct edge_call *c = edge->waiting.first; c;) {
		bool late = now >= c->wait_until_ms;
		struct edge_call *next = c->next;
		if (late)
			call_end_code(c, DSEC_E_EDGE_UNAVAILABLE, TEXT_AWAY);
		c = late ? edge->waiting.first : next;
	}
	for (struct edge_call *c = edge->timed.first; c;) {
		bool late = now >= c->deadline_at_ms;
		struct edge_call *next = c->next;
		if (late) {
			conn_set_user(edge->conn, c->stream, NULL);
			conn_reset(edge->conn, c->stream, AETHER_RESET_CANCELLED);
			c->end_sent = true;
			call_end_code(c, DSEC_E_DEADLINE, TEXT_SLOW);
		}
		c = late ? edge->timed.first : next;
	}
}
