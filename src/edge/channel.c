/* channel.c: see channel.h.
 *
 * connect -> greeting -> Hello sent -> HelloReply: ready. A connection that
 * breaks tells all peers `lost` and is tried again with growing pauses until
 * CHANNEL_LOST_MAX_MS have passed without a HelloReply; then the sandbox is told
 * that its runtime was given up.
 *
 * N1 Any call out of here (sandbox_*, peer callbacks) may free the channel. After
 *    one, nothing of it is touched unless `alive` said that it still exists.
 * N2 peer->stream is non-zero exactly while the peer is on ch->peers.
 * N3 ch->used is on node->channels exactly while ch->conn is not NULL. Without a
 *    connection the channel either sleeps or its timer runs.
 */
#include "edge/channel.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "edge/node.h"
#include "edge/sandbox.h"

#define CHRONUS_PROTOCOL 1
#define PIECE_BYTES (32 * 1024)

struct channel {
	struct sandbox *sb;
	struct conn *conn; /* NULL: down */
	struct peer hello;
	struct link peers; /* hello too */
	struct link used;  /* in node->channels */
	uv_timer_t timer;  /* retry, or the hello deadline */
	uint64_t lost_since, retry_ms;
	bool ready, last_words;
	bool sleeping; /* closed for being idle */
};

static void connect_again(struct channel *ch);
static void on_timer(uv_timer_t *h);

/* --- peers --- */

void peer_init(struct peer *p, void (*event)(struct peer *, const struct aether_event *),
	       void (*lost)(struct peer *))
{
	*p = (struct peer){ .event = event, .lost = lost };
	list_init(&p->link);
}

static struct conn *peer_conn(struct peer *p)
{
	return p->stream && p->channel ? p->channel->conn : NULL;
}

/* The stream is forgotten; events that may still come find no peer. */
static void peer_detach(struct peer *p)
{
	struct conn *conn = peer_conn(p);
	if (conn)
		conn_set_user(conn, p->stream, NULL);
	list_drop(&p->link);
	buf_done(&p->pieces);
	p->stream = 0;
	p->channel = NULL;
}

static int send_pieces(struct peer *p)
{
	while (buf_len(&p->pieces)) {
		size_t n = MIN(buf_len(&p->pieces), (size_t)PIECE_BYTES);
		int r = conn_send_msg(p->channel->conn, p->stream, buf_ptr(&p->pieces), n);
		if (r < 0)
			return r;
		buf_consume(&p->pieces, n);
	}
	buf_done(&p->pieces);
	return 0;
}

static int open_large(struct peer *p, struct conn *conn, const Dsec__Chronus__ChronusOpen *open, size_t n)
{
	Dsec__Chronus__ChronusOpen head = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	uint8_t small[16], *room;
	int r = buf_reserve(&p->pieces, n, &room);
	if (r < 0)
		return r;
	buf_commit(&p->pieces, dsec__chronus__chronus_open__pack(open, room));
	head.follow_bytes = (uint32_t)n;
	r = conn_open(conn, small, dsec__chronus__chronus_open__pack(&head, small), &p->stream);
	if (r < 0)
		buf_done(&p->pieces);
	return r;
}

int peer_open(struct peer *p, struct channel *ch, const Dsec__Chronus__ChronusOpen *open)
{
	uint8_t small[4096];
	_cleanup_free_ uint8_t *large = NULL;
	if (!ch || !ch->conn)
		return -EAGAIN;
	size_t n = dsec__chronus__chronus_open__get_packed_size(open);
	uint8_t *b = n <= sizeof(small) ? small : (large = malloc(n));
	if (!b)
		return -ENOMEM;
	int r;
	if (n > PIECE_BYTES) {
		r = open_large(p, ch->conn, open, n);
	} else {
		dsec__chronus__chronus_open__pack(open, b);
		r = conn_open(ch->conn, b, n, &p->stream);
	}
	if (r < 0) {
		p->stream = 0;
		return r;
	}
	p->channel = ch;
	list_append(&ch->peers, &p->link);
	conn_set_user(ch->conn, p->stream, p);
	r = send_pieces(p);
	return r == -EAGAIN ? 0 : r;
}

int peer_send(struct peer *p, const ProtobufCMessage *m)
{
	uint8_t b[512]; /* commands are small; see ExecCommand, FileCommand */
	struct conn *conn = peer_conn(p);
	if (!conn)
		return -ENOTCONN;
	if (protobuf_c_message_get_packed_size(m) > sizeof(b))
		return -EMSGSIZE;
	if (buf_len(&p->pieces))
		return -EAGAIN;
	return conn_send_msg(conn, p->stream, b, protobuf_c_message_pack(m, b));
}

long peer_send_data(struct peer *p, uint8_t channel, const void *data, size_t n)
{
	struct conn *conn = peer_conn(p);
	if (!conn)
		return -ENOTCONN;
	return buf_len(&p->pieces) ? 0 : conn_send_data(conn, p->stream, channel, data, n);
}

void peer_consume(struct peer *p, size_t n)
{
	struct conn *conn = peer_conn(p);
	if (conn)
		conn_consume(conn, p->stream, n);
}

