/* aether.h: the sans-I/O core of DSec's wire protocol (docs/aether.md).
 *
 * One struct aether is one end of one connection. It performs no I/O and keeps
 * no time: the owner feeds it bytes it read (aether_recv), takes events from it
 * (aether_next), and writes what aether_output offers. It runs on the owner's
 * thread only. Used by src/loop (edge, apiserver), by chronus (bare epoll) and
 * by tests in odd-sized chunks.
 *
 * A connection begins with a greeting from both ends (magic, version, limits).
 * Then frames: a stream is opened by either end with a control payload, carries
 * control messages (protobuf, opaque here) and raw data on small numbered
 * channels, is half-closed by each end, or reset with a code. Each stream has a
 * window per direction counted in payload bytes of MSG and DATA; the receiver
 * gives credit back with aether_consume after it has dealt with the bytes, so
 * back-pressure reaches the program that writes.
 *
 * Bounds: a payload is at most AETHER_PAYLOAD_MAX bytes; queued output is
 * at most the sum of the peer's windows plus control frames, itself bounded by
 * output_max: beyond it senders get -EAGAIN and later AETHER_EV_WRITABLE.
 * A protocol violation by the peer returns -EPROTO from aether_recv; the
 * connection is then dead and the owner closes it. Allocation failure: -ENOMEM,
 * likewise fatal to the connection.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AETHER_VERSION 1
#define AETHER_PAYLOAD_MAX (64 * 1024)
#define AETHER_WINDOW_DEFAULT (256 * 1024)
#define AETHER_WINDOW_MIN AETHER_PAYLOAD_MAX /* so that any message fits once all is consumed */
#define AETHER_WINDOW_MAX (16 * 1024 * 1024)
#define AETHER_STREAMS_MAX 65536 /* open at once on one connection */
#define AETHER_OUTPUT_MIN (2 * (AETHER_PAYLOAD_MAX + 12)) /* half of it takes any frame */

struct aether;

struct aether_config {
	bool client;             /* client opens odd stream ids, server even ones */
	uint32_t window;         /* receive window a stream that we grant; 0 = default */
	uint32_t max_streams;    /* that the peer may have open at once; 0 = AETHER_STREAMS_MAX */
	size_t output_max;       /* bound on queued output bytes; 0 = 4 MiB */
};

enum aether_event_type {
	AETHER_EV_READY = 1, /* greeting seen; version = the agreed version */
	AETHER_EV_OPEN,      /* peer opened `stream`; payload */
	AETHER_EV_MSG,       /* control message; payload */
	AETHER_EV_DATA,      /* raw bytes on `channel`; payload */
	AETHER_EV_CLOSE,     /* peer will send no more on `stream` */
	AETHER_EV_RESET,     /* peer aborted `stream`; code. The stream is gone */
	AETHER_EV_WRITABLE,  /* a sender that saw a short send or -EAGAIN may go on;
			      * stream 0: aether_open may */
	AETHER_EV_PONG,      /* answer to aether_ping; code = its token */
	AETHER_EV_GOAWAY,    /* peer opens and accepts no new streams; code */
};

struct aether_event {
	enum aether_event_type type;
	uint32_t stream;
	uint8_t channel;
	uint32_t code; /* reset/goaway code, pong token, agreed version */
	const uint8_t *payload; /* borrowed until the next aether_next or aether_recv */
	size_t n;
};

enum aether_reset_code {
	AETHER_RESET_CANCELLED = 1, /* the reader lost interest */
	AETHER_RESET_INTERNAL = 2,
	AETHER_RESET_REFUSED = 3, /* too many streams, or going away */
	AETHER_RESET_PROTOCOL = 4,
};

/* -EINVAL when a limit in *config is outside the bounds above. */
int aether_new(const struct aether_config *config, struct aether **ret);
void aether_free(struct aether *a); /* NULL accepted */

/* Feed bytes read from the transport; all n are taken. Events queue up inside;
 * drain them with aether_next before feeding more: queued unread events are
 * bounded only by what one call fed. 0 or -EPROTO / -ENOMEM / -EPROTONOSUPPORT. */
int aether_recv(struct aether *a, const void *p, size_t n);
/* The same without a copy: room for n bytes to read(2) into, then how many
 * came (0 is allowed). Nothing else of this connection may be called between. */
int aether_recv_space(struct aether *a, size_t n, uint8_t **ret);
int aether_recv_done(struct aether *a, size_t n);
/* 1 and *ret filled, or 0 when there is none. Ask after aether_recv and after
 * aether_output_done (draining makes WRITABLE). Events before a violation are
 * still handed out. While the owner looks at RESET or at the CLOSE that ends a
 * stream, aether_user still answers; the next aether_next forgets the stream. */
int aether_next(struct aether *a, struct aether_event *ret);

/* Bytes to write next (contiguous prefix); then tell how many went out. */
size_t aether_output(struct aether *a, const uint8_t **ret);
void aether_output_done(struct aether *a, size_t n);

/* All senders: stream must be open for sending, else -EPIPE (closed by us or
 * reset) or -ENOENT (never opened / gone). */
/* The payload of OPEN is not counted in the window. Allowed before READY: the
 * stream's window opens then. -EAGAIN: output bound, or the peer's max_streams
 * are open. -ESHUTDOWN: after a goaway of either end. */
int aether_open(struct aether *a, const void *payload, size_t n, uint32_t *ret_stream);
/* Whole or not at all: -EAGAIN when the window or output bound has no room
 * (AETHER_EV_WRITABLE follows), -EMSGSIZE above AETHER_PAYLOAD_MAX. */
int aether_send_msg(struct aether *a, uint32_t stream, const void *payload, size_t n);
/* Takes as much as window and bound allow; returns bytes taken (0..n). A short
 * return promises a later AETHER_EV_WRITABLE for this stream. */
long aether_send_data(struct aether *a, uint32_t stream, uint8_t channel, const void *p, size_t n);
/* How much aether_send_data would take now. */
size_t aether_sendable(struct aether *a, uint32_t stream);
int aether_close(struct aether *a, uint32_t stream); /* we send no more; queued data still goes */
int aether_reset(struct aether *a, uint32_t stream, uint32_t code); /* stream gone at once */
/* Give the peer n bytes of credit back on `stream`: every payload byte of MSG
 * and DATA must be given back once. Harmless on a gone stream. */
void aether_consume(struct aether *a, uint32_t stream, size_t n);
int aether_ping(struct aether *a, uint32_t token);
int aether_goaway(struct aether *a, uint32_t code);

/* The owner's pointer for a stream (borrowed); NULL if never set or gone. */
void aether_set_user(struct aether *a, uint32_t stream, void *user);
void *aether_user(struct aether *a, uint32_t stream);
bool aether_ready(const struct aether *a);
/* 0, or the error that made the connection dead (also -ENOMEM met while sending). */
int aether_error(const struct aether *a);
