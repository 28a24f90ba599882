/* replay.c: from journal records back to tables. See record.h.
 *
 * Runs once, at start, before anything else may look at the tables. A record
 * about something unknown is skipped (its beginning was damaged or dropped); a
 * record that does not decode is skipped and logged. Counters and lists that
 * follow from the states are set by recover.c afterwards.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "edge/record.h"
#include "journal.pb-c.h"

#define JOURNAL_NAME "journal"

struct replay {
	struct node *node;
	char boot_id[sizeof(((struct node *)0)->boot_id)]; /* of the records that follow */
	uint64_t mono, real;
	uint64_t records, unknown;
};

/* Real time to this boot's monotonic clock; the past collapses to "now". */
static uint64_t mono_of(const struct replay *r, uint64_t real_ms)
{
	return r->mono + (real_ms > r->real ? real_ms - r->real : 0);
}

static int apply_intent(struct replay *r, Dsec__Journal__Intent *m)
{
	struct sandbox *sb;
	Dsec__Edge__Create *spec = m->create;
	if (!spec || strlen(m->id) > SANDBOX_ID_MAX || node_find(r->node, m->id))
		return 0;
	m->create = NULL;
	int e = sandbox_new(r->node, m->id, m->project, spec, &sb);
	if (e < 0)
		return e;
	sb->created_at_ms = m->created_at_ms;
	sb->ttl.end_ms = mono_of(r, m->end_at_ms);
	sb->ttl.idle_ms = sb->spec->idle_ttl_ms;
	/* Nobody knows what happened while no edge ran: that counts as activity. */
	ttl_touch(&sb->ttl, r->mono);
	return 0;
}

static void apply_started(struct replay *r, const Dsec__Journal__Started *m)
{
	struct sandbox *sb = node_find(r->node, m->id);
	if (!sb)
		return;
	sb->state = SB_RUNNING;
	sb->running_at_ms = m->running_at_ms;
	sb->rec = (struct backend_record){ m->pid, m->start_ticks, m->slot };
	if (strcmp(r->boot_id, r->node->boot_id))
		sb->rec.pid = 0; /* of another boot */
}

static void set_end(struct sandbox *sb, enum sandbox_state state, const char *reason, const char *message)
{
	sb->state = state;
	sb->reason = stop_reason_from_name(reason);
	free(sb->message);
	sb->message = *message ? strdup(message) : NULL;
}

static void apply_stopped(struct replay *r, const Dsec__Journal__Stopped *m)
{
	struct sandbox *sb = node_find(r->node, m->id);
	if (!sb)
		return;
	set_end(sb, SB_STOPPED, m->reason, m->message);
	sb->rec = (struct backend_record){ 0 };
	sb->stopped_at_ms = m->stopped_at_ms;
	sb->stats = (struct backend_stats){ .memory_peak_bytes = m->memory_peak_bytes,
					    .cpu_usec = m->cpu_usec,
					    .oom_kills = m->oom_kills };
	list_drop(&sb->link);
	list_append(&r->node->stopped, &sb->link);
}

static int apply_exec_intent(struct replay *r, Dsec__Journal__ExecIntent *m)
{
	struct sandbox *sb = node_find(r->node, m->sandbox_id);
	struct exec *x;
	if (!sb || !m->start || !id_exec_valid(m->exec_id) || exec_find(sb, m->exec_id))
		return 0;
	Dsec__Edge__ExecStart *spec = TAKE_PTR(m->start);
	int e = exec_new(sb, m->exec_id, spec, &x);
	if (e < 0)
		return e;
	x->start_hash = m->start_hash;
	x->started_at_ms = m->at_ms;
	x->in.file_bytes = m->stdin_file_bytes;
	spool_recover(&x->out[0]);
	spool_recover(&x->out[1]);
	return 0;
}

static void apply_exec_running(struct replay *r, const Dsec__Journal__ExecRunning *m)
{
	struct sandbox *sb = node_find(r->node, m->sandbox_id);
	struct exec *x = sb ? exec_find(sb, m->exec_id) : NULL;
	if (!x || x->state != EXEC_STARTING)
		return;
	x->state = EXEC_RUNNING;
	x->started_at_ms = m->started_at_ms;
	x->oom_base = m->oom_base;
	x->shared = true; /* nobody can tell any more */
	list_drop(&x->starting_link);
}

static const char *killed_by(const char *name)
{
	static const char *const known[] = { "user", "timeout", "oom", "sandbox" };
	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (!strcmp(known[i], name))
			return known[i];
	return "";
}

