/* file_list.c: GET .../files/list: entries come in parts, the answer is sorted. */
#include <stdlib.h>
#include <string.h>
#include "control/calls.h"
#include "control/limits.h"
#include "control/render.h"
#include "control/resources.h"

struct entry {
	json_t *json;
	uint8_t *name; /* the raw bytes: sorting is by them */
	size_t n;
};

struct file_list {
	struct request *r;
	struct edge_call *call;
	struct entry *entries;
	size_t n, cap;
	bool failed;
};

static void add(struct file_list *l, const Dsec__Edge__FileEntry *f)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct entry *more = realloc(l->entries, cap * sizeof(*more));
		if (!more) {
			l->failed = true;
			return;
		}
		l->entries = more;
		l->cap = cap;
	}
	struct entry *e = &l->entries[l->n];
	e->json = render_file(f);
	e->n = f->name.len;
	e->name = malloc(e->n + 1);
	if (!e->json || !e->name) {
		json_decref(e->json);
		free(e->name);
		l->failed = true;
		return;
	}
	memcpy(e->name, f->name.data, e->n);
	l->n++;
}

static int by_name(const void *va, const void *vb)
{
	const struct entry *a = va, *b = vb;
	int c = memcmp(a->name, b->name, a->n < b->n ? a->n : b->n);
	return c ? c : (a->n > b->n) - (a->n < b->n);
}

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct file_list *l = user;
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_ENTRIES)
		return;
	for (size_t i = 0; i < reply->entries->n_entries; i++)
		add(l, reply->entries->entries[i]);
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct file_list *l = user;
	l->call = NULL;
	if (e) {
		request_fail(l->r, e, retry_after_ms);
		return;
	}
	if (l->failed) {
		request_failf(l->r, DSEC_E_CAPACITY, "out of memory for the list");
		return;
	}
	json_t *a = json_array();
	if (l->n)
		qsort(l->entries, l->n, sizeof(*l->entries), by_name);
	for (size_t i = 0; i < l->n; i++)
		json_array_append(a, l->entries[i].json);
	request_json(l->r, 200, json_pack("{s:o}", "entries", a));
}

static void on_release(struct request *r)
{
	struct file_list *l = request_state(r);
	edge_call_cancel(l->call);
	for (size_t i = 0; i < l->n; i++) {
		json_decref(l->entries[i].json);
		free(l->entries[i].name);
	}
	free(l->entries);
	free(l);
}

void handle_file_list(struct request *r)
{
	static const struct edge_call_ops ops = { .reply = on_reply, .end = on_end };
	static const struct request_ops rops = { .release = on_release };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__FileCall f = DSEC__EDGE__FILE_CALL__INIT;
	const char *path = request_query(r, "path"), *user = request_query(r, "user");
	struct dsec_error e;
	if (!path || !*path || strlen(path) > LIMIT_PATH_BYTES_MAX) {
		request_failf(r, path && *path ? DSEC_E_NAME_TOO_LONG : DSEC_E_BAD_FIELD,
			      "path must have 1 to %d bytes", LIMIT_PATH_BYTES_MAX);
		return;
	}
	if (user && strlen(user) > LIMIT_USER_LENGTH_MAX) {
		request_failf(r, DSEC_E_NAME_TOO_LONG, "user is %zu bytes long; at most %d", strlen(user),
			      LIMIT_USER_LENGTH_MAX);
		return;
	}
	int edge = edge_of_sandbox(r, request_var(r, 0));
	if (edge < 0)
		return;
	struct file_list *l = calloc(1, sizeof(*l));
	if (!l) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	l->r = r;
	request_set(r, &rops, l);
	edge_request_init(&rq, r);
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_FILE;
	rq.file = &f;
	f.op = DSEC__EDGE__FILE_CALL__OP__LIST;
	f.sandbox_id = (char *)request_var(r, 0);
	f.path = (ProtobufCBinaryData){ strlen(path), (uint8_t *)path };
	f.user = (ProtobufCBinaryData){ user ? strlen(user) : 0, (uint8_t *)user };
	if (edge_call_start(request_control(r)->edges, (size_t)edge, &rq, &policy_read, &ops, l, &l->call, &e) < 0)
		request_fail(r, &e, 0);
}
