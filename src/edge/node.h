/* node.h: the tables of one edge: the node, its sandboxes, their execs.
 *
 * Private to src/edge. Everything here lives on the edge's one loop thread, so
 * there are no locks; a pointer to a sandbox or an exec is good until the
 * function returns to the loop, and a struct that keeps one is on that object's
 * lists and is told when it goes (calls: server.h, streams: channel.h).
 *
 * Who changes what: sandbox.c the state of sandboxes, exec.c that of execs,
 * record.c writes what they became, recover.c rebuilds them after a restart.
 * The calls_*.c files only ask.
 */
#pragma once
#include <uv.h>
#include "backend/backend.h"
#include "base/hashmap.h"
#include "base/id.h"
#include "edge.pb-c.h"
#include "edge/channel.h"
#include "edge/journal.h"
#include "edge/lifecycle.h"
#include "edge/list.h"
#include "edge/spool.h"
#include "edge/ttl.h"

/* Limits, in one place. */
#define EDGE_SANDBOXES_DEFAULT 1000
#define EDGE_SANDBOXES_MAX 16384     /* id ranges, see the spawner */
#define EDGE_PENDING_MAX 4096        /* creates that wait for their turn */
#define EDGE_PREPARING_MAX 32        /* creates the backend works on at once */
#define EDGE_STOPPED_KEPT_MAX 2000   /* stopped sandboxes kept, beyond it the oldest goes */
#define EDGE_SPOOL_FDS_MAX 2048
#define EXECS_RUNNING_MAX 256        /* per sandbox */
#define EXECS_KEPT_MAX 1000          /* per sandbox, finished ones; the oldest goes */
#define EXEC_START_DEADLINE_MS (30 * 1000)
#define EXEC_STDIN_MAX (1024 * 1024) /* inline standard input */
#define EXEC_START_MAX (256 * 1024)  /* argv, environment, names in all */
#define EXEC_ARGV_SHOWN_MAX (16 * 1024)
#define EXEC_ARGV_OVERHEAD 4 /* of each argument in a message */
#define SPOOL_SANDBOX_MAX (2048ull * 1024 * 1024)
#define CREATE_SIZE_MAX (32 * 1024)  /* of a packed Create: labels and environment */

struct exec;

struct node {
	uv_loop_t *loop;
	const char *name, *state_dir, *run_dir, *layer_dir; /* borrowed from argv */
	char boot_id[40];
	int state_fd, spool_fd; /* owned: S/edge and S/edge/sb */
	uint32_t max_sandboxes, pool_size;
	const struct backend_ops *ops;
	struct backend *backend; /* owned */
	struct journal *journal; /* owned */
	struct spool_set spools;
	struct hashmap sandboxes; /* id -> struct sandbox, owned */
	struct link pending;      /* sandboxes that wait for their turn, oldest first */
	struct link stopped;      /* stopped ones, oldest first */
	struct link watchers;     /* calls that want state changes (watch.c) */
	struct link starting;     /* execs that have not been heard of yet, oldest first */
	uint32_t n_live, n_pending, n_preparing, n_stopping, n_stopped;
	uint64_t creates_total, creates_failed, execs_total, adopted_total;
	uint64_t started_at_ms;
	bool admitting;     /* reconciled: creates are accepted */
	bool shutting_down; /* SIGTERM: stop all, then leave */
	uv_timer_t tick;
	struct {
		char (*ids)[SANDBOX_ID_MAX + 1]; /* owned; NULL: none under way */
		size_t count, at;
	} snapshot; /* of the tables into a new journal (record.c) */
	struct link channels; /* connected ones, the least recently used first (channel.c) */
	uint32_t n_channels, max_channels;
	uint64_t pressure_checked_ms;
	uint64_t memory_total, memory_available;
	struct server *server; /* owned */
	void (*on_empty)(struct node *n); /* shutting down, and nothing lives any more */
};

struct sandbox {
	struct node *node;
	char id[SANDBOX_ID_MAX + 1];
	char *project;               /* owned */
	Dsec__Edge__Create *spec;    /* owned */
	enum sandbox_state state;
	enum stop_reason reason;
	char *message;               /* owned; NULL: none */
	enum dsec_code fail_code;    /* why a create failed, for its callers */
	uint64_t created_at_ms, running_at_ms, stopped_at_ms; /* real time */
	uint64_t state_since, state_deadline;                 /* monotonic; deadline 0: none */
	struct ttl ttl;
	uv_timer_t timer;            /* the earliest of all deadlines */
	struct link link;            /* node->pending or node->stopped */

	struct backend_instance *inst; /* NULL: none, or not any more */
	struct backend_record rec;
	bool start_runs;     /* the backend owes the start callback */
	bool destroy_runs;   /* the backend owes the destroy callback */
	bool usage_runs;     /* the backend owes the disk_usage callback */
	uint32_t holds;      /* callbacks that will come with this pointer: not freed before */
	uint64_t disk_used;
	bool exited;         /* PID 1 is dead */
	struct backend_stats stats; /* last reading; peaks stay after the end */
	uint64_t oom_seen;   /* oom kills at the last reading that was not an end */

	struct channel *channel;     /* owned; NULL without an instance */
	struct hashmap execs;        /* id -> struct exec, owned */
	struct link exec_list;       /* the same, oldest first */
	struct link files;           /* running file calls (files.c) */
	uint32_t execs_running;      /* starting and running */
	bool background;             /* processes of an ended exec may live on */
	uint64_t spooled;            /* bytes of finished execs' output kept */
	struct link create_calls, delete_calls, get_calls; /* calls that wait (server.h) */
	struct link synced_calls; /* deletes that wait for the disk */
	enum { INTENT_NONE, INTENT_WRITTEN, INTENT_SYNCING, INTENT_SYNCED } intent; /* the record that it is to end */
};

/* node.c. name, the directories, max_sandboxes, pool_size and ops are set before;
 * node_init opens the directories, replays the journal and opens the backend. */
int node_init(struct node *n, uv_loop_t *loop, struct dsec_error *e);
void node_done(struct node *n);
struct sandbox *node_find(struct node *n, const char *id);
/* NULL also when it belongs to another project, which must not be told apart. */
struct sandbox *node_find_in(struct node *n, const char *project, const char *id);
int sandbox_new(struct node *n, const char *id, const char *project, Dsec__Edge__Create *spec_take,
		struct sandbox **ret);
/* Out of the tables and of memory, with its execs; files stay. Nobody may wait. */
void sandbox_free(struct sandbox *sb);
