/* exec_stream.c: see exec_stream.h.
 *
 * The formats are docs/api.md's. A stream always ends with an exit or an error
 * event: when the edge goes away in the middle, with an error. Only a stream that
 * was asked not to follow may end without one, after the last kept byte.
 */
#include "control/exec_stream.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "control/calls.h"
#include "control/limits.h"
#include "control/render.h"

enum frame { FRAME_STDOUT = 1, FRAME_STDERR = 2, FRAME_EVENT = 3, FRAME_KEEPALIVE = 4 };

#define TYPE_FRAMES "application/vnd.dsec.frames"
#define TYPE_LINES "application/x-ndjson"
#define TICK_MS 1000

struct stream {
	struct request *r;
	struct edge_call *call; /* NULL once it ended */
	struct streams *all;
	struct stream *prev, *next;
	bool lines;      /* JSON lines, else frames */
	bool begun;      /* status and headers are out */
	bool over;       /* exit or error event is out */
	bool follow;
	uint64_t offset[3]; /* by channel: of the next byte */
	size_t owed;     /* credit not yet given back */
	uint64_t last_ms;
};

struct streams {
	uv_timer_t timer;
	struct stream *first;
};

/* ---- writing ---- */

static void put_frame(struct stream *s, enum frame type, const void *p, size_t n)
{
	uint8_t head[5] = { (uint8_t)type };
	uint32_t len = htonl((uint32_t)n);
	memcpy(head + 1, &len, 4);
	request_write(s->r, head, sizeof(head));
	if (n)
		request_write(s->r, p, n);
	s->last_ms = now_mono_ms();
}

/* Takes the reference. */
static void put_event(struct stream *s, json_t *event)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	if (!event || render_json(event, &b)) {
		request_abort(s->r);
	} else if (s->lines) {
		request_write(s->r, buf_ptr(&b), buf_len(&b));
		s->last_ms = now_mono_ms();
	} else {
		put_frame(s, FRAME_EVENT, buf_ptr(&b), buf_len(&b) - 1); /* without the newline */
	}
	json_decref(event);
}

static void put_data_line(struct stream *s, uint8_t channel, const uint8_t *p, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	if (buf_printf(&b, "{\"stream\":\"%s\",\"offset\":%llu,\"b64\":\"", channel == 2 ? "stderr" : "stdout",
		       (unsigned long long)s->offset[channel]) < 0 ||
	    base64_encode(p, n, &b) || buf_append(&b, "\"}\n", 3)) {
		request_abort(s->r);
		return;
	}
	request_write(s->r, buf_ptr(&b), buf_len(&b));
	s->last_ms = now_mono_ms();
}

static void begin(struct stream *s)
{
	if (s->begun)
		return;
	s->begun = true;
	s->last_ms = now_mono_ms();
	request_header(s->r, "X-Accel-Buffering", "no"); /* proxies must not hold frames back */
	request_stream(s->r, 200, s->lines ? TYPE_LINES : TYPE_FRAMES);
}

static void put_error(struct stream *s, const struct dsec_error *e)
{
	json_t *err = render_error(e);
	json_object_set_new(err, "request_id", json_string(request_id(s->r)));
	put_event(s, json_pack("{s:s, s:o}", "event", "error", "error", err));
	s->over = true;
}

/* ---- the edge's answers ---- */

static void on_exec(struct stream *s, const Dsec__Edge__Exec *x)
{
	bool finished = !strcmp(x->state, "finished") || !strcmp(x->state, "failed");
	if (s->over)
		return;
	if (!s->begun) {
		begin(s);
		put_event(s, json_pack("{s:s, s:o}", "event", "started", "exec", render_exec(x)));
		if (!finished)
			return;
		/* The first answer tells an exec that is over: its output is yet to come. */
		return;
	}
	if (finished) {
		put_event(s, json_pack("{s:s, s:o}", "event", "exit", "exec", render_exec(x)));
		s->over = true;
	}
}

