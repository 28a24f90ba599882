/* map.c: see map.h. Linear probing over a power of two. */
#include "map.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

static uint64_t hash(const char *key)
{
	uint64_t h = 1469598103934665603u;
	for (; *key; key++)
		h = (h ^ (unsigned char)*key) * 1099511628211u;
	return h;
}

void map_init(struct map *m)
{
	m->capacity = FIRST_CAPACITY;
	m->live = 0;
	m->slots = calloc(m->capacity, sizeof(*m->slots));
}

void map_free(struct map *m)
{
	free(m->slots);
}

/* The slot of a key, or the free one where it would go. */
static struct map_slot *probe(const struct map *m, const char *key)
{
	size_t i = hash(key) & (m->capacity - 1);
	while (m->slots[i].key && strcmp(m->slots[i].key, key))
		i = (i + 1) & (m->capacity - 1);
	return &m->slots[i];
}

long *map_at(struct map *m, const char *key)
{
	struct map_slot *slot = probe(m, key);
	if (!slot->key) {
		slot->key = (char *)key;
		slot->value = 0;
		m->live++;
	}
	return &slot->value;
}

long *map_find(const struct map *m, const char *key)
{
	struct map_slot *slot = probe(m, key);
	return slot->key ? &slot->value : NULL;
}

bool map_remove(struct map *m, const char *key)
{
	struct map_slot *slot = probe(m, key);
	if (!slot->key)
		return false;
	slot->key = NULL;
	m->live--;
	return true;
}

size_t map_count(const struct map *m)
{
	return m->live;
}

void map_each(const struct map *m, void (*visit)(const char *key, long value, void *user), void *user)
{
	for (size_t i = 0; i < m->capacity; i++)
		if (m->slots[i].key)
			visit(m->slots[i].key, m->slots[i].value, user);
}