int peer_half_close(struct peer *p)
{
	struct conn *conn = peer_conn(p);
	return conn ? conn_close_stream(conn, p->stream) : -ENOTCONN;
}

void peer_reset(struct peer *p)
{
	struct conn *conn = peer_conn(p);
	uint32_t stream = p->stream;
	if (!conn)
		return;
	peer_detach(p);
	conn_reset(conn, stream, AETHER_RESET_CANCELLED);
}

void peer_finish(struct peer *p)
{
	struct conn *conn = peer_conn(p);
	uint32_t stream = p->stream;
	if (!conn)
		return;
	peer_detach(p);
	conn_close_stream(conn, stream);
}

/* --- hello and disk usage --- */

struct usage_request {
	struct node *node;
	uint32_t token;
	char id[SANDBOX_ID_MAX + 1];
};

static void on_usage(int err, uint64_t limit, uint64_t used, void *user)
{
	_cleanup_free_ struct usage_request *q = user;
	struct sandbox *sb = node_find(q->node, q->id);
	if (err || !sb || !sb->channel)
		return; /* chronus answers statfs by itself after a while */
	Dsec__Chronus__DiskUsageReply m = DSEC__CHRONUS__DISK_USAGE_REPLY__INIT;
	Dsec__Chronus__HelloMessage h = DSEC__CHRONUS__HELLO_MESSAGE__INIT;
	m.token = q->token;
	m.limit_bytes = limit;
	m.used_bytes = used;
	h.what_case = DSEC__CHRONUS__HELLO_MESSAGE__WHAT_DISK_USAGE_REPLY;
	h.disk_usage_reply = &m;
	sb->disk_used = used;
	peer_send(&sb->channel->hello, &h.base);
}

static void disk_usage(struct channel *ch, uint32_t token)
{
	struct usage_request *q = calloc(1, sizeof(*q));
	if (!q || !ch->sb->inst) {
		free(q);
		return;
	}
	q->node = ch->sb->node;
	q->token = token;
	snprintf(q->id, sizeof(q->id), "%s", ch->sb->id);
	ch->sb->node->ops->disk_usage(ch->sb->inst, on_usage, q);
}

static void down(struct channel *ch);

/* Closes our end; no callback comes. */
static void disconnect(struct channel *ch)
{
	conn_close(TAKE_PTR(ch->conn));
	list_drop(&ch->used);
	ch->sb->node->n_channels--;
}

/* --- few descriptors --- */

static bool idle(const struct channel *ch)
{
	const struct link *first = ch->peers.next;
	return ch->ready && !ch->sb->execs_running && first == &ch->hello.link && first->next == &ch->peers;
}

static void fall_asleep(struct channel *ch)
{
	peer_detach(&ch->hello);
	disconnect(ch);
	ch->ready = false;
	ch->sleeping = true;
}

/* The least recently used idle one goes; if all are busy, one more is open. */
static void make_room(struct node *n)
{
	if (n->n_channels <= n->max_channels)
		return;
	list_for_each(ch, &n->channels, struct channel, used)
		if (idle(ch)) {
			fall_asleep(ch);
			return;
		}
}

bool channel_use(struct channel *ch)
{
	if (!ch)
		return false;
	if (ch->sleeping) {
		ch->sleeping = false;
		ch->lost_since = now_mono_ms();
		connect_again(ch);
	}
	if (ch->conn) {
		list_drop(&ch->used);
		list_append(&ch->sb->node->channels, &ch->used);
	}
	return ch->ready;
}

static void hello_reply(struct channel *ch, const Dsec__Chronus__HelloReply *reply)
{
	if (reply->protocol != CHRONUS_PROTOCOL) {
		log_error("%s: chronus speaks protocol %u, this edge %d", ch->sb->id, reply->protocol,
			  CHRONUS_PROTOCOL);
		disconnect(ch);
		down(ch);
		return;
	}
	ch->ready = true;
	ch->lost_since = 0;
	ch->retry_ms = CHANNEL_RETRY_MIN_MS;
	uv_timer_stop(&ch->timer);
	struct node *n = ch->sb->node;
	sandbox_channel_ready(ch->sb, reply); /* N1 */
	make_room(n); /* there was none to close while all were connecting */
}

static void hello_event(struct peer *p, const struct aether_event *ev)
{
	struct channel *ch = container_of(p, struct channel, hello);
	if (ev->type != AETHER_EV_MSG)
		return;
	peer_consume(p, ev->n);
	Dsec__Chronus__HelloMessage *m = dsec__chronus__hello_message__unpack(NULL, ev->n, ev->payload);
	if (!m)
		return; /* what chronus says may be nonsense; it then never gets ready */
	if (m->what_case == DSEC__CHRONUS__HELLO_MESSAGE__WHAT_REPLY && !ch->ready)
		hello_reply(ch, m->reply); /* N1 */
	else if (m->what_case == DSEC__CHRONUS__HELLO_MESSAGE__WHAT_DISK_USAGE)
		disk_usage(ch, m->disk_usage->token);
	dsec__chronus__hello_message__free_unpacked(m, NULL);
}

