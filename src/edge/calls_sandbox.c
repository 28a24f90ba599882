/* calls_sandbox.c: create, get, list, delete, ttl, info. See calls.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/admission.h"
#include "edge/calls.h"
#include "edge/message.h"
#include "edge/record.h"
#include "edge/sandbox.h"
#include "edge/watch.h"

#define LIST_PART_BYTES (48 * 1024)
#define CREATE_HASH_LEN 32 /* SHA-256 */
#define LIST_FRESH_MAX 256 /* up to so many, a list reads the usage of each */

/* --- create --- */

static int check_create(struct node *n, const Dsec__Edge__Create *m, struct dsec_error *e)
{
	char edge[EDGE_NAME_MAX + 1];
	if (!id_sandbox_edge(m->id, edge) || strcmp(edge, n->name))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "id: not an id of edge %s", n->name);
	if (strcmp(m->backend, n->ops->name))
		return dsec_error_set(e, -EINVAL, DSEC_E_UNSUPPORTED, "backend %.32s: this edge has %s only",
				      m->backend, n->ops->name);
	if (!m->n_layers || m->n_layers > BACKEND_LAYERS_MAX)
		return dsec_error_set(e, -EINVAL, DSEC_E_UNSUPPORTED, "layers: an environment has 1 to %d here",
				      BACKEND_LAYERS_MAX);
	if (!m->cpu_millis || !m->memory_bytes || !m->pids)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "cpu, memory and pids must not be 0");
	if (m->ttl_ms < TTL_MIN_MS || m->ttl_ms > TTL_MAX_MS)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "ttl: %d to %llu ms", TTL_MIN_MS, TTL_MAX_MS);
	if (m->idle_ttl_ms && (m->idle_ttl_ms < TTL_IDLE_MIN_MS || m->idle_ttl_ms > TTL_MAX_MS))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "idle_ttl: 0 or %d to %llu ms",
				      TTL_IDLE_MIN_MS, TTL_MAX_MS);
	if (m->body_hash.len && m->body_hash.len != CREATE_HASH_LEN)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_REQUEST, "body_hash: not a SHA-256");
	if (dsec__edge__create__get_packed_size(m) > CREATE_SIZE_MAX)
		return dsec_error_set(e, -E2BIG, DSEC_E_BODY_TOO_LARGE,
				      "labels and environment take more than %d bytes", CREATE_SIZE_MAX);
	return 0;
}

static bool same_create(const Dsec__Edge__Create *a, const Dsec__Edge__Create *b)
{
	if (a->body_hash.len && a->body_hash.len == b->body_hash.len)
		return !memcmp(a->body_hash.data, b->body_hash.data, a->body_hash.len);
	size_t n = dsec__edge__create__get_packed_size(a);
	if (n != dsec__edge__create__get_packed_size(b))
		return false;
	_cleanup_free_ uint8_t *pa = malloc(n + 1), *pb = malloc(n + 1);
	if (!pa || !pb)
		return false;
	dsec__edge__create__pack(a, pa);
	dsec__edge__create__pack(b, pb);
	return !memcmp(pa, pb, n);
}

/* A create whose id is known: the answer of the first one. */
static void create_again(struct call *c, struct sandbox *sb, const Dsec__Edge__Create *m)
{
	c->adopted = true;
	if (strcmp(sb->project, c->request->project) || !same_create(sb->spec, m))
		call_fail(c, DSEC_E_CONFLICT, "sandbox %s exists and was created differently", sb->id);
	else if (sb->state == SB_PENDING || sb->state == SB_PREPARING)
		list_append(&sb->create_calls, &c->waiting);
	else if (!sb->running_at_ms && sb->state == SB_STOPPED && sb->fail_code)
		call_fail(c, sb->fail_code, "%s", sb->message ? sb->message : "the create failed");
	else
		sandbox_answer_get(sb, c);
}

static void create_new(struct call *c, Dsec__Edge__Create *spec_take)
{
	struct node *n = c->node;
	struct sandbox *sb;
	struct dsec_error e;
	char id[SANDBOX_ID_MAX + 1];
	snprintf(id, sizeof(id), "%s", spec_take->id);
	int r = sandbox_new(n, id, c->request->project, spec_take, &sb);
	if (r < 0) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	sb->created_at_ms = now_real_ms();
	sb->ttl.end_ms = now_mono_ms() + sb->spec->ttl_ms;
	sb->ttl.idle_ms = sb->spec->idle_ttl_ms;
	ttl_touch(&sb->ttl, now_mono_ms());
	r = record_intent(sb);
	if (r < 0) {
		record_error(&e, r, "the create");
		sandbox_free(sb);
		call_fail_error(c, &e);
		return;
	}
	n->creates_total++;
	list_append(&sb->create_calls, &c->waiting);
	watch_tell(sb);
	sandbox_enqueue(sb);
}

