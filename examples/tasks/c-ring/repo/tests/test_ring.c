#include "ring.h"
#include <stdio.h>
#include <string.h>

static int failures;
#define CHECK(what)                                              \
	do {                                                     \
		if (!(what)) {                                   \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #what); \
			failures++;                              \
		}                                                \
	} while (0)

static char room[256];

static void test_two_records(void)
{
	char out[16];
	struct ring r;
	size_t pos = 0;
	ring_init(&r, room, 64);
	CHECK(ring_write(&r, "abc", 3) == 0);
	CHECK(ring_write(&r, "defg", 4) == 0);
	CHECK(ring_count(&r) == 2);
	CHECK(ring_next(&r, &pos, out, sizeof(out)) == 3 && !memcmp(out, "abc", 3));
	CHECK(ring_next(&r, &pos, out, sizeof(out)) == 4 && !memcmp(out, "defg", 4));
	CHECK(ring_next(&r, &pos, out, sizeof(out)) == 0);
}

static void test_wrap(void)
{
	char out[16];
	struct ring r;
	ring_init(&r, room, 16);
	memset(room + 16, '#', 32);
	for (int i = 0; i < 9; i++)
		CHECK(ring_write(&r, &"abcdefghi"[i], 1) == 0);
	CHECK(ring_count(&r) == 5);
	size_t pos = 0;
	CHECK(ring_next(&r, &pos, out, sizeof(out)) == 1 && out[0] == 'e');
	CHECK(room[16] == '#');
}

int main(void)
{
	test_two_records();
	test_wrap();
	printf("%s\n", failures ? "FAILED" : "ok");
	return failures != 0;
}