static void hello_lost(struct peer *p)
{
}

/* --- the connection --- */

static void on_ready(struct conn *c, void *user)
{
	struct channel *ch = user;
	Dsec__Chronus__Hello hello = DSEC__CHRONUS__HELLO__INIT;
	Dsec__Chronus__ChronusOpen open = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	hello.protocol = CHRONUS_PROTOCOL;
	hello.sandbox_id = ch->sb->id;
	open.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_HELLO;
	open.hello = &hello;
	if (peer_open(&ch->hello, ch, &open) < 0) {
		disconnect(ch);
		down(ch);
	}
}

static void on_event(struct conn *c, const struct aether_event *ev, void *user)
{
	struct channel *ch = user;
	struct peer *p = ev->stream ? conn_user(c, ev->stream) : NULL;
	if (ev->type == AETHER_EV_OPEN) {
		conn_reset(c, ev->stream, AETHER_RESET_REFUSED); /* chronus never opens */
		return;
	}
	if (!p) {
		if (ev->type == AETHER_EV_DATA || ev->type == AETHER_EV_MSG)
			conn_consume(c, ev->stream, ev->n);
		return;
	}
	if (ev->type == AETHER_EV_WRITABLE && buf_len(&p->pieces) && send_pieces(p) < 0)
		return;
	if (ev->type == AETHER_EV_RESET) {
		peer_detach(p);
		if (p == &ch->hello) {
			disconnect(ch);
			down(ch);
			return;
		}
	}
	p->event(p, ev);
}

/* Tells every peer, then plans the next try. The connection is closed already. */
static void down(struct channel *ch)
{
	struct peer *p;
	struct sandbox *sb = ch->sb;
	ch->ready = false;
	peer_detach(&ch->hello);
	while ((p = list_first(&ch->peers, struct peer, link))) {
		peer_detach(p);
		p->lost(p);
		if (sb->channel != ch)
			return; /* N1 */
	}
	if (ch->last_words) {
		sandbox_channel_down(sb);
		return;
	}
	if (!ch->lost_since)
		ch->lost_since = now_mono_ms();
	uv_timer_start(&ch->timer, on_timer, ch->retry_ms, 0);
	ch->retry_ms = MIN(ch->retry_ms * 2, (uint64_t)CHANNEL_RETRY_MAX_MS);
}

static void on_down(struct conn *c, int err, void *user)
{
	struct channel *ch = user;
	log_debug("%s: chronus's connection ended: %s", ch->sb->id, err ? strerror(-err) : "end of file");
	ch->conn = NULL;
	list_drop(&ch->used);
	ch->sb->node->n_channels--;
	down(ch);
}

static const struct conn_callbacks callbacks = { on_ready, on_event, on_down };

static void on_timer(uv_timer_t *h)
{
	struct channel *ch = h->data;
	if (now_mono_ms() - ch->lost_since >= CHANNEL_LOST_MAX_MS) {
		sandbox_channel_given_up(ch->sb, "no answer on its socket"); /* N1 */
		return;
	}
	if (ch->conn) { /* connected, greeted perhaps, but no HelloReply */
		disconnect(ch);
		down(ch);
		return;
	}
	connect_again(ch);
}

static void connect_again(struct channel *ch)
{
	struct aether_config config = { .client = true };
	int fd = ch->sb->node->ops->connect(ch->sb->inst);
	int r = fd < 0 ? fd : conn_new(ch->sb->node->loop, fd, &config, &callbacks, ch, &ch->conn);
	if (r < 0) {
		log_debug("%s: connecting to chronus: %s", ch->sb->id, strerror(-r));
		down(ch);
		return;
	}
	ch->sb->node->n_channels++;
	list_append(&ch->sb->node->channels, &ch->used);
	make_room(ch->sb->node);
	uv_timer_start(&ch->timer, on_timer, CHANNEL_HELLO_DEADLINE_MS, 0);
}

int channel_new(struct sandbox *sb, bool asleep, struct channel **ret)
{
	struct channel *ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	ch->sb = sb;
	ch->retry_ms = CHANNEL_RETRY_MIN_MS;
	ch->lost_since = now_mono_ms();
	list_init(&ch->peers);
	list_init(&ch->used);
	peer_init(&ch->hello, hello_event, hello_lost);
	uv_timer_init(sb->node->loop, &ch->timer);
	ch->timer.data = ch;
	ch->sleeping = asleep;
	*ret = ch;
	if (!asleep)
		connect_again(ch);
	return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

void channel_free(struct channel *ch)
{
	struct peer *p;
	if (!ch)
		return;
	if (ch->conn)
		disconnect(ch);
	peer_detach(&ch->hello);
	while ((p = list_first(&ch->peers, struct peer, link))) {
		peer_detach(p);
		p->lost(p);
	}
	uv_close((uv_handle_t *)&ch->timer, on_timer_closed);
}

bool channel_ready(const struct channel *ch)
{
	return ch && ch->ready;
}

bool channel_closed(const struct channel *ch)
{
	return !ch->conn;
}

void channel_last_words(struct channel *ch)
{
	ch->last_words = true;
	uv_timer_stop(&ch->timer);
}
