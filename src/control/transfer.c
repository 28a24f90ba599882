/* transfer.c: see transfer.h. */
#include "control/transfer.h"
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/limits.h"
#include "control/render.h"

/* Never sent twice: the body is not kept. */
static const struct edge_call_policy policy_upload = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS, .upload = true };
static const struct edge_call_policy policy_download = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS,
							 .wait_sent_ms = LIMIT_EDGE_READ_RETRY_MS };

/* ---- upload ---- */

struct upload {
	struct request *r;
	struct edge_call *call; /* NULL once it ended */
	unary_render render;
	int status;
	json_t *answer;
	json_t *path; /* goes into the answer; NULL: no */
	bool whole;   /* the body came to its end */
};

static void up_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct upload *u = user;
	json_t *answer = u->render(reply);
	if (answer) {
		json_decref(u->answer);
		u->answer = answer;
	}
}

static void up_writable(struct edge_call *c, void *user)
{
	request_body_more(((struct upload *)user)->r);
}

static void up_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct upload *u = user;
	u->call = NULL;
	if (e) {
		request_fail(u->r, e, retry_after_ms);
	} else if (!u->answer) {
		request_failf(u->r, DSEC_E_INTERNAL, "the edge ended the call without an answer");
	} else {
		if (u->path)
			json_object_set(u->answer, "path", u->path);
		request_json(u->r, u->status, TAKE_PTR(u->answer));
	}
}

static size_t up_body(struct request *r, const uint8_t *p, size_t n)
{
	struct upload *u = request_state(r);
	return u->call ? edge_call_send(u->call, p, n) : n;
}

static void up_body_end(struct request *r)
{
	struct upload *u = request_state(r);
	u->whole = true;
	if (u->call)
		edge_call_send_end(u->call);
}

static void up_release(struct request *r)
{
	struct upload *u = request_state(r);
	edge_call_cancel(u->call);
	json_decref(u->answer);
	json_decref(u->path);
	free(u);
}

static void upload(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, int status,
		   unary_render render, json_t *path_take)
{
	static const struct edge_call_ops ops = { .reply = up_reply, .writable = up_writable, .end = up_end };
	static const struct request_ops rops = { .body = up_body, .body_end = up_body_end, .release = up_release };
	struct dsec_error e;
	struct upload *u = calloc(1, sizeof(*u));
	if (!u) {
		json_decref(path_take);
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	u->r = r;
	u->render = render;
	u->status = status;
	u->path = path_take;
	request_set(r, &rops, u);
	if (edge_call_start(request_control(r)->edges, edge, rq, &policy_upload, &ops, u, &u->call, &e) < 0)
		request_fail(r, &e, 0);
}

void transfer_upload(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, int status,
		     unary_render render)
{
	upload(r, edge, rq, status, render, NULL);
}

void transfer_upload_path(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq,
			  unary_render render, const char *path)
{
	upload(r, edge, rq, 200, render, render_text(path, strlen(path)));
}

/* ---- download ---- */

struct download {
	struct request *r;
	struct edge_call *call;
	const char *type;
	bool begun, done;
	size_t owed; /* credit not yet given back */
};

static void down_begin(struct download *d, const Dsec__Edge__FileEntry *stat)
{
	char text[32];
	if (d->begun)
		return;
	d->begun = true;
	if (stat) {
		snprintf(text, sizeof(text), "%llu", (unsigned long long)stat->size);
		request_header(d->r, "X-Dsec-Size", text);
		snprintf(text, sizeof(text), "%04o", stat->mode & 07777);
		request_header(d->r, "X-Dsec-Mode", text);
	}
	request_stream(d->r, 200, d->type);
}

static void down_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct download *d = user;
	if (reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_STAT)
		down_begin(d, reply->stat);
	else if (reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_FILE_DONE)
		d->done = true;
}

static void down_data(struct edge_call *c, uint8_t channel, const uint8_t *p, size_t n, void *user)
{
	struct download *d = user;
	d->owed += n;
	down_begin(d, NULL);
	request_write(d->r, p, n);
}

static void down_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct download *d = user;
	d->call = NULL;
	if (!d->begun && e) {
		request_fail(d->r, e, retry_after_ms);
		return;
	}
	down_begin(d, NULL);
	/* Bytes have no place for an error: the body is cut, and the client sees that
	 * the last chunk is missing. */
	if (e || !d->done)
		request_abort(d->r);
	else
		request_stream_end(d->r);
}

static void down_drained(struct request *r, size_t unsent)
{
	struct download *d = request_state(r);
	if (unsent > TRANSFER_LOW || !d->call)
		return;
	edge_call_consume(d->call, d->owed);
	d->owed = 0;
}

static void down_release(struct request *r)
{
	struct download *d = request_state(r);
	edge_call_cancel(d->call);
	free(d);
}

void transfer_download(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, const char *type)
{
	static const struct edge_call_ops ops = { .reply = down_reply, .data = down_data, .end = down_end };
	static const struct request_ops rops = { .drained = down_drained, .release = down_release };
	struct dsec_error e;
	struct download *d = calloc(1, sizeof(*d));
	if (!d) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	d->r = r;
	d->type = type;
	request_set(r, &rops, d);
	if (edge_call_start(request_control(r)->edges, edge, rq, &policy_download, &ops, d, &d->call, &e) < 0)
		request_fail(r, &e, 0);
}
