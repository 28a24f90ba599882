/* sandbox.c: see dsec/sandbox.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sdk/sdk-internal.h"

static int fill_labels(struct dsec_sandbox *s, struct sdk_holder *h)
{
	json_t *labels = json_object_get(h->json, "labels"), *value;
	const char *key;
	size_t n = json_object_size(labels);
	struct dsec_pair *pairs = calloc(n + 1, sizeof(*pairs));
	if (!pairs)
		return -ENOMEM;
	h->extra[0] = pairs;
	s->labels = pairs;
	json_object_foreach(labels, key, value) {
		const char *text = json_string_value(value);
		pairs[s->n_labels++] = (struct dsec_pair){ key, text ? text : "" };
	}
	return 0;
}

static int fill(struct dsec_sandbox *s, json_t *o)
{
	struct sdk_holder *h = sdk_holder_new(o);
	const json_t *usage = json_object_get(o, "usage");
	if (!h)
		return -ENOMEM;
	*s = (struct dsec_sandbox){
		.id = sdk_str(o, "id"), .state = sdk_str(o, "state"), .reason = sdk_str(o, "reason"),
		.message = sdk_str(o, "message"), .backend = sdk_str(o, "backend"), .edge = sdk_str(o, "edge"),
		.environment = sdk_str(o, "environment"), .cwd = sdk_str(o, "cwd"), .user = sdk_str(o, "user"),
		.hostname = sdk_str(o, "hostname"), .cpu = sdk_num(o, "cpu"), .memory_mb = sdk_u64(o, "memory_mb"),
		.disk_mb = sdk_u64(o, "disk_mb"), .pids = (unsigned)sdk_u64(o, "pids"),
		.created_at = sdk_num(o, "created_at"), .running_at = sdk_num(o, "running_at"),
		.end_at = sdk_num(o, "end_at"), .idle_ttl_seconds = sdk_num(o, "idle_ttl_seconds"),
		.idle_end_at = sdk_num(o, "idle_end_at"), .stopped_at = sdk_num(o, "stopped_at"),
		.no_new_privileges = sdk_bool(o, "no_new_privileges"),
		.memory_bytes = sdk_u64(usage, "memory_bytes"),
		.memory_peak_bytes = sdk_u64(usage, "memory_peak_bytes"),
		.disk_bytes = sdk_u64(usage, "disk_bytes"), .pids_used = sdk_u64(usage, "pids"),
		.oom_kills = sdk_u64(usage, "oom_kills"), .cpu_seconds = sdk_num(usage, "cpu_seconds"),
		.execs_running = (unsigned)sdk_u64(o, "execs_running"), .json = h->text, .internal = h,
	};
	int r = fill_labels(s, h);
	if (r < 0)
		sdk_holder_free(h);
	return r;
}

/* Steals the answer. */
static int answer(json_t *reply, struct dsec_sandbox **ret, struct dsec_error *e)
{
	int r = 0;
	if (!*sdk_str(reply, "id"))
		r = sdk_bad_reply(e, "a sandbox without an id");
	else if (ret) {
		struct dsec_sandbox *s = calloc(1, sizeof(*s));
		if (!s || fill(s, reply) < 0) {
			free(s);
			r = sdk_no_memory(e);
		} else
			*ret = s;
	}
	json_decref(reply);
	return r;
}

static int call(struct dsec_client *c, const char *method, const char *id, const char *rest, json_t *body,
		struct dsec_sandbox **ret, struct dsec_error *e)
{
	char path[SDK_PATH_MAX], *name = sdk_encode(id);
	json_t *reply = NULL;
	int r = name ? sdk_path(path, e, "/v1/sandboxes/%s%s", name, rest) : sdk_no_memory(e);
	free(name);
	if (r < 0) {
		json_decref(body);
		return r;
	}
	r = sdk_json_call(c, method, path, body, 0, &reply, e);
	return r < 0 ? r : answer(reply, ret, e);
}

static int set(json_t *body, const char *key, json_t *value)
{
	return json_object_set_new(body, key, value); /* fails on a NULL value too */
}

static json_t *create_body(const struct dsec_create_options *o)
{
	json_t *b = json_object();
	int r = b ? set(b, "environment", json_string(o->environment)) : -1;
	if (o->backend)
		r |= set(b, "backend", json_string(o->backend));
	if (o->cpu > 0)
		r |= set(b, "cpu", json_real(o->cpu));
	if (o->memory_mb)
		r |= set(b, "memory_mb", json_integer((json_int_t)o->memory_mb));
	if (o->disk_mb)
		r |= set(b, "disk_mb", json_integer((json_int_t)o->disk_mb));
	if (o->pids)
		r |= set(b, "pids", json_integer(o->pids));
	if (o->ttl_seconds > 0)
		r |= set(b, "ttl_seconds", sdk_seconds_json(o->ttl_seconds));
	if (o->idle_ttl_seconds > 0)
		r |= set(b, "idle_ttl_seconds", sdk_seconds_json(o->idle_ttl_seconds));
	if (o->n_labels)
		r |= set(b, "labels", sdk_pairs_json(o->labels, o->n_labels));
	if (o->n_env)
		r |= set(b, "env", sdk_pairs_json(o->env, o->n_env));
	if (o->cwd)
		r |= set(b, "cwd", json_string(o->cwd));
	if (o->user)
		r |= set(b, "user", json_string(o->user));
	if (o->hostname)
		r |= set(b, "hostname", json_string(o->hostname));
	if (o->idempotency_key)
		r |= set(b, "idempotency_key", json_string(o->idempotency_key));
	if (o->no_new_privileges)
		r |= set(b, "no_new_privileges", json_true());
	if (!r)
		return b;
	json_decref(b);
	return NULL;
}

