/* channel.h: the edge's connection to the chronus of one sandbox.
 *
 * Owned by struct sandbox; loop thread. It connects through the backend, says
 * Hello, and connects again when the connection breaks while the sandbox lives.
 * What runs over it (an exec, a file operation) is a struct peer embedded in its
 * owner: it gets the events of its stream (after a RESET the stream is void), and
 * `lost` once when the connection goes; the stream is then void too and the owner
 * opens another when the channel is ready again, or gives up.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "chronus.pb-c.h"
#include "edge/list.h"
#include "loop/conn.h"

#define CHANNEL_HELLO_DEADLINE_MS (10 * 1000) /* connected, but no answer */
#define CHANNEL_LOST_MAX_MS (30 * 1000)       /* PID 1 lives but cannot be reached: stop */
#define CHANNEL_RETRY_MIN_MS 20
#define CHANNEL_RETRY_MAX_MS 1000
#define CHANNELS_MIN 256 /* connections kept however few descriptors there are */

struct sandbox;
struct channel;

struct peer {
	struct link link; /* in the channel's list while the stream is open */
	struct channel *channel;
	uint32_t stream; /* 0: none */
	struct buf pieces; /* of a large ChronusOpen, not sent yet */
	void (*event)(struct peer *p, const struct aether_event *ev);
	void (*lost)(struct peer *p);
};

/* Connects, or (asleep) waits for channel_use. */
int channel_new(struct sandbox *sb, bool asleep, struct channel **ret);
/* Closes; every peer is told `lost`. No callback follows. NULL accepted. */
void channel_free(struct channel *ch);
bool channel_ready(const struct channel *ch);  /* NULL: false */
/* It is about to be used: true if it is ready now; else it gets ready (one that
 * was closed for being idle is connected again). NULL: false. */
bool channel_use(struct channel *ch);
bool channel_closed(const struct channel *ch); /* the last connection is down */
/* PID 1 is dead: what is still in the socket is read, nothing is retried. */
void channel_last_words(struct channel *ch);

void peer_init(struct peer *p, void (*event)(struct peer *, const struct aether_event *),
	       void (*lost)(struct peer *));
/* Opens a stream with a ChronusOpen of any size. -EAGAIN: not ready. */
int peer_open(struct peer *p, struct channel *ch, const Dsec__Chronus__ChronusOpen *open);
/* -EAGAIN: no room; an AETHER_EV_WRITABLE follows. */
int peer_send(struct peer *p, const ProtobufCMessage *m);
long peer_send_data(struct peer *p, uint8_t channel, const void *data, size_t n);
void peer_consume(struct peer *p, size_t n);
int peer_half_close(struct peer *p);
void peer_reset(struct peer *p); /* forget the stream; harmless without one */
void peer_finish(struct peer *p); /* half-close and forget it */
