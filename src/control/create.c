/* create.c: POST /v1/sandboxes: placement, and one edge after the other.
 *
 * The id is made here, since it names the edge; asking an edge twice for one id
 * gives one sandbox. So after a broken connection the same edge is asked the same
 * again (edge_client does it). An edge that refuses for want of room leads to the
 * next choice with a new id. When the client leaves before the answer, nobody
 * knows the id: the call goes on alone and what it made is deleted.
 *
 * With an idempotency key there is one edge and one id (idempotency.h), and what
 * was made without an answer stays: the client comes back for it with its key, or
 * its lifetime ends it.
 */
#include <stdlib.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/create_body.h"
#include "control/idempotency.h"
#include "control/layer_jobs.h"
#include "control/placement.h"
#include "control/render.h"
#include "control/resources.h"

struct create {
	struct control *ctl;
	struct request *r; /* NULL: the client left */
	struct create_body body;
	char id[SANDBOX_ID_MAX + 1];
	char project[NAME_MAX_LEN + 1];
	char key[LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX + 1]; /* "": none */
	struct edge_call *call;
	size_t *order, n_order, next; /* edges to ask, best first */
	size_t edge;                  /* the one being asked */
	struct dsec_error refusal;
	uint32_t retry_after_ms;
	json_t *answer;
	bool adopted; /* the answer's sandbox was there before */
	bool held;
};

