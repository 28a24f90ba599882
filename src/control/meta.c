/* meta.c: health, readiness, metrics, version, limits, edges. */
#include <stdlib.h>
#include "control/calls.h"
#include "control/limits.h"
#include "control/metrics.h"
#include "control/render.h"
#include "control/resources.h"
#include "control/server.h"

void handle_healthz(struct request *r)
{
	request_json(r, 200, json_pack("{s:s}", "status", "ok"));
}

void handle_version(struct request *r)
{
	request_json(r, 200, json_pack("{s:s, s:s}", "version", DSEC_VERSION, "api", "v1"));
}

void handle_limits(struct request *r)
{
	json_t *o = json_object();
#define X(name, text, value) json_object_set_new(o, text, json_integer(LIMIT_##name));
	CONTROL_LIMITS(X)
#undef X
	request_json(r, 200, json_pack("{s:o}", "limits", o));
}

void handle_edges(struct request *r)
{
	const struct edges *es = request_control(r)->edges;
	json_t *a = json_array();
	for (size_t i = 0; i < edges_count(es); i++)
		json_array_append_new(a, render_edge(edges_name(es, i), edges_connected(es, i), edges_info(es, i)));
	request_json(r, 200, json_pack("{s:o}", "edges", a));
}

void handle_metrics(struct request *r)
{
	struct buf b = BUF_INIT(0);
	if (metrics_render(request_control(r)->metrics, request_control(r), &b) < 0) {
		buf_done(&b);
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	request_text(r, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

/* ---- readyz: the store answers, and one edge does within READY_WAIT_MS ---- */

struct ready_part {
	struct ready *all;
	struct edge_call *call;
};

struct ready {
	struct request *r;
	size_t n, open;
	bool done;
	struct ready_part part[];
};

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct ready *d = ((struct ready_part *)user)->all;
	if (!d->done && reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_INFO)
		request_json(d->r, 200, json_pack("{s:s}", "status", "ready"));
	d->done = true;
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct ready_part *p = user;
	p->call = NULL;
	if (--p->all->open == 0 && !p->all->done)
		request_failf(p->all->r, DSEC_E_EDGE_UNAVAILABLE, "no edge answered within %d ms", LIMIT_READY_WAIT_MS);
}

static void on_release(struct request *r)
{
	struct ready *d = request_state(r);
	for (size_t i = 0; i < d->n; i++)
		edge_call_cancel(d->part[i].call);
	free(d);
}

static void ask_edges(struct ready *d)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	static const struct edge_call_policy policy = { .deadline_ms = LIMIT_READY_WAIT_MS };
	struct edges *es = request_control(d->r)->edges;
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__Info info = DSEC__EDGE__INFO__INIT;
	edge_request_init(&rq, d->r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_INFO;
	rq.info = &info;
	for (size_t i = 0; i < d->n; i++) {
		d->part[i].all = d;
		if (edge_call_start(es, i, &rq, &policy, &ops, &d->part[i], &d->part[i].call, NULL) == 0)
			d->open++;
		else
			d->part[i].call = NULL;
	}
	if (!d->open)
		request_failf(d->r, DSEC_E_EDGE_UNAVAILABLE, "no edge is connected");
}

void handle_readyz(struct request *r)
{
	static const struct request_ops ops = { .release = on_release };
	struct control *ctl = request_control(r);
	struct dsec_error e;
	int err = store_ping(ctl->store);
	if (err || ctl->stopping) {
		if (err)
			dsec_error_set(&e, err, DSEC_E_EDGE_UNAVAILABLE, "the store does not answer");
		else
			dsec_error_set(&e, 0, DSEC_E_EDGE_UNAVAILABLE, "the server is stopping");
		request_fail(r, &e, 0);
		return;
	}
	size_t n = edges_count(ctl->edges);
	struct ready *d = calloc(1, sizeof(*d) + n * sizeof(d->part[0]));
	if (!d) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	d->r = r;
	d->n = n;
	request_set(r, &ops, d);
	ask_edges(d);
}
