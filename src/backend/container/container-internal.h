/* container-internal.h: the parts of backend_container, all on the edge's loop.
 * container.c opens and closes it, slot.c keeps the pool, instance.c starts and
 * ends sandboxes, reconcile.c cleans up after a former edge. See container.c. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>
#include "backend/backend.h"
#include "backend/container/ipc_client.h"
#include "backend/container/spawner_ipc.h"
#include "kernel/cgroup.h"
#include "layer/mounter_ipc.h"

#define CONTAINER_SLOTS_MAX CGROUP_SLOTS_MAX
/* Ids inside: + slot * 65536. All slots end below 2^31, where two kernel interfaces
 * end (devpts gid=, ping_group_range), and begin far above what useradd hands out as
 * subordinate ids; systemd-nspawn's "pick" draws from the same numbers (decision 0104). */
#define CONTAINER_ID_BASE 0x30000000u
_Static_assert((uint64_t)CONTAINER_ID_BASE + (uint64_t)CONTAINER_SLOTS_MAX * 65536 <= 0x80000000u, "ids fit an int");
#define CONTAINER_OUTER_ID 0xF0000000u /* + slot: chronus */
#define CONTAINER_SPAWNERS_MAX 64
#define CONTAINER_MAKING_MAX 8      /* slots made at once */
#define CONTAINER_WAITING_MAX 4096  /* starts that wait for a slot */
#define CONTAINER_DEATH_DEADLINE_MS 10000 /* PID 1 after SIGKILL: a task may hang in the kernel */
#define CONTAINER_END_DEADLINE_MS 10000   /* its cgroups after that */
#define CONTAINER_LISTEN_BACKLOG 16

/*          make            take             spawned         end
 * EMPTY --------> MAKING -> READY -> STARTING -----> LIVE ------> ENDING -> EMPTY
 *   ^               |          ^         | prepare failed          ^
 *   |               +-> failed  +---------+--- spawn failed --------+
 *   +-- RESERVED (a record of a former edge names it, until adopt) */
enum slot_state { SLOT_EMPTY, SLOT_MAKING, SLOT_READY, SLOT_STARTING, SLOT_LIVE, SLOT_ENDING, SLOT_RESERVED, SLOT_BROKEN };

struct slot {
	struct backend *b;
	uint32_t number;
	enum slot_state state;
	TAILQ_ENTRY(slot) link; /* EMPTY: b->empty; READY: b->ready */
	struct cgroup_fds cg;   /* MAKING..STARTING; closed once PID 1 has its own copies */
	int userns, netns, cgroupns, listen;
	uv_work_t work;
	int err;                /* of the work */
	/* ENDING */
	uv_timer_t *timer;
	uint64_t end_deadline_ms, end_wait_ms;
	void (*ended)(struct slot *s, int err, void *user);
	void *ended_user;
};
TAILQ_HEAD(slot_list, slot);

struct backend_instance {
	struct backend *b;
	struct slot *slot; /* NULL while it waits for one */
	char id[SANDBOX_ID_MAX + 1];
	struct backend_record rec;
	int pidfd;
	uv_poll_t poll;
	uv_timer_t *deadline; /* of PID 1's death, once destroy was called */
	bool polling, listed, exited, destroying, prepared_twice;
	int left;          /* parts of an end that are not done yet */
	int end_err;
	struct start *start; /* until cb */
	void (*on_exit)(struct backend_instance *inst, void *user);
	void *user;
	void (*destroyed)(const struct dsec_error *e, void *user);
	void *destroyed_user;
	TAILQ_ENTRY(backend_instance) link; /* b->waiting, then b->live */
};
TAILQ_HEAD(instance_list, backend_instance);

struct backend {
	uv_loop_t *loop;
	char *channel_dir;
	struct cgroup_tree *cgroups;
	struct ipc_client *mounter, *spawners[CONTAINER_SPAWNERS_MAX];
	uint32_t n_spawners, cpus;
	uint32_t max_slots, pool_size;
	struct slot *slots; /* max_slots of them */
	struct slot_list empty, ready;
	struct instance_list waiting, live;
	uint32_t n_ready, n_making, n_waiting, n_live, n_broken; /* live: STARTING, LIVE, ENDING, RESERVED */
	uint32_t n_ending; /* of n_live: ENDING, about to be EMPTY */
	bool usable;  /* reconcile is done, or there was nothing to reconcile */
	bool closing;
	uint32_t refs; /* works and calls in flight that come back to us */
	uv_timer_t refill; /* after a failure, and to let bursts go first */
};

/* slot.c */
int slots_init(struct backend *b);
void slots_done(struct backend *b);
void slots_fill(struct backend *b); /* makes what the pool lacks */
struct slot *slot_take(struct backend *b); /* READY -> STARTING, NULL: none */
uint32_t slots_coming(const struct backend *b); /* that starts may wait for */
void slot_give_back(struct slot *s); /* STARTING -> READY: nothing ever ran in it */
void slot_close_fds(struct slot *s);
/* Kills what lives in it, waits, recycles; then EMPTY, and `ended` runs once (may be NULL). */
void slot_end(struct slot *s, void (*ended)(struct slot *s, int err, void *user), void *user);
void slot_reserve(struct slot *s);
void slot_path(const struct slot *s, char *ret, size_t n);
struct ipc_client *spawner_pick(struct backend *b);
static inline uint32_t slot_id_base(const struct slot *s) { return CONTAINER_ID_BASE + s->number * SPAWNER_ID_COUNT; }
static inline uint32_t slot_outer_id(const struct slot *s) { return CONTAINER_OUTER_ID + s->number; }

/* instance.c */
void container_start(struct backend *b, const struct sandbox_spec *spec,
		     void (*cb)(struct backend_instance *, const struct backend_record *, const struct dsec_error *, void *),
		     void (*on_exit)(struct backend_instance *, void *), void *user);
void instance_free(struct backend_instance *inst); /* forgets it; what runs, runs on */
void instance_slot_ready(struct backend_instance *inst, struct slot *s);
void instance_refuse(struct backend_instance *inst, int err, enum dsec_code code, const char *words);
int container_adopt(struct backend *b, const struct sandbox_spec *spec, const struct backend_record *rec,
		    void (*on_exit)(struct backend_instance *, void *), void *user, struct backend_instance **ret);
int container_connect(struct backend_instance *inst);
void container_destroy(struct backend_instance *inst, void (*cb)(const struct dsec_error *, void *), void *user);
int container_stats(struct backend_instance *inst, struct backend_stats *ret);
void container_disk_usage(struct backend_instance *inst, void (*cb)(int, uint64_t, uint64_t, void *), void *user);

/* reconcile.c */
void container_reconcile(struct backend *b, const struct backend_record *records, const char *const *ids, uint32_t n,
			 void (*cb)(struct dsec_error *, void *), void *user);

/* container.c */
void backend_ref(struct backend *b);
void backend_unref(struct backend *b);
