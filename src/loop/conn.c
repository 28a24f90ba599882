/* conn.c: see conn.h.
 *
 * Theory of operation. The descriptor is watched with uv_poll and read straight
 * into the aether core's buffer, whose size follows the traffic, so idle
 * connections hold none. Whatever queues output marks the connection dirty: a
 * prepare handle then flushes it once before the loop polls again, and only a
 * socket that is full is watched for writing.
 *
 * Invariants
 *  C1 Callbacks come only from the loop (poll, prepare, timer), never from
 *     inside a conn_* call, so a caller's state cannot change under it.
 *  C2 After c->closed no callback fires. The memory goes when libuv has closed
 *     all three handles, always after the callbacks unwound.
 *  C3 A failed write does not discard what the peer sent before it went: input
 *     is read to its end first, then on_down reports.
 */
#include "loop/conn.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "base/cleanup.h"

#define READ_MIN (4 * 1024)    /* first guess of a read's size */
#define READ_MAX (256 * 1024)  /* doubled up to here while reads come full */
#define READS_PER_EVENT 4      /* then others get their turn */
#define KEEPALIVE_MISSES 3

struct conn {
	struct aether *aether; /* owned */
	const struct conn_callbacks *cb;
	void *user;
	int fd; /* owned */
	uint32_t read_size;
	uint8_t handles; /* not yet closed by libuv */
	bool closed;     /* C2 */
	bool dirty;      /* prepare is armed */
	bool blocked;    /* the socket took no more: watching for writable */
	bool pumping;    /* events are being handed out further up the stack */
	uv_poll_t poll;
	uv_prepare_t prepare;
	uv_timer_t timer;
	uint64_t idle_ms, last_rx;
};

static void on_poll(uv_poll_t *h, int status, int events);

static void on_handle_closed(uv_handle_t *h)
{
	struct conn *c = h->data;
	if (--c->handles)
		return;
	base_close(c->fd);
	aether_free(c->aether);
	free(c);
}

static void shut(struct conn *c)
{
	c->closed = true;
	uv_close((uv_handle_t *)&c->poll, on_handle_closed);
	uv_close((uv_handle_t *)&c->prepare, on_handle_closed);
	uv_close((uv_handle_t *)&c->timer, on_handle_closed);
	/* The peer learns at once, not when the loop comes round to closing. */
	shutdown(c->fd, SHUT_RDWR);
}

static void down(struct conn *c, int err)
{
	if (c->closed)
		return;
	shut(c);
	c->cb->on_down(c, err, c->user);
}

/* Hands out events until there are none or an owner closed the connection. */
static void pump(struct conn *c)
{
	struct aether_event ev;
	if (c->pumping)
		return;
	c->pumping = true;
	while (!c->closed && aether_next(c->aether, &ev) > 0) {
		if (ev.type != AETHER_EV_READY)
			c->cb->on_event(c, &ev, c->user);
		else if (c->cb->on_ready)
			c->cb->on_ready(c, c->user);
	}
	c->pumping = false;
}

