/* list.c: GET /v1/sandboxes: every edge is asked, each sandbox rendered as it comes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/gather.h"
#include "control/label_query.h"
#include "control/render.h"
#include "control/resources.h"

struct list {
	struct request *r;
	struct gather *gather;
	const char *state; /* borrowed from the request; NULL: all */
	struct buf text;   /* the answer so far: text, not objects: ten thousand fit in 10 MB */
	size_t n;
	bool failed;
	struct label_query labels;
};

static void on_sandbox(const Dsec__Edge__Sandbox *s, void *user)
{
	struct list *l = user;
	if (l->state && strcmp(l->state, s->state))
		return;
	json_t *o = render_sandbox(s);
	if ((l->n++ && buf_append(&l->text, ",", 1)) || !o || render_json(o, &l->text))
		l->failed = true;
	json_decref(o);
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct list *l = user;
	l->gather = NULL;
	if (e)
		request_fail(l->r, e, retry_after_ms);
	else if (l->failed || buf_append(&l->text, "]}\n", 3))
		request_failf(l->r, DSEC_E_CAPACITY, "out of memory for the list");
	else
		request_text(l->r, 200, "application/json", &l->text);
}

static void on_release(struct request *r)
{
	struct list *l = request_state(r);
	gather_cancel(l->gather);
	label_query_done(&l->labels);
	buf_done(&l->text);
	free(l);
}

static bool state_known(const char *state)
{
	static const char *const states[] = { "pending", "preparing", "running", "pausing",
					      "paused", "resuming", "stopping", "stopped" };
	for (size_t i = 0; i < ARRAY_SIZE(states); i++)
		if (!strcmp(state, states[i]))
			return true;
	return false;
}

static bool read_query(struct list *l, bool *ret_stopped)
{
	l->state = request_query(l->r, "state");
	if (!request_query_bool(l->r, "include_stopped", ret_stopped))
		return false;
	if (l->state && !state_known(l->state)) {
		request_failf(l->r, DSEC_E_BAD_FIELD, "\"%.32s\" is not a state of a sandbox", l->state);
		return false;
	}
	if (!label_query_read(&l->labels, l->r))
		return false;
	if (l->state && !strcmp(l->state, "stopped"))
		*ret_stopped = true;
	return true;
}

void handle_sandbox_list(struct request *r)
{
	static const struct gather_ops gops = { on_sandbox, on_end };
	static const struct request_ops ops = { .release = on_release };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__List list = DSEC__EDGE__LIST__INIT;
	struct dsec_error e;
	bool stopped = false;
	struct list *l = calloc(1, sizeof(*l));
	if (!l || buf_printf(&l->text, "{\"sandboxes\":[") < 0) {
		free(l);
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	l->r = r;
	request_set(r, &ops, l);
	if (!read_query(l, &stopped))
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_LIST;
	rq.list = &list;
	list.labels = l->labels.ptrs;
	list.n_labels = l->labels.n;
	list.include_stopped = stopped;
	if (gather_start(request_control(r)->edges, &rq, &gops, l, &l->gather, &e) < 0)
		request_fail(r, &e, 0);
}
