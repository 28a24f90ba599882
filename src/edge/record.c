/* record.c: see record.h. Replay is in replay.c.
 *
 * Each function fills one message of journal.proto on the stack, borrowing the
 * strings, and hands it to put(), which packs it and appends it, or puts it into
 * the rewrite while a snapshot is being made.
 */
#include "edge/record.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "edge/message.h"
#include "journal.pb-c.h"

#define SNAPSHOT_SLICE_NS (5 * 1000 * 1000)

typedef Dsec__Journal__Record Record;

static int put_to(struct node *n, const Record *rec,
		  int (*append)(struct journal *, const void *, size_t))
{
	uint8_t small[2048];
	_cleanup_free_ uint8_t *large = NULL;
	size_t size = dsec__journal__record__get_packed_size(rec);
	uint8_t *p = small;
	if (size > sizeof(small) && !(p = large = malloc(size)))
		return -ENOMEM;
	dsec__journal__record__pack(rec, p);
	return append(n->journal, p, size);
}

static int put(struct node *n, const Record *rec)
{
	return put_to(n, rec, journal_append);
}

void record_error(struct dsec_error *e, int r, const char *what)
{
	bool full = r == -ENOSPC || r == -EDQUOT || r == -EFBIG;
	dsec_error_set(e, r, full ? DSEC_E_CAPACITY : DSEC_E_INTERNAL, "the edge cannot write down %s: %s", what,
		       full ? "the disk of its state directory is full" : strerror(-r));
}

#define RECORD(kind, KIND, Kind, var)                                            \
	Dsec__Journal__##Kind var = DSEC__JOURNAL__##KIND##__INIT;               \
	Record rec = { PROTOBUF_C_MESSAGE_INIT(&dsec__journal__record__descriptor), \
		       DSEC__JOURNAL__RECORD__WHAT_##KIND, { .kind = &var } }

static int head_to(struct node *n, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(head, HEAD, Head, m);
	m.edge = (char *)n->name;
	m.boot_id = n->boot_id;
	m.version = (char *)DSEC_VERSION;
	return put_to(n, &rec, append);
}

int record_head(struct node *n)
{
	return head_to(n, journal_append);
}

static uint64_t real_end_ms(const struct sandbox *sb)
{
	uint64_t mono = now_mono_ms();
	return now_real_ms() + (sb->ttl.end_ms > mono ? sb->ttl.end_ms - mono : 0);
}

static int intent_to(struct sandbox *sb, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(intent, INTENT, Intent, m);
	m.id = sb->id;
	m.project = sb->project;
	m.create = sb->spec;
	m.created_at_ms = sb->created_at_ms;
	m.end_at_ms = real_end_ms(sb);
	return put_to(sb->node, &rec, append);
}

int record_intent(struct sandbox *sb)
{
	return intent_to(sb, journal_append);
}

static int started_to(struct sandbox *sb, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(started, STARTED, Started, m);
	m.id = sb->id;
	m.pid = sb->rec.pid;
	m.start_ticks = sb->rec.start_ticks;
	m.slot = sb->rec.slot;
	m.running_at_ms = sb->running_at_ms;
	return put_to(sb->node, &rec, append);
}

int record_started(struct sandbox *sb)
{
	return started_to(sb, journal_append);
}

static int ttl_to(struct sandbox *sb, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(ttl, TTL, Ttl, m);
	m.id = sb->id;
	m.end_at_ms = real_end_ms(sb);
	m.idle_ttl_ms = sb->ttl.idle_ms;
	return put_to(sb->node, &rec, append);
}

int record_ttl(struct sandbox *sb)
{
	return ttl_to(sb, journal_append);
}

static int stopping_to(struct sandbox *sb, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(stopping, STOPPING, Stopping, m);
	m.id = sb->id;
	m.reason = (char *)stop_reason_name(sb->reason);
	m.message = sb->message ? sb->message : "";
	return put_to(sb->node, &rec, append);
}

int record_stopping(struct sandbox *sb)
{
	return stopping_to(sb, journal_append);
}

static int stopped_to(struct sandbox *sb, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(stopped, STOPPED, Stopped, m);
	m.id = sb->id;
	m.reason = (char *)stop_reason_name(sb->reason);
	m.message = sb->message ? sb->message : "";
	m.stopped_at_ms = sb->stopped_at_ms;
	m.memory_peak_bytes = sb->stats.memory_peak_bytes;
	m.cpu_usec = sb->stats.cpu_usec;
	m.oom_kills = sb->stats.oom_kills;
	return put_to(sb->node, &rec, append);
}

int record_stopped(struct sandbox *sb)
{
	return stopped_to(sb, journal_append);
}

int record_dropped(struct node *n, const char *id)
{
	RECORD(dropped, DROPPED, Dropped, m);
	m.id = (char *)id;
	return put(n, &rec);
}

static int exec_intent_to(struct exec *x, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(exec_intent, EXEC_INTENT, ExecIntent, m);
	m.sandbox_id = x->sb->id;
	m.exec_id = x->id;
	m.start = x->spec;
	m.start_hash = x->start_hash;
	m.stdin_file_bytes = x->in.file_bytes;
	m.at_ms = x->started_at_ms;
	return put_to(x->sb->node, &rec, append);
}

int record_exec_intent(struct exec *x)
{
	return exec_intent_to(x, journal_append);
}

static int exec_running_to(struct exec *x, int (*append)(struct journal *, const void *, size_t))
{
	RECORD(exec_running, EXEC_RUNNING, ExecRunning, m);
	m.sandbox_id = x->sb->id;
	m.exec_id = x->id;
	m.started_at_ms = x->started_at_ms;
	m.oom_base = x->oom_base;
	return put_to(x->sb->node, &rec, append);
}

int record_exec_running(struct exec *x)
{
	return exec_running_to(x, journal_append);
}

static int exec_finished_to(struct exec *x, int (*append)(struct journal *, const void *, size_t))
{
	struct exec_message e;
	RECORD(exec_finished, EXEC_FINISHED, ExecFinished, m);
	message_exec(x, &e);
	e.m.n_argv = 0; /* the intent has it */
	m.exec = &e.m;
	return put_to(x->sb->node, &rec, append);
}

int record_exec_finished(struct exec *x)
{
	return exec_finished_to(x, journal_append);
}

int record_exec_dropped(struct exec *x)
{
	RECORD(exec_dropped, EXEC_DROPPED, ExecDropped, m);
	m.sandbox_id = x->sb->id;
	m.exec_id = x->id;
	return put(x->sb->node, &rec);
}

/* --- compaction --- */

static int snapshot_sandbox(struct sandbox *sb)
{
	int r = intent_to(sb, journal_rewrite_put);
	if (!r && sb->rec.pid)
		r = started_to(sb, journal_rewrite_put);
	if (!r)
		r = ttl_to(sb, journal_rewrite_put);
	if (!r && sb->state == SB_STOPPING)
		r = stopping_to(sb, journal_rewrite_put);
	if (!r && sb->state == SB_STOPPED)
		r = stopped_to(sb, journal_rewrite_put);
	list_for_each(x, &sb->exec_list, struct exec, link) {
		if (!r)
			r = exec_intent_to(x, journal_rewrite_put);
		if (!r && x->state == EXEC_RUNNING)
			r = exec_running_to(x, journal_rewrite_put);
		if (!r && exec_ended(x))
			r = exec_finished_to(x, journal_rewrite_put);
	}
	return r;
}

/* The ids to put, stopped ones first and in their order, so that retention keeps it. */
static int gather_ids(struct node *n)
{
	struct sandbox *sb;
	n->snapshot.ids = calloc(hashmap_len(&n->sandboxes) + 1, sizeof(*n->snapshot.ids));
	if (!n->snapshot.ids)
		return -ENOMEM;
	n->snapshot.count = n->snapshot.at = 0;
	list_for_each(old, &n->stopped, struct sandbox, link)
		strcpy(n->snapshot.ids[n->snapshot.count++], old->id);
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));)
		if (sb->state != SB_STOPPED)
			strcpy(n->snapshot.ids[n->snapshot.count++], sb->id);
	return 0;
}

