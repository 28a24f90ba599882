/* server.c: see server.h.
 *
 * V1 A call is on its client's list from OPEN until call_drop; conn_user of its
 *    stream is the call for as long. Afterwards events of the stream (the client
 *    may still be sending) find NULL and are swallowed.
 * V2 release runs in call_release only, and clears ops, so it runs once.
 * V3 A call that ended with answers still queued stays, without a handler, until
 *    they are out or the client is gone.
 */
#include "edge/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/log.h"
#include "edge/node.h"

#define LISTEN_BACKLOG 128

struct server {
	struct node *node;
	struct conn_listener *listener;
	struct link clients;
};

struct client {
	struct link link;
	struct server *server;
	struct conn *conn;
	struct link calls;
};

static void call_release(struct call *c)
{
	const struct call_ops *ops = c->ops;
	c->ops = NULL; /* V2 */
	list_drop(&c->waiting);
	if (ops && ops->release)
		ops->release(c);
}

static void call_drop(struct call *c)
{
	call_release(c);
	list_drop(&c->in_client);
	conn_set_user(c->client->conn, c->stream, NULL);
	if (c->request)
		dsec__edge__edge_request__free_unpacked(c->request, NULL);
	buf_done(&c->pieces);
	buf_done(&c->queue);
	free(c);
}

/* --- answers --- */

static int queue_put(struct call *c, const void *p, uint32_t n)
{
	int r = buf_append(&c->queue, &n, sizeof(n));
	return r < 0 ? r : buf_append(&c->queue, p, n);
}

/* Sends what is queued. true: the queue is empty. */
static bool queue_flush(struct call *c)
{
	while (buf_len(&c->queue)) {
		uint32_t n;
		memcpy(&n, buf_ptr(&c->queue), sizeof(n));
		int r = conn_send_msg(c->client->conn, c->stream, buf_ptr(&c->queue) + sizeof(n), n);
		if (r == -EAGAIN)
			return false;
		buf_consume(&c->queue, sizeof(n) + n); /* other errors: the stream is going, so is this */
	}
	return true;
}

int call_reply(struct call *c, const Dsec__Edge__EdgeReply *reply)
{
	size_t n = dsec__edge__edge_reply__get_packed_size(reply);
	if (n > AETHER_PAYLOAD_MAX)
		return -EMSGSIZE;
	_cleanup_free_ uint8_t *p = malloc(n + 1);
	if (!p)
		return -ENOMEM;
	dsec__edge__edge_reply__pack(reply, p);
	if (buf_len(&c->queue))
		return queue_put(c, p, (uint32_t)n);
	int r = conn_send_msg(c->client->conn, c->stream, p, n);
	return r == -EAGAIN ? queue_put(c, p, (uint32_t)n) : r;
}

static void call_finish(struct call *c)
{
	conn_close_stream(c->client->conn, c->stream);
	call_drop(c);
}

void call_end(struct call *c)
{
	call_release(c);
	c->ending = true; /* V3 */
	if (queue_flush(c))
		call_finish(c);
}

static void fail(struct call *c, const char *code, const char *message, uint32_t retry_after_ms)
{
	Dsec__Edge__Error err = DSEC__EDGE__ERROR__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	err.code = (char *)code;
	err.message = (char *)message;
	err.retry_after_ms = retry_after_ms;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_ERROR;
	reply.error = &err;
	call_reply(c, &reply);
	call_end(c);
}

void call_fail_retry(struct call *c, uint32_t retry_after_ms, const struct dsec_error *e)
{
	fail(c, dsec_code_name(e->code), e->message, retry_after_ms);
}

void call_fail_error(struct call *c, const struct dsec_error *e)
{
	call_fail_retry(c, dsec_code_retry(e->code) ? 1000 : 0, e);
}

void call_fail(struct call *c, enum dsec_code code, const char *fmt, ...)
{
	struct dsec_error e = { .code = code };
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e.message, sizeof(e.message), fmt, ap);
	va_end(ap);
	call_fail_error(c, &e);
}

void call_ok(struct call *c)
{
	Dsec__Edge__Ok ok = DSEC__EDGE__OK__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_OK;
	reply.ok = &ok;
	call_reply(c, &reply);
	call_end(c);
}

size_t call_sendable(struct call *c)
{
	return buf_len(&c->queue) ? 0 : conn_sendable(c->client->conn, c->stream);
}

long call_send_data(struct call *c, uint8_t channel, const void *p, size_t n)
{
	return buf_len(&c->queue) ? 0 : conn_send_data(c->client->conn, c->stream, channel, p, n);
}

void call_consume(struct call *c, size_t n)
{
	conn_consume(c->client->conn, c->stream, n);
}

/* --- requests --- */

/* The request is whole: decode and hand it out. */
static void call_decode(struct call *c, const uint8_t *p, size_t n)
{
	if (c->request)
		dsec__edge__edge_request__free_unpacked(c->request, NULL);
	c->request = dsec__edge__edge_request__unpack(NULL, n, p);
	if (!c->request || c->request->what_case == DSEC__EDGE__EDGE_REQUEST__WHAT__NOT_SET)
		call_fail(c, DSEC_E_BAD_REQUEST, "the edge cannot decode this request: are apiserver and edge of one version?");
	else
		calls_dispatch(c);
}

