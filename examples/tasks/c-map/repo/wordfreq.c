/* wordfreq: how often each word of standard input occurs. */
#include "map.h"
#include <stdio.h>
#include <stdlib.h>

struct entry {
	const char *word;
	long count;
};
struct list {
	struct entry *entries;
	size_t n;
};

static void collect(const char *key, long value, void *user)
{
	struct list *l = user;
	l->entries[l->n].word = key;
	l->entries[l->n++].count = value;
}

static int by_count(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	return (x->count < y->count) - (x->count > y->count);
}

int main(void)
{
	static char word[256];
	struct map m;
	map_init(&m);
	while (scanf("%255s", word) == 1)
		++*map_at(&m, word);
	struct list l = { calloc(map_count(&m) + 1, sizeof(struct entry)), 0 };
	map_each(&m, collect, &l);
	qsort(l.entries, l.n, sizeof(struct entry), by_count);
	for (size_t i = 0; i < l.n; i++)
		printf("%ld %s\n", l.entries[i].count, l.entries[i].word);
	free(l.entries);
	map_free(&m);
	return 0;
}
