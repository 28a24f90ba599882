/* hashmap.h: open-addressed map from a byte-string or integer key to a pointer.
 *
 * Keys of the string map are borrowed: the caller keeps them alive (usually
 * they are a field of the value). Not thread-safe. -ENOMEM is the only error.
 * Iteration order is unspecified; removing the current entry while iterating
 * with hashmap_next is allowed, inserting is not.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct hashmap_slot;
struct hashmap {
	struct hashmap_slot *slots; /* owned */
	size_t cap, used, live;
};

int hashmap_put(struct hashmap *m, const char *key, void *value); /* -EEXIST if present */
void *hashmap_get(const struct hashmap *m, const char *key);
void *hashmap_remove(struct hashmap *m, const char *key); /* the value, or NULL */

int hashmap_put_u64(struct hashmap *m, uint64_t key, void *value);
void *hashmap_get_u64(const struct hashmap *m, uint64_t key);
void *hashmap_remove_u64(struct hashmap *m, uint64_t key);

static inline size_t hashmap_len(const struct hashmap *m) { return m->live; }
/* size_t it = 0; while ((v = hashmap_next(&m, &it))) ... */
void *hashmap_next(const struct hashmap *m, size_t *it);
void hashmap_done(struct hashmap *m); /* frees the table, not the values */
