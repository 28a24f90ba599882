/* many.c: one call about many sandboxes: delete by labels, status by ids.
 *
 * Both ask for each id (each.h) and keep what came of it at the id's place. A
 * delete first gathers the ids. A client that leaves stops what was not asked
 * yet; deletes that were asked go on.
 */
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/each.h"
#include "control/gather.h"
#include "control/json_in.h"
#include "control/label_query.h"
#include "control/render.h"
#include "control/resources.h"

struct many {
	struct request *r;
	struct label_query labels;
	struct gather *gather;
	struct each *each;
	json_t *held; /* owned: the ids' strings, when no body holds them */
	const char **ids;
	size_t n;
	json_t **found; /* of each id: the sandbox, or NULL */
	struct dsec_error *errors; /* of each id; code 0: none */
	bool wait, failed;
};

static void on_release(struct request *r)
{
	struct many *m = request_state(r);
	gather_cancel(m->gather);
	each_cancel(m->each);
	for (size_t i = 0; m->found && i < m->n; i++)
		json_decref(m->found[i]);
	label_query_done(&m->labels);
	json_decref(m->held);
	free(m->ids);
	free(m->found);
	free(m->errors);
	free(m);
}

static struct many *many_new(struct request *r)
{
	static const struct request_ops ops = { .release = on_release };
	struct many *m = calloc(1, sizeof(*m));
	if (!m) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return NULL;
	}
	m->r = r;
	request_set(r, &ops, m);
	return m;
}

/* Asks for each string of the array. */
static void ask_each(struct many *m, const json_t *ids, enum each_question question, const struct each_ops *ops)
{
	m->n = json_array_size(ids);
	m->ids = calloc(m->n + 1, sizeof(*m->ids));
	m->found = calloc(m->n + 1, sizeof(*m->found));
	m->errors = calloc(m->n + 1, sizeof(*m->errors));
	for (size_t i = 0; m->ids && i < m->n; i++)
		m->ids[i] = json_string_value(json_array_get(ids, i));
	if (!m->ids || !m->found || !m->errors || each_start(m->r, question, m->ids, m->n, ops, m, &m->each) < 0)
		request_failf(m->r, DSEC_E_CAPACITY, "out of memory");
}

static void on_one(size_t at, const struct dsec_error *e, json_t *sandbox, void *user)
{
	struct many *m = user;
	if (e)
		m->errors[at] = *e;
	else
		m->found[at] = json_incref(sandbox);
}

static void answer(struct many *m, json_t *o)
{
	if (o)
		request_json(m->r, 200, o);
	else
		request_failf(m->r, DSEC_E_CAPACITY, "out of memory");
}

/* ---- status ---- */

static void on_status_end(void *user)
{
	struct many *m = user;
	json_t *there = json_array(), *unknown = json_array();
	m->each = NULL;
	for (size_t i = 0; i < m->n; i++) {
		const struct dsec_error *e = &m->errors[i];
		if (m->found[i]) {
			json_array_append(there, m->found[i]);
		} else if (e->code == DSEC_E_SANDBOX_NOT_FOUND) {
			json_array_append_new(unknown, json_string(m->ids[i]));
		} else { /* an answer that lacks some would be a lie */
			request_fail(m->r, e, 0);
			json_decref(there);
			json_decref(unknown);
			return;
		}
	}
	answer(m, json_pack("{s:o, s:o}", "sandboxes", there, "unknown", unknown));
}

void handle_sandbox_status(struct request *r)
{
	static const struct each_ops ops = { on_one, on_status_end };
	struct json_in in;
	struct dsec_error e;
	struct many *m = many_new(r);
	if (!m)
		return;
	json_in_begin(&in, request_body(r), "", &e);
	const json_t *ids = json_in_any(&in, "ids");
	bool good = json_is_array(ids) && json_array_size(ids) <= LIMIT_STATUS_IDS_MAX;
	for (size_t i = 0; good && i < json_array_size(ids); i++)
		good = json_is_string(json_array_get(ids, i)) &&
		       json_string_length(json_array_get(ids, i)) <= SANDBOX_ID_MAX;
	if (!good)
		json_in_fault(&in, DSEC_E_BAD_FIELD, "ids must be a list of at most %d sandbox ids", LIMIT_STATUS_IDS_MAX);
	if (json_in_end(&in) < 0)
		request_fail(r, &e, 0);
	else
		ask_each(m, ids, EACH_GET, &ops);
}

/* ---- delete by labels ---- */

static void on_delete_end(void *user)
{
	struct many *m = user;
	json_t *gone = json_array(), *failed = json_array();
	m->each = NULL;
	for (size_t i = 0; i < m->n; i++) {
		const struct dsec_error *e = &m->errors[i];
		if (!m->found[i] && e->code != DSEC_E_SANDBOX_NOT_FOUND) /* forgotten meanwhile: gone too */
			json_array_append_new(failed, json_pack("{s:s, s:o}", "id", m->ids[i], "error", render_error(e)));
		else
			json_array_append_new(gone, json_string(m->ids[i]));
	}
	answer(m, json_pack("{s:o, s:o}", "ids", gone, "failed", failed));
}

static void on_match(const Dsec__Edge__Sandbox *s, void *user)
{
	struct many *m = user;
	if (json_array_append_new(m->held, json_string(s->id)))
		m->failed = true;
}

static void on_gathered(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	static const struct each_ops ops = { on_one, on_delete_end };
	struct many *m = user;
	m->gather = NULL;
	if (e)
		request_fail(m->r, e, retry_after_ms);
	else if (m->failed)
		request_failf(m->r, DSEC_E_CAPACITY, "out of memory");
	else
		ask_each(m, m->held, m->wait ? EACH_DELETE_WAIT : EACH_DELETE, &ops);
}

void handle_sandbox_delete_many(struct request *r)
{
	static const struct gather_ops gops = { on_match, on_gathered };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__List list = DSEC__EDGE__LIST__INIT;
	struct dsec_error e;
	struct many *m = many_new(r);
	if (!m || !request_query_bool(r, "wait", &m->wait) || !label_query_read(&m->labels, r))
		return;
	if (!m->labels.n) {
		request_failf(r, DSEC_E_BAD_FIELD, "name at least one label=key=value: all sandboxes go only by their ids");
		return;
	}
	m->held = json_array();
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_LIST;
	rq.list = &list;
	list.labels = m->labels.ptrs;
	list.n_labels = m->labels.n;
	if (gather_start(request_control(r)->edges, &rq, &gops, m, &m->gather, &e) < 0)
		request_fail(r, &e, 0);
}
