/* exec_stdin.c: POST .../stdin: the body streamed into a program's input.
 *
 * Without `offset` the bytes go behind what was given so far: the exec is asked
 * for its offset first, and the body waits unread until that is known.
 */
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/id.h"
#include "control/calls.h"
#include "control/limits.h"
#include "control/resources.h"

struct input {
	struct request *r;
	size_t edge;
	struct edge_call *call;
	bool sending; /* the call is the upload; else the question for the offset */
	bool eof, whole;
	uint64_t offset;
	json_t *answer;
};

static void start_upload(struct input *in);

static void up_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct input *in = user;
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_STDIN_DONE)
		return;
	json_decref(in->answer);
	in->answer = json_pack("{s:I, s:b}", "offset", (json_int_t)reply->stdin_done->offset, "closed",
			       (int)reply->stdin_done->closed);
}

static void up_writable(struct edge_call *c, void *user)
{
	request_body_more(((struct input *)user)->r);
}

static void up_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct input *in = user;
	in->call = NULL;
	if (e)
		request_fail(in->r, e, retry_after_ms);
	else if (!in->answer)
		request_failf(in->r, DSEC_E_INTERNAL, "the edge ended the call without an answer");
	else
		request_json(in->r, 200, TAKE_PTR(in->answer));
}

static void ask_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct input *in = user;
	if (reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_EXEC)
		in->offset = reply->exec->stdin_offset;
}

static void ask_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct input *in = user;
	in->call = NULL;
	if (e)
		request_fail(in->r, e, retry_after_ms);
	else
		start_upload(in);
}

static void start_upload(struct input *in)
{
	static const struct edge_call_ops ops = { .reply = up_reply, .writable = up_writable, .end = up_end };
	static const struct edge_call_policy policy = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS, .upload = true };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__ExecStdin m = DSEC__EDGE__EXEC_STDIN__INIT;
	struct dsec_error e;
	edge_request_init(&rq, in->r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_STDIN;
	rq.exec_stdin = &m;
	m.sandbox_id = (char *)request_var(in->r, 0);
	m.exec_id = (char *)request_var(in->r, 1);
	m.offset = in->offset;
	m.eof = in->eof;
	in->sending = true;
	if (edge_call_start(request_control(in->r)->edges, in->edge, &rq, &policy, &ops, in, &in->call, &e) < 0) {
		in->call = NULL;
		request_fail(in->r, &e, 0);
		return;
	}
	if (in->whole)
		edge_call_send_end(in->call);
	else
		request_body_more(in->r);
}

static void ask_offset(struct input *in)
{
	static const struct edge_call_ops ops = { .reply = ask_reply, .end = ask_end };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__ExecRef ref = DSEC__EDGE__EXEC_REF__INIT;
	struct dsec_error e;
	edge_request_init(&rq, in->r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_GET;
	rq.exec_get = &ref;
	ref.sandbox_id = (char *)request_var(in->r, 0);
	ref.exec_id = (char *)request_var(in->r, 1);
	if (edge_call_start(request_control(in->r)->edges, in->edge, &rq, &policy_read, &ops, in, &in->call, &e) < 0)
		request_fail(in->r, &e, 0);
}

static size_t on_body(struct request *r, const uint8_t *p, size_t n)
{
	struct input *in = request_state(r);
	if (!in->call)
		return n;
	return in->sending ? edge_call_send(in->call, p, n) : 0;
}

static void on_body_end(struct request *r)
{
	struct input *in = request_state(r);
	in->whole = true;
	if (in->call && in->sending)
		edge_call_send_end(in->call);
}

static void on_release(struct request *r)
{
	struct input *in = request_state(r);
	edge_call_cancel(in->call);
	json_decref(in->answer);
	free(in);
}

void handle_exec_stdin(struct request *r)
{
	static const struct request_ops ops = { .body = on_body, .body_end = on_body_end, .release = on_release };
	bool eof = false;
	uint64_t offset = 0;
	if (!request_query_bool(r, "eof", &eof) || !request_query_uint(r, "offset", INT64_MAX, &offset))
		return;
	if (!id_exec_valid(request_var(r, 1))) {
		request_failf(r, DSEC_E_EXEC_NOT_FOUND, "there is no exec \"%.64s\"", request_var(r, 1));
		return;
	}
	int edge = edge_of_sandbox(r, request_var(r, 0));
	if (edge < 0)
		return;
	struct input *in = calloc(1, sizeof(*in));
	if (!in) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	in->r = r;
	in->edge = (size_t)edge;
	in->eof = eof;
	in->offset = offset;
	request_set(r, &ops, in);
	if (request_query(r, "offset"))
		start_upload(in);
	else
		ask_offset(in);
}
