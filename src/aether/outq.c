/* outq.c: the output queue, a byte FIFO in a list of chunks.
 *
 * Chunks start small, so a connection that says a few words holds a few hundred
 * bytes, and double up to 64 KiB under load; each is freed as soon as it is
 * drained. Nothing is ever moved: a queue of megabytes costs one copy in.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "aether/aether-internal.h"
#include "base/cleanup.h"

#define CHUNK_MIN 232          /* with the header a 256-byte allocation */
#define CHUNK_MAX (64 * 1024 - 24)

struct outq_chunk {
	struct outq_chunk *next;
	uint32_t head, tail, cap;
	uint8_t data[];
};

static size_t chunk_append(struct outq_chunk *c, const uint8_t **p, size_t *n)
{
	size_t k = c ? MIN(*n, (size_t)(c->cap - c->tail)) : 0;
	if (k) {
		memcpy(c->data + c->tail, *p, k);
		c->tail += (uint32_t)k;
		*p += k;
		*n -= k;
	}
	return k;
}

int outq_put(struct outq *q, const void *h, size_t hn, const void *p, size_t n)
{
	struct outq_chunk *tail = q->last, *more = NULL;
	size_t room = tail ? tail->cap - tail->tail : 0, total = hn + n;
	if (total > room) { /* allocate before anything is written: all or nothing */
		size_t cap = tail ? MIN((size_t)tail->cap * 2, (size_t)CHUNK_MAX) : CHUNK_MIN;
		cap = MAX(cap, total - room);
		more = malloc(sizeof(*more) + cap);
		if (!more)
			return -ENOMEM;
		*more = (struct outq_chunk){ .cap = (uint32_t)cap };
	}
	const uint8_t *hp = h, *pp = p;
	chunk_append(tail, &hp, &hn);
	if (!hn)
		chunk_append(tail, &pp, &n);
	if (more) {
		chunk_append(more, &hp, &hn);
		chunk_append(more, &pp, &n);
		if (tail)
			tail->next = more;
		else
			q->first = more;
		q->last = more;
	}
	q->len += total;
	return 0;
}

size_t outq_peek(const struct outq *q, const uint8_t **ret)
{
	struct outq_chunk *c = q->first;
	if (!c)
		return 0;
	*ret = c->data + c->head;
	return c->tail - c->head;
}

void outq_drop(struct outq *q, size_t n)
{
	q->len -= n;
	while (q->first) {
		struct outq_chunk *c = q->first;
		size_t k = MIN(n, (size_t)(c->tail - c->head));
		c->head += (uint32_t)k;
		n -= k;
		if (c->head < c->tail)
			return;
		q->first = c->next;
		if (!q->first)
			q->last = NULL;
		free(c);
	}
}

void outq_done(struct outq *q)
{
	outq_drop(q, q->len);
}
