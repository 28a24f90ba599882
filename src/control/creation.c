/* creation.c: see creation.h. */
#include "control/creation.h"
#include <errno.h>
#include <stdlib.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/layer_jobs.h"
#include "control/placement.h"

struct creation {
	struct control *ctl;
	const struct create_body *body; /* NULL: abandoned */
	creation_done done;
	void *user;
	char digest[STORE_DIGEST_LEN + 1]; /* held */
	char id[SANDBOX_ID_MAX + 1];
	char project[NAME_MAX_LEN + 1];
	char request_id[LIMIT_REQUEST_ID_MAX + 1];
	char key[IDEMPOTENCY_KEY_MAX + 1]; /* "": none */
	struct edge_call *call;
	size_t *order, n_order, next; /* edges to ask, best first */
	size_t edge;                  /* the one being asked */
	struct dsec_error refusal;
	uint32_t retry_after_ms;
	json_t *answer;
	bool adopted;
};

static void creation_free(struct creation *c)
{
	layer_unhold(c->ctl, c->digest);
	json_decref(c->answer);
	free(c->order);
	free(c);
}

/* ---- deleting what nobody waits for ---- */

static void ignore_reply(struct edge_call *call, const Dsec__Edge__EdgeReply *reply, void *user)
{
}

static void ignore_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
}

void creation_undo(struct control *ctl, const char *project, size_t edge, const char *id)
{
	static const struct edge_call_ops ops = { .reply = ignore_reply, .end = ignore_end };
	Dsec__Edge__EdgeRequest rq = DSEC__EDGE__EDGE_REQUEST__INIT;
	Dsec__Edge__Delete del = DSEC__EDGE__DELETE__INIT;
	struct edge_call *call;
	rq.project = (char *)project;
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE;
	rq.delete_ = &del;
	del.id = (char *)id;
	/* If even this fails the sandbox's lifetime ends it. */
	edge_call_start(ctl->edges, edge, &rq, &policy_read, &ops, NULL, &call, NULL);
}

/* ---- asking edges ---- */

static bool is_refusal(enum dsec_code code)
{
	return code == DSEC_E_CAPACITY || code == DSEC_E_OVERLOADED;
}

static void on_reply(struct edge_call *call, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct creation *c = user;
	json_decref(c->answer);
	c->answer = unary_sandbox(reply);
	c->adopted = c->answer && *c->key && reply->sandbox->adopted;
}

static void finish(struct creation *c, const struct dsec_error *e, uint32_t retry_after_ms)
{
	struct creation_result result = { e, retry_after_ms, c->answer, c->adopted, c->id, c->edge };
	c->done(&result, c->user);
	creation_free(c);
}

static int try_next(struct creation *c, struct dsec_error *e);

static void on_end(const struct dsec_error *end, uint32_t retry_after_ms, void *user)
{
	struct creation *c = user;
	struct dsec_error e;
	c->call = NULL;
	edges_pending_add(c->ctl->edges, c->edge, -1);
	bool unclear = end && (end->code == DSEC_E_EDGE_UNAVAILABLE || end->code == DSEC_E_DEADLINE);
	/* made or perhaps made, and no one to use it */
	if ((unclear || (!end && !c->body)) && !*c->key)
		creation_undo(c->ctl, c->project, c->edge, c->id);
	if (!c->body) {
		creation_free(c);
	} else if (end && is_refusal(end->code)) {
		c->refusal = *end;
		c->retry_after_ms = MAX(c->retry_after_ms, retry_after_ms);
		if (try_next(c, &e) < 0)
			finish(c, &e, c->retry_after_ms);
	} else if (!end && !c->answer) {
		dsec_error_set(&e, 0, DSEC_E_INTERNAL, "the edge ended the call without an answer");
		finish(c, &e, 0);
	} else {
		finish(c, end, retry_after_ms);
	}
}

static int ask(struct creation *c, size_t edge, struct dsec_error *e)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	static const struct edge_call_policy policy = { .wait_sent_ms = LIMIT_EDGE_CREATE_DEADLINE_MS / 3,
							.deadline_ms = LIMIT_EDGE_CREATE_DEADLINE_MS };
	Dsec__Edge__EdgeRequest rq = DSEC__EDGE__EDGE_REQUEST__INIT;
	Dsec__Edge__Create message = c->body->message;
	const char *name = edges_name(c->ctl->edges, edge);
	if (*c->key)
		idempotency_id(c->ctl->idempotency_secret, c->project, c->key, name, c->id);
	else
		id_sandbox(name, c->id);
	message.id = c->id;
	rq.request_id = c->request_id;
	rq.project = c->project;
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_CREATE;
	rq.create = &message;
	c->edge = edge;
	return edge_call_start(c->ctl->edges, edge, &rq, &policy, &ops, c, &c->call, e);
}

