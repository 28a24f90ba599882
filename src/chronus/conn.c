/* conn.c: the one connection to the edge.
 *
 * The edge connects to the inherited listening socket; a newer connection
 * replaces the older (an edge that was killed -9 may have left one half open).
 * What belongs to execs outlives the connection: dropping it only detaches them.
 * File operations and half-received starts end with it.
 *
 * Every stream's user pointer is a struct owner (exec, file_op or large_start);
 * the owner's `stream` and the pointer are set and cleared together. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "chronus/chronus-internal.h"

#define READ_SIZE (64 * 1024)
#define READS_A_ROUND 4 /* then other sources get their turn */

/* An ExecStart too large for one payload, while its pieces arrive. */
struct large_start {
	struct owner owner;
	struct large_start *next;
	struct buf bytes;
	size_t missing;
};

static void large_free(struct chronus *c, struct large_start *l)
{
	for (struct large_start **at = &c->conn.large; *at; at = &(*at)->next)
		if (*at == l) {
			*at = l->next;
			break;
		}
	buf_done(&l->bytes);
	free(l);
}

static void large_begin(struct chronus *c, uint32_t stream, const struct aether_event *ev, size_t missing)
{
	struct large_start *l = missing <= WIRE_FOLLOW_MAX ? calloc(1, sizeof(*l)) : NULL;
	if (!l || buf_append(&l->bytes, ev->payload, ev->n) < 0) {
		free(l);
		aether_reset(c->conn.a, stream, AETHER_RESET_PROTOCOL);
		return;
	}
	l->owner = (struct owner){ .kind = OWNER_LARGE, .stream = stream };
	l->missing = missing;
	l->next = c->conn.large;
	c->conn.large = l;
	aether_set_user(c->conn.a, stream, &l->owner);
}

static void large_piece(struct chronus *c, struct large_start *l, const struct aether_event *ev)
{
	uint32_t stream = l->owner.stream;
	struct wire_open open;
	if (ev->n <= l->missing && buf_append(&l->bytes, ev->payload, ev->n) == 0) {
		l->missing -= ev->n;
		if (l->missing)
			return;
		aether_set_user(c->conn.a, stream, NULL);
		if (wire_decode_open(buf_ptr(&l->bytes), buf_len(&l->bytes), &open) == 0 &&
		    open.what == WIRE_EXEC_START) {
			exec_start(c, stream, &open.start);
			large_free(c, l);
			return;
		}
	}
	aether_reset(c->conn.a, stream, AETHER_RESET_PROTOCOL);
	large_free(c, l);
}

/* ---- Hello ---- */

static void on_hello(struct chronus *c, uint32_t stream)
{
	/* As many execs as there may be, each with its longest id, fit one message. */
	_Static_assert(128 + CHRONUS_EXECS_MAX * (EXEC_ID_MAX + 16) <= AETHER_PAYLOAD_MAX, "HelloReply is one payload");
	size_t cap = 128 + (size_t)c->n_execs * (EXEC_ID_MAX + 16), mark;
	_cleanup_free_ uint8_t *p = malloc(cap);
	struct pb_out o = { .p = p, .cap = p ? cap : 0 };
	c->conn.hello_stream = stream;
	wire_hello_begin(&o, DSEC_VERSION, &mark);
	for (struct exec *x = c->execs; x; x = x->next)
		if (!x->forgotten)
			wire_hello_exec(&o, x->id, x->state != EXEC_ENDED && x->state != EXEC_FAILED);
	pb_close(&o, mark);
	if (o.full || aether_send_msg(c->conn.a, stream, o.p, o.n) < 0)
		aether_reset(c->conn.a, stream, AETHER_RESET_INTERNAL);
}

/* ---- Events ---- */

static void on_open(struct chronus *c, const struct aether_event *ev)
{
	struct wire_open open;
	if (wire_decode_open(ev->payload, ev->n, &open) < 0) {
		aether_reset(c->conn.a, ev->stream, AETHER_RESET_PROTOCOL);
		return;
	}
	switch (open.what) {
	case WIRE_HELLO:
		on_hello(c, ev->stream);
		break;
	case WIRE_EXEC_START:
		exec_start(c, ev->stream, &open.start);
		break;
	case WIRE_EXEC_ATTACH:
		exec_attach(c, ev->stream, &open.attach);
		break;
	case WIRE_FILE:
		file_start(c, ev->stream, &open.file);
		break;
	case WIRE_FOLLOW:
		large_begin(c, ev->stream, ev, open.follow_bytes);
		break;
	}
}

static void on_message(struct chronus *c, struct owner *o, const struct aether_event *ev)
{
	struct wire_disk_usage usage;
	aether_consume(c->conn.a, ev->stream, ev->n);
	if (o && o->kind == OWNER_EXEC)
		exec_command((struct exec *)o, ev->payload, ev->n);
	else if (o && o->kind == OWNER_FILE)
		file_command((struct file_op *)o, ev->payload, ev->n);
	else if (o && o->kind == OWNER_LARGE)
		large_piece(c, (struct large_start *)o, ev);
	else if (ev->stream == c->conn.hello_stream &&
		 wire_decode_hello_message(ev->payload, ev->n, &usage) == 0)
		statfs_usage_reply(c, &usage);
}