void call_create(struct call *c)
{
	Dsec__Edge__Create *m = c->request->create;
	struct dsec_error e;
	uint32_t retry_ms;
	struct sandbox *sb = node_find(c->node, m->id);
	if (sb) {
		create_again(c, sb, m);
		return;
	}
	if (check_create(c->node, m, &e) < 0) {
		call_fail_error(c, &e);
		return;
	}
	if (admission_check(c->node, m->memory_bytes, &e, &retry_ms) < 0) {
		call_fail_retry(c, retry_ms, &e);
		return;
	}
	c->request->create = NULL;
	c->request->what_case = DSEC__EDGE__EDGE_REQUEST__WHAT__NOT_SET;
	create_new(c, m);
}

/* --- the others --- */

void call_get(struct call *c)
{
	struct sandbox *sb = call_sandbox(c, c->request->get->id);
	if (sb)
		sandbox_answer_get(sb, c);
}

static bool has_label(const struct sandbox *sb, const Dsec__Edge__KeyValue *want)
{
	for (size_t i = 0; i < sb->spec->n_labels; i++)
		if (!strcmp(sb->spec->labels[i]->key, want->key) &&
		    !strcmp(sb->spec->labels[i]->value, want->value))
			return true;
	return false;
}

bool sandbox_carries(const struct sandbox *sb, Dsec__Edge__KeyValue **labels, size_t n_labels)
{
	for (size_t i = 0; i < n_labels; i++)
		if (!has_label(sb, labels[i]))
			return false;
	return true;
}

struct part {
	Dsec__Edge__Sandbox items[LIST_PART_BYTES / 512];
	Dsec__Edge__Sandbox *ptrs[LIST_PART_BYTES / 512];
	size_t n, bytes;
	int err;
};

static void part_send(struct call *c, struct part *p)
{
	Dsec__Edge__SandboxList m = DSEC__EDGE__SANDBOX_LIST__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	m.n_sandboxes = p->n;
	m.sandboxes = p->ptrs;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOXES;
	reply.sandboxes = &m;
	int r = call_reply(c, &reply);
	if (r < 0)
		p->err = r;
	p->n = p->bytes = 0;
}

static void part_add(struct call *c, struct part *p, struct sandbox *sb)
{
	Dsec__Edge__Sandbox m;
	message_sandbox(sb, &m);
	size_t size = dsec__edge__sandbox__get_packed_size(&m) + 8;
	if (p->n == ARRAY_SIZE(p->items) || (p->n && p->bytes + size > LIST_PART_BYTES))
		part_send(c, p);
	p->items[p->n] = m;
	p->ptrs[p->n] = &p->items[p->n];
	p->n++;
	p->bytes += size;
}

int list_send(struct call *c, Dsec__Edge__KeyValue **labels, size_t n_labels, bool include_stopped)
{
	_cleanup_free_ struct part *p = calloc(1, sizeof(*p));
	struct sandbox *sb;
	if (!p)
		return -ENOMEM;
	for (size_t it = 0; (sb = hashmap_next(&c->node->sandboxes, &it));) {
		if (strcmp(sb->project, c->request->project) || (sb->state == SB_STOPPED && !include_stopped) ||
		    !sandbox_carries(sb, labels, n_labels))
			continue;
		if (c->node->n_live <= LIST_FRESH_MAX)
			sandbox_read_stats(sb);
		part_add(c, p, sb);
	}
	part_send(c, p); /* also when it is empty: the answer has at least one part */
	return p->err;
}

void call_list(struct call *c)
{
	const Dsec__Edge__List *m = c->request->list;
	int r = list_send(c, m->labels, m->n_labels, m->include_stopped);
	if (r == -ENOMEM)
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
	else if (r) /* part of a list must not look like all of it */
		call_fail(c, DSEC_E_OVERLOADED, "the list is too long for one answer: filter by label");
	else
		call_end(c);
}

void call_delete(struct call *c)
{
	struct sandbox *sb = call_sandbox(c, c->request->delete_->id);
	if (sb)
		sandbox_delete(sb, c, c->request->delete_->wait);
}

void call_set_ttl(struct call *c)
{
	const Dsec__Edge__SetTtl *m = c->request->set_ttl;
	struct sandbox *sb = call_running(c, m->id);
	if (!sb)
		return;
	struct ttl before = sb->ttl;
	int r = ttl_renew(&sb->ttl, now_mono_ms(), sb->execs_running > 0, m->set_ttl ? &m->ttl_ms : NULL,
			  m->set_idle ? &m->idle_ttl_ms : NULL);
	if (r == -ESTALE) {
		sandbox_arm(sb); /* the timer is due now and ends it */
		call_fail(c, DSEC_E_SANDBOX_STOPPED, "the sandbox's time is over");
		return;
	}
	if (r < 0) {
		call_fail(c, DSEC_E_BAD_FIELD, "ttl: %d to %llu ms; idle ttl: 0 or the same", TTL_MIN_MS, TTL_MAX_MS);
		return;
	}
	r = record_ttl(sb);
	if (r < 0) {
		struct dsec_error e;
		sb->ttl = before;
		record_error(&e, r, "the new ttl");
		call_fail_error(c, &e);
		return;
	}
	sandbox_arm(sb);
	reply_sandbox(c, sb);
	call_end(c);
}

void call_info(struct call *c)
{
	Dsec__Edge__EdgeInfo m;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	admission_sample(c->node);
	message_info(c->node, &m);
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_INFO;
	reply.info = &m;
	call_reply(c, &reply);
	call_end(c);
}
