/* output.c: who reads a command's output, and who waits for its end. See exec.h.
 *
 * A reader is a call with a position in each stream. It is pumped when bytes
 * come, when its window opens and when the exec changes state, and takes at most
 * what its window has room for: a slow one reads from the spool later (and is
 * told of the gap if the bound has dropped what it had not read); neither the
 * program nor other readers wait for it.
 * First comes the exec as it is once started, last the exec as it ended.
 */
#include <stdlib.h>
#include "edge/message.h"

struct reader {
	struct exec *x;
	uint64_t at[2];
	bool follow, announced;
};

struct waiter {
	struct exec *x;
	struct call *call;
	uv_timer_t timer;
	bool started_only;
};

static uint8_t chunk[AETHER_PAYLOAD_MAX]; /* one loop thread; never across a return */

static void reply_gap(struct call *c, int stream, uint64_t from, uint64_t to)
{
	Dsec__Edge__OutputGap m = DSEC__EDGE__OUTPUT_GAP__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	m.channel = (uint32_t)stream + 1;
	m.from = from;
	m.to = to;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_GAP;
	reply.gap = &m;
	call_reply(c, &reply);
}

/* Sends what the window takes. 1: at the end; 0: more later; negative: no use. */
static long pump_stream(struct call *c, struct reader *rd, int stream)
{
	struct spool *s = &rd->x->out[stream];
	for (;;) {
		size_t room = call_sendable(c);
		uint64_t from = rd->at[stream];
		if (from >= s->total)
			return 1;
		if (!room) {
			/* Takes nothing, and so makes the core promise a WRITABLE. */
			return call_send_data(c, (uint8_t)(stream + 1), chunk, 1) < 0 ? -1 : 0;
		}
		long n = spool_read(s, &rd->at[stream], chunk, MIN(room, sizeof(chunk)));
		if (rd->at[stream] != from)
			reply_gap(c, stream, from, rd->at[stream]);
		if (n < 0)
			return n;
		long k = n ? call_send_data(c, (uint8_t)(stream + 1), chunk, (size_t)n) : 0;
		if (k < 0)
			return k;
		rd->at[stream] += (uint64_t)k;
		if (k < n)
			return 0;
	}
}

static void pump(struct call *c)
{
	struct reader *rd = c->data;
	struct exec *x = rd->x;
	if (x->state == EXEC_STARTING && rd->follow)
		return;
	if (x->state == EXEC_FAILED && !rd->announced) {
		call_fail_error(c, x->error ? x->error : &(struct dsec_error){ .code = DSEC_E_CAPACITY });
		return;
	}
	if (!rd->announced) {
		rd->announced = true;
		reply_exec(c, x);
	}
	long a = pump_stream(c, rd, 0), b = a < 0 ? a : pump_stream(c, rd, 1);
	if (b < 0) {
		call_fail(c, DSEC_E_INTERNAL, "the kept output cannot be read");
		return;
	}
	if (a && b && (exec_ended(x) || !rd->follow)) {
		reply_exec(c, x);
		call_end(c);
	}
}

static void reader_release(struct call *c)
{
	free(c->data);
}

static const struct call_ops reader_ops = { .writable = pump, .release = reader_release };

int output_follow(struct call *c, struct exec *x, uint64_t stdout_at, uint64_t stderr_at, bool follow)
{
	struct reader *rd = calloc(1, sizeof(*rd));
	if (!rd) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return -1;
	}
	*rd = (struct reader){ .x = x, .at = { stdout_at, stderr_at }, .follow = follow };
	c->data = rd;
	c->ops = &reader_ops;
	list_append(&x->readers, &c->waiting);
	pump(c);
	return 0;
}

/* --- waiting for the start or the end --- */

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void waiter_release(struct call *c)
{
	struct waiter *w = c->data;
	uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

static const struct call_ops waiter_ops = { .release = waiter_release };

static void answer(struct call *c, struct exec *x)
{
	struct waiter *w = c->data;
	if (w->started_only && x->state == EXEC_FAILED && x->error) {
		call_fail_error(c, x->error);
		return;
	}
	reply_exec(c, x);
	call_end(c);
}

static void on_timeout(uv_timer_t *h)
{
	struct waiter *w = h->data;
	answer(w->call, w->x);
}

static void wait_for(struct call *c, struct exec *x, uint64_t timeout_ms, bool started_only)
{
	struct waiter *w = calloc(1, sizeof(*w));
	if (!w) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	*w = (struct waiter){ .x = x, .call = c, .started_only = started_only };
	uv_timer_init(c->node->loop, &w->timer);
	w->timer.data = w;
	c->data = w;
	c->ops = &waiter_ops;
	bool there = exec_ended(x) || (started_only && x->state != EXEC_STARTING);
	if (there || (!started_only && !timeout_ms)) {
		answer(c, x);
		return;
	}
	list_append(&x->waiters, &c->waiting);
	if (!started_only) /* a start has its own deadline */
		uv_timer_start(&w->timer, on_timeout, timeout_ms, 0);
}

void output_wait(struct call *c, struct exec *x, uint64_t timeout_ms)
{
	wait_for(c, x, timeout_ms, false);
}

void output_wait_started(struct call *c, struct exec *x)
{
	wait_for(c, x, 0, true);
}

void output_progress(struct exec *x)
{
	list_for_each(reader, &x->readers, struct call, waiting)
		pump(reader);
	list_for_each(c, &x->waiters, struct call, waiting) {
		struct waiter *w = c->data;
		if (exec_ended(x) || (w->started_only && x->state != EXEC_STARTING))
			answer(c, x);
	}
}
