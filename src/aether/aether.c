/* aether.c: making, ending and sending; see aether.h for the contract.
 *
 * Theory of operation. Sending is immediate: a frame goes whole into one output
 * queue (outq.c) or is refused, so there is no per-stream send buffer and order
 * across streams is the order of the calls. Receiving is in two steps. recv.c
 * first checks whole frames and applies what changes our right to send (credit,
 * reset, greeting); then aether_next walks the same bytes again and hands them
 * out, so no event queue is allocated and payloads are never copied.
 *
 * Invariants
 *  I1 send_window + (payload bytes queued or under way and not credited) =
 *     the peer's window; the peer enforces it, we never exceed it.
 *  I2 recv_window + (bytes handed out, not yet credited) + consumed = our window.
 *  I3 consumed < credit_step, and window - credit_step >= AETHER_PAYLOAD_MAX or
 *     credit_step = 1: once the owner has consumed all, any message fits.
 *  I4 A stream that waits for the output bound found out.len above
 *     output_max / 2, so draining to that mark always wakes it.
 *  I5 err is sticky; after it nothing is queued. Frames checked before the
 *     violation are still handed out, whatever the chunks were.
 */
#include <errno.h>
#include <stdlib.h>
#include "aether/aether-internal.h"
#include "base/cleanup.h"

#define OUTPUT_MAX_DEFAULT (4 * 1024 * 1024)

static int queue_greeting(struct aether *a)
{
	uint8_t g[WIRE_GREETING_SIZE] = { 0 };
	put32(g, WIRE_MAGIC);
	put16(g + 4, WIRE_GREETING_SIZE);
	put16(g + 6, AETHER_VERSION); /* newest that we speak */
	put16(g + 8, AETHER_VERSION); /* oldest */
	put32(g + 12, a->config.window);
	put32(g + 16, a->config.max_streams);
	return outq_put(&a->out, g, sizeof(g), NULL, 0);
}

