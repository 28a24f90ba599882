/* Against a plain table; churn; growth; copies of keys. */
#include "map.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
#define KEYS 500

static void seen(const char *key, long value, void *user)
{
	int *hits = user;
	CHECK(atol(key) == value);
	hits[value]++;
}

static void random_steps(void)
{
	static bool present[KEYS];
	char key[16];
	size_t live = 0;
	struct map m;
	map_init(&m);
	for (int step = 0; step < 60000; step++) {
		int k = rand() % KEYS;
		snprintf(key, sizeof(key), "%d", k);
		if (rand() % 2) {
			*map_at(&m, key) = k;
			live += !present[k];
			present[k] = true;
		} else {
			CHECK(map_remove(&m, key) == present[k]);
			live -= present[k];
			present[k] = false;
		}
		CHECK(map_count(&m) == live);
		k = rand() % KEYS;
		snprintf(key, sizeof(key), "%d", k);
		CHECK((map_find(&m, key) != NULL) == present[k]);
	}
	int hits[KEYS] = { 0 };
	map_each(&m, seen, hits);
	for (int k = 0; k < KEYS; k++)
		CHECK(hits[k] == present[k]);
	map_free(&m);
}

static void churn(void)
{
	char key[16];
	struct map m;
	map_init(&m);
	for (int i = 0; i < 1000000; i++) {
		snprintf(key, sizeof(key), "c%d", i);
		*map_at(&m, key) = i;
		CHECK(map_remove(&m, key));
		CHECK(!map_find(&m, "absent"));
	}
	CHECK(map_count(&m) == 0);
	CHECK(m.capacity < 100000);
	map_free(&m);
}

int main(void)
{
	srand(9);
	random_steps();
	churn();
	return 0;
}
