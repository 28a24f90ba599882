/* ipc_client.c: see ipc_client.h.
 *
 * A call is in exactly one of two lists: `waiting` (its packet is kept, with
 * copies of its descriptors) or `sent` (token, callback, deadline). Both lists are
 * in order of time, so the deadline sweep looks at their heads only. Invariants:
 *   1. every call's cb runs exactly once, and cb may make new calls;
 *   2. nothing is sent while `waiting` is not empty: requests leave in order;
 *   3. a connection is a heap object of its own, since libuv wants the descriptor
 *      open until the handle's close callback, when a new one may exist already.
 */
#include "backend/container/ipc_client.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/hashmap.h"

#define RETRY_FIRST_MS 5
#define RETRY_MAX_MS 500
#define SWEEP_MS 1000
#define REPLY_MAX 4096
#define TOKEN_OFFSET 8
#define READ_BATCH 32

struct call {
	TAILQ_ENTRY(call) link;
	uint64_t token, deadline_ms;
	ipc_reply_cb cb;
	void *user;
	uint8_t *packet; /* while waiting */
	int fds[FDIO_FDS_MAX];
	size_t n_fds;
};
TAILQ_HEAD(call_list, call);

struct connection {
	uv_poll_t poll;
	struct ipc_client *c; /* NULL once given up */
	int fd, events;
};

struct ipc_client {
	uv_loop_t *loop;
	uv_timer_t timer; /* reconnects and sweeps */
	char *path;
	size_t request_size, reply_size, pending;
	struct connection *conn;
	bool freed;
	uint64_t next_token, retry_ms;
	struct call_list waiting, sent;
	struct hashmap by_token; /* of `sent` */
};

static void call_end(struct ipc_client *c, struct call *k, int err, const void *reply, const int *fds, size_t n)
{
	c->pending--;
	k->cb(err, reply, fds, n, k->user);
	for (size_t i = 0; i < k->n_fds; i++)
		base_close(k->fds[i]);
	free(k->packet);
	free(k);
}

static void sent_end(struct ipc_client *c, struct call *k, int err, const void *reply, const int *fds, size_t n)
{
	hashmap_remove_u64(&c->by_token, k->token);
	TAILQ_REMOVE(&c->sent, k, link);
	call_end(c, k, err, reply, fds, n);
}

static void on_conn_closed(uv_handle_t *h)
{
	struct connection *n = container_of((uv_poll_t *)h, struct connection, poll);
	base_close(n->fd);
	free(n);
}

static void disconnect(struct ipc_client *c, int err)
{
	if (!c->conn)
		return;
	c->conn->c = NULL;
	uv_close((uv_handle_t *)&c->conn->poll, on_conn_closed);
	c->conn = NULL;
	c->retry_ms = RETRY_FIRST_MS;
	struct call *k;
	while ((k = TAILQ_FIRST(&c->sent)))
		sent_end(c, k, err, NULL, NULL, 0);
}

/* ---- sending ---- */

static int to_sent(struct ipc_client *c, struct call *k)
{
	int r = hashmap_put_u64(&c->by_token, k->token, k);
	if (!r)
		TAILQ_INSERT_TAIL(&c->sent, k, link);
	return r;
}

static void on_poll(uv_poll_t *h, int status, int events);

static void want_events(struct ipc_client *c, int events)
{
	if (!c->conn || c->conn->events == events)
		return;
	c->conn->events = events;
	uv_poll_start(&c->conn->poll, events, on_poll);
}

static void flush(struct ipc_client *c)
{
	struct call *k;
	while (c->conn && (k = TAILQ_FIRST(&c->waiting))) {
		ssize_t n = send_fds(c->conn->fd, k->packet, c->request_size, k->fds, k->n_fds);
		if (n == -EAGAIN) {
			want_events(c, UV_READABLE | UV_WRITABLE);
			return;
		}
		if (n < 0) { /* nothing of it arrived: it stays for the next connection */
			disconnect(c, -ECONNRESET);
			return;
		}
		TAILQ_REMOVE(&c->waiting, k, link);
		int r = to_sent(c, k);
		if (r < 0)
			call_end(c, k, r, NULL, NULL, 0);
	}
	want_events(c, UV_READABLE);
}

int ipc_client_call(struct ipc_client *c, void *request, const int *fds, size_t n_fds, ipc_reply_cb cb, void *user)
{
	if (c->pending >= IPC_QUEUE_MAX)
		return -ENOBUFS;
	if (n_fds > FDIO_FDS_MAX)
		return -EINVAL;
	struct call *k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->token = ++c->next_token;
	k->deadline_ms = now_mono_ms() + IPC_DEADLINE_MS;
	k->cb = cb;
	k->user = user;
	memcpy((uint8_t *)request + TOKEN_OFFSET, &k->token, sizeof(k->token));
	/* The usual case leaves at once and copies nothing. */
	if (c->conn && TAILQ_EMPTY(&c->waiting) && to_sent(c, k) == 0) {
		if (send_fds(c->conn->fd, request, c->request_size, fds, n_fds) >= 0) {
			c->pending++;
			return 0;
		}
		hashmap_remove_u64(&c->by_token, k->token);
		TAILQ_REMOVE(&c->sent, k, link);
	}
	k->packet = malloc(c->request_size);
	if (!k->packet) {
		free(k);
		return -ENOMEM;
	}
	memcpy(k->packet, request, c->request_size);
	for (; k->n_fds < n_fds; k->n_fds++) {
		k->fds[k->n_fds] = fcntl(fds[k->n_fds], F_DUPFD_CLOEXEC, 3);
		if (k->fds[k->n_fds] < 0) {
			int r = -errno;
			for (size_t i = 0; i < k->n_fds; i++)
				base_close(k->fds[i]);
			free(k->packet);
			free(k);
			return r;
		}
	}
	c->pending++;
	TAILQ_INSERT_TAIL(&c->waiting, k, link);
	want_events(c, UV_READABLE | UV_WRITABLE);
	return 0;
}

