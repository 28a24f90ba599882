/* aether-internal.h: what the files of the aether core share.
 *
 * wire format helpers, the stream table, the output queue and struct aether
 * itself. Included by src/aether only, and by unit tests that look at bounds.
 */
#pragma once
#include "aether/aether.h"
#include "base/buf.h"
#include "base/hashmap.h"

/* --- wire: all integers big-endian; docs/aether.md has the pictures --- */

#define WIRE_GREETING_SIZE 20    /* of this version */
#define WIRE_GREETING_MAX 256    /* a later version may append fields, up to here */
#define WIRE_HEADER_SIZE 12      /* type, channel, 2 reserved, stream, length */
#define WIRE_CONTROL_SIZE 4      /* payload of RESET, CREDIT, PING, PONG, GOAWAY */
#define WIRE_MAGIC 0x44536145u   /* "DSaE" */

enum wire_type {
	WIRE_OPEN = 1,
	WIRE_MSG,
	WIRE_DATA,
	WIRE_CLOSE,
	WIRE_RESET,
	WIRE_CREDIT,
	WIRE_PING,
	WIRE_PONG,
	WIRE_GOAWAY,
};

struct wire_header {
	uint8_t type, channel;
	uint16_t reserved;
	uint32_t stream, length;
};

static inline void put16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}
static inline void put32(uint8_t *p, uint32_t v)
{
	put16(p, (uint16_t)(v >> 16));
	put16(p + 2, (uint16_t)v);
}
static inline uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}
static inline uint32_t get32(const uint8_t *p)
{
	return (uint32_t)get16(p) << 16 | get16(p + 2);
}

/* --- output queue (outq.c): a byte FIFO in chunks that grow with the load --- */

struct outq_chunk;
struct outq {
	struct outq_chunk *first, *last; /* owned; NULL when drained */
	size_t len;
};

/* Appends both parts or nothing (-ENOMEM). hn + n at most WIRE_HEADER_SIZE +
 * AETHER_PAYLOAD_MAX, so that one new chunk always suffices. */
int outq_put(struct outq *q, const void *h, size_t hn, const void *p, size_t n);
size_t outq_peek(const struct outq *q, const uint8_t **ret);
void outq_drop(struct outq *q, size_t n); /* n <= len */
void outq_done(struct outq *q);

/* --- streams (stream.c) --- */

enum stream_wait {
	WAIT_NONE,
	WAIT_WINDOW, /* for credit; on no list, CREDIT finds it by id */
	WAIT_OUTPUT, /* for the output queue to drain; on a->wait_output */
	WAIT_QUEUED, /* a WRITABLE event is due; on a->writable */
};

struct stream_link {
	struct stream_link *prev, *next;
};

struct stream {
	struct stream_link link; /* first: see stream_of() */
	void *user;              /* borrowed */
	uint32_t id;
	uint32_t send_window; /* payload bytes that we may still send */
	uint32_t recv_window; /* payload bytes that the peer may still send */
	uint32_t consumed;    /* given back by the owner, not yet sent as CREDIT */
	uint8_t wait;         /* enum stream_wait */
	bool ours;            /* we opened it */
	bool counted;         /* in n_ours or n_peers */
	bool sent_close, got_close, got_reset;
	bool delivered_close;
};

struct aether {
	struct aether_config config;
	struct hashmap streams; /* id -> struct stream, owned */
	struct stream_link wait_output, writable;
	struct outq out;
	struct buf in;     /* bytes fed, not yet handed out */
	size_t parsed;     /* of `in`: whole, checked frames */
	size_t handed;     /* of `in`: the frame whose payload the owner may be looking at */
	uint32_t dying;    /* stream that ends once the owner has seen its last event */
	int err;           /* sticky: the connection is dead */
	bool greeted;      /* the peer's greeting was accepted */
	bool ready_due;    /* READY not delivered yet */
	bool sent_goaway, got_goaway;
	bool open_wait;    /* aether_open said -EAGAIN */
	bool ours_wrapped, peers_wrapped;
	uint32_t version;
	uint32_t peer_window, peer_max_streams;
	uint32_t credit_step; /* CREDIT is sent from this many consumed bytes on */
	uint32_t next_id;     /* that we open next */
	uint32_t last_ours;   /* newest that we opened; 0: none yet */
	uint32_t last_peer;   /* newest that the peer opened */
	uint32_t n_ours, n_peers; /* open on the wire now */
};

static inline void link_init(struct stream_link *l)
{
	l->prev = l->next = l;
}
static inline bool link_empty(const struct stream_link *l)
{
	return l->next == l;
}
static inline struct stream *stream_of(struct stream_link *l)
{
	return (struct stream *)l;
}

struct stream *stream_find(const struct aether *a, uint32_t id);
int stream_new(struct aether *a, uint32_t id, bool ours, struct stream **ret);
void stream_free(struct aether *a, struct stream *s);
/* Takes the stream out of n_ours or n_peers once the wire has ended it: the peer
 * may then open another, though our owner has yet to be told of the end. */
void stream_uncount(struct aether *a, struct stream *s);
void stream_wait(struct aether *a, struct stream *s, enum stream_wait why);
/* Both ends have closed and the owner knows: nothing can follow. */
static inline bool stream_finished(const struct stream *s)
{
	return s->sent_close && s->delivered_close;
}
/* True if `id` was never used by its opener (serial numbers: ids wrap). */
bool stream_id_is_new(uint32_t newest, bool wrapped, uint32_t id);
static inline bool stream_id_is_ours(const struct aether *a, uint32_t id)
{
	return (id & 1) == (a->config.client ? 1 : 0);
}

/* --- aether.c --- */

/* Queues one frame. -ENOMEM makes the connection dead. No bound is checked. */
int aether_frame(struct aether *a, enum wire_type type, uint8_t channel, uint32_t stream,
		 const void *payload, size_t n);
int aether_frame_u32(struct aether *a, enum wire_type type, uint32_t stream, uint32_t value);
static inline bool aether_output_low(const struct aether *a)
{
	return a->out.len <= a->config.output_max / 2;
}
/* Ends a stream whose last event the owner has seen, and forgets the frame that
 * was handed out. Every call that invalidates a borrowed payload does this. */
void aether_settle(struct aether *a);
