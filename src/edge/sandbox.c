/* sandbox.c: see sandbox.h; the states are drawn in lifecycle.c.
 *
 * S1 A move is journaled before anything of it is visible outside, except that a
 *    stop goes on when the journal cannot be written: a full disk must not keep
 *    a sandbox alive. After a restart it is then found alive, or gone.
 * S2 sb->holds counts callbacks that will come with this pointer; sandbox_drop
 *    waits for them.
 * S3 A delete during preparing moves to stopping at once; the start callback then
 *    finds that state and gives the instance straight to destroy.
 * S4 When PID 1 dies, what it had already sent is read first (EXIT_DRAIN_MS at
 *    most), so a result that came just before the end is not lost.
 */
#include "edge/sandbox.h"
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "edge/exec.h"
#include "edge/files.h"
#include "edge/message.h"
#include "edge/record.h"
#include "edge/remove.h"
#include "edge/watch.h"

#define EXIT_DRAIN_MS 300

/* --- states and timers --- */

static uint32_t *counter(struct node *n, enum sandbox_state s)
{
	switch (s) {
	case SB_PENDING:
		return &n->n_pending;
	case SB_PREPARING:
		return &n->n_preparing;
	case SB_STOPPING:
		return &n->n_stopping;
	case SB_STOPPED:
		return &n->n_stopped;
	default:
		return NULL;
	}
}

void sandbox_move(struct sandbox *sb, enum sandbox_state to)
{
	struct node *n = sb->node;
	if (!lifecycle_may(sb->state, to)) {
		log_error("%s: no move from %s to %s", sb->id, lifecycle_name(sb->state), lifecycle_name(to));
		abort(); /* a restart re-adopts; going on would act on a lie */
	}
	uint32_t *from = counter(n, sb->state), *into = counter(n, to);
	if (from)
		--*from;
	if (into)
		++*into;
	sb->state = to;
	sb->state_since = now_mono_ms();
	uint64_t d = lifecycle_deadline_ms(to);
	sb->state_deadline = d ? sb->state_since + d : 0;
	list_drop(&sb->link);
	if (to == SB_STOPPED) {
		n->n_live--;
		list_append(&n->stopped, &sb->link);
	}
	sandbox_arm(sb);
}

void sandbox_read_stats(struct sandbox *sb)
{
	struct backend_stats st = { 0 };
	if (!sb->inst || sb->destroy_runs || sb->node->ops->stats(sb->inst, &st) < 0)
		return;
	st.memory_peak_bytes = MAX(st.memory_peak_bytes, sb->stats.memory_peak_bytes);
	sb->stats = st;
}

/* The lifetime, and the idle time where one is set. */
static void check_ttl(struct sandbox *sb, uint64_t now)
{
	uint64_t next;
	if (sb->ttl.idle_ms && !sb->execs_running && now >= sb->ttl.sampled_ms + TTL_SAMPLE_MIN_MS) {
		sandbox_read_stats(sb);
		sb->oom_seen = sb->stats.oom_kills;
		ttl_sample(&sb->ttl, now, sb->stats.cpu_usec);
	}
	switch (ttl_decide(&sb->ttl, now, sb->execs_running > 0, &next)) {
	case TTL_EXPIRED:
		sandbox_stop(sb, STOP_TTL, DSEC_E_SANDBOX_STOPPED, "its lifetime ended");
		break;
	case TTL_IDLE:
		sandbox_stop(sb, STOP_IDLE, DSEC_E_SANDBOX_STOPPED, "idle for %llu s",
			     (unsigned long long)(sb->ttl.idle_ms / 1000));
		break;
	case TTL_KEEP:
		break;
	}
}

static void fail_deletes(struct sandbox *sb)
{
	struct call *c;
	while ((c = list_first(&sb->delete_calls, struct call, waiting)))
		call_fail(c, DSEC_E_DEADLINE, "removing the sandbox takes longer than %d s; it goes on",
			  STOPPING_DEADLINE_MS / 1000);
}

static void overdue(struct sandbox *sb)
{
	switch (sb->state) {
	case SB_PENDING:
		sandbox_stop(sb, STOP_FAILED, DSEC_E_OVERLOADED, "waited %d s for its turn to be made",
			     PENDING_DEADLINE_MS / 1000);
		break;
	case SB_STOPPING:
		log_error("%s: removal is overdue; it is counted as stopped and goes on", sb->id);
		sandbox_move(sb, SB_STOPPED);
		sb->stopped_at_ms = now_real_ms();
		record_stopped(sb);
		watch_tell(sb);
		fail_deletes(sb);
		break;
	case SB_STOPPED:
		sandbox_drop(sb);
		break;
	default:
		sandbox_stop(sb, STOP_FAILED, DSEC_E_DEADLINE, "stayed %s for longer than %llu s",
			     lifecycle_name(sb->state),
			     (unsigned long long)(lifecycle_deadline_ms(sb->state) / 1000));
	}
}

