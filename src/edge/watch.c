/* watch.c: see watch.h, and Watch in edge.proto.
 *
 * W1 A watcher is on node->watchers from call_watch until its release; its timer
 *    is closed there, and the memory goes with the timer.
 * W2 The list and the registration happen in one turn of the loop, so no change
 *    is missed or told before the list.
 */
#include "edge/watch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "edge/calls.h"
#include "edge/message.h"
#include "edge/sandbox.h"

struct watcher {
	struct call *call;
	enum sandbox_state until; /* with an id */
	size_t queue_max;         /* without */
	uv_timer_t timer;
};

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void watch_release(struct call *c)
{
	struct watcher *w = c->data;
	uv_close((uv_handle_t *)&w->timer, on_timer_closed); /* W1 */
}

static const struct call_ops watch_ops = { .release = watch_release };

/* It is so, or it will never be. */
static bool decided(const struct sandbox *sb, enum sandbox_state until)
{
	return sb->state == until || sb->state == SB_STOPPED || (until == SB_RUNNING && sb->state == SB_STOPPING);
}

static void answer(struct call *c, struct sandbox *sb)
{
	sandbox_read_stats(sb);
	reply_sandbox(c, sb);
	call_end(c);
}

static void on_timeout(uv_timer_t *h)
{
	struct watcher *w = h->data;
	struct sandbox *sb = call_sandbox(w->call, w->call->request->watch->id);
	if (sb)
		answer(w->call, sb);
}

static void tell_one(struct call *c, struct sandbox *sb)
{
	struct watcher *w = c->data;
	const Dsec__Edge__Watch *m = c->request->watch;
	if (strcmp(sb->project, c->request->project))
		return;
	if (*m->id) {
		if (!strcmp(m->id, sb->id) && decided(sb, w->until))
			answer(c, sb);
	} else if (sandbox_carries(sb, m->labels, m->n_labels)) {
		if (buf_len(&c->queue) > w->queue_max || reply_sandbox(c, sb) < 0)
			call_fail(c, DSEC_E_OVERLOADED, "the client does not keep up with the changes");
	}
}

void watch_tell(struct sandbox *sb)
{
	list_for_each(c, &sb->node->watchers, struct call, waiting)
		tell_one(c, sb);
}

/* All of them: the list, Ok, then changes. */
static void watch_all(struct call *c, struct watcher *w)
{
	const Dsec__Edge__Watch *m = c->request->watch;
	Dsec__Edge__Ok ok = DSEC__EDGE__OK__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_OK;
	reply.ok = &ok;
	int r = list_send(c, m->labels, m->n_labels, false);
	if (!r)
		r = call_reply(c, &reply);
	if (r < 0) {
		call_fail(c, DSEC_E_OVERLOADED, "the list is too long for one answer: filter by label");
		return;
	}
	w->queue_max = buf_len(&c->queue) + WATCH_QUEUE_MAX;
	list_append(&c->node->watchers, &c->waiting); /* W2 */
}

static void watch_one(struct call *c, struct watcher *w)
{
	const Dsec__Edge__Watch *m = c->request->watch;
	struct sandbox *sb = call_sandbox(c, m->id);
	if (!sb)
		return;
	w->until = strcmp(m->until, lifecycle_name(SB_RUNNING)) ? SB_STOPPED : SB_RUNNING;
	if (decided(sb, w->until) || !m->timeout_ms) {
		answer(c, sb);
		return;
	}
	list_append(&c->node->watchers, &c->waiting);
	uv_timer_start(&w->timer, on_timeout, MIN(m->timeout_ms, (uint64_t)WATCH_WAIT_MAX_MS), 0);
}

void call_watch(struct call *c)
{
	struct watcher *w = calloc(1, sizeof(*w));
	if (!w) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	w->call = c;
	uv_timer_init(c->node->loop, &w->timer);
	w->timer.data = w;
	c->data = w;
	c->ops = &watch_ops;
	if (*c->request->watch->id)
		watch_one(c, w);
	else
		watch_all(c, w);
}