static int try_next(struct creation *c, struct dsec_error *e)
{
	while (c->next < c->n_order) {
		size_t edge = c->order[c->next++];
		if (ask(c, edge, &c->refusal) == 0) {
			edges_pending_add(c->ctl->edges, edge, 1);
			return 0;
		}
	}
	/* Every edge said no: one code for that, with the last one's words. */
	bool away = c->refusal.code == DSEC_E_EDGE_UNAVAILABLE;
	return dsec_error_set(e, -EBUSY, away ? DSEC_E_EDGE_UNAVAILABLE : DSEC_E_CAPACITY,
			      "no edge takes another sandbox now: %.300s", c->refusal.message);
}

static int refuse_placement(const struct creation *c, const struct placement_result *p, struct dsec_error *e)
{
	const Dsec__Edge__Create *m = &c->body->message;
	if (!p->connected)
		return dsec_error_set(e, -EHOSTUNREACH, DSEC_E_EDGE_UNAVAILABLE, "no edge can be reached at the moment");
	if (p->too_small == p->connected && (uint64_t)m->cpu_millis > (uint64_t)p->max_cpus * 1000)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "cpu is %g, but no edge has more than %u cores",
				      m->cpu_millis / 1000.0, p->max_cpus);
	if (p->too_small == p->connected)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "memory_mb is %llu, but no edge has more than %llu",
				      (unsigned long long)(m->memory_bytes >> 20),
				      (unsigned long long)(p->max_memory >> 20));
	return dsec_error_set(e, -EBUSY, DSEC_E_CAPACITY, "every edge is full at the moment");
}

/* The one edge of a key. It is asked also when it is full: it may have the sandbox. */
static void order_by_key(struct creation *c)
{
	uint64_t best = 0;
	for (size_t i = 0; i < edges_count(c->ctl->edges); i++) {
		uint64_t w = idempotency_weight(c->ctl->idempotency_secret, c->project, c->key,
						edges_name(c->ctl->edges, i));
		if (!i || w > best) {
			best = w;
			c->order[0] = i;
			c->n_order = 1;
		}
	}
}

static int place(struct creation *c, struct dsec_error *e)
{
	size_t n = edges_count(c->ctl->edges);
	struct placement_result result;
	struct placement_need need = { c->body->message.cpu_millis, c->body->message.memory_bytes };
	_cleanup_free_ struct placement_edge *view = calloc(n + 1, sizeof(*view));
	c->order = calloc(n + 1, sizeof(*c->order));
	if (!view || !c->order)
		return dsec_error_set(e, -ENOMEM, DSEC_E_CAPACITY, "out of memory");
	edges_snapshot(c->ctl->edges, view);
	placement_order(view, n, &need, &c->ctl->seed, c->order, &result);
	c->n_order = result.n;
	if (*c->key && (!result.connected || result.too_small < result.connected))
		order_by_key(c);
	return c->n_order ? try_next(c, e) : refuse_placement(c, &result, e);
}

int creation_start(struct control *ctl, const struct creation_request *q, creation_done done, void *user,
		   struct creation **ret, struct dsec_error *e)
{
	struct creation *c = calloc(1, sizeof(*c));
	if (!c)
		return dsec_error_set(e, -ENOMEM, DSEC_E_CAPACITY, "out of memory");
	int r = layer_hold(ctl, q->body->digest);
	if (r < 0) {
		free(c);
		return dsec_error_set(e, r, DSEC_E_ENV_NOT_FOUND, "the environment \"%s\" is being removed",
				      q->body->environment);
	}
	c->ctl = ctl;
	c->body = q->body;
	c->done = done;
	c->user = user;
	snprintf(c->digest, sizeof(c->digest), "%s", q->body->digest);
	snprintf(c->project, sizeof(c->project), "%s", q->project);
	snprintf(c->request_id, sizeof(c->request_id), "%s", q->request_id);
	snprintf(c->key, sizeof(c->key), "%s", q->key);
	r = place(c, e);
	if (r < 0) {
		creation_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void creation_abandon(struct creation *c)
{
	if (c)
		c->body = NULL;
}
