/* placement.c: see placement.h. */
#include "control/placement.h"
#include <string.h>
#include "base/cleanup.h"

/* splitmix64: small, full period, good enough to spread load. */
static uint64_t next_random(uint64_t *seed)
{
	uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static bool too_small(const struct placement_edge *e, const struct placement_need *need)
{
	return e->known && ((uint64_t)need->cpu_millis > (uint64_t)e->cpus * 1000 ||
			    (e->memory_total && need->memory_bytes > e->memory_total));
}

static bool full(const struct placement_edge *e)
{
	return e->known && e->max && (uint64_t)e->live + e->pending >= e->max;
}

/* Higher is better, 0..2: the free share of slots plus the free share of memory. */
static double score(const struct placement_edge *e)
{
	double slots = 0.5, memory = 0.5; /* an edge not heard yet is average */
	uint64_t used = (uint64_t)e->live + e->pending;
	if (e->known && e->max)
		slots = used >= e->max ? 0 : 1.0 - (double)used / e->max;
	if (e->known && e->memory_total)
		memory = (double)e->memory_available / (double)e->memory_total;
	return slots + memory;
}

static void shuffle(size_t *order, size_t n, uint64_t *seed)
{
	for (size_t i = n; i > 1; i--) {
		size_t j = (size_t)(next_random(seed) % i);
		size_t t = order[i - 1];
		order[i - 1] = order[j];
		order[j] = t;
	}
}

void placement_order(const struct placement_edge *edges, size_t n, const struct placement_need *need,
		     uint64_t *seed, size_t *ret_order, struct placement_result *ret)
{
	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; i < n; i++) {
		const struct placement_edge *e = &edges[i];
		if (!e->connected)
			continue;
		ret->connected++;
		if (e->known) {
			ret->max_cpus = MAX(ret->max_cpus, e->cpus);
			ret->max_memory = MAX(ret->max_memory, e->memory_total);
		}
		if (too_small(e, need))
			ret->too_small++;
		else if (!full(e))
			ret_order[ret->n++] = i;
	}
	shuffle(ret_order, ret->n, seed);
	/* Insertion sort of the sample, best first; equal scores stay in drawn order. */
	size_t sample = MIN(ret->n, (size_t)PLACEMENT_SAMPLE);
	for (size_t i = 1; i < sample; i++) {
		size_t me = ret_order[i], j = i;
		for (; j > 0 && score(&edges[ret_order[j - 1]]) < score(&edges[me]); j--)
			ret_order[j] = ret_order[j - 1];
		ret_order[j] = me;
	}
}