static void end_of_drain(struct sandbox *sb);

static void on_timer(uv_timer_t *h)
{
	struct sandbox *sb = h->data;
	uint64_t now = now_mono_ms();
	if (sb->exited && (sb->state == SB_RUNNING || sb->state == SB_PREPARING))
		end_of_drain(sb);
	else if (sb->state_deadline && now >= sb->state_deadline) {
		overdue(sb); /* may have freed it */
		return;
	} else if (sb->state == SB_RUNNING || sb->state == SB_PAUSED) {
		check_ttl(sb, now);
	}
	sandbox_arm(sb);
}

void sandbox_arm(struct sandbox *sb)
{
	uint64_t now = now_mono_ms(), at = sb->state_deadline, next;
	if (sb->exited && (sb->state == SB_RUNNING || sb->state == SB_PREPARING))
		return; /* the drain limit is armed */
	if (sb->state == SB_RUNNING || sb->state == SB_PAUSED) {
		if (ttl_decide(&sb->ttl, now, sb->execs_running > 0, &next) != TTL_KEEP)
			next = now;
		at = at ? MIN(at, next) : next;
	}
	if (at)
		uv_timer_start(&sb->timer, on_timer, at > now ? at - now : 1, 0);
	else
		uv_timer_stop(&sb->timer);
}

void sandbox_touch(struct sandbox *sb)
{
	/* The timer is late by this, not early: it asks ttl_decide again. */
	ttl_touch(&sb->ttl, now_mono_ms());
}

/* --- answers --- */

static void answer_creates(struct sandbox *sb, enum dsec_code code)
{
	struct call *c;
	while ((c = list_first(&sb->create_calls, struct call, waiting))) {
		list_drop(&c->waiting);
		if (code) {
			call_fail(c, code, "%s", sb->message ? sb->message : "the sandbox was stopped");
			continue;
		}
		reply_sandbox(c, sb);
		call_end(c);
	}
}

static void answer_all(struct sandbox *sb, struct link *calls)
{
	struct call *c;
	while ((c = list_first(calls, struct call, waiting))) {
		list_drop(&c->waiting);
		reply_sandbox(c, sb);
		call_end(c);
	}
}

/* Deletes are answered when the disk has them. */
static void on_delete_synced(int err, void *user)
{
	struct sandbox *sb = user;
	sb->holds--;
	if (err)
		log_error("journal: fdatasync: %s", strerror(-err));
	answer_all(sb, &sb->synced_calls);
}

static void answer_synced(struct sandbox *sb, struct link *calls)
{
	if (list_empty(calls))
		return;
	list_splice(&sb->synced_calls, calls);
	if (journal_sync(sb->node->journal, sb->node->loop, on_delete_synced, sb) < 0)
		answer_all(sb, &sb->synced_calls);
	else
		sb->holds++;
}

/* The record that it is to end is put on the disk while it ends. That makes the
 * delete last: after a loss of power recovery finds the intent and no process, and
 * says stopped, for the same reason. What the later record adds is the final use. */
static void answer_deletes(struct sandbox *sb)
{
	if (sb->intent == INTENT_SYNCED)
		answer_all(sb, &sb->delete_calls);
	else if (sb->intent != INTENT_SYNCING)
		answer_synced(sb, &sb->delete_calls);
}

static void on_intent_synced(int err, void *user)
{
	struct sandbox *sb = user;
	sb->holds--;
	sb->intent = err ? INTENT_NONE : INTENT_SYNCED;
	if (sb->state == SB_STOPPED)
		answer_deletes(sb);
}

static void sync_intent(struct sandbox *sb)
{
	if (sb->intent != INTENT_WRITTEN ||
	    journal_sync(sb->node->journal, sb->node->loop, on_intent_synced, sb) < 0)
		return; /* then the end is synced */
	sb->intent = INTENT_SYNCING;
	sb->holds++;
}

void sandbox_delete(struct sandbox *sb, struct call *c, bool wait)
{
	struct link now;
	list_init(&now);
	sandbox_stop(sb, STOP_REQUESTED, DSEC_E_SANDBOX_STOPPED, "deleted by request");
	if (wait && sb->state != SB_STOPPED) {
		list_append(&sb->delete_calls, &c->waiting);
		sync_intent(sb);
		return;
	}
	list_append(&now, &c->waiting);
	answer_synced(sb, &now);
}