/* One read. Bytes taken, 0 at EOF, negative errno (-EAGAIN: nothing there). */
static ssize_t read_once(struct conn *c)
{
	uint8_t *p;
	int r = aether_recv_space(c->aether, c->read_size, &p);
	if (r < 0)
		return r;
	ssize_t n;
	do
		n = recv(c->fd, p, c->read_size, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	ssize_t result = n < 0 ? -errno : n;
	r = aether_recv_done(c->aether, n > 0 ? (size_t)n : 0);
	if (n > 0) {
		c->last_rx = uv_now(c->poll.loop);
		if ((uint32_t)n == c->read_size)
			c->read_size = MIN(c->read_size * 2, (uint32_t)READ_MAX);
		else if ((uint32_t)n < c->read_size / 4)
			c->read_size = MAX(c->read_size / 2, (uint32_t)READ_MIN);
	}
	pump(c); /* also what was whole before a violation */
	return r < 0 ? r : result;
}

/* Reads up to `max` times; reports the end of the connection itself. */
static void read_some(struct conn *c, int max)
{
	for (int i = 0; i < max && !c->closed; i++) {
		uint32_t asked = c->read_size;
		ssize_t n = read_once(c);
		if (n == -EAGAIN)
			return;
		if (n <= 0) {
			down(c, (int)n);
			return;
		}
		if ((size_t)n < asked)
			return; /* drained; poll tells when more comes */
	}
}

static int write_some(struct conn *c)
{
	const uint8_t *p;
	size_t n;
	while ((n = aether_output(c->aether, &p))) {
		ssize_t k = send(c->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		aether_output_done(c->aether, (size_t)k);
	}
	return 0;
}

static void watch(struct conn *c, bool writable)
{
	if (c->blocked == writable)
		return;
	c->blocked = writable;
	uv_poll_start(&c->poll, UV_READABLE | (writable ? UV_WRITABLE : 0), on_poll);
}

/* C3: the peer is gone for writing; what it said before is still to be read. The
 * end of the connection: 0 at EOF, else `err` or what reading met. */
static int read_to_end(struct conn *c, int err)
{
	ssize_t n = 0;
	while (!c->closed && (n = read_once(c)) > 0)
		;
	return n == -EAGAIN ? err : (int)n;
}

static void flush(struct conn *c)
{
	while (!c->closed) {
		int r = aether_error(c->aether);
		if (!r)
			r = write_some(c);
		if (r == -EAGAIN || !r) {
			watch(c, r == -EAGAIN);
			pump(c); /* draining may have made streams writable... */
			const uint8_t *p;
			if (r == -EAGAIN || c->closed || !aether_output(c->aether, &p))
				return;
			continue; /* ...and their owners may have used it */
		}
		if (r == -EPIPE || r == -ECONNRESET)
			r = read_to_end(c, -ECONNRESET);
		down(c, r);
	}
}

static void on_prepare(uv_prepare_t *h)
{
	struct conn *c = h->data;
	uv_prepare_stop(h);
	c->dirty = false;
	flush(c);
}

static void dirty(struct conn *c)
{
	if (c->dirty || c->closed || c->blocked)
		return;
	c->dirty = true;
	uv_prepare_start(&c->prepare, on_prepare);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct conn *c = h->data;
	if (status < 0) {
		down(c, status);
		return;
	}
	if (events & UV_READABLE)
		read_some(c, READS_PER_EVENT);
	if (!c->closed)
		flush(c);
}

static void on_timer(uv_timer_t *h)
{
	struct conn *c = h->data;
	uint64_t silent = uv_now(h->loop) - c->last_rx;
	if (silent >= KEEPALIVE_MISSES * c->idle_ms) {
		down(c, -ETIMEDOUT);
		return;
	}
	if (silent >= c->idle_ms) {
		aether_ping(c->aether, (uint32_t)silent);
		dirty(c);
	}
}

static int prepare_fd(int fd)
{
	int flags = fcntl(fd, F_GETFL), one = 1;
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	/* Frames are flushed once a loop turn; Nagle would only delay them. Fails on
	 * unix sockets, which need none. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return 0;
}

int conn_new(uv_loop_t *loop, int fd_take, const struct aether_config *config,
	     const struct conn_callbacks *cb, void *user, struct conn **ret)
{
	_cleanup_close_ int fd = fd_take;
	_cleanup_free_ struct conn *c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	int r = prepare_fd(fd);
	if (r < 0)
		return r;
	r = aether_new(config, &c->aether);
	if (r < 0)
		return r;
	r = uv_poll_init(loop, &c->poll, fd);
	if (r < 0) {
		aether_free(c->aether);
		return r;
	}
	uv_prepare_init(loop, &c->prepare);
	uv_timer_init(loop, &c->timer);
	c->poll.data = c->prepare.data = c->timer.data = c;
	c->handles = 3;
	c->fd = TAKE_FD(fd);
	c->cb = cb;
	c->user = user;
	c->read_size = READ_MIN;
	c->last_rx = uv_now(loop);
	uv_poll_start(&c->poll, UV_READABLE, on_poll);
	dirty(c); /* the greeting */
	*ret = TAKE_PTR(c);
	return 0;
}

void conn_close(struct conn *c)
{
	if (!c || c->closed)
		return;
	write_some(c); /* last words, as far as the socket takes them */
	shut(c);
}

void conn_keepalive(struct conn *c, uint64_t idle_ms)
{
	if (c->closed)
		return;
	c->idle_ms = idle_ms;
	c->last_rx = uv_now(c->timer.loop);
	if (idle_ms)
		uv_timer_start(&c->timer, on_timer, idle_ms, idle_ms);
	else
		uv_timer_stop(&c->timer);
}

int conn_open(struct conn *c, const void *payload, size_t n, uint32_t *ret_stream)
{
	dirty(c);
	return aether_open(c->aether, payload, n, ret_stream);
}

int conn_send_msg(struct conn *c, uint32_t stream, const void *payload, size_t n)
{
	dirty(c);
	return aether_send_msg(c->aether, stream, payload, n);
}

long conn_send_data(struct conn *c, uint32_t stream, uint8_t channel, const void *p, size_t n)
{
	dirty(c);
	return aether_send_data(c->aether, stream, channel, p, n);
}

size_t conn_sendable(struct conn *c, uint32_t stream)
{
	return aether_sendable(c->aether, stream);
}

int conn_close_stream(struct conn *c, uint32_t stream)
{
	dirty(c);
	return aether_close(c->aether, stream);
}

int conn_reset(struct conn *c, uint32_t stream, uint32_t code)
{
	dirty(c);
	return aether_reset(c->aether, stream, code);
}

void conn_consume(struct conn *c, uint32_t stream, size_t n)
{
	aether_consume(c->aether, stream, n);
	dirty(c);
}

void conn_set_user(struct conn *c, uint32_t stream, void *user)
{
	aether_set_user(c->aether, stream, user);
}

void *conn_user(struct conn *c, uint32_t stream)
{
	return aether_user(c->aether, stream);
}

bool conn_ready(const struct conn *c)
{
	return !c->closed && aether_ready(c->aether);
}
