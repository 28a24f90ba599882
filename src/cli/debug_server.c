/* debug_server.c: what the server tells for a bundle: versions, limits, metrics, states. */
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "cli/debug.h"

static json_t *get(struct bundle *b, struct dsec_client *client, const char *path)
{
	_cleanup_free_ char *text = NULL;
	struct dsec_error e;
	if (dsec_client_call(client, "GET", path, NULL, &text, &e) < 0) {
		bundle_note(b, "%s: %s: %s", path, e.code, e.message);
		return NULL;
	}
	json_t *o = json_loads(text, JSON_ALLOW_NUL, NULL);
	if (!o)
		bundle_note(b, "%s: not JSON", path);
	return o;
}

static void add_json(struct bundle *b, const char *name, const json_t *o)
{
	struct part p;
	if (o && part_open(&p)) {
		json_dumpf(o, p.f, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
		bundle_add(b, name, &p, false);
	}
}

static void add_get(struct bundle *b, struct dsec_client *client, const char *path, const char *name)
{
	json_t *o = get(b, client, path);
	add_json(b, name, o);
	json_decref(o);
}

static void add_metrics(struct bundle *b, struct dsec_client *client)
{
	_cleanup_free_ char *text = NULL;
	struct dsec_error e;
	struct part p;
	if (dsec_client_call(client, "GET", "/metrics", NULL, &text, &e) < 0)
		bundle_note(b, "/metrics: %s: %s", e.code, e.message);
	else if (part_open(&p)) {
		fputs(text, p.f);
		bundle_add(b, "metrics.txt", &p, false);
	}
}

static void add_versions(struct bundle *b, struct dsec_client *client)
{
	json_t *o = json_object(), *server = client ? get(b, client, "/v1/version") : NULL;
	json_object_set_new(o, "client", json_string(dsec_version()));
	json_object_set_new(o, "server", server ? server : json_null());
	add_json(b, "versions.json", o);
	json_decref(o);
}

static json_t *execs_of(struct bundle *b, struct dsec_client *client, const char *id)
{
	char path[256];
	if (strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(id) || strlen(id) > 100)
		return NULL;
	snprintf(path, sizeof(path), "/v1/sandboxes/%s/execs", id);
	json_t *answer = get(b, client, path), *list = json_object_get(answer, "execs");
	json_incref(list);
	json_decref(answer);
	return list;
}

/* All is asked for and learned first: a message of one may quote another. */
static void add_sandboxes(struct bundle *b, struct dsec_client *client)
{
	json_t *answer = get(b, client, "/v1/sandboxes?include_stopped=true");
	json_t *list = json_object_get(answer, "sandboxes"), *out = json_array(), *execs = json_array(), *s, *x;
	size_t n = MIN(json_array_size(list), BUNDLE_SANDBOXES_MAX), k;
	if (json_array_size(list) > BUNDLE_EXECS_OF_MAX)
		bundle_note(b, "sandboxes.json: %zu sandboxes, at most %d are told, the commands of %d",
			    json_array_size(list), BUNDLE_SANDBOXES_MAX, BUNDLE_EXECS_OF_MAX);
	for (size_t i = 0; i < n; i++) {
		s = json_array_get(list, i);
		const char *id = json_string_value(json_object_get(s, "id"));
		json_t *of = id && i < BUNDLE_EXECS_OF_MAX ? execs_of(b, client, id) : NULL;
		redact_learn_object(&b->redact, s);
		json_array_foreach(of, k, x)
			redact_learn_object(&b->redact, x);
		json_array_append_new(execs, of ? of : json_array());
	}
	for (size_t i = 0; i < n; i++) {
		json_t *o = redact_sandbox(&b->redact, json_array_get(list, i)), *told = json_array();
		json_array_foreach(json_array_get(execs, i), k, x)
			json_array_append_new(told, redact_exec(&b->redact, x));
		json_object_set_new(o, "execs", told);
		json_array_append_new(out, o);
	}
	struct part p;
	b->learned = answer;
	if (answer && part_open(&p)) {
		json_dumpf(out, p.f, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
		bundle_add(b, "sandboxes.json", &p, false);
	}
	json_decref(out);
	json_decref(execs);
	json_decref(answer);
}

void bundle_server(struct bundle *b, struct dsec_client *client)
{
	/* First: what it learns holds for all the rest. */
	if (client)
		add_sandboxes(b, client);
	add_versions(b, client);
	if (!client)
		return;
	add_get(b, client, "/v1/limits", "limits.json");
	add_get(b, client, "/v1/edges", "edges.json");
	add_metrics(b, client);
}
