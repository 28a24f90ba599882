/* sandboxes.c: get, delete and ttl of one sandbox. create.c and list.c have the rest. */
#include <string.h>
#include "control/calls.h"
#include "control/json_in.h"
#include "control/resources.h"

void handle_sandbox_get(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__SandboxRef ref = DSEC__EDGE__SANDBOX_REF__INIT;
	Dsec__Edge__Watch watch = DSEC__EDGE__WATCH__INIT;
	struct edge_call_policy policy = policy_read;
	uint64_t seconds = 0;
	const char *until = request_query(r, "until");
	if (!request_query_uint(r, "wait_seconds", LIMIT_WAIT_SECONDS_MAX, &seconds))
		return;
	if (until && strcmp(until, "running") && strcmp(until, "stopped")) {
		request_failf(r, DSEC_E_BAD_FIELD, "the parameter until must be running or stopped");
		return;
	}
	edge_request_init(&rq, r);
	if (seconds) {
		rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_WATCH;
		rq.watch = &watch;
		watch.id = (char *)request_var(r, 0);
		watch.until = (char *)(until ? until : "stopped");
		watch.timeout_ms = seconds * 1000;
		policy.deadline_ms += watch.timeout_ms;
	} else {
		rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_GET;
		rq.get = &ref;
		ref.id = (char *)request_var(r, 0);
	}
	unary_call(r, request_var(r, 0), &rq, &policy, 200, unary_sandbox);
}

void handle_sandbox_delete(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__Delete del = DSEC__EDGE__DELETE__INIT;
	bool wait = false;
	if (!request_query_bool(r, "wait", &wait))
		return;
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE;
	rq.delete_ = &del;
	del.id = (char *)request_var(r, 0);
	del.wait = wait;
	unary_call(r, del.id, &rq, &policy_read, 200, unary_sandbox);
}

void handle_sandbox_ttl(struct request *r)
{
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__SetTtl ttl = DSEC__EDGE__SET_TTL__INIT;
	struct dsec_error e;
	struct json_in in;
	json_in_begin(&in, request_body(r), "", &e);
	ttl.set_ttl = json_object_get(request_body(r), "ttl_seconds") != NULL;
	ttl.set_idle = json_object_get(request_body(r), "idle_ttl_seconds") != NULL;
	json_in_milli(&in, "ttl_seconds", LIMIT_TTL_SECONDS_MIN * 1000u, LIMIT_TTL_SECONDS_MAX * 1000u, &ttl.ttl_ms);
	json_in_milli(&in, "idle_ttl_seconds", 0, LIMIT_IDLE_TTL_SECONDS_MAX * 1000u, &ttl.idle_ttl_ms);
	if (!ttl.set_ttl && !ttl.set_idle)
		json_in_fault(&in, DSEC_E_BAD_FIELD, "give ttl_seconds, idle_ttl_seconds or both");
	if (json_in_end(&in) < 0) {
		request_fail(r, &e, 0);
		return;
	}
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_SET_TTL;
	rq.set_ttl = &ttl;
	ttl.id = (char *)request_var(r, 0);
	unary_call(r, ttl.id, &rq, &policy_read, 200, unary_sandbox);
}