int dsec_sandbox_create(struct dsec_client *c, const struct dsec_create_options *o, struct dsec_sandbox **ret,
			struct dsec_error *e)
{
	json_t *reply = NULL;
	if (!o->environment || !*o->environment)
		return sdk_fail(e, -EINVAL, "bad_field", DSEC_FAULT_CALLER, false, "an environment must be named");
	json_t *body = create_body(o);
	if (!body)
		return sdk_fail(e, -EINVAL, "bad_field", DSEC_FAULT_CALLER, false,
				"names, labels and variables of a sandbox must be UTF-8 text");
	uint64_t timeout_ms = o->timeout_ms ? o->timeout_ms : 0;
	int r = sdk_json_call(c, "POST", "/v1/sandboxes", body, timeout_ms, &reply, e);
	return r < 0 ? r : answer(reply, ret, e);
}

int dsec_sandbox_get(struct dsec_client *c, const char *id, struct dsec_sandbox **ret, struct dsec_error *e)
{
	return call(c, "GET", id, "", NULL, ret, e);
}

int dsec_sandbox_delete(struct dsec_client *c, const char *id, bool wait, struct dsec_sandbox **ret,
			struct dsec_error *e)
{
	return call(c, "DELETE", id, wait ? "?wait=true" : "", NULL, ret, e);
}

int dsec_sandbox_set_ttl(struct dsec_client *c, const char *id, double ttl_seconds, double idle_ttl_seconds,
			 struct dsec_sandbox **ret, struct dsec_error *e)
{
	json_t *body = json_object();
	int r = body ? 0 : -1;
	if (ttl_seconds >= 0)
		r |= set(body, "ttl_seconds", sdk_seconds_json(ttl_seconds));
	if (idle_ttl_seconds >= 0)
		r |= set(body, "idle_ttl_seconds", sdk_seconds_json(idle_ttl_seconds));
	if (r < 0) {
		json_decref(body);
		return sdk_no_memory(e);
	}
	return call(c, "POST", id, "/ttl", body, ret, e);
}

static int list_path(char path[SDK_PATH_MAX], const struct dsec_pair *labels, size_t n_labels, bool stopped,
		     struct dsec_error *e)
{
	int r = sdk_path(path, e, "/v1/sandboxes?include_stopped=%s", stopped ? "true" : "false");
	size_t at = strlen(path);
	for (size_t i = 0; !r && i < n_labels; i++) {
		char *name = sdk_encode(labels[i].name), *value = sdk_encode(labels[i].value);
		int n = name && value ? snprintf(path + at, SDK_PATH_MAX - at, "&label=%s%%3D%s", name, value) : -1;
		if (n < 0)
			r = sdk_no_memory(e);
		else if ((size_t)n >= SDK_PATH_MAX - at)
			r = sdk_fail(e, -ENAMETOOLONG, "name_too_long", DSEC_FAULT_CALLER, false, "the labels are too long");
		else
			at += (size_t)n;
		free(name);
		free(value);
	}
	return r;
}

int dsec_sandbox_list(struct dsec_client *c, const struct dsec_pair *labels, size_t n_labels,
		      bool include_stopped, struct dsec_sandbox_list **ret, struct dsec_error *e)
{
	char path[SDK_PATH_MAX];
	json_t *reply = NULL, *item;
	size_t i;
	int r = list_path(path, labels, n_labels, include_stopped, e);
	r = r < 0 ? r : sdk_json_call(c, "GET", path, NULL, 0, &reply, e);
	if (r < 0)
		return r;
	json_t *items = json_object_get(reply, "sandboxes");
	struct dsec_sandbox_list *l = calloc(1, sizeof(*l));
	if (l)
		l->items = calloc(json_array_size(items) + 1, sizeof(*l->items));
	if (!l || !l->items)
		r = sdk_no_memory(e);
	json_array_foreach(items, i, item) {
		if (r < 0)
			break;
		if (fill(&l->items[l->n], item) < 0)
			r = sdk_no_memory(e);
		else
			l->n++;
	}
	json_decref(reply);
	if (r < 0)
		dsec_sandbox_list_free(l);
	else
		*ret = l;
	return r;
}

void dsec_sandbox_free(struct dsec_sandbox *s)
{
	if (!s)
		return;
	sdk_holder_free(s->internal);
	free(s);
}

void dsec_sandbox_list_free(struct dsec_sandbox_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		sdk_holder_free(l->items[i].internal);
	free(l->items);
	free(l);
}