/* ---- receiving ---- */

/* false: the connection is gone. */
static bool read_one(struct ipc_client *c, bool *ret_more)
{
	_Alignas(8) uint8_t packet[REPLY_MAX];
	int fds[FDIO_FDS_MAX];
	size_t n_fds = FDIO_FDS_MAX;
	ssize_t n = recv_fds(c->conn->fd, packet, sizeof(packet), fds, &n_fds);
	*ret_more = n > 0;
	if (n == -EAGAIN)
		return true;
	if (n != (ssize_t)c->reply_size) {
		for (size_t i = 0; n >= 0 && i < n_fds; i++)
			base_close(fds[i]);
		disconnect(c, -ECONNRESET);
		return false;
	}
	uint64_t token;
	memcpy(&token, packet + TOKEN_OFFSET, sizeof(token));
	struct call *k = hashmap_get_u64(&c->by_token, token);
	if (k) {
		sent_end(c, k, 0, packet, fds, n_fds);
		return true;
	}
	for (size_t i = 0; i < n_fds; i++) /* came after its deadline */
		base_close(fds[i]);
	return true;
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct connection *n = container_of(h, struct connection, poll);
	struct ipc_client *c = n->c;
	if (!c)
		return;
	if (status < 0) {
		disconnect(c, -ECONNRESET);
		return;
	}
	/* A callback may disconnect or free us: n->c tells. */
	bool more = true;
	for (int i = 0; i < READ_BATCH && more && (events & UV_READABLE); i++)
		if (!read_one(c, &more) || n->c != c || c->conn != n)
			return;
	if (!TAILQ_EMPTY(&c->waiting))
		flush(c);
}

/* ---- connecting ---- */

static void try_connect(struct ipc_client *c)
{
	int fd = unix_connect(c->path, SOCK_SEQPACKET | SOCK_NONBLOCK);
	struct connection *n = fd < 0 ? NULL : calloc(1, sizeof(*n));
	if (!n || uv_poll_init(c->loop, &n->poll, fd) < 0) {
		base_close(fd);
		free(n);
		return;
	}
	n->c = c;
	n->fd = fd;
	c->conn = n;
	c->retry_ms = RETRY_FIRST_MS;
	want_events(c, UV_READABLE);
	flush(c);
}

static void sweep(struct ipc_client *c)
{
	uint64_t now = now_mono_ms();
	struct call *k;
	while ((k = TAILQ_FIRST(&c->sent)) && k->deadline_ms <= now)
		sent_end(c, k, -ETIMEDOUT, NULL, NULL, 0);
	while ((k = TAILQ_FIRST(&c->waiting)) && k->deadline_ms <= now) {
		TAILQ_REMOVE(&c->waiting, k, link);
		call_end(c, k, -ETIMEDOUT, NULL, NULL, 0);
	}
}

static void on_timer(uv_timer_t *h)
{
	struct ipc_client *c = h->data;
	if (!c->conn)
		try_connect(c);
	sweep(c);
	if (c->freed)
		return;
	uint64_t next = SWEEP_MS;
	if (!c->conn) {
		next = c->retry_ms;
		c->retry_ms = MIN(c->retry_ms * 2, (uint64_t)RETRY_MAX_MS);
	}
	uv_timer_start(&c->timer, on_timer, next, 0);
}

static void on_timer_closed(uv_handle_t *h)
{
	struct ipc_client *c = h->data;
	hashmap_done(&c->by_token);
	free(c->path);
	free(c);
}

int ipc_client_new(uv_loop_t *loop, const char *path, size_t request_size, size_t reply_size, struct ipc_client **ret)
{
	if (reply_size > REPLY_MAX)
		return -EINVAL;
	struct ipc_client *c = calloc(1, sizeof(*c));
	if (!c || !(c->path = strdup(path))) {
		free(c);
		return -ENOMEM;
	}
	c->loop = loop;
	c->request_size = request_size;
	c->reply_size = reply_size;
	c->retry_ms = RETRY_FIRST_MS;
	TAILQ_INIT(&c->waiting);
	TAILQ_INIT(&c->sent);
	uv_timer_init(loop, &c->timer);
	c->timer.data = c;
	try_connect(c);
	on_timer(&c->timer);
	*ret = c;
	return 0;
}

void ipc_client_free(struct ipc_client *c)
{
	if (!c)
		return;
	c->freed = true;
	disconnect(c, -ECANCELED);
	struct call *k;
	while ((k = TAILQ_FIRST(&c->waiting))) {
		TAILQ_REMOVE(&c->waiting, k, link);
		call_end(c, k, -ECANCELED, NULL, NULL, 0);
	}
	uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

size_t ipc_client_pending(const struct ipc_client *c)
{
	return c->pending;
}

int ipc_client_connected(const struct ipc_client *c)
{
	return c->conn != NULL;
}