static void on_gap(struct stream *s, const Dsec__Edge__OutputGap *g)
{
	uint8_t channel = g->channel == 2 ? 2 : 1;
	begin(s);
	s->offset[channel] = g->to;
	put_event(s, json_pack("{s:s, s:s, s:I, s:I}", "event", "gap", "stream", channel == 2 ? "stderr" : "stdout",
			       "from", (json_int_t)g->from, "to", (json_int_t)g->to));
}

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct stream *s = user;
	if (reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_EXEC)
		on_exec(s, reply->exec);
	else if (reply->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_GAP)
		on_gap(s, reply->gap);
}

static void on_data(struct edge_call *c, uint8_t channel, const uint8_t *p, size_t n, void *user)
{
	struct stream *s = user;
	s->owed += n;
	if (channel != 1 && channel != 2)
		return;
	begin(s);
	if (s->lines)
		put_data_line(s, channel, p, n);
	else
		put_frame(s, channel == 2 ? FRAME_STDERR : FRAME_STDOUT, p, n);
	s->offset[channel] += n;
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct stream *s = user;
	struct dsec_error lost;
	s->call = NULL;
	if (!s->begun && e) {
		request_fail(s->r, e, retry_after_ms);
		return;
	}
	begin(s);
	if (!s->over && !e && s->follow) {
		dsec_error_set(&lost, 0, DSEC_E_SANDBOX_LOST, "the edge ended the output without a result");
		e = &lost;
	}
	if (!s->over && e)
		put_error(s, e);
	request_stream_end(s->r);
}

/* ---- life ---- */

static void on_drained(struct request *r, size_t unsent)
{
	struct stream *s = request_state(r);
	if (unsent > STREAM_LOW || !s->call)
		return;
	edge_call_consume(s->call, s->owed);
	s->owed = 0;
}

static void on_release(struct request *r)
{
	struct stream *s = request_state(r);
	edge_call_cancel(s->call);
	*(s->prev ? &s->prev->next : &s->all->first) = s->next;
	if (s->next)
		s->next->prev = s->prev;
	free(s);
}

void exec_stream(struct request *r, size_t edge, const Dsec__Edge__EdgeRequest *rq, uint64_t stdout_offset,
		 uint64_t stderr_offset)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .data = on_data, .end = on_end };
	static const struct request_ops rops = { .drained = on_drained, .release = on_release };
	/* An exec has an id: asking again before the first answer starts nothing twice. */
	static const struct edge_call_policy policy = { .wait_unsent_ms = LIMIT_EDGE_READ_RETRY_MS,
							.wait_sent_ms = LIMIT_EDGE_READ_RETRY_MS };
	struct dsec_error e;
	struct stream *s = calloc(1, sizeof(*s));
	if (!s) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	s->r = r;
	s->lines = request_accepts(r, TYPE_LINES);
	s->follow = rq->what_case == DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_START || rq->exec_output->follow;
	s->offset[1] = stdout_offset;
	s->offset[2] = stderr_offset;
	s->all = request_control(r)->streams;
	s->next = s->all->first;
	if (s->next)
		s->next->prev = s;
	s->all->first = s;
	request_set(r, &rops, s);
	if (edge_call_start(request_control(r)->edges, edge, rq, &policy, &ops, s, &s->call, &e) < 0)
		request_fail(r, &e, 0);
}

/* ---- keepalives ---- */

static void on_tick(uv_timer_t *t)
{
	struct streams *all = t->data;
	uint64_t now = now_mono_ms();
	for (struct stream *s = all->first; s; s = s->next) {
		if (!s->begun || !s->call || now - s->last_ms < LIMIT_KEEPALIVE_SECONDS * 1000u)
			continue;
		if (s->lines)
			put_event(s, json_pack("{s:s}", "event", "keepalive"));
		else
			put_frame(s, FRAME_KEEPALIVE, NULL, 0);
	}
}

int streams_new(struct control *ctl, struct streams **ret)
{
	struct streams *s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	uv_timer_init(ctl->loop, &s->timer);
	s->timer.data = s;
	uv_timer_start(&s->timer, on_tick, TICK_MS, TICK_MS);
	*ret = s;
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	free(h->data);
}

void streams_close(struct streams *s)
{
	uv_close((uv_handle_t *)&s->timer, on_closed);
}
