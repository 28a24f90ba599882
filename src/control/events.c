/* events.c: GET /v1/sandboxes/events: state changes of many sandboxes, as JSON lines.
 *
 * Every edge is watched (Watch in edge.proto). The stream is: a `sandbox` for
 * each that lives, `listed` once all edges' lists are through, then a `state` for
 * each change; `keepalive` after LIMIT_KEEPALIVE_SECONDS of silence. While a list
 * is under way, changes of other edges come between; a reader that takes every
 * object as the newest of its id is right in any order.
 *
 * A client that does not read: beyond LIMIT_EVENTS_UNSENT_BYTES of changes all
 * watches end, and when it has read everything the stream says `overflow` and
 * starts anew with lists. The same when an edge finds us slow. An edge that goes
 * away ends the stream with an `error`: a stream that lacks some would be a lie.
 */
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "control/calls.h"
#include "control/label_query.h"
#include "control/render.h"
#include "control/resources.h"

struct part {
	struct events *all;
	struct edge_call *call; /* NULL: not under way */
	bool listed;
};

struct events {
	struct request *r; /* NULL: released, only the timer is still there */
	struct label_query labels;
	uv_timer_t timer;
	uint64_t last_ms;
	size_t n, listed;
	bool begun, overflow, over;
	struct part part[];
};

static void put(struct events *ev, json_t *event_take)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	if (!ev->begun) {
		ev->begun = true;
		request_header(ev->r, "X-Accel-Buffering", "no"); /* proxies must not hold lines back */
		request_stream(ev->r, 200, "application/x-ndjson");
	}
	if (!event_take || render_json(event_take, &b))
		request_abort(ev->r);
	else
		request_write(ev->r, buf_ptr(&b), buf_len(&b));
	json_decref(event_take);
	ev->last_ms = now_mono_ms();
}

static void cancel_all(struct events *ev)
{
	for (size_t i = 0; i < ev->n; i++) {
		edge_call_cancel(ev->part[i].call);
		ev->part[i].call = NULL;
		ev->part[i].listed = false;
	}
	ev->listed = 0;
}

static void fail(struct events *ev, const struct dsec_error *e, uint32_t retry_after_ms)
{
	if (ev->over)
		return;
	ev->over = true;
	cancel_all(ev);
	if (!ev->begun) {
		request_fail(ev->r, e, retry_after_ms);
		return;
	}
	json_t *err = render_error(e);
	json_object_set_new(err, "request_id", json_string(request_id(ev->r)));
	put(ev, json_pack("{s:s, s:o}", "event", "error", "error", err));
	request_stream_end(ev->r);
}

static void put_sandbox(struct events *ev, const char *event, const Dsec__Edge__Sandbox *s)
{
	put(ev, json_pack("{s:s, s:o}", "event", event, "sandbox", render_sandbox(s)));
}

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct part *p = user;
	struct events *ev = p->all;
	switch (reply->what_case) {
	case DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOXES:
		for (size_t i = 0; i < reply->sandboxes->n_sandboxes; i++)
			put_sandbox(ev, "sandbox", reply->sandboxes->sandboxes[i]);
		break;
	case DSEC__EDGE__EDGE_REPLY__WHAT_OK:
		p->listed = true;
		if (++ev->listed == ev->n)
			put(ev, json_pack("{s:s}", "event", "listed"));
		break;
	case DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOX:
		if (request_unsent(ev->r) > LIMIT_EVENTS_UNSENT_BYTES) {
			ev->overflow = true;
			cancel_all(ev);
		} else {
			put_sandbox(ev, "state", reply->sandbox);
		}
		break;
	default:
		break;
	}
}

static void restart(struct events *ev);

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct part *p = user;
	struct events *ev = p->all;
	struct dsec_error ended;
	p->call = NULL;
	if (e && e->code == DSEC_E_OVERLOADED && p->listed) {
		ev->overflow = true;
		cancel_all(ev);
		restart(ev);
		return;
	}
	if (!e) {
		dsec_error_set(&ended, 0, DSEC_E_EDGE_UNAVAILABLE, "the edge ended the watch");
		e = &ended;
	}
	fail(ev, e, retry_after_ms);
}

static void start(struct events *ev)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	static const struct edge_call_policy policy = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS,
							.wait_sent_ms = LIMIT_EDGE_READ_RETRY_MS };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__Watch watch = DSEC__EDGE__WATCH__INIT;
	struct dsec_error e;
	edge_request_init(&rq, ev->r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_WATCH;
	rq.watch = &watch;
	watch.labels = ev->labels.ptrs;
	watch.n_labels = ev->labels.n;
	for (size_t i = 0; i < ev->n; i++) {
		struct part *p = &ev->part[i];
		p->all = ev;
		if (edge_call_start(request_control(ev->r)->edges, i, &rq, &policy, &ops, p, &p->call, &e) < 0) {
			p->call = NULL;
			fail(ev, &e, 0);
			return;
		}
	}
}

/* After an overflow, once everything was read. */
static void restart(struct events *ev)
{
	if (!ev->overflow || ev->over || request_unsent(ev->r))
		return;
	ev->overflow = false;
	put(ev, json_pack("{s:s}", "event", "overflow"));
	start(ev);
}

static void on_drained(struct request *r, size_t unsent)
{
	restart(request_state(r));
}

static void on_tick(uv_timer_t *t)
{
	struct events *ev = t->data;
	if (ev->begun && !ev->over && now_mono_ms() - ev->last_ms >= LIMIT_KEEPALIVE_SECONDS * 1000u)
		put(ev, json_pack("{s:s}", "event", "keepalive"));
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

static void on_release(struct request *r)
{
	struct events *ev = request_state(r);
	cancel_all(ev);
	label_query_done(&ev->labels);
	ev->r = NULL;
	uv_close((uv_handle_t *)&ev->timer, on_closed);
}

void handle_sandbox_events(struct request *r)
{
	static const struct request_ops ops = { .drained = on_drained, .release = on_release };
	struct control *ctl = request_control(r);
	size_t n = edges_count(ctl->edges);
	struct events *ev = calloc(1, sizeof(*ev) + n * sizeof(ev->part[0]));
	if (!ev) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	ev->r = r;
	ev->n = n;
	uv_timer_init(ctl->loop, &ev->timer);
	ev->timer.data = ev;
	request_set(r, &ops, ev);
	if (!label_query_read(&ev->labels, r))
		return;
	uv_timer_start(&ev->timer, on_tick, 1000, 1000);
	start(ev);
	if (!n)
		put(ev, json_pack("{s:s}", "event", "listed"));
}
