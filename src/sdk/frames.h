/* frames.h: the parser of the frame stream (docs/api.md).
 *
 * A frame is a 1-byte type, a 4-byte big-endian length, the payload. Bytes come
 * in pieces of any size; output bytes are handed on as they come (never
 * gathered), events when they are whole. Owned by one following call.
 * Invariant: after any split of the same bytes the same calls were made, but for
 * how output is cut into pieces.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define FRAME_EVENT_MAX (4u << 20)  /* an event is one exec at most */
#define FRAME_DATA_MAX (256u << 20) /* beyond it the stream is not ours */

enum frame_type { FRAME_STDOUT = 1, FRAME_STDERR = 2, FRAME_EVENT = 3, FRAME_KEEPALIVE = 4 };

struct frames {
	/* Negative return stops the parser, which returns it. */
	int (*on_data)(enum frame_type stream, const void *p, size_t n, void *user);
	int (*on_event)(const char *json, size_t n, void *user);
	void *user;
	/* private */
	uint8_t header[5];
	unsigned n_header;
	uint32_t left; /* of the payload */
	char *event;   /* owned */
	size_t n_event;
};

/* -EPROTO: not a frame stream; -ENOMEM; or what a callback returned. */
int sdk_frames_feed(struct frames *f, const void *p, size_t n);
/* true in the middle of a frame. */
int sdk_frames_partial(const struct frames *f);
void sdk_frames_reset(struct frames *f); /* for another connection */
