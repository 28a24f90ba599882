/* lifecycle.h: the one table of a sandbox's states, moves, deadlines and ways out.
 *
 * Pure: no state, no time, no I/O; called by sandbox.c on the edge's loop and by
 * tests. Every state but `running` and `paused` has a deadline of its own; those
 * two are bounded by the sandbox's lifetime (ttl.h), which is never absent.
 * `stopped` ends by retention: the sandbox is then dropped from the tables.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum sandbox_state {
	SB_PENDING,   /* admitted and journaled; waits for its turn */
	SB_PREPARING, /* the backend makes it */
	SB_RUNNING,
	SB_PAUSING,
	SB_PAUSED,
	SB_RESUMING,
	SB_STOPPING, /* the backend removes it */
	SB_STOPPED,  /* kept for inspection */
	SB_STATES
};

enum stop_reason {
	STOP_NONE,
	STOP_REQUESTED,
	STOP_TTL,
	STOP_IDLE,
	STOP_OOM,
	STOP_EXITED,
	STOP_NODE_LOST,
	STOP_PREEMPTED,
	STOP_GUARD,
	STOP_FAILED,
	STOP_REASONS
};

#define PENDING_DEADLINE_MS (30 * 1000)
#define PREPARING_DEADLINE_MS (120 * 1000)
#define PAUSING_DEADLINE_MS (60 * 1000)
#define RESUMING_DEADLINE_MS (60 * 1000)
#define STOPPING_DEADLINE_MS (60 * 1000)
#define STOPPED_RETENTION_MS (60 * 60 * 1000)

bool lifecycle_may(enum sandbox_state from, enum sandbox_state to);
/* How long a sandbox may stay in `s`; 0: as long as its lifetime. */
uint64_t lifecycle_deadline_ms(enum sandbox_state s);
/* Where an overdue sandbox goes. SB_STOPPED itself answers SB_STATES: dropped. */
enum sandbox_state lifecycle_overdue(enum sandbox_state s);
/* Counts against the edge's capacity. */
static inline bool lifecycle_live(enum sandbox_state s)
{
	return s != SB_STOPPED;
}

const char *lifecycle_name(enum sandbox_state s);
const char *stop_reason_name(enum stop_reason r); /* "" for STOP_NONE */
enum stop_reason stop_reason_from_name(const char *name); /* STOP_FAILED if unknown */