static void snapshot_done(struct node *n)
{
	free(n->snapshot.ids);
	n->snapshot.ids = NULL;
}

static int snapshot_begin(struct node *n)
{
	int r = journal_rewrite_begin(n->journal);
	if (!r)
		r = head_to(n, journal_rewrite_put);
	return r < 0 ? r : gather_ids(n);
}

/* Puts sandboxes for `budget_ns` at least one each time. 1: all are put. What
 * changes meanwhile is appended to both files; a record about one that is not put
 * yet means nothing to replay, and its snapshot, later, has the change. */
static int snapshot_slice(struct node *n, uint64_t budget_ns)
{
	uint64_t end = now_mono_ns() + budget_ns;
	do {
		if (n->snapshot.at == n->snapshot.count)
			return 1;
		struct sandbox *sb = node_find(n, n->snapshot.ids[n->snapshot.at++]);
		int r = sb ? snapshot_sandbox(sb) : 0;
		if (r < 0)
			return r;
	} while (now_mono_ns() < end);
	return 0;
}

int record_compact(struct node *n)
{
	int r = snapshot_begin(n);
	if (!r)
		r = snapshot_slice(n, UINT64_MAX / 2);
	snapshot_done(n);
	return r < 0 ? r : journal_rewrite_end(n->journal, NULL);
}

void record_compact_step(struct node *n)
{
	int r = 0;
	if (!n->snapshot.ids) {
		if (!journal_wants_rewrite(n->journal))
			return;
		r = snapshot_begin(n);
	}
	if (!r)
		r = snapshot_slice(n, SNAPSHOT_SLICE_NS);
	if (!r)
		return;
	snapshot_done(n);
	if (r > 0)
		r = journal_rewrite_end(n->journal, n->loop);
	if (r < 0)
		log_warn("journal: compaction: %s; the old one goes on", strerror(-r));
}