static void call_opened(struct client *cl, const struct aether_event *ev)
{
	struct call *c = calloc(1, sizeof(*c));
	if (!c) {
		conn_reset(cl->conn, ev->stream, AETHER_RESET_REFUSED);
		return;
	}
	c->node = cl->server->node;
	c->client = cl;
	c->stream = ev->stream;
	c->pieces = BUF_INIT(CALL_REQUEST_MAX);
	c->queue = BUF_INIT(CALL_QUEUE_MAX);
	list_init(&c->waiting);
	list_init(&c->in_client);
	list_append(&cl->calls, &c->in_client);
	conn_set_user(cl->conn, ev->stream, c);
	c->request = dsec__edge__edge_request__unpack(NULL, ev->n, ev->payload);
	if (!c->request || !c->request->follow_bytes) {
		call_decode(c, ev->payload, ev->n);
		return;
	}
	c->pieces_due = c->request->follow_bytes;
	if (c->pieces_due > CALL_REQUEST_MAX - ev->n || buf_append(&c->pieces, ev->payload, ev->n) < 0)
		call_fail(c, DSEC_E_BODY_TOO_LARGE, "a request may take %d bytes", CALL_REQUEST_MAX);
}

static void call_piece(struct call *c, const struct aether_event *ev)
{
	call_consume(c, ev->n);
	if (!c->pieces_due)
		return; /* no call has messages after its request */
	if (ev->n > c->pieces_due || buf_append(&c->pieces, ev->payload, ev->n) < 0) {
		call_fail(c, DSEC_E_BAD_REQUEST, "the pieces of the request are longer than announced");
		return;
	}
	c->pieces_due -= ev->n;
	if (!c->pieces_due) {
		_cleanup_buf_ struct buf whole = c->pieces;
		c->pieces = BUF_INIT(CALL_REQUEST_MAX);
		call_decode(c, buf_ptr(&whole), buf_len(&whole));
	}
}

static void call_event(struct call *c, const struct aether_event *ev)
{
	switch (ev->type) {
	case AETHER_EV_MSG:
		call_piece(c, ev);
		break;
	case AETHER_EV_DATA:
		if (c->ops && c->ops->data)
			c->ops->data(c, ev->channel, ev->payload, ev->n);
		else
			call_consume(c, ev->n);
		break;
	case AETHER_EV_CLOSE:
		c->upload_ended = true;
		if (c->pieces_due)
			call_fail(c, DSEC_E_BAD_REQUEST, "the request ended before its announced length");
		else if (c->ops && c->ops->half_closed)
			c->ops->half_closed(c);
		break;
	case AETHER_EV_RESET:
		call_drop(c);
		break;
	case AETHER_EV_WRITABLE:
		if (!queue_flush(c))
			break;
		if (c->ending)
			call_finish(c);
		else if (c->ops && c->ops->writable)
			c->ops->writable(c);
		break;
	default:
		break;
	}
}

/* --- connections --- */

static void on_event(struct conn *conn, const struct aether_event *ev, void *user)
{
	struct client *cl = user;
	if (ev->type == AETHER_EV_OPEN) {
		call_opened(cl, ev);
		return;
	}
	struct call *c = ev->stream ? conn_user(conn, ev->stream) : NULL;
	if (c)
		call_event(c, ev);
	else if (ev->type == AETHER_EV_DATA || ev->type == AETHER_EV_MSG)
		conn_consume(conn, ev->stream, ev->n); /* V1 */
}

static void client_free(struct client *cl)
{
	struct call *c;
	while ((c = list_first(&cl->calls, struct call, in_client)))
		call_drop(c);
	list_drop(&cl->link);
	free(cl);
}

static void on_down(struct conn *conn, int err, void *user)
{
	struct client *cl = user;
	if (err)
		log_debug("a client's connection ended: %s", strerror(-err));
	client_free(cl);
}

static const struct conn_callbacks client_callbacks = { .on_event = on_event, .on_down = on_down };

static void on_accept(int fd_take, void *user)
{
	struct server *s = user;
	struct aether_config config = { .client = false, .max_streams = CLIENT_STREAMS_MAX };
	struct client *cl = calloc(1, sizeof(*cl));
	if (!cl) {
		base_close(fd_take);
		return;
	}
	cl->server = s;
	list_init(&cl->calls);
	int r = conn_new(s->node->loop, fd_take, &config, &client_callbacks, cl, &cl->conn);
	if (r < 0) {
		log_warn("cannot serve a client: %s", strerror(-r));
		free(cl);
		return;
	}
	list_append(&s->clients, &cl->link);
}

int edge_server_start(struct node *n, const char *socket_path, struct server **ret)
{
	_cleanup_free_ struct server *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->node = n;
	list_init(&s->clients);
	int fd = unix_listen(socket_path, SOCK_STREAM | SOCK_NONBLOCK, LISTEN_BACKLOG);
	if (fd < 0)
		return fd;
	int r = conn_listen(n->loop, fd, on_accept, s, &s->listener);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(s);
	return 0;
}

void edge_server_stop_listening(struct server *s)
{
	if (s && s->listener) {
		conn_listener_close(s->listener);
		s->listener = NULL;
	}
}

void edge_server_free(struct server *s)
{
	struct client *cl;
	if (!s)
		return;
	edge_server_stop_listening(s);
	while ((cl = list_first(&s->clients, struct client, link))) {
		struct conn *conn = cl->conn;
		client_free(cl);
		conn_close(conn);
	}
	free(s);
}
