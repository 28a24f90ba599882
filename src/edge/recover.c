/* recover.c: see recover.h.
 *
 * R1 What the journal says runs, and whose PID 1 is there with the same start
 *    time, is live. All else that the backend finds is removed by reconcile.
 * R2 Creates that had not finished are failed: nobody was told that they run.
 * R3 A sandbox whose PID 1 went while no edge ran is stopped(exited): what its
 *    commands had written by then is in the spool, the rest went with it.
 * R4 A sandbox in stopping whose PID 1 lives is taken back only to be destroyed.
 */
#include "edge/recover.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "edge/exec.h"
#include "edge/record.h"
#include "edge/remove.h"
#include "edge/sandbox.h"

struct recovery {
	struct node *node;
	void (*done)(struct node *n, const struct dsec_error *e);
	bool again; /* an adoption failed after reconcile: once more */
};

/* Field 22 of /proc/PID/stat, after the last ')': the name may hold anything. */
static uint64_t start_ticks(int32_t pid)
{
	char path[32];
	_cleanup_free_ char *text = NULL;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (read_file_at(AT_FDCWD, path, 4096, &text, NULL) < 0)
		return 0;
	char *p = strrchr(text, ')');
	for (int field = 2; p && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p ? strtoull(p + 1, NULL, 10) : 0;
}

static bool lives(const struct sandbox *sb)
{
	return sb->rec.pid > 0 && start_ticks(sb->rec.pid) == sb->rec.start_ticks;
}

/* Into a final state without the backend: there is nothing there. */
static void set_stopped(struct sandbox *sb, enum stop_reason reason, const char *message)
{
	if (sb->state != SB_STOPPING) { /* its own reason stays */
		sb->reason = reason;
		free(sb->message);
		sb->message = strdup(message);
	}
	sb->state = SB_STOPPED;
	sb->rec = (struct backend_record){ 0 };
	sb->stopped_at_ms = now_real_ms();
	exec_sandbox_gone(sb);
	record_stopped(sb);
	list_append(&sb->node->stopped, &sb->link);
}

static void settle(struct sandbox *sb)
{
	if (sb->state == SB_STOPPED || (sb->rec.pid && lives(sb)))
		return;
	if (sb->state == SB_PENDING || sb->state == SB_PREPARING)
		set_stopped(sb, STOP_FAILED, "the edge was restarted while it was being made"); /* R2 */
	else
		set_stopped(sb, STOP_EXITED, "its first process ended while no edge ran"); /* R3 */
}

static void count(struct node *n)
{
	struct sandbox *sb;
	uint64_t now = now_mono_ms(), real = now_real_ms();
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));) {
		if (sb->state != SB_STOPPED) {
			n->n_live++;
			n->n_stopping += sb->state == SB_STOPPING;
			continue;
		}
		n->n_stopped++;
		uint64_t age = real > sb->stopped_at_ms ? real - sb->stopped_at_ms : 0;
		sb->state_deadline = now + (age < STOPPED_RETENTION_MS ? STOPPED_RETENTION_MS - age : 1);
		sandbox_arm(sb);
	}
}

static void adopt(struct recovery *r, struct sandbox *sb)
{
	struct node *n = sb->node;
	struct sandbox_spec spec;
	sandbox_backend_spec(sb, &spec);
	int e = n->ops->adopt(n->backend, &spec, &sb->rec, sandbox_on_exit, sb, &sb->inst);
	if (e < 0) {
		log_warn("%s: cannot be taken back: %s", sb->id, strerror(-e));
		r->again = true;
		sb->inst = NULL;
		n->n_live--;
		n->n_stopping -= sb->state == SB_STOPPING;
		n->n_stopped++;
		set_stopped(sb, STOP_EXITED, "its first process ended while no edge ran");
		return;
	}
	n->adopted_total++;
	if (sb->state == SB_STOPPING) { /* R4 */
		sb->state_deadline = now_mono_ms() + STOPPING_DEADLINE_MS;
		sandbox_destroy(sb);
		return;
	}
	sandbox_read_stats(sb);
	sb->oom_seen = sb->stats.oom_kills;
	sb->background = true; /* nobody can tell any more */
	sandbox_arm(sb);
	/* Thousands that run nothing need no connection now. */
	if (channel_new(sb, !sb->execs_running, &sb->channel) < 0)
		sandbox_stop(sb, STOP_FAILED, DSEC_E_CAPACITY, "no memory to take it back");
}

static void run_reconcile(struct recovery *r);

static void on_reconciled(struct dsec_error *e, void *user)
{
	struct recovery *r = user;
	struct node *n = r->node;
	struct sandbox *sb;
	if (e) {
		r->done(n, e);
		free(r);
		return;
	}
	bool first = !r->again;
	r->again = false;
	if (first) {
		for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));)
			if (sb->state != SB_STOPPED && !sb->inst)
				adopt(r, sb);
		if (r->again) {
			run_reconcile(r);
			return;
		}
	}
	r->done(n, NULL);
	free(r);
}

static void run_reconcile(struct recovery *r)
{
	struct node *n = r->node;
	struct sandbox *sb;
	uint32_t k = 0;
	_cleanup_free_ struct backend_record *records = calloc(n->n_live + 1, sizeof(*records));
	_cleanup_free_ const char **ids = calloc(n->n_live + 1, sizeof(*ids));
	struct dsec_error e;
	if (!records || !ids) {
		dsec_error_set(&e, -ENOMEM, DSEC_E_CAPACITY, "out of memory");
		on_reconciled(&e, r);
		return;
	}
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));) {
		if (sb->state == SB_STOPPED)
			continue;
		records[k] = sb->rec;
		ids[k++] = sb->id;
	}
	n->ops->reconcile(n->backend, records, ids, k, on_reconciled, r);
}

void recover_start(struct node *n, void (*done)(struct node *, const struct dsec_error *))
{
	struct sandbox *sb;
	struct recovery *r = calloc(1, sizeof(*r));
	if (!r) {
		done(n, &(struct dsec_error){ DSEC_E_CAPACITY, "out of memory" });
		return;
	}
	r->node = n;
	r->done = done;
	record_head(n);
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));)
		settle(sb);
	count(n);
	int e = record_compact(n);
	if (e < 0)
		log_warn("journal: compaction: %s; the old one goes on", strerror(-e));
	remove_strays(n);
	run_reconcile(r);
}