static void apply_result(struct exec *x, const Dsec__Edge__Exec *m)
{
	x->state = EXEC_FINISHED;
	x->result = (struct exec_result){
		.has_exit_code = m->has_exit_code,
		.exit_code = (uint8_t)m->exit_code,
		.signal = (uint8_t)m->signal,
		.timed_out = m->timed_out,
		.user_killed = m->user_killed,
		.oom_killed = m->oom_killed,
		.background_alive = m->background_alive,
		.drain_cut = m->drain_cut,
		.killed_by = killed_by(m->killed_by),
		.cpu_usec = m->cpu_usec,
		.max_rss_bytes = m->max_rss_bytes,
		.wall_ms = m->wall_ms,
	};
}

static void apply_exec_finished(struct replay *r, const Dsec__Edge__Exec *m)
{
	struct sandbox *sb = m ? node_find(r->node, m->sandbox_id) : NULL;
	struct exec *x = sb ? exec_find(sb, m->id) : NULL;
	if (!x || exec_ended(x))
		return;
	x->started_at_ms = m->started_at_ms;
	x->finished_at_ms = m->finished_at_ms;
	x->in.sent = m->stdin_offset;
	x->in.closed = true;
	spool_skip(&x->out[0], m->stdout_total);
	spool_skip(&x->out[1], m->stderr_total);
	if (m->error) {
		x->state = EXEC_FAILED;
		x->error = calloc(1, sizeof(*x->error));
		dsec_error_set(x->error, 0, dsec_code_from_name(m->error->code), "%s", m->error->message);
	} else {
		apply_result(x, m);
	}
	list_drop(&x->starting_link);
	sb->execs_running--;
	sb->spooled += spool_stored(&x->out[0]) + spool_stored(&x->out[1]);
}

static int apply(struct replay *r, Dsec__Journal__Record *rec)
{
	struct sandbox *sb;
	struct exec *x;
	switch (rec->what_case) {
	case DSEC__JOURNAL__RECORD__WHAT_HEAD:
		snprintf(r->boot_id, sizeof(r->boot_id), "%s", rec->head->boot_id);
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_INTENT:
		return apply_intent(r, rec->intent);
	case DSEC__JOURNAL__RECORD__WHAT_STARTED:
		apply_started(r, rec->started);
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_TTL:
		if ((sb = node_find(r->node, rec->ttl->id))) {
			sb->ttl.end_ms = mono_of(r, rec->ttl->end_at_ms);
			sb->ttl.idle_ms = rec->ttl->idle_ttl_ms;
		}
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_STOPPING:
		if ((sb = node_find(r->node, rec->stopping->id)))
			set_end(sb, SB_STOPPING, rec->stopping->reason, rec->stopping->message);
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_STOPPED:
		apply_stopped(r, rec->stopped);
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_DROPPED:
		sandbox_free(node_find(r->node, rec->dropped->id));
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_EXEC_INTENT:
		return apply_exec_intent(r, rec->exec_intent);
	case DSEC__JOURNAL__RECORD__WHAT_EXEC_RUNNING:
		apply_exec_running(r, rec->exec_running);
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_EXEC_FINISHED:
		apply_exec_finished(r, rec->exec_finished->exec);
		return 0;
	case DSEC__JOURNAL__RECORD__WHAT_EXEC_DROPPED:
		sb = node_find(r->node, rec->exec_dropped->sandbox_id);
		x = sb ? exec_find(sb, rec->exec_dropped->exec_id) : NULL;
		exec_remove(x);
		return 0;
	default:
		r->unknown++;
		return 0;
	}
}

static int replay_one(const void *p, size_t n, void *user)
{
	struct replay *r = user;
	Dsec__Journal__Record *rec = dsec__journal__record__unpack(NULL, n, p);
	if (!rec) {
		r->unknown++;
		return 0;
	}
	r->records++;
	int e = apply(r, rec);
	dsec__journal__record__free_unpacked(rec, NULL);
	return e;
}

int record_open(struct node *n)
{
	struct journal_damage damage;
	struct replay r = { .node = n, .mono = now_mono_ms(), .real = now_real_ms() };
	int e = journal_open(n->state_fd, JOURNAL_NAME, replay_one, &r, &n->journal, &damage);
	if (e < 0)
		return e;
	if (damage.skipped_bytes || r.unknown)
		log_error("journal: %llu bytes damaged, %llu records not understood; what they said is lost",
			  (unsigned long long)damage.skipped_bytes, (unsigned long long)r.unknown);
	if (damage.torn_bytes)
		log_info("journal: a last write of %llu bytes was not finished and is cut",
			 (unsigned long long)damage.torn_bytes);
	log_debug("journal: %llu records", (unsigned long long)r.records);
	return 0;
}
