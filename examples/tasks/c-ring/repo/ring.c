/* ring.c: see ring.h. */
#include "ring.h"
#include <errno.h>
#include <string.h>

void ring_init(struct ring *r, void *buffer, size_t capacity)
{
	memset(r, 0, sizeof(*r));
	r->data = buffer;
	r->capacity = capacity;
}

static size_t record_size(const struct ring *r, size_t at)
{
	return r->data[at] | (size_t)r->data[at + 1] << 8;
}

static void drop_oldest(struct ring *r)
{
	size_t whole = record_size(r, r->head) + 2;
	r->head += whole;
	r->used -= whole;
	r->count--;
}

int ring_write(struct ring *r, const void *bytes, size_t n)
{
	if (n == 0 || n > r->capacity)
		return -EINVAL;
	while (r->used + n > r->capacity)
		drop_oldest(r);
	size_t at = (r->head + r->used) % r->capacity;
	r->data[at] = n & 0xff;
	r->data[at + 1] = n >> 8;
	memcpy(r->data + at + 2, bytes, n);
	r->used += n + 2;
	r->count++;
	return 0;
}

size_t ring_count(const struct ring *r)
{
	return r->count;
}

size_t ring_next(const struct ring *r, size_t *pos, void *out, size_t max)
{
	if (*pos >= r->used)
		return 0;
	size_t at = r->head + *pos;
	size_t n = record_size(r, at);
	memcpy(out, r->data + at + 2, n < max ? n : max);
	*pos += n + 2;
	return n;
}
