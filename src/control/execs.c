/* execs.c: start, list, look at, signal and resize execs. */
#include <stdlib.h>
#include <string.h>
#include "base/id.h"
#include "control/calls.h"
#include "control/checks.h"
#include "control/exec_body.h"
#include "control/exec_stream.h"
#include "control/limits.h"
#include "control/render.h"
#include "control/resources.h"

/* False: answered. An id that cannot be one is an exec that does not exist. */
static bool exec_id_of(struct request *r, char **ret)
{
	const char *id = request_var(r, 1);
	if (!id_exec_valid(id)) {
		request_failf(r, DSEC_E_EXEC_NOT_FOUND, "there is no exec \"%.64s\"", id);
		return false;
	}
	*ret = (char *)id;
	return true;
}

/* ---- start ---- */

static void start(struct request *r, struct exec_body *b, bool wait, bool stream)
{
	Dsec__Edge__EdgeRequest rq;
	int edge = edge_of_sandbox(r, request_var(r, 0));
	if (edge < 0)
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_START;
	rq.exec_start = &b->message;
	b->message.sandbox_id = (char *)request_var(r, 0);
	b->message.follow = wait || stream;
	if (stream)
		exec_stream(r, (size_t)edge, &rq, 0, 0);
	else if (wait)
		exec_collect(r, (size_t)edge, &rq);
	else
		unary_call(r, b->message.sandbox_id, &rq, &policy_read, 201, unary_exec);
}

void handle_exec_start(struct request *r)
{
	struct exec_body b;
	struct dsec_error e;
	bool wait = false, stream = false;
	if (!request_query_bool(r, "wait", &wait) || !request_query_bool(r, "stream", &stream))
		return;
	if (wait && stream) {
		request_failf(r, DSEC_E_BAD_FIELD, "give wait or stream, not both");
		return;
	}
	if (exec_body_read(&b, request_body(r), &e) < 0)
		request_fail(r, &e, 0);
	else if (wait && b.message.output_limit > LIMIT_OUTPUT_LIMIT_WAIT_BYTES_MAX)
		request_failf(r, DSEC_E_BAD_FIELD, "output_limit_bytes is at most %d with wait=true; use stream=true",
			      LIMIT_OUTPUT_LIMIT_WAIT_BYTES_MAX);
	else if (wait && b.message.stdin_open)
		request_failf(r, DSEC_E_BAD_FIELD, "\"stdin\": \"open\" cannot go with wait=true; use stdin_b64");
	else
		start(r, &b, wait, stream);
	exec_body_done(&b);
}

/* ---- look ---- */

static json_t *render_list(const Dsec__Edge__EdgeReply *reply)
{
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_EXECS)
		return NULL;
	json_t *a = json_array();
	for (size_t i = 0; i < reply->execs->n_execs; i++)
		json_array_append_new(a, render_exec(reply->execs->execs[i]));
	return a;
}

struct exec_list {
	struct request *r;
	struct edge_call *call;
	json_t *all; /* the list may come in several parts */
};

static void list_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct exec_list *l = user;
	json_t *part = render_list(reply);
	json_array_extend(l->all, part);
	json_decref(part);
}

static void list_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct exec_list *l = user;
	l->call = NULL;
	if (e) {
		request_fail(l->r, e, retry_after_ms);
	} else {
		request_json(l->r, 200, json_pack("{s:o}", "execs", l->all));
		l->all = NULL;
	}
}

static void list_release(struct request *r)
{
	struct exec_list *l = request_state(r);
	edge_call_cancel(l->call);
	json_decref(l->all);
	free(l);
}

void handle_exec_list(struct request *r)
{
	static const struct edge_call_ops ops = { .reply = list_reply, .end = list_end };
	static const struct request_ops rops = { .release = list_release };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__SandboxRef ref = DSEC__EDGE__SANDBOX_REF__INIT;
	struct dsec_error e;
	int edge = edge_of_sandbox(r, request_var(r, 0));
	if (edge < 0)
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_LIST;
	rq.exec_list = &ref;
	ref.id = (char *)request_var(r, 0);
	struct exec_list *l = calloc(1, sizeof(*l));
	if (!l) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	l->r = r;
	l->all = json_array();
	request_set(r, &rops, l);
	if (edge_call_start(request_control(r)->edges, (size_t)edge, &rq, &policy_read, &ops, l, &l->call, &e) < 0)
		request_fail(r, &e, 0);
}

