/* map.h: counters by string. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct map_slot {
	char *key; /* NULL: free */
	long value;
};
struct map {
	struct map_slot *slots;
	size_t capacity; /* a power of two */
	size_t live;
};

void map_init(struct map *m);
void map_free(struct map *m);
/* The counter of a key, made with 0 if missing. Valid until the next insert. */
long *map_at(struct map *m, const char *key);
/* NULL if missing. */
long *map_find(const struct map *m, const char *key);
bool map_remove(struct map *m, const char *key);
size_t map_count(const struct map *m);
void map_each(const struct map *m, void (*visit)(const char *key, long value, void *user), void *user);