/* The stream is gone, or (CLOSE) the edge will say no more on it. */
static void on_end(struct chronus *c, struct owner *o, const struct aether_event *ev)
{
	bool reset = ev->type == AETHER_EV_RESET;
	if (ev->stream == c->conn.hello_stream)
		c->conn.hello_stream = 0;
	if (!o) {
		if (!reset)
			aether_close(c->conn.a, ev->stream);
	} else if (o->kind == OWNER_LARGE) {
		if (!reset)
			aether_reset(c->conn.a, ev->stream, AETHER_RESET_PROTOCOL);
		large_free(c, (struct large_start *)o);
	} else if (o->kind == OWNER_EXEC) {
		if (reset)
			exec_detach((struct exec *)o);
	} else if (reset)
		file_detach((struct file_op *)o);
	else
		file_upload_end((struct file_op *)o);
}

static void on_event(struct chronus *c, const struct aether_event *ev)
{
	struct owner *o = ev->stream ? aether_user(c->conn.a, ev->stream) : NULL;
	switch (ev->type) {
	case AETHER_EV_OPEN:
		on_open(c, ev);
		break;
	case AETHER_EV_MSG:
		on_message(c, o, ev);
		break;
	case AETHER_EV_DATA: /* credit is given when the bytes have gone on */
		if (o && o->kind == OWNER_EXEC && ev->channel == 0)
			exec_stdin_data((struct exec *)o, ev->payload, ev->n);
		else if (o && o->kind == OWNER_FILE && ev->channel == 0)
			file_upload((struct file_op *)o, ev->payload, ev->n);
		else
			aether_consume(c->conn.a, ev->stream, ev->n);
		break;
	case AETHER_EV_CLOSE:
	case AETHER_EV_RESET:
		on_end(c, o, ev);
		break;
	case AETHER_EV_WRITABLE:
		if (o && o->kind == OWNER_EXEC)
			exec_pump((struct exec *)o);
		else if (o && o->kind == OWNER_FILE)
			file_pump((struct file_op *)o);
		break;
	default:
		break; /* READY, PONG, GOAWAY ask nothing of us */
	}
}

static int drain_events(struct chronus *c)
{
	struct aether_event ev;
	while (c->conn.a && aether_next(c->conn.a, &ev) > 0)
		on_event(c, &ev);
	return c->conn.a ? aether_error(c->conn.a) : -EPIPE;
}

/* ---- Transport ---- */

void conn_drop(struct chronus *c)
{
	if (!c->conn.a)
		return;
	source_close(c, &c->conn.s);
	for (struct exec *x = c->execs; x; x = x->next)
		if (x->owner.stream)
			exec_detach(x);
	file_detach_all(c);
	while (c->conn.large)
		large_free(c, c->conn.large);
	aether_free(c->conn.a);
	c->conn.a = NULL;
	c->conn.hello_stream = 0;
}

/* Writes until the socket is full. Draining may make WRITABLE events, whose
 * handlers queue more output: go round until neither has anything left. */
void conn_flush(struct chronus *c)
{
	bool blocked = false;
	while (c->conn.a && !blocked) {
		const uint8_t *p;
		size_t n = aether_output(c->conn.a, &p);
		if (!n)
			break;
		ssize_t k = send(c->conn.s.fd, p, n, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno != EAGAIN) {
			conn_drop(c);
			return;
		}
		blocked = k < 0;
		if (k > 0)
			aether_output_done(c->conn.a, (size_t)k);
		if (drain_events(c) < 0) {
			conn_drop(c);
			return;
		}
	}
	if (c->conn.a)
		source_watch(c, &c->conn.s, EPOLLIN | (blocked ? EPOLLOUT : 0));
}

static void on_socket(struct source *s, uint32_t events)
{
	struct chronus *c = container_of(s, struct chronus, conn.s);
	for (int i = 0; i < READS_A_ROUND && c->conn.a; i++) {
		uint8_t *p;
		if (aether_recv_space(c->conn.a, READ_SIZE, &p) < 0)
			break;
		ssize_t k = recv(s->fd, p, READ_SIZE, 0);
		int err = errno;
		int r = aether_recv_done(c->conn.a, k > 0 ? (size_t)k : 0);
		if (k < 0 && (err == EAGAIN || err == EINTR))
			return;
		if (k <= 0 || drain_events(c) < 0 || r < 0) {
			conn_drop(c);
			return;
		}
		if (k < READ_SIZE)
			return;
	}
}

static void on_listener(struct source *s, uint32_t events)
{
	struct chronus *c = container_of(s, struct chronus, listener);
	int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	conn_drop(c);
	struct aether_config config = { .client = false, .window = CHRONUS_WINDOW };
	if (aether_new(&config, &c->conn.a) < 0) {
		close(fd);
		return;
	}
	c->conn.s = (struct source){ .fd = fd, .ready = on_socket };
	source_watch(c, &c->conn.s, EPOLLIN);
}

void conn_listen(struct chronus *c)
{
	c->listener.ready = on_listener;
	source_watch(c, &c->listener, EPOLLIN);
}
