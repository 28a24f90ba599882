#include "map.h"
#include <stdio.h>

static int failures;
#define CHECK(what)                                              \
	do {                                                     \
		if (!(what)) {                                   \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #what); \
			failures++;                              \
		}                                                \
	} while (0)

int main(void)
{
	struct map m;
	map_init(&m);
	*map_at(&m, "one") = 1;
	*map_at(&m, "two") = 2;
	CHECK(map_count(&m) == 2);
	CHECK(map_find(&m, "one") && *map_find(&m, "one") == 1);
	CHECK(!map_find(&m, "three"));
	CHECK(map_remove(&m, "one") && !map_find(&m, "one"));

	static char keys[40][8];
	for (int i = 0; i < 40; i++) {
		snprintf(keys[i], sizeof(keys[i]), "k%d", i);
		*map_at(&m, keys[i]) = i;
	}
	for (int i = 0; i < 40; i += 2)
		CHECK(map_remove(&m, keys[i]));
	for (int i = 1; i < 40; i += 2)
		CHECK(map_find(&m, keys[i]));
	map_free(&m);
	printf("%s\n", failures ? "FAILED" : "ok");
	return failures != 0;
}