void handle_exec_get(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__ExecRef ref = DSEC__EDGE__EXEC_REF__INIT;
	Dsec__Edge__ExecWait wait = DSEC__EDGE__EXEC_WAIT__INIT;
	struct edge_call_policy policy = policy_read;
	uint64_t seconds = 0;
	char *id;
	if (!request_query_uint(r, "wait_seconds", LIMIT_WAIT_SECONDS_MAX, &seconds) || !exec_id_of(r, &id))
		return;
	edge_request_init(&rq, r);
	if (seconds) {
		rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_WAIT;
		rq.exec_wait = &wait;
		wait.timeout_ms = seconds * 1000;
		wait.sandbox_id = (char *)request_var(r, 0);
		wait.exec_id = id;
		policy.deadline_ms += wait.timeout_ms;
	} else {
		rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_GET;
		rq.exec_get = &ref;
		ref.sandbox_id = (char *)request_var(r, 0);
		ref.exec_id = id;
	}
	unary_call(r, request_var(r, 0), &rq, &policy, 200, unary_exec);
}

void handle_exec_output(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__ExecOutput out = DSEC__EDGE__EXEC_OUTPUT__INIT;
	bool follow = false;
	if (!request_query_uint(r, "stdout_offset", INT64_MAX, &out.stdout_offset) ||
	    !request_query_uint(r, "stderr_offset", INT64_MAX, &out.stderr_offset) ||
	    !request_query_bool(r, "follow", &follow) || !exec_id_of(r, &out.exec_id))
		return;
	int edge = edge_of_sandbox(r, request_var(r, 0));
	if (edge < 0)
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_OUTPUT;
	rq.exec_output = &out;
	out.sandbox_id = (char *)request_var(r, 0);
	out.follow = follow;
	exec_stream(r, (size_t)edge, &rq, out.stdout_offset, out.stderr_offset);
}

/* ---- act ---- */

void handle_exec_signal(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__ExecSignal sig = DSEC__EDGE__EXEC_SIGNAL__INIT;
	struct json_in in;
	struct dsec_error e;
	bool tree = true;
	json_in_begin(&in, request_body(r), "", &e);
	check_signal(&in, "signal", &sig.signal);
	json_in_bool(&in, "whole_tree", &tree);
	if (json_in_end(&in) < 0) {
		request_fail(r, &e, 0);
		return;
	}
	if (!exec_id_of(r, &sig.exec_id))
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_SIGNAL;
	rq.exec_signal = &sig;
	sig.sandbox_id = (char *)request_var(r, 0);
	sig.whole_tree = tree;
	unary_call(r, sig.sandbox_id, &rq, &policy_once, 200, unary_nothing);
}

void handle_exec_resize(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__ExecResize size = DSEC__EDGE__EXEC_RESIZE__INIT;
	struct json_in in;
	struct dsec_error e;
	uint64_t rows = 0, cols = 0;
	json_in_begin(&in, request_body(r), "", &e);
	json_in_uint(&in, "rows", 1, LIMIT_PTY_SIZE_MAX, &rows);
	json_in_uint(&in, "cols", 1, LIMIT_PTY_SIZE_MAX, &cols);
	if (!rows || !cols)
		json_in_fault(&in, DSEC_E_BAD_FIELD, "give rows and cols");
	if (json_in_end(&in) < 0) {
		request_fail(r, &e, 0);
		return;
	}
	if (!exec_id_of(r, &size.exec_id))
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_RESIZE;
	rq.exec_resize = &size;
	size.sandbox_id = (char *)request_var(r, 0);
	size.rows = (uint32_t)rows;
	size.cols = (uint32_t)cols;
	unary_call(r, size.sandbox_id, &rq, &policy_read, 200, unary_nothing);
}
