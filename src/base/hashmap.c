/* hashmap.c: linear probing, tombstones, load at most 3/4. One map uses either
 * string or integer keys, never both. See hashmap.h. */
#include "base/hashmap.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct hashmap_slot {
	const char *key; /* string maps; NULL for integer maps */
	uint64_t hash;   /* of the string, or the integer key itself */
	void *value;     /* NULL: empty; TOMBSTONE: removed */
};

static char tombstone;
#define TOMBSTONE ((void *)&tombstone)

static uint64_t hash_str(const char *s)
{
	uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
	for (; *s; s++)
		h = (h ^ (uint8_t)*s) * 0x100000001b3u;
	return h;
}

static size_t spread(uint64_t h, size_t cap)
{
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdu;
	h ^= h >> 33;
	return (size_t)h & (cap - 1);
}

static bool same(const struct hashmap_slot *s, const char *key, uint64_t hash)
{
	if (s->hash != hash)
		return false;
	return !key || !strcmp(s->key, key);
}

static struct hashmap_slot *find(const struct hashmap *m, const char *key, uint64_t hash)
{
	if (!m->cap)
		return NULL;
	for (size_t i = spread(hash, m->cap);; i = (i + 1) & (m->cap - 1)) {
		struct hashmap_slot *s = &m->slots[i];
		if (!s->value)
			return NULL;
		if (s->value != TOMBSTONE && same(s, key, hash))
			return s;
	}
}

static void place(struct hashmap_slot *slots, size_t cap, struct hashmap_slot s)
{
	size_t i = spread(s.hash, cap);
	while (slots[i].value)
		i = (i + 1) & (cap - 1);
	slots[i] = s;
}

static int grow(struct hashmap *m)
{
	size_t cap = m->cap ? m->cap : 16;
	while (m->live * 2 >= cap)
		cap *= 2;
	struct hashmap_slot *n = calloc(cap, sizeof(*n));
	if (!n)
		return -ENOMEM;
	for (size_t i = 0; i < m->cap; i++)
		if (m->slots[i].value && m->slots[i].value != TOMBSTONE)
			place(n, cap, m->slots[i]);
	free(m->slots);
	m->slots = n;
	m->cap = cap;
	m->used = m->live;
	return 0;
}

static int put(struct hashmap *m, const char *key, uint64_t hash, void *value)
{
	if (find(m, key, hash))
		return -EEXIST;
	if ((m->used + 1) * 4 > m->cap * 3) {
		int r = grow(m);
		if (r < 0)
			return r;
	}
	place(m->slots, m->cap, (struct hashmap_slot){ key, hash, value });
	m->used++;
	m->live++;
	return 0;
}

static void *take(struct hashmap *m, const char *key, uint64_t hash)
{
	struct hashmap_slot *s = find(m, key, hash);
	if (!s)
		return NULL;
	void *v = s->value;
	s->value = TOMBSTONE;
	m->live--;
	return v;
}

int hashmap_put(struct hashmap *m, const char *key, void *value) { return put(m, key, hash_str(key), value); }
void *hashmap_remove(struct hashmap *m, const char *key) { return take(m, key, hash_str(key)); }
int hashmap_put_u64(struct hashmap *m, uint64_t key, void *value) { return put(m, NULL, key, value); }
void *hashmap_remove_u64(struct hashmap *m, uint64_t key) { return take(m, NULL, key); }

void *hashmap_get(const struct hashmap *m, const char *key)
{
	struct hashmap_slot *s = find(m, key, hash_str(key));
	return s ? s->value : NULL;
}

void *hashmap_get_u64(const struct hashmap *m, uint64_t key)
{
	struct hashmap_slot *s = find(m, NULL, key);
	return s ? s->value : NULL;
}

void *hashmap_next(const struct hashmap *m, size_t *it)
{
	while (*it < m->cap) {
		void *v = m->slots[(*it)++].value;
		if (v && v != TOMBSTONE)
			return v;
	}
	return NULL;
}

void hashmap_done(struct hashmap *m)
{
	free(m->slots);
	*m = (struct hashmap){ 0 };
}
