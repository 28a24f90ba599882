/* frames.c: see frames.h. */
#include "sdk/frames.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int header_done(struct frames *f)
{
	f->left = (uint32_t)f->header[1] << 24 | (uint32_t)f->header[2] << 16 | (uint32_t)f->header[3] << 8 |
		  f->header[4];
	switch (f->header[0]) {
	case FRAME_STDOUT:
	case FRAME_STDERR:
		return f->left <= FRAME_DATA_MAX ? 0 : -EPROTO;
	case FRAME_KEEPALIVE:
		return f->left ? -EPROTO : 0;
	case FRAME_EVENT:
		if (!f->left || f->left > FRAME_EVENT_MAX)
			return -EPROTO;
		f->event = malloc(f->left);
		f->n_event = 0;
		return f->event ? 0 : -ENOMEM;
	default:
		return -EPROTO;
	}
}

static int event_done(struct frames *f)
{
	char *event = f->event;
	f->event = NULL;
	int r = f->on_event(event, f->n_event, f->user);
	free(event);
	return r < 0 ? r : 0;
}

static int payload(struct frames *f, const uint8_t *p, size_t n)
{
	f->left -= (uint32_t)n;
	if (f->header[0] != FRAME_EVENT) {
		int r = n ? f->on_data(f->header[0], p, n, f->user) : 0;
		return r < 0 ? r : 0;
	}
	memcpy(f->event + f->n_event, p, n);
	f->n_event += n;
	return f->left ? 0 : event_done(f);
}

int sdk_frames_feed(struct frames *f, const void *data, size_t n)
{
	const uint8_t *p = data;
	while (n) {
		size_t k;
		int r = 0;
		if (f->n_header < sizeof(f->header)) {
			k = sizeof(f->header) - f->n_header;
			k = k < n ? k : n;
			memcpy(f->header + f->n_header, p, k);
			f->n_header += (unsigned)k;
			if (f->n_header == sizeof(f->header))
				r = header_done(f);
		} else {
			k = f->left < n ? f->left : n;
			r = payload(f, p, k);
		}
		if (r < 0)
			return r;
		if (f->n_header == sizeof(f->header) && !f->left)
			f->n_header = 0;
		p += k;
		n -= k;
	}
	return 0;
}

int sdk_frames_partial(const struct frames *f)
{
	return f->n_header != 0;
}

void sdk_frames_reset(struct frames *f)
{
	free(f->event);
	f->event = NULL;
	f->n_header = 0;
	f->left = 0;
}
