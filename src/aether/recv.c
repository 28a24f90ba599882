/* recv.c: checking what the peer sent, and handing it out as events.
 *
 * Bytes of the transport lie in a->in. check_frames() walks whole frames once,
 * refuses violations and applies what changes our right to send. aether_next()
 * walks them again and hands them out. What the owner must still be able to ask
 * about (its pointer of a stream whose RESET or last CLOSE it is looking at)
 * lives until the next aether_next or aether_recv: aether_settle() ends it then.
 */
#include <errno.h>
#include "aether/aether-internal.h"
#include "base/cleanup.h"

/* Answers that a peer can provoke without limit (PONG, refusals) while it does
 * not read: beyond the output bound plus this much it is called a violation. */
#define PROVOKED_MAX (64 * 1024)

static struct wire_header header_at(const uint8_t *p)
{
	return (struct wire_header){ p[0], p[1], get16(p + 2), get32(p + 4), get32(p + 8) };
}

void aether_settle(struct aether *a)
{
	if (a->dying) {
		struct stream *s = stream_find(a, a->dying);
		a->dying = 0;
		if (s)
			stream_free(a, s);
	}
	buf_consume(&a->in, a->handed);
	a->handed = 0;
}

/* Bytes taken by the greeting, 0 when it is not whole yet, negative errno. */
static long check_greeting(struct aether *a, const uint8_t *p, size_t n)
{
	uint8_t magic[4];
	put32(magic, WIRE_MAGIC);
	if (memcmp(p, magic, MIN(n, sizeof(magic))))
		return -EPROTO; /* seen from the first wrong byte on */
	if (n < 6)
		return 0;
	size_t size = get16(p + 4);
	if (size < WIRE_GREETING_SIZE || size > WIRE_GREETING_MAX)
		return -EPROTO;
	if (n < size)
		return 0;
	uint16_t newest = get16(p + 6), oldest = get16(p + 8);
	if (oldest > newest)
		return -EPROTO;
	if (newest < AETHER_VERSION || oldest > AETHER_VERSION)
		return -EPROTONOSUPPORT;
	a->version = AETHER_VERSION;
	a->peer_window = get32(p + 12);
	a->peer_max_streams = get32(p + 16);
	if (a->peer_window < AETHER_WINDOW_MIN || a->peer_window > AETHER_WINDOW_MAX ||
	    !a->peer_max_streams || a->peer_max_streams > AETHER_STREAMS_MAX)
		return -EPROTO;
	a->greeted = a->ready_due = true;
	size_t it = 0;
	struct stream *s;
	while ((s = hashmap_next(&a->streams, &it))) {
		s->send_window = a->peer_window;
		if (s->wait == WAIT_WINDOW)
			stream_wait(a, s, aether_output_low(a) ? WAIT_QUEUED : WAIT_OUTPUT);
	}
	return (long)size;
}

/* Form only: independent of any state, so a bad length is refused before a byte
 * of its payload is waited for. */
static bool header_valid(const struct wire_header *h)
{
	bool of_connection = h->type == WIRE_PING || h->type == WIRE_PONG || h->type == WIRE_GOAWAY;
	if (h->reserved || (h->channel && h->type != WIRE_DATA) || !h->stream != of_connection)
		return false;
	switch (h->type) {
	case WIRE_OPEN:
	case WIRE_MSG:
		return h->length <= AETHER_PAYLOAD_MAX;
	case WIRE_DATA:
		return h->length && h->length <= AETHER_PAYLOAD_MAX;
	case WIRE_CLOSE:
		return !h->length;
	case WIRE_RESET:
	case WIRE_CREDIT:
	case WIRE_PING:
	case WIRE_PONG:
	case WIRE_GOAWAY:
		return h->length == WIRE_CONTROL_SIZE;
	default:
		return false;
	}
}

static int provoked(struct aether *a, enum wire_type type, uint32_t stream, uint32_t value)
{
	if (a->out.len > a->config.output_max + PROVOKED_MAX)
		return -EPROTO;
	return aether_frame_u32(a, type, stream, value);
}

static int check_open(struct aether *a, uint32_t id)
{
	if (stream_id_is_ours(a, id) || !stream_id_is_new(a->last_peer, a->peers_wrapped, id) ||
	    stream_find(a, id))
		return -EPROTO;
	if (id < a->last_peer)
		a->peers_wrapped = true;
	a->last_peer = id;
	if (a->sent_goaway || a->n_peers >= a->config.max_streams)
		return provoked(a, WIRE_RESET, id, AETHER_RESET_REFUSED);
	struct stream *s;
	return stream_new(a, id, false, &s);
}

static int check_credit(struct aether *a, struct stream *s, uint32_t n)
{
	if (!n || n > a->peer_window - s->send_window)
		return -EPROTO;
	s->send_window += n;
	if (s->wait == WAIT_WINDOW)
		stream_wait(a, s, aether_output_low(a) ? WAIT_QUEUED : WAIT_OUTPUT);
	return 0;
}

static int check_on_stream(struct aether *a, const struct wire_header *h, const uint8_t *payload)
{
	struct stream *s = stream_find(a, h->stream);
	if (!s || s->got_reset) {
		/* Gone on our side: what the peer sent before it knew is dropped. */
		bool ours = stream_id_is_ours(a, h->stream);
		bool never = stream_id_is_new(ours ? a->last_ours : a->last_peer,
					      ours ? a->ours_wrapped : a->peers_wrapped, h->stream);
		return never ? -EPROTO : 0;
	}
	switch (h->type) {
	case WIRE_MSG:
	case WIRE_DATA:
		if (s->got_close || h->length > s->recv_window)
			return -EPROTO;
		s->recv_window -= h->length;
		return 0;
	case WIRE_CLOSE:
		if (s->got_close)
			return -EPROTO;
		s->got_close = true;
		if (s->sent_close)
			stream_uncount(a, s);
		return 0;
	case WIRE_RESET:
		s->got_reset = true;
		stream_uncount(a, s);
		stream_wait(a, s, WAIT_NONE);
		return 0;
	default: /* WIRE_CREDIT */
		return check_credit(a, s, get32(payload));
	}
}