int aether_new(const struct aether_config *config, struct aether **ret)
{
	struct aether_config c = *config;
	if (!c.window)
		c.window = AETHER_WINDOW_DEFAULT;
	if (!c.max_streams)
		c.max_streams = AETHER_STREAMS_MAX;
	if (!c.output_max)
		c.output_max = OUTPUT_MAX_DEFAULT;
	if (c.window < AETHER_WINDOW_MIN || c.window > AETHER_WINDOW_MAX ||
	    c.max_streams > AETHER_STREAMS_MAX || c.output_max < AETHER_OUTPUT_MIN)
		return -EINVAL;

	struct aether *a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->config = c;
	link_init(&a->wait_output);
	link_init(&a->writable);
	a->next_id = c.client ? 1 : 2;
	a->credit_step = MAX(1u, MIN(c.window / 4, c.window - AETHER_PAYLOAD_MAX));
	int r = queue_greeting(a);
	if (r < 0) {
		aether_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void aether_free(struct aether *a)
{
	if (!a)
		return;
	size_t it = 0;
	struct stream *s;
	while ((s = hashmap_next(&a->streams, &it)))
		free(s);
	hashmap_done(&a->streams);
	outq_done(&a->out);
	buf_done(&a->in);
	free(a);
}

int aether_frame(struct aether *a, enum wire_type type, uint8_t channel, uint32_t stream,
		 const void *payload, size_t n)
{
	if (a->err)
		return a->err;
	uint8_t h[WIRE_HEADER_SIZE] = { (uint8_t)type, channel };
	put32(h + 4, stream);
	put32(h + 8, (uint32_t)n);
	int r = outq_put(&a->out, h, sizeof(h), payload, n);
	if (r < 0)
		a->err = r;
	return r;
}

int aether_frame_u32(struct aether *a, enum wire_type type, uint32_t stream, uint32_t value)
{
	uint8_t p[WIRE_CONTROL_SIZE];
	put32(p, value);
	return aether_frame(a, type, 0, stream, p, sizeof(p));
}

/* Payload bytes that one more frame may carry under the output bound. */
static size_t output_room(const struct aether *a)
{
	size_t used = a->out.len + WIRE_HEADER_SIZE;
	return used < a->config.output_max ? a->config.output_max - used : 0;
}

static int find_sendable(struct aether *a, uint32_t stream, struct stream **ret)
{
	if (a->err)
		return a->err;
	struct stream *s = stream_find(a, stream);
	if (!s || a->dying == stream)
		return -ENOENT;
	if (s->sent_close || s->got_reset)
		return -EPIPE;
	*ret = s;
	return 0;
}

int aether_open(struct aether *a, const void *payload, size_t n, uint32_t *ret_stream)
{
	if (a->err)
		return a->err;
	if (n > AETHER_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (a->got_goaway || a->sent_goaway)
		return -ESHUTDOWN;
	/* Before the greeting the peer's limit is unknown: it may refuse by reset. */
	if ((a->greeted && a->n_ours >= a->peer_max_streams) || a->n_ours >= AETHER_STREAMS_MAX ||
	    output_room(a) < n || !output_room(a)) {
		a->open_wait = true;
		return -EAGAIN;
	}
	uint32_t id = a->next_id, next = id;
	do { /* after a wrap an old stream may still be open */
		next += 2;
		if (!next) /* stream 0 is the connection itself */
			next = 2;
	} while (stream_find(a, next));
	struct stream *s;
	int r = stream_new(a, id, true, &s);
	if (r < 0)
		return r;
	r = aether_frame(a, WIRE_OPEN, 0, id, payload, n);
	if (r < 0) {
		stream_free(a, s);
		return r;
	}
	a->ours_wrapped |= id < a->last_ours;
	a->last_ours = id;
	a->next_id = next;
	*ret_stream = id;
	return 0;
}

int aether_send_msg(struct aether *a, uint32_t stream, const void *payload, size_t n)
{
	struct stream *s = NULL;
	int r = find_sendable(a, stream, &s);
	if (r < 0)
		return r;
	if (n > AETHER_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (n > s->send_window || !a->greeted) {
		stream_wait(a, s, WAIT_WINDOW);
		return -EAGAIN;
	}
	if (!output_room(a) || n > output_room(a)) {
		stream_wait(a, s, WAIT_OUTPUT);
		return -EAGAIN;
	}
	r = aether_frame(a, WIRE_MSG, 0, stream, payload, n);
	if (r < 0)
		return r;
	s->send_window -= (uint32_t)n;
	return 0;
}

long aether_send_data(struct aether *a, uint32_t stream, uint8_t channel, const void *p, size_t n)
{
	struct stream *s = NULL;
	int r = find_sendable(a, stream, &s);
	if (r < 0)
		return r;
	size_t done = 0;
	while (done < n) {
		size_t room = output_room(a);
		size_t k = MIN(MIN(n - done, (size_t)AETHER_PAYLOAD_MAX), MIN(room, (size_t)s->send_window));
		if (!k) {
			stream_wait(a, s, s->send_window ? WAIT_OUTPUT : WAIT_WINDOW);
			break;
		}
		r = aether_frame(a, WIRE_DATA, channel, stream, (const uint8_t *)p + done, k);
		if (r < 0)
			return r;
		s->send_window -= (uint32_t)k;
		done += k;
	}
	return (long)done;
}

size_t aether_sendable(struct aether *a, uint32_t stream)
{
	struct stream *s = NULL;
	if (find_sendable(a, stream, &s) < 0)
		return 0;
	/* Long data is cut into frames: each costs a header of the room. */
	size_t room = output_room(a);
	size_t headers = room / (AETHER_PAYLOAD_MAX + WIRE_HEADER_SIZE) * WIRE_HEADER_SIZE;
	return MIN((size_t)s->send_window, room - headers);
}

int aether_close(struct aether *a, uint32_t stream)
{
	struct stream *s = NULL;
	int r = find_sendable(a, stream, &s);
	if (r < 0)
		return r;
	r = aether_frame(a, WIRE_CLOSE, 0, stream, NULL, 0);
	if (r < 0)
		return r;
	s->sent_close = true;
	stream_wait(a, s, WAIT_NONE);
	if (s->got_close)
		stream_uncount(a, s);
	if (stream_finished(s))
		stream_free(a, s);
	return 0;
}

int aether_reset(struct aether *a, uint32_t stream, uint32_t code)
{
	struct stream *s = stream_find(a, stream);
	if (!s)
		return -ENOENT;
	/* After the peer's reset it knows no such stream: nothing to tell it. */
	bool tell = !s->got_reset && a->dying != stream;
	stream_free(a, s);
	return tell ? aether_frame_u32(a, WIRE_RESET, stream, code) : 0;
}

void aether_consume(struct aether *a, uint32_t stream, size_t n)
{
	struct stream *s = stream_find(a, stream);
	if (!s || a->err)
		return;
	/* Never grant more than was handed out, whatever the owner says (I2). */
	size_t out = a->config.window - s->recv_window - s->consumed;
	s->consumed += (uint32_t)MIN(n, out);
	if (s->consumed < a->credit_step || s->got_close || s->got_reset)
		return;
	if (aether_frame_u32(a, WIRE_CREDIT, stream, s->consumed) < 0)
		return; /* err is set; the owner sees it by aether_error or aether_recv */
	s->recv_window += s->consumed;
	s->consumed = 0;
}

int aether_ping(struct aether *a, uint32_t token)
{
	if (a->err)
		return a->err;
	if (output_room(a) < WIRE_CONTROL_SIZE)
		return -EAGAIN;
	return aether_frame_u32(a, WIRE_PING, 0, token);
}

int aether_goaway(struct aether *a, uint32_t code)
{
	if (a->err || a->sent_goaway)
		return a->err;
	a->sent_goaway = true;
	return aether_frame_u32(a, WIRE_GOAWAY, 0, code);
}

size_t aether_output(struct aether *a, const uint8_t **ret)
{
	return outq_peek(&a->out, ret);
}

void aether_output_done(struct aether *a, size_t n)
{
	outq_drop(&a->out, MIN(n, a->out.len));
	if (!aether_output_low(a))
		return;
	while (!link_empty(&a->wait_output))
		stream_wait(a, stream_of(a->wait_output.next), WAIT_QUEUED);
}

void aether_set_user(struct aether *a, uint32_t stream, void *user)
{
	struct stream *s = stream_find(a, stream);
	if (s)
		s->user = user;
}

void *aether_user(struct aether *a, uint32_t stream)
{
	struct stream *s = stream_find(a, stream);
	return s ? s->user : NULL;
}

bool aether_ready(const struct aether *a)
{
	return a->greeted && !a->err;
}

int aether_error(const struct aether *a)
{
	return a->err;
}
