/* placement.h: which edges a new sandbox should be asked of, best first.
 *
 * Pure logic on a snapshot of what the edges last said of themselves; no I/O,
 * no clock, and randomness only from the caller's seed, so that a test can
 * replay it. Called by create on the loop thread.
 *
 * Filter: an edge is out when it is not connected, is full, or has fewer cores
 * or less memory in all than the sandbox asks for. Sample: PLACEMENT_SAMPLE of
 * the rest are drawn at random, since many apiservers that all chose the one
 * emptiest edge would overrun it. Score: free slots and free memory of the
 * sample, better first. The rest follows behind the sample in random order: an
 * edge that refuses leads to the next.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACEMENT_SAMPLE 4 /* drawn and scored; "power of two choices" with some more */

struct placement_edge {
	bool connected;
	bool known; /* the figures below were heard at least once */
	uint32_t cpus;
	uint32_t live, max; /* sandboxes; max 0 = not said */
	uint64_t memory_total, memory_available;
	uint32_t pending; /* creates that we sent and that are not answered */
};

struct placement_need {
	uint32_t cpu_millis;
	uint64_t memory_bytes;
};

struct placement_result {
	size_t n;           /* indices written */
	uint32_t max_cpus;  /* the most that any connected edge has; 0 = unknown */
	uint64_t max_memory;
	size_t connected;   /* edges that were connected */
	size_t too_small;   /* of those, ruled out by size for ever */
};

/* ret_order must hold n indices. *seed is advanced. */
void placement_order(const struct placement_edge *edges, size_t n, const struct placement_need *need,
		     uint64_t *seed, size_t *ret_order, struct placement_result *ret);
