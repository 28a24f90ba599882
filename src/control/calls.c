/* calls.c: see calls.h. */
#include "control/calls.h"
#include <stdlib.h>
#include "base/id.h"
#include "control/render.h"

#define CALL_DEADLINE_MS 60000

const struct edge_call_policy policy_read = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS,
					      .wait_sent_ms = LIMIT_EDGE_READ_RETRY_MS,
					      .deadline_ms = CALL_DEADLINE_MS };
const struct edge_call_policy policy_once = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS,
					      .deadline_ms = CALL_DEADLINE_MS };

void edge_request_init(Dsec__Edge__EdgeRequest *rq, struct request *r)
{
	*rq = (Dsec__Edge__EdgeRequest)DSEC__EDGE__EDGE_REQUEST__INIT;
	rq->request_id = (char *)request_id(r);
	rq->project = (char *)request_project(r);
}

int edge_of_sandbox(struct request *r, const char *sandbox_id)
{
	char name[EDGE_NAME_MAX + 1];
	int at = -1;
	if (id_sandbox_edge(sandbox_id, name))
		at = edges_find(request_control(r)->edges, name);
	if (at < 0)
		request_failf(r, DSEC_E_SANDBOX_NOT_FOUND, "there is no sandbox \"%.64s\"", sandbox_id);
	return at < 0 ? -1 : at;
}

struct unary {
	struct request *r;
	struct edge_call *call; /* NULL once it ended */
	unary_render render;
	int status;
	json_t *answer;
};

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct unary *u = user;
	json_t *answer = u->render(reply); /* NULL: a message that goes along with the answer */
	if (answer) {
		json_decref(u->answer);
		u->answer = answer;
	}
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct unary *u = user;
	u->call = NULL;
	if (e) {
		request_fail(u->r, e, retry_after_ms);
	} else if (!u->answer) {
		request_failf(u->r, DSEC_E_INTERNAL, "the edge ended the call without an answer");
	} else {
		request_json(u->r, u->status, u->answer);
		u->answer = NULL;
	}
}

static void on_release(struct request *r)
{
	struct unary *u = request_state(r);
	edge_call_cancel(u->call);
	json_decref(u->answer);
	free(u);
}

void unary_call(struct request *r, const char *sandbox_id, const Dsec__Edge__EdgeRequest *rq,
		const struct edge_call_policy *policy, int status, unary_render render)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	static const struct request_ops rops = { .release = on_release };
	struct dsec_error e;
	int at = edge_of_sandbox(r, sandbox_id);
	if (at < 0)
		return;
	struct unary *u = calloc(1, sizeof(*u));
	if (!u) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	u->r = r;
	u->render = render;
	u->status = status;
	request_set(r, &rops, u);
	if (edge_call_start(request_control(r)->edges, (size_t)at, rq, policy, &ops, u, &u->call, &e) < 0)
		request_fail(r, &e, 0);
}

json_t *unary_sandbox(const Dsec__Edge__EdgeReply *reply)
{
	return reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOX ? render_sandbox(reply->sandbox) : NULL;
}

json_t *unary_exec(const Dsec__Edge__EdgeReply *reply)
{
	return reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_EXEC ? render_exec(reply->exec) : NULL;
}

json_t *unary_nothing(const Dsec__Edge__EdgeReply *reply)
{
	return json_object();
}