static void on_usage(int err, uint64_t limit, uint64_t used, void *user)
{
	struct sandbox *sb = user;
	sb->holds--;
	sb->usage_runs = false;
	if (!err)
		sb->disk_used = used;
	answer_all(sb, &sb->get_calls);
}

void sandbox_answer_get(struct sandbox *sb, struct call *c)
{
	list_append(&sb->get_calls, &c->waiting);
	sandbox_read_stats(sb);
	if (sb->usage_runs)
		return;
	if (!sb->inst || sb->state != SB_RUNNING) {
		answer_all(sb, &sb->get_calls);
		return;
	}
	sb->usage_runs = true;
	sb->holds++;
	sb->node->ops->disk_usage(sb->inst, on_usage, sb);
}

/* --- the beginning --- */

static void on_started(struct backend_instance *inst, const struct backend_record *rec,
		       const struct dsec_error *e, void *user);

void sandbox_enqueue(struct sandbox *sb)
{
	struct node *n = sb->node;
	sb->state_since = now_mono_ms();
	sb->state_deadline = sb->state_since + PENDING_DEADLINE_MS;
	n->n_live++;
	n->n_pending++;
	list_append(&n->pending, &sb->link);
	sandbox_arm(sb);
	node_kick(n);
}

void sandbox_backend_spec(const struct sandbox *sb, struct sandbox_spec *ret)
{
	const Dsec__Edge__Create *c = sb->spec;
	*ret = (struct sandbox_spec){
		.id = sb->id,
		.layers = (const char *const *)c->layers,
		.n_layers = (uint32_t)c->n_layers,
		.hostname = c->hostname,
		.cpu_millis = c->cpu_millis,
		.memory_bytes = c->memory_bytes,
		.disk_bytes = c->disk_bytes,
		.pids = c->pids,
		.no_new_privs = c->no_new_privs,
	};
}

static void start(struct sandbox *sb)
{
	struct sandbox_spec spec;
	sandbox_move(sb, SB_PREPARING);
	watch_tell(sb);
	sandbox_backend_spec(sb, &spec);
	sb->start_runs = true;
	sb->holds++;
	sb->node->ops->start(sb->node->backend, &spec, on_started, sandbox_on_exit, sb);
}

void node_kick(struct node *n)
{
	struct sandbox *sb;
	while (n->admitting && n->n_preparing < EDGE_PREPARING_MAX &&
	       (sb = list_first(&n->pending, struct sandbox, link)))
		start(sb);
}

static void stopped(struct sandbox *sb);

static void on_started(struct backend_instance *inst, const struct backend_record *rec,
		       const struct dsec_error *e, void *user)
{
	struct sandbox *sb = user;
	sb->start_runs = false;
	sb->holds--;
	if (!inst) {
		sandbox_stop(sb, STOP_FAILED, e->code, "%s", e->message);
		stopped(sb);
		return;
	}
	sb->inst = inst;
	sb->rec = *rec;
	if (sb->state != SB_PREPARING) { /* S3 */
		sandbox_destroy(sb);
		return;
	}
	sb->running_at_ms = now_real_ms();
	int r = record_started(sb);
	if (!r)
		r = channel_new(sb, false, &sb->channel);
	if (r < 0)
		sandbox_stop(sb, STOP_FAILED, DSEC_E_INTERNAL, "the edge cannot record or reach it: %s",
			     strerror(-r));
}

void sandbox_channel_ready(struct sandbox *sb, const Dsec__Chronus__HelloReply *hello)
{
	if (sb->state == SB_PREPARING) {
		sandbox_move(sb, SB_RUNNING);
		sb->running_at_ms = now_real_ms();
		sandbox_touch(sb);
		sandbox_arm(sb);
		answer_creates(sb, DSEC_OK);
		watch_tell(sb);
		node_kick(sb->node);
	}
	if (sb->state == SB_RUNNING) {
		exec_resume_all(sb, hello);
		files_resume_all(sb);
	}
}

/* --- the end --- */

static void on_destroyed(const struct dsec_error *e, void *user)
{
	struct sandbox *sb = user;
	sb->inst = NULL;
	sb->destroy_runs = false;
	sb->holds--;
	if (e)
		log_error("%s: removal: %s", sb->id, e->message);
	stopped(sb);
}

