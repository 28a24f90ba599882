/* lifecycle.c: the table. See lifecycle.h.
 *
 *   pending -> preparing -> running <-> pausing -> paused -> resuming -> running
 *      |           |          |  \______ any of them ______/
 *      v           v          v
 *   stopped     stopping -> stopped -> (dropped)
 *
 * L1 There is no way out of stopped, and from stopping only to stopped: a stop,
 *    once decided, is never taken back (renewals lose against it).
 * L2 A pending sandbox owns nothing outside the journal, so it may be stopped
 *    without passing through stopping. From preparing on something may exist,
 *    and only the backend can say that it is gone.
 * L3 Every state has an overdue move, and that move is in the table.
 */
#include "edge/lifecycle.h"
#include <string.h>
#include "base/cleanup.h"

#define TO(s) (1u << (s))

static const struct {
	const char *name;
	uint32_t to; /* set of TO() */
	uint64_t deadline_ms;
	enum sandbox_state overdue;
} table[SB_STATES] = {
	[SB_PENDING] = { "pending", TO(SB_PREPARING) | TO(SB_STOPPED), PENDING_DEADLINE_MS, SB_STOPPED },
	[SB_PREPARING] = { "preparing", TO(SB_RUNNING) | TO(SB_STOPPING), PREPARING_DEADLINE_MS,
			   SB_STOPPING },
	[SB_RUNNING] = { "running", TO(SB_PAUSING) | TO(SB_STOPPING), 0, SB_STOPPING },
	/* A pause that fails leaves the sandbox as it was. */
	[SB_PAUSING] = { "pausing", TO(SB_PAUSED) | TO(SB_RUNNING) | TO(SB_STOPPING), PAUSING_DEADLINE_MS,
			 SB_STOPPING },
	[SB_PAUSED] = { "paused", TO(SB_RESUMING) | TO(SB_STOPPING), 0, SB_STOPPING },
	[SB_RESUMING] = { "resuming", TO(SB_RUNNING) | TO(SB_PAUSED) | TO(SB_STOPPING),
			  RESUMING_DEADLINE_MS, SB_STOPPING },
	[SB_STOPPING] = { "stopping", TO(SB_STOPPED), STOPPING_DEADLINE_MS, SB_STOPPED },
	[SB_STOPPED] = { "stopped", 0, STOPPED_RETENTION_MS, SB_STATES },
};

static const char *const reasons[STOP_REASONS] = {
	"", "requested", "ttl", "idle", "oom", "exited", "node_lost", "preempted_policy", "guard", "failed",
};

bool lifecycle_may(enum sandbox_state from, enum sandbox_state to)
{
	return from < SB_STATES && to < SB_STATES && table[from].to & TO(to);
}

uint64_t lifecycle_deadline_ms(enum sandbox_state s)
{
	return table[s].deadline_ms;
}

enum sandbox_state lifecycle_overdue(enum sandbox_state s)
{
	return table[s].overdue;
}

const char *lifecycle_name(enum sandbox_state s)
{
	return table[s].name;
}

const char *stop_reason_name(enum stop_reason r)
{
	return r < STOP_REASONS ? reasons[r] : "failed";
}

enum stop_reason stop_reason_from_name(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (!strcmp(reasons[i], name))
			return (enum stop_reason)i;
	return STOP_FAILED;
}