static void create_free(struct create *c)
{
	if (c->held)
		layer_unhold(c->ctl, c->body.digest);
	create_body_done(&c->body);
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

static void delete_orphan(struct create *c)
{
	static const struct edge_call_ops ops = { .reply = ignore_reply, .end = ignore_end };
	Dsec__Edge__EdgeRequest rq = DSEC__EDGE__EDGE_REQUEST__INIT;
	Dsec__Edge__Delete del = DSEC__EDGE__DELETE__INIT;
	struct edge_call *call;
	rq.project = c->project;
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE;
	rq.delete_ = &del;
	del.id = c->id;
	/* If even this fails the sandbox's lifetime ends it. */
	edge_call_start(c->ctl->edges, c->edge, &rq, &policy_read, &ops, NULL, &call, NULL);
}

/* ---- asking edges ---- */

static void try_next(struct create *c);

static bool is_refusal(enum dsec_code code)
{
	return code == DSEC_E_CAPACITY || code == DSEC_E_OVERLOADED;
}

static void on_reply(struct edge_call *call, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct create *c = user;
	json_decref(c->answer);
	c->answer = unary_sandbox(reply);
	c->adopted = c->answer && *c->key && reply->sandbox->adopted;
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct create *c = user;
	c->call = NULL;
	edges_pending_add(c->ctl->edges, c->edge, -1);
	bool unclear = e && (e->code == DSEC_E_EDGE_UNAVAILABLE || e->code == DSEC_E_DEADLINE);
	if (!c->r || unclear) {
		/* made or perhaps made, and no one to use it */
		if ((!e || unclear) && !*c->key)
			delete_orphan(c);
		if (!c->r) {
			create_free(c);
			return;
		}
	}
	if (e && is_refusal(e->code)) {
		c->refusal = *e;
		c->retry_after_ms = MAX(c->retry_after_ms, retry_after_ms);
		try_next(c);
	} else if (e) {
		request_fail(c->r, e, retry_after_ms);
	} else if (!c->answer) {
		request_failf(c->r, DSEC_E_INTERNAL, "the edge ended the call without an answer");
	} else {
		request_json(c->r, c->adopted ? 200 : 201, TAKE_PTR(c->answer));
	}
}

static int ask(struct create *c, size_t edge, struct dsec_error *e)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	static const struct edge_call_policy policy = { .wait_sent_ms = LIMIT_EDGE_CREATE_DEADLINE_MS / 3,
							.deadline_ms = LIMIT_EDGE_CREATE_DEADLINE_MS };
	Dsec__Edge__EdgeRequest rq;
	edge_request_init(&rq, c->r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_CREATE;
	rq.create = &c->body.message;
	if (*c->key)
		idempotency_id(c->ctl->idempotency_secret, c->project, c->key,
			       edges_name(c->ctl->edges, edge), c->id);
	else
		id_sandbox(edges_name(c->ctl->edges, edge), c->id);
	c->body.message.id = c->id;
	c->edge = edge;
	return edge_call_start(c->ctl->edges, edge, &rq, &policy, &ops, c, &c->call, e);
}

static void try_next(struct create *c)
{
	while (c->next < c->n_order) {
		size_t edge = c->order[c->next++];
		if (ask(c, edge, &c->refusal) == 0) {
			edges_pending_add(c->ctl->edges, edge, 1);
			return;
		}
	}
	/* Every edge said no: one code for that, with the last one's words. */
	struct dsec_error e;
	bool away = c->refusal.code == DSEC_E_EDGE_UNAVAILABLE;
	dsec_error_set(&e, 0, away ? DSEC_E_EDGE_UNAVAILABLE : DSEC_E_CAPACITY,
		       "no edge takes another sandbox now: %.300s", c->refusal.message);
	request_fail(c->r, &e, c->retry_after_ms);
}

static void refuse_placement(struct create *c, const struct placement_result *p)
{
	const Dsec__Edge__Create *m = &c->body.message;
	if (!p->connected)
		request_failf(c->r, DSEC_E_EDGE_UNAVAILABLE, "no edge can be reached at the moment");
	else if (p->too_small == p->connected && (uint64_t)m->cpu_millis > (uint64_t)p->max_cpus * 1000)
		request_failf(c->r, DSEC_E_BAD_FIELD, "cpu is %g, but no edge has more than %u cores",
			      m->cpu_millis / 1000.0, p->max_cpus);
	else if (p->too_small == p->connected)
		request_failf(c->r, DSEC_E_BAD_FIELD, "memory_mb is %llu, but no edge has more than %llu",
			      (unsigned long long)(m->memory_bytes >> 20), (unsigned long long)(p->max_memory >> 20));
	else
		request_failf(c->r, DSEC_E_CAPACITY, "every edge is full at the moment");
}

/* The one edge of a key. It is asked also when it is full: it may have the sandbox. */
static void order_by_key(struct create *c)
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

static void place(struct create *c)
{
	size_t n = edges_count(c->ctl->edges);
	struct placement_result result;
	struct placement_need need = { c->body.message.cpu_millis, c->body.message.memory_bytes };
	_cleanup_free_ struct placement_edge *view = calloc(n + 1, sizeof(*view));
	c->order = calloc(n + 1, sizeof(*c->order));
	if (!view || !c->order) {
		request_failf(c->r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	edges_snapshot(c->ctl->edges, view);
	placement_order(view, n, &need, &c->ctl->seed, c->order, &result);
	c->n_order = result.n;
	if (*c->key && (!result.connected || result.too_small < result.connected))
		order_by_key(c);
	if (!c->n_order)
		refuse_placement(c, &result);
	else
		try_next(c);
}

static void on_release(struct request *r)
{
	struct create *c = request_state(r);
	c->r = NULL;
	if (!c->call)
		create_free(c);
}

static int take_key(struct create *c, struct dsec_error *e)
{
	struct create_body *b = &c->body;
	const char *key;
	int r = idempotency_choose(b->idempotency_key, request_header_in(c->r, "Idempotency-Key"), &key, e);
	if (r || !key)
		return r;
	snprintf(c->key, sizeof(c->key), "%s", key);
	r = idempotency_hash(request_body(c->r), b->hash);
	if (r)
		return dsec_error_errno(e, r, "idempotency key");
	b->message.body_hash = (ProtobufCBinaryData){ sizeof(b->hash), b->hash };
	return 0;
}

void handle_sandbox_create(struct request *r)
{
	static const struct request_ops ops = { .release = on_release };
	struct dsec_error e;
	struct create *c = calloc(1, sizeof(*c));
	if (!c) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	c->ctl = request_control(r);
	c->r = r;
	snprintf(c->project, sizeof(c->project), "%s", request_project(r));
	request_set(r, &ops, c);
	if (create_body_read(&c->body, c->ctl, request_body(r), &e) < 0 || take_key(c, &e) < 0) {
		request_fail(r, &e, 0);
	} else if (layer_hold(c->ctl, c->body.digest) < 0) {
		request_failf(r, DSEC_E_ENV_NOT_FOUND, "the environment \"%s\" is being removed",
			      c->body.environment);
	} else {
		c->held = true;
		place(c);
	}
}
