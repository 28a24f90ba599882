/* plan.h: which programs make a platform on one machine, and their words.
 *
 * Made once by the supervisor before it starts anything. The struct owns its
 * programs. Fails with a sentence in the log when a helper is not installed.
 */
#pragma once
#include "dsecd/options.h"
#include "dsecd/program.h"
#include "dsecd/state.h"

#define PLAN_SPAWNERS_MAX 64 /* one a core, not more */
#define PLAN_PROGRAMS_MAX (PLAN_SPAWNERS_MAX + 3)

struct plan {
	struct program programs[PLAN_PROGRAMS_MAX]; /* in order of phase */
	unsigned n;
	char *own_log; /* of the supervisor, when detached */
};

int plan_make(struct plan *plan, const struct state *s, const struct up_options *o);
void plan_done(struct plan *plan);
