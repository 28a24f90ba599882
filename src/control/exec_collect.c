/* exec_collect.c: POST .../execs?wait=true: one answer with the result and all
 * output that was kept.
 *
 * Output is encoded as it comes, so a call holds the base64 text and nothing
 * else: at most 4/3 of twice LIMIT_OUTPUT_LIMIT_WAIT_BYTES_MAX.
 */
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/exec_stream.h"
#include "control/limits.h"
#include "control/render.h"

/* Base64 of a stream in pieces: up to two bytes wait for their third. */
struct encoded {
	struct buf text;
	uint8_t rest[3];
	size_t n_rest;
};

struct collect {
	struct request *r;
	struct edge_call *call;
	struct encoded out[2]; /* stdout, stderr */
	json_t *exec;          /* the last word on it */
	bool finished, failed;
};

static int encode_more(struct encoded *e, const uint8_t *p, size_t n)
{
	while (n && e->n_rest) {
		e->rest[e->n_rest++] = *p++;
		n--;
		if (e->n_rest == 3) {
			e->n_rest = 0;
			int r = base64_encode(e->rest, 3, &e->text);
			if (r)
				return r;
		}
	}
	size_t whole = n - n % 3;
	int r = whole ? base64_encode(p, whole, &e->text) : 0;
	if (n > whole) {
		memcpy(e->rest, p + whole, n - whole);
		e->n_rest = n - whole;
	}
	return r;
}

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct collect *w = user;
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_EXEC)
		return;
	json_decref(w->exec);
	w->exec = render_exec(reply->exec);
	w->finished = !strcmp(reply->exec->state, "finished") || !strcmp(reply->exec->state, "failed");
}

static void on_data(struct edge_call *c, uint8_t channel, const uint8_t *p, size_t n, void *user)
{
	struct collect *w = user;
	edge_call_consume(c, n);
	if ((channel == 1 || channel == 2) && encode_more(&w->out[channel - 1], p, n))
		w->failed = true;
}

/* The exec's JSON without its last brace, then both outputs: jansson never sees
 * the megabytes. */
static int join(struct collect *w, struct buf *out)
{
	int r = render_json(w->exec, out);
	if (r)
		return r;
	out->tail -= 2; /* "}\n" */
	for (int i = 0; i < 2 && !r; i++) {
		struct encoded *e = &w->out[i];
		r = buf_printf(out, ",\"%s_b64\":\"", i ? "stderr" : "stdout");
		if (r >= 0)
			r = base64_encode(e->rest, e->n_rest, &e->text);
		if (!r && buf_len(&e->text))
			r = buf_append(out, buf_ptr(&e->text), buf_len(&e->text));
		if (!r)
			r = buf_append(out, "\"", 1);
		buf_done(&e->text);
	}
	return r ? r : buf_append(out, "}\n", 2);
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct collect *w = user;
	_cleanup_buf_ struct buf out = BUF_INIT(0);
	w->call = NULL;
	if (e)
		request_fail(w->r, e, retry_after_ms);
	else if (!w->finished || !w->exec)
		request_failf(w->r, DSEC_E_SANDBOX_LOST, "the edge ended the call without a result");
	else if (w->failed || join(w, &out))
		request_failf(w->r, DSEC_E_CAPACITY, "out of memory for the output; use stream=true");
	else
		request_text(w->r, 200, "application/json", &out);
}

static void on_release(struct request *r)
{
	struct collect *w = request_state(r);
	edge_call_cancel(w->call);
	buf_done(&w->out[0].text);
	buf_done(&w->out[1].text);
	json_decref(w->exec);
	free(w);
}

void exec_collect(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .data = on_data, .end = on_end };
	static const struct request_ops rops = { .release = on_release };
	static const struct edge_call_policy policy = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS,
							.wait_sent_ms = LIMIT_EDGE_READ_RETRY_MS };
	struct dsec_error e;
	struct collect *w = calloc(1, sizeof(*w));
	if (!w) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	w->r = r;
	request_set(r, &rops, w);
	if (edge_call_start(request_control(r)->edges, edge, rq, &policy, &ops, w, &w->call, &e) < 0)
		request_fail(r, &e, 0);
}
