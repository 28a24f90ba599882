/* Against a plain model: every capacity, random records, exact contents, and
 * bytes around the buffer that nobody may change. */
#include "ring.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 512
#define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)

static void against_model(size_t capacity)
{
	struct { size_t n; unsigned char bytes[300]; } model[400];
	size_t first = 0, last = 0, used = 0;
	unsigned char *room = malloc(capacity + 2 * GUARD), *buffer = room + GUARD, record[400], out[400];
	memset(room, 0xa5, capacity + 2 * GUARD);
	struct ring r;
	ring_init(&r, buffer, capacity);
	for (int step = 0; step < 399; step++) {
		size_t n = (size_t)rand() % (capacity + 2);
		for (size_t i = 0; i < n; i++)
			record[i] = (unsigned char)rand();
		int got = ring_write(&r, record, n);
		if (n == 0 || n > capacity - 2) {
			CHECK(got == -EINVAL);
		} else {
			CHECK(got == 0);
			while (used + n + 2 > capacity)
				used -= model[first++].n + 2;
			model[last].n = n;
			memcpy(model[last++].bytes, record, n);
			used += n + 2;
		}
		CHECK(ring_count(&r) == last - first);
		size_t pos = 0;
		for (size_t i = first; i < last; i++) {
			CHECK(ring_next(&r, &pos, out, sizeof(out)) == model[i].n);
			CHECK(!memcmp(out, model[i].bytes, model[i].n));
		}
		CHECK(ring_next(&r, &pos, out, sizeof(out)) == 0);
		for (size_t i = 0; i < GUARD; i++)
			CHECK(room[i] == 0xa5 && buffer[capacity + i] == 0xa5);
	}
	free(room);
}

int main(void)
{
	srand(3);
	for (size_t capacity = 3; capacity < 40; capacity++)
		against_model(capacity);
	against_model(290);
	return 0;
}
