/* cgroup.h: the cgroups of sandboxes, on v2, v1 and hybrid hosts alike.
 *
 * One struct cgroup_tree is our part of every hierarchy: a base directory and in
 * it sb-SLOT for each sandbox. It is immutable after open, so the functions may
 * be called from any thread as long as one slot is worked on by one thread at a
 * time. cgroup_make, _recycle and _remove may stall for milliseconds (they take
 * the kernel's global cgroup lock) and belong on a worker thread; the others are
 * a few small reads and writes.
 *
 *   cgroup2  BASE/sb-N          owned by the outer id; root of the cgroup namespace
 *            BASE/sb-N/chronus  PID 1
 *            BASE/sb-N/work     limits (where cgroup2 has the controllers); a leaf
 *                               e-ID in it for every command, made by chronus
 *   v1       BASE/sb-N          in cpu, memory, pids: limits; only commands join
 *
 * Where v1 owns the controllers, memory cgroups are kept and reset instead of
 * removed (removing one walks every superblock). Counters that cannot be reset
 * are never carried over: a directory with a count in it is replaced. So every
 * number read belongs to the present sandbox.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

#define CGROUP_V1_MAX 3
#define CGROUP_SLOTS_MAX 16384
#define CGROUP_CPU_PERIOD_US 100000

struct cgroup_tree;

struct cgroup_limits {
	uint32_t cpu_millis; /* 0 or at least the host's CPUs: none */
	uint64_t memory_bytes;
	uint32_t pids;
};

struct cgroup_fds { /* each owned by the holder, -1 = not there */
	int sandbox, chronus, work; /* cgroup2 directories */
	int v1_tasks[CGROUP_V1_MAX];
	int memory_usage, memory_stat;
};
#define CGROUP_FDS_INIT \
	((struct cgroup_fds){ -1, -1, -1, { -1, -1, -1 }, -1, -1 })

struct cgroup_usage {
	uint64_t memory_bytes, memory_peak_bytes, cpu_usec, oom_kills, pids_refused;
	uint32_t pids;
};

/* Finds the hierarchies, makes the base "dsec-TAG" in each. `record` is a file
 * that remembers where: a daemon started again from another cgroup goes on using
 * the old base as long as it exists. host_lacks names the missing controller. */
int cgroup_tree_open(const char *tag, const char *record, struct cgroup_tree **ret, struct dsec_error *e);
void cgroup_tree_close(struct cgroup_tree *t);
/* Removes the base directories that are empty, and the record if all were. */
int cgroup_tree_delete(struct cgroup_tree *t);
const char *cgroup_tree_layout(const struct cgroup_tree *t); /* "v2", "hybrid", "v1" for doctor */

/* Directories of a slot, owned by `outer_id` where chronus must write. */
int cgroup_make(struct cgroup_tree *t, uint32_t slot, uint32_t outer_id);
/* Hands the controllers to `chronus` and `work`. Not part of cgroup_make, since the
 * process that makes the cgroup namespace must first have been in sb-N itself, and
 * cgroup2 lets none be there once it has controllers to hand out (-EBUSY). */
int cgroup_enable(struct cgroup_tree *t, uint32_t slot);
/* First what that process needs (sandbox, v1_tasks), then, enabled, the others too.
 * After a failure all are closed. */
int cgroup_open_helper(struct cgroup_tree *t, uint32_t slot, struct cgroup_fds *ret);
int cgroup_open_fds(struct cgroup_tree *t, uint32_t slot, struct cgroup_fds *fds);
void cgroup_close_fds(struct cgroup_fds *fds);
int cgroup_limit(struct cgroup_tree *t, uint32_t slot, const struct cgroup_limits *limits);
int cgroup_usage(struct cgroup_tree *t, uint32_t slot, struct cgroup_usage *ret);
/* SIGKILL to every process in the slot's cgroups. */
int cgroup_kill(struct cgroup_tree *t, uint32_t slot);
bool cgroup_populated(struct cgroup_tree *t, uint32_t slot);
/* After the last process is gone: ready for cgroup_make again. -EBUSY: not yet gone. */
int cgroup_recycle(struct cgroup_tree *t, uint32_t slot);
int cgroup_remove(struct cgroup_tree *t, uint32_t slot);
/* Calls cb for every slot that has a directory in any hierarchy. */
int cgroup_each_slot(struct cgroup_tree *t, void (*cb)(uint32_t slot, void *user), void *user);