/* Nothing of it is left (or the backend said what is). */
static void stopped(struct sandbox *sb)
{
	struct node *n = sb->node;
	sb->rec = (struct backend_record){ 0 };
	if (sb->state == SB_STOPPING) {
		sb->stopped_at_ms = now_real_ms();
		sandbox_move(sb, SB_STOPPED);
		record_stopped(sb);
		watch_tell(sb);
	}
	answer_deletes(sb);
	node_kick(n);
	while (n->n_stopped > EDGE_STOPPED_KEPT_MAX) {
		struct sandbox *old = list_first(&n->stopped, struct sandbox, link);
		if (old == sb || old->holds)
			break;
		sandbox_drop(old);
	}
	if (n->shutting_down && !n->n_live && n->on_empty)
		n->on_empty(n);
}

void sandbox_destroy(struct sandbox *sb)
{
	if (sb->destroy_runs)
		return;
	sandbox_read_stats(sb);
	exec_sandbox_gone(sb);
	files_abandon_all(sb);
	channel_free(TAKE_PTR(sb->channel));
	sb->destroy_runs = true;
	sb->holds++;
	sb->node->ops->destroy(sb->inst, on_destroyed, sb);
}

void sandbox_stop(struct sandbox *sb, enum stop_reason reason, enum dsec_code code, const char *fmt, ...)
{
	if (sb->state == SB_STOPPING || sb->state == SB_STOPPED)
		return;
	va_list ap;
	va_start(ap, fmt);
	free(TAKE_PTR(sb->message));
	if (vasprintf(&sb->message, fmt, ap) < 0)
		sb->message = NULL;
	va_end(ap);
	sb->reason = reason;
	sb->fail_code = code;
	bool was_pending = sb->state == SB_PENDING;
	if (sb->state == SB_PENDING || sb->state == SB_PREPARING)
		sb->node->creates_failed++;
	if (was_pending) { /* L2 of lifecycle.c */
		sb->stopped_at_ms = now_real_ms();
		sandbox_move(sb, SB_STOPPED);
		record_stopped(sb);
	} else {
		sandbox_move(sb, SB_STOPPING);
		sb->intent = record_stopping(sb) < 0 ? INTENT_NONE : INTENT_WRITTEN;
	}
	answer_creates(sb, code);
	watch_tell(sb);
	answer_all(sb, &sb->get_calls);
	if (was_pending)
		stopped(sb);
	else if (sb->inst)
		sandbox_destroy(sb);
}

void sandbox_drop(struct sandbox *sb)
{
	struct node *n = sb->node;
	if (sb->holds || !list_empty(&sb->delete_calls) || !list_empty(&sb->synced_calls)) {
		sb->state_deadline = now_mono_ms() + 1000;
		sandbox_arm(sb);
		return;
	}
	record_dropped(n, sb->id);
	remove_output(sb);
	n->n_stopped--;
	sandbox_free(sb);
}

/* --- death of PID 1, loss of the channel --- */

static void end_of_drain(struct sandbox *sb)
{
	sandbox_read_stats(sb);
	uint64_t kills = sb->stats.oom_kills - MIN(sb->oom_seen, sb->stats.oom_kills);
	if (sb->state == SB_PREPARING)
		sandbox_stop(sb, STOP_FAILED, DSEC_E_SANDBOX_LOST, "its first process ended while it was being made");
	else if (kills)
		sandbox_stop(sb, STOP_OOM, DSEC_E_SANDBOX_STOPPED,
			     "its first process ended with %llu kill(s) for lack of memory (limit %llu MiB)",
			     (unsigned long long)kills, (unsigned long long)(sb->spec->memory_bytes >> 20));
	else
		sandbox_stop(sb, STOP_EXITED, DSEC_E_SANDBOX_STOPPED, "its first process ended");
}

void sandbox_on_exit(struct backend_instance *inst, void *user)
{
	struct sandbox *sb = user;
	sb->exited = true;
	if (sb->state == SB_STOPPING || sb->state == SB_STOPPED)
		return;
	if (!sb->channel || channel_closed(sb->channel)) {
		end_of_drain(sb);
		return;
	}
	channel_last_words(sb->channel); /* S4 */
	uv_timer_start(&sb->timer, on_timer, EXIT_DRAIN_MS, 0);
}

void sandbox_channel_down(struct sandbox *sb)
{
	if (sb->exited && (sb->state == SB_RUNNING || sb->state == SB_PREPARING))
		end_of_drain(sb);
}

void sandbox_channel_given_up(struct sandbox *sb, const char *why)
{
	sandbox_stop(sb, STOP_FAILED, DSEC_E_SANDBOX_LOST, "its runtime does not answer: %s", why);
}

void node_shutdown(struct node *n)
{
	struct sandbox *sb;
	n->shutting_down = true;
	n->admitting = false;
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));)
		sandbox_stop(sb, STOP_REQUESTED, DSEC_E_SANDBOX_STOPPED, "the edge was shut down");
	if (!n->n_live && n->on_empty)
		n->on_empty(n);
}
