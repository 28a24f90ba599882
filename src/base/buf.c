/* buf.c: see buf.h. */
#include "base/buf.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include "base/cleanup.h"

int buf_reserve(struct buf *b, size_t n, uint8_t **ret)
{
	size_t len = buf_len(b);
	if (n > SIZE_MAX - len)
		return -ENOBUFS;
	if (b->max && len + n > b->max)
		return -ENOBUFS;
	if (b->cap - b->tail < n) {
		/* Slide first: growth is only for what is really unread. */
		if (b->head) {
			memmove(b->data, b->data + b->head, len);
			b->head = 0;
			b->tail = len;
		}
		if (b->cap - b->tail < n) {
			size_t cap = b->cap ? b->cap : 256;
			while (cap < len + n)
				cap = cap > SIZE_MAX / 2 ? len + n : cap * 2;
			uint8_t *p = realloc(b->data, cap);
			if (!p)
				return -ENOMEM;
			b->data = p;
			b->cap = cap;
		}
	}
	*ret = b->data + b->tail;
	return 0;
}

int buf_append(struct buf *b, const void *p, size_t n)
{
	uint8_t *at;
	int r = buf_reserve(b, n, &at);
	if (r < 0)
		return r;
	if (n)
		memcpy(at, p, n);
	b->tail += n;
	return 0;
}

int buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -EINVAL;
	uint8_t *at;
	int r = buf_reserve(b, (size_t)n + 1, &at);
	if (r < 0)
		return r;
	va_start(ap, fmt);
	vsnprintf((char *)at, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->tail += (size_t)n;
	return 0;
}

void buf_consume(struct buf *b, size_t n)
{
	b->head += n;
	if (b->head >= b->tail)
		b->head = b->tail = 0;
}

void buf_reset(struct buf *b)
{
	b->head = b->tail = 0;
}

void buf_done(struct buf *b)
{
	free(b->data);
	size_t max = b->max;
	*b = BUF_INIT(max);
}

char *buf_cstr(struct buf *b)
{
	uint8_t *at;
	size_t max = b->max;
	b->max = 0;
	int r = buf_reserve(b, 1, &at);
	b->max = max;
	if (r < 0)
		return NULL;
	*at = 0;
	return (char *)buf_ptr(b);
}

void ring_init(struct ring *r, size_t cap_pow2)
{
	*r = (struct ring){ .cap = cap_pow2 };
}

void ring_done(struct ring *r)
{
	free(r->data);
	r->data = NULL;
}

int ring_tail(struct ring *r, uint8_t **ret_p, size_t *ret_n)
{
	if (!r->data) {
		r->data = malloc(r->cap);
		if (!r->data)
			return -ENOMEM;
	}
	size_t at = (size_t)(r->end & (r->cap - 1));
	*ret_p = r->data + at;
	*ret_n = MIN(ring_room(r), r->cap - at);
	return 0;
}

void ring_commit(struct ring *r, size_t n)
{
	r->end += n;
}

size_t ring_write(struct ring *r, const void *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		uint8_t *at;
		size_t room;
		if (ring_tail(r, &at, &room) < 0 || !room)
			break;
		size_t k = MIN(room, n - done);
		memcpy(at, (const uint8_t *)p + done, k);
		r->end += k;
		done += k;
	}
	return done;
}

size_t ring_peek(const struct ring *r, uint64_t at, const uint8_t **ret_p)
{
	size_t off = (size_t)(at & (r->cap - 1));
	*ret_p = r->data ? r->data + off : NULL;
	return MIN((size_t)(r->end - at), r->cap - off);
}

void ring_release(struct ring *r, uint64_t upto)
{
	if (upto > r->end)
		upto = r->end;
	if (upto > r->start)
		r->start = upto;
}
