/* create_batch.c: POST /v1/sandboxes/batch: N creations, a line of NDJSON for each as it ends.
 *
 * LIMIT_BATCH_PARALLEL creations run at once; the next begins when one ended and
 * the client has read enough (UNREAD_MAX). Every index gets exactly one line, a
 * sandbox or an error, in the order of their ends; the stream's proper end says
 * that all are there.
 *
 * When the client leaves, nothing more is started, what is under way is abandoned
 * (creation.h deletes it), and what was made and whose line did not get out is
 * deleted. A line is out when it was given to the connection: bytes that the
 * kernel held for a client that is gone are out too, and the lifetime ends those.
 * With an idempotency key nothing is deleted, the key of index I being "KEY#I".
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "control/creation.h"
#include "control/json_in.h"
#include "control/render.h"
#include "control/request.h"
#include "control/resources.h"

#define UNREAD_MAX (1024 * 1024)

struct batch;

struct item {
	struct batch *batch;
	struct creation *creation; /* NULL: not started or ended */
	char id[SANDBOX_ID_MAX + 1]; /* "": made nothing */
	size_t edge;
	uint64_t line_end; /* position in the stream behind its line */
};

struct batch {
	struct request *r;
	struct create_body body;
	char key[LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX + 1]; /* "": none */
	size_t n, next, running, ended;
	uint64_t written; /* bytes of lines */
	bool starting; /* in start_more: no recursion */
	struct item *items;
};

static void start_more(struct batch *b);

static void put_line(struct batch *b, struct item *it, const char *what, json_t *value_take)
{
	struct buf line = BUF_INIT(0);
	json_t *o = json_pack("{s:I, s:o}", "index", (json_int_t)(it - b->items), what, value_take);
	b->ended++;
	if (!o || render_json(o, &line) || request_write(b->r, buf_ptr(&line), buf_len(&line))) {
		request_abort(b->r);
	} else {
		b->written += buf_len(&line);
		it->line_end = b->written;
	}
	json_decref(o);
	buf_done(&line);
	if (b->ended == b->n)
		request_stream_end(b->r);
}

static void on_done(const struct creation_result *result, void *user)
{
	struct item *it = user;
	struct batch *b = it->batch;
	it->creation = NULL;
	b->running--;
	if (result->error) {
		put_line(b, it, "error", render_error(result->error));
	} else {
		snprintf(it->id, sizeof(it->id), "%s", result->id);
		it->edge = result->edge;
		put_line(b, it, "sandbox", json_incref(result->sandbox));
	}
	start_more(b);
}

static void start_one(struct batch *b, struct item *it)
{
	char key[IDEMPOTENCY_KEY_MAX + 1] = "";
	struct dsec_error e;
	if (*b->key)
		snprintf(key, sizeof(key), "%s#%zu", b->key, (size_t)(it - b->items));
	struct creation_request q = { request_project(b->r), request_id(b->r), key, &b->body };
	it->batch = b;
	if (creation_start(request_control(b->r), &q, on_done, it, &it->creation, &e) < 0)
		put_line(b, it, "error", render_error(&e));
	else
		b->running++;
}

static void start_more(struct batch *b)
{
	if (b->starting)
		return;
	b->starting = true;
	while (b->next < b->n && b->running < LIMIT_BATCH_PARALLEL &&
	       request_unsent(b->r) < UNREAD_MAX)
		start_one(b, &b->items[b->next++]);
	b->starting = false;
}

static void on_drained(struct request *r, size_t unsent)
{
	start_more(request_state(r));
}

static void on_release(struct request *r)
{
	struct batch *b = request_state(r);
	uint64_t out = b->written - request_unsent(r);
	for (size_t i = 0; i < b->next; i++) {
		struct item *it = &b->items[i];
		creation_abandon(it->creation);
		if (*it->id && it->line_end > out && !*b->key)
			creation_undo(request_control(r), request_project(r), it->edge, it->id);
	}
	create_body_done(&b->body);
	free(b->items);
	free(b);
}

/* The count, and the body of each without it. */
static int read_body(struct batch *b, json_t **ret_each, struct dsec_error *e)
{
	const json_t *body = request_body(b->r);
	struct json_in in;
	uint64_t n = 0;
	json_in_begin(&in, body, "", e);
	json_in_uint(&in, "count", 1, LIMIT_BATCH_COUNT_MAX, &n);
	if (!in.fault && !n)
		json_in_fault(&in, DSEC_E_BAD_FIELD, "count is missing: how many, 1 to %d", LIMIT_BATCH_COUNT_MAX);
	if (in.fault)
		return in.fault;
	b->n = (size_t)n;
	b->items = calloc(b->n, sizeof(*b->items));
	*ret_each = json_copy((json_t *)body);
	if (!b->items || !*ret_each)
		return dsec_error_set(e, -ENOMEM, DSEC_E_CAPACITY, "out of memory");
	return json_object_del(*ret_each, "count");
}

void handle_sandbox_create_batch(struct request *r)
{
	static const struct request_ops ops = { .drained = on_drained, .release = on_release };
	struct dsec_error e;
	const char *key;
	json_t *each = NULL;
	struct batch *b = calloc(1, sizeof(*b));
	if (!b) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	b->r = r;
	request_set(r, &ops, b);
	/* What the body lends are strings of members that `each` shares with the request's. */
	if (read_body(b, &each, &e) < 0 || create_body_read(&b->body, request_control(r), each, &e) < 0 ||
	    create_body_key(&b->body, each, request_header_in(r, "Idempotency-Key"), &key, &e) < 0) {
		request_fail(r, &e, 0);
	} else {
		snprintf(b->key, sizeof(b->key), "%s", key);
		request_stream(r, 200, "application/x-ndjson");
		start_more(b);
	}
	json_decref(each);
}
