/* each.c: see each.h. */
#include "control/each.h"
#include <errno.h>
#include <stdlib.h>
#include "base/id.h"
#include "control/calls.h"

struct item {
	struct each *each;
	struct edge_call *call; /* NULL: not under way */
	json_t *answer;
};

struct each {
	struct request *r;
	enum each_question question;
	const char *const *ids;
	const struct each_ops *ops;
	void *user;
	size_t n, next, running;
	bool starting; /* in start_more: it ends the each itself */
	struct item item[];
};

void each_cancel(struct each *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->next; i++) {
		edge_call_cancel(e->item[i].call);
		json_decref(e->item[i].answer);
	}
	free(e);
}

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct item *it = user;
	json_decref(it->answer);
	it->answer = unary_sandbox(reply);
}

static void tell(struct item *it, const struct dsec_error *e)
{
	struct dsec_error none;
	if (!e && !it->answer) {
		dsec_error_set(&none, 0, DSEC_E_INTERNAL, "the edge ended the call without an answer");
		e = &none;
	}
	it->each->ops->one((size_t)(it - it->each->item), e, it->answer, it->each->user);
	json_decref(it->answer);
	it->answer = NULL;
}

static void start_more(struct each *e);

static void on_end(const struct dsec_error *err, uint32_t retry_after_ms, void *user)
{
	struct item *it = user;
	it->call = NULL;
	it->each->running--;
	tell(it, err);
	start_more(it->each);
}

static int ask(struct each *e, struct item *it, const char *id, struct dsec_error *err)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__SandboxRef ref = DSEC__EDGE__SANDBOX_REF__INIT;
	Dsec__Edge__Delete del = DSEC__EDGE__DELETE__INIT;
	char name[EDGE_NAME_MAX + 1];
	struct edges *edges = request_control(e->r)->edges;
	int at = id_sandbox_edge(id, name) ? edges_find(edges, name) : -1;
	if (at < 0)
		return dsec_error_set(err, -ENOENT, DSEC_E_SANDBOX_NOT_FOUND, "there is no sandbox \"%.64s\"", id);
	edge_request_init(&rq, e->r);
	ref.id = del.id = (char *)id;
	del.wait = e->question == EACH_DELETE_WAIT;
	if (e->question == EACH_GET) {
		rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_GET;
		rq.get = &ref;
	} else {
		rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE;
		rq.delete_ = &del;
	}
	return edge_call_start(edges, (size_t)at, &rq, &policy_read, &ops, it, &it->call, err);
}

static void start_more(struct each *e)
{
	struct dsec_error err;
	if (e->starting)
		return;
	e->starting = true;
	while (e->next < e->n && e->running < LIMIT_CALLS_AT_ONCE) {
		struct item *it = &e->item[e->next];
		it->each = e;
		int r = ask(e, it, e->ids[e->next++], &err);
		if (r < 0)
			tell(it, &err);
		else
			e->running++;
	}
	e->starting = false;
	if (e->running || e->next < e->n)
		return;
	const struct each_ops *ops = e->ops;
	void *user = e->user;
	each_cancel(e);
	ops->end(user);
}

int each_start(struct request *r, enum each_question question, const char *const *ids, size_t n,
	       const struct each_ops *ops, void *user, struct each **ret)
{
	struct each *e = calloc(1, sizeof(*e) + n * sizeof(e->item[0]));
	if (!e)
		return -ENOMEM;
	e->r = r;
	e->question = question;
	e->ids = ids;
	e->n = n;
	e->ops = ops;
	e->user = user;
	*ret = e; /* end sets the owner's pointer to NULL */
	start_more(e);
	return 0;
}
