/* backend.h: the contract between the edge and what makes sandboxes.
 *
 * A backend is one directory under src/backend/ with one struct backend_ops.
 * All calls and callbacks happen on the edge's loop thread; none blocks it:
 * work goes to helper processes (mounter, spawner). A backend owns its
 * helpers' connections and every kernel object of its instances; the edge owns
 * the lifecycle, the journal and the aether connection to chronus.
 *
 * Crash rule: everything needed to find an instance again after kill -9 of the
 * edge is in struct backend_record, which the edge journals before it tells
 * anybody that the sandbox runs; what is not in the journal is removed by
 * reconcile. What a backend lacks is refused by the capability's name.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include "base/error.h"
#include "base/id.h"

#define BACKEND_LAYERS_MAX 1 /* one layer an environment for now; issue 6 raises it */

enum backend_capability {
	BACKEND_CAP_EXEC = 1 << 0,
	BACKEND_CAP_FILES = 1 << 1,
	BACKEND_CAP_DISK_QUOTA = 1 << 2,
	BACKEND_CAP_PTY = 1 << 3,
};

struct backend;
struct backend_instance;

struct backend_env {
	uv_loop_t *loop;
	const char *state_dir; /* the edge's own 0700 directory */
	const char *run_dir;   /* where mounter.sock and spawner-N.sock live */
	const char *layer_dir; /* the shared layer store */
	const char *edge_name;
	uint32_t max_sandboxes;
	uint32_t pool_size; /* slots kept ready */
};

struct sandbox_spec { /* all pointers borrowed for the call */
	const char *id;
	const char *const *layers; /* digests "sha256:...", bottom first */
	uint32_t n_layers;
	const char *hostname;
	uint32_t cpu_millis;
	uint64_t memory_bytes;
	uint64_t disk_bytes;
	uint32_t pids;
	bool no_new_privs;
};

/* What the journal keeps of a started instance. */
struct backend_record {
	int32_t pid;          /* of PID 1, in the edge's pid namespace */
	uint64_t start_ticks; /* field 22 of /proc/PID/stat: tells a reused pid apart */
	uint32_t slot;        /* id range, cgroup directory and socket name */
};

struct backend_stats {
	uint64_t memory_bytes, memory_peak_bytes, cpu_usec, oom_kills;
	uint32_t pids;
	bool pids_limit_hit;
};

struct backend_ops {
	const char *name; /* "container" */
	uint32_t capabilities;

	/* Probes the host; refusal names what is missing (host_lacks). */
	int (*open)(const struct backend_env *env, struct backend **ret, struct dsec_error *e);
	void (*close)(struct backend *b); /* instances live on; for re-adoption */

	/* After a restart: the ids (and records) the journal says are alive. Kills
	 * and removes every other sandbox found in our cgroups, volume and pools.
	 * cb exactly once. */
	void (*reconcile)(struct backend *b, const struct backend_record *records,
			  const char *const *ids, uint32_t n,
			  void (*cb)(struct dsec_error *e, void *user), void *user);

	/* Makes and starts; cb exactly once, with either an instance or an error
	 * (then nothing is left behind). on_exit fires later, once, when PID 1 dies
	 * for any reason. capacity_exhausted when no slot is free. */
	void (*start)(struct backend *b, const struct sandbox_spec *spec,
		      void (*cb)(struct backend_instance *inst, const struct backend_record *rec,
				 const struct dsec_error *e, void *user),
		      void (*on_exit)(struct backend_instance *inst, void *user), void *user);

	/* Takes a live instance back. -ESRCH when it is gone (pid + start time). */
	int (*adopt)(struct backend *b, const struct sandbox_spec *spec, const struct backend_record *rec,
		     void (*on_exit)(struct backend_instance *inst, void *user), void *user,
		     struct backend_instance **ret);

	/* A new connected stream socket to chronus, nonblocking; may be called again
	 * after the former one broke. Negative errno. */
	int (*connect)(struct backend_instance *inst);

	/* Kill everything, recycle; cb once when nothing is left (or with the error
	 * that says what is). The instance is gone after cb. on_exit is not called. */
	void (*destroy)(struct backend_instance *inst, void (*cb)(const struct dsec_error *e, void *user),
			void *user);

	int (*stats)(struct backend_instance *inst, struct backend_stats *ret); /* cheap, synchronous */
	/* Bytes used of the disk limit, asked of the helper. */
	void (*disk_usage)(struct backend_instance *inst,
			   void (*cb)(int err, uint64_t limit, uint64_t used, void *user), void *user);
};

extern const struct backend_ops backend_container;