static int check_frame(struct aether *a, const struct wire_header *h, const uint8_t *payload)
{
	switch (h->type) {
	case WIRE_OPEN:
		return check_open(a, h->stream);
	case WIRE_PING:
		return provoked(a, WIRE_PONG, 0, get32(payload));
	case WIRE_PONG:
		return 0;
	case WIRE_GOAWAY:
		a->got_goaway = true;
		return 0;
	default:
		return check_on_stream(a, h, payload);
	}
}

static int check_frames(struct aether *a)
{
	if (!a->greeted && buf_len(&a->in)) {
		long r = check_greeting(a, buf_ptr(&a->in), buf_len(&a->in));
		if (r <= 0)
			return (int)r;
		buf_consume(&a->in, (size_t)r);
	}
	while (buf_len(&a->in) - a->parsed >= WIRE_HEADER_SIZE) {
		const uint8_t *p = buf_ptr(&a->in) + a->parsed;
		struct wire_header h = header_at(p);
		if (!header_valid(&h))
			return -EPROTO;
		if (buf_len(&a->in) - a->parsed - WIRE_HEADER_SIZE < h.length)
			return 0;
		int r = check_frame(a, &h, p + WIRE_HEADER_SIZE);
		if (r < 0)
			return r;
		a->parsed += WIRE_HEADER_SIZE + h.length;
	}
	return 0;
}

int aether_recv_space(struct aether *a, size_t n, uint8_t **ret)
{
	if (a->err)
		return a->err;
	aether_settle(a);
	int r = buf_reserve(&a->in, n, ret);
	if (r < 0)
		a->err = r;
	return r;
}

int aether_recv_done(struct aether *a, size_t n)
{
	if (a->err)
		return a->err;
	buf_commit(&a->in, n);
	int r = check_frames(a);
	if (r < 0)
		a->err = r;
	else if (!buf_len(&a->in))
		buf_done(&a->in);
	return a->err;
}

int aether_recv(struct aether *a, const void *p, size_t n)
{
	uint8_t *at;
	int r = aether_recv_space(a, n, &at);
	if (r < 0)
		return r;
	if (n)
		memcpy(at, p, n);
	return aether_recv_done(a, n);
}

/* Fills *ev from a frame. False: nothing for the owner to see. */
static bool deliver(struct aether *a, const struct wire_header *h, const uint8_t *payload,
		    struct aether_event *ev)
{
	static const uint8_t types[] = {
		[WIRE_OPEN] = AETHER_EV_OPEN,	[WIRE_MSG] = AETHER_EV_MSG,
		[WIRE_DATA] = AETHER_EV_DATA,	[WIRE_CLOSE] = AETHER_EV_CLOSE,
		[WIRE_RESET] = AETHER_EV_RESET, [WIRE_PONG] = AETHER_EV_PONG,
		[WIRE_GOAWAY] = AETHER_EV_GOAWAY,
	};
	if (h->type == WIRE_CREDIT || h->type == WIRE_PING)
		return false;
	struct stream *s = NULL;
	/* A stream the owner has reset since, or that was refused or gone already. */
	if (h->stream && !(s = stream_find(a, h->stream)))
		return false;
	*ev = (struct aether_event){ .type = types[h->type], .stream = h->stream, .channel = h->channel };
	if (h->type == WIRE_RESET || h->type == WIRE_PONG || h->type == WIRE_GOAWAY) {
		ev->code = get32(payload);
	} else {
		ev->payload = payload;
		ev->n = h->length;
	}
	if (h->type == WIRE_CLOSE)
		s->delivered_close = true;
	if (h->type == WIRE_RESET || (h->type == WIRE_CLOSE && stream_finished(s)))
		a->dying = h->stream;
	return true;
}

static bool next_frame(struct aether *a, struct aether_event *ret)
{
	while (a->parsed) {
		const uint8_t *p = buf_ptr(&a->in);
		struct wire_header h = header_at(p);
		size_t size = WIRE_HEADER_SIZE + h.length;
		a->parsed -= size;
		if (deliver(a, &h, p + WIRE_HEADER_SIZE, ret)) {
			a->handed = size;
			return true;
		}
		buf_consume(&a->in, size);
	}
	return false;
}

int aether_next(struct aether *a, struct aether_event *ret)
{
	aether_settle(a);
	if (a->ready_due) {
		a->ready_due = false;
		*ret = (struct aether_event){ .type = AETHER_EV_READY, .code = a->version };
		return 1;
	}
	if (next_frame(a, ret))
		return 1;
	if (!buf_len(&a->in))
		buf_done(&a->in); /* an idle connection holds no buffer */
	if (a->err)
		return 0;
	if (!link_empty(&a->writable)) {
		struct stream *s = stream_of(a->writable.next);
		stream_wait(a, s, WAIT_NONE);
		*ret = (struct aether_event){ .type = AETHER_EV_WRITABLE, .stream = s->id };
		return 1;
	}
	if (a->open_wait && a->greeted && a->n_ours < a->peer_max_streams && aether_output_low(a)) {
		a->open_wait = false;
		*ret = (struct aether_event){ .type = AETHER_EV_WRITABLE };
		return 1;
	}
	return 0;
}
