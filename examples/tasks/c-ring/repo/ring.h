/* ring.h: the last records that fit in a fixed buffer. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct ring {
	uint8_t *data;
	size_t capacity;
	size_t head; /* where the oldest record begins */
	size_t used; /* bytes in use from there */
	size_t count;
};

void ring_init(struct ring *r, void *buffer, size_t capacity);
/* Adds a record; the oldest ones give way. 0 or -EINVAL. */
int ring_write(struct ring *r, const void *bytes, size_t n);
size_t ring_count(const struct ring *r);
/* Walks from the oldest: *pos starts at 0. Copies at most max bytes of the next
 * record and returns its size, or 0 after the last. */
size_t ring_next(const struct ring *r, size_t *pos, void *out, size_t max);
