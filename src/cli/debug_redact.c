/* debug_redact.c: see debug_redact.h. */
#include "cli/debug_redact.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/cleanup.h"

static const char *const sandbox_fields[] = {
	"id", "state", "reason", "backend", "edge", "environment", "layers", "cpu", "memory_mb", "disk_mb", "pids",
	"created_at", "running_at", "end_at", "idle_ttl_seconds", "idle_end_at", "stopped_at", "no_new_privileges",
	"usage", "execs_running",
};
static const char *const exec_fields[] = {
	"id", "state", "started_at", "finished_at", "exit_code", "signal", "timed_out", "killed_by", "oom_killed",
	"background_alive", "drain_cut", "cpu_seconds", "max_rss_bytes", "wall_seconds", "stdout_bytes", "stderr_bytes",
	"stdout_truncated", "stderr_truncated", "stdin_offset", "pty",
};
/* What stands before a secret. Where the name ends with '=' blanks may follow it. */
static const char *const marks[] = { "dsk-", "bearer ", "password=", "passwd=", "token=", "secret=", "api_key=",
				     "api-key=", "apikey=", "\"password\":", "\"token\":", "\"secret\":", "\"api_key\":" };

static void keep(struct redact *r, const char *value, size_t n)
{
	for (size_t i = 0; i < r->n; i++)
		if (strlen(r->values[i]) == n && !memcmp(r->values[i], value, n))
			return;
	if (!r->values)
		r->values = calloc(REDACT_VALUES_MAX, sizeof(*r->values));
	char *copy = r->values && r->n < REDACT_VALUES_MAX ? strndup(value, n) : NULL;
	if (copy)
		r->values[r->n++] = copy;
	else
		r->overflow = true;
}

void redact_learn(struct redact *r, const char *value)
{
	/* A value of several lines is searched for line by line: logs cut there. */
	for (const char *line = value; *line;) {
		size_t n = strcspn(line, "\r\n");
		if (n >= REDACT_VALUE_MIN)
			keep(r, line, n);
		line += n + strspn(line + n, "\r\n");
	}
	/* As JSON and our logs quote it. */
	json_t *text = json_string(value);
	_cleanup_free_ char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
	size_t n = quoted ? strlen(quoted) : 0;
	if (n > 2 + REDACT_VALUE_MIN && (n - 2 != strlen(value) || memcmp(quoted + 1, value, n - 2)))
		keep(r, quoted + 1, n - 2);
	json_decref(text);
}

void redact_learn_key(struct redact *r, const char *key)
{
	redact_learn(r, key);
	r->n_keys = r->n;
}

static void learn_word(struct redact *r, const char *word)
{
	static const char ends[] = " \t\r\n\"'=;:,|&()<>@";
	redact_learn(r, word);
	for (const char *p = word; *p;) {
		size_t n = strcspn(p, ends);
		if (n >= REDACT_PIECE_MIN)
			keep(r, p, n);
		p += n + strspn(p + n, ends);
	}
}

void redact_learn_object(struct redact *r, const json_t *o)
{
	static const char *const maps[] = { "env", "labels" };
	static const char *const words[] = { "cwd", "user", "hostname" };
	const char *key;
	json_t *value;
	size_t i;
	for (i = 0; i < ARRAY_SIZE(maps); i++)
		json_object_foreach(json_object_get(o, maps[i]), key, value)
			if (json_is_string(value))
				learn_word(r, json_string_value(value));
	/* "root" and "/" are everybody's. */
	for (i = 0; i < ARRAY_SIZE(words); i++) {
		const char *text = json_string_value(json_object_get(o, words[i]));
		if (text && strlen(text) >= REDACT_PIECE_MIN)
			redact_learn(r, text);
	}
	json_array_foreach(json_object_get(o, "argv"), i, value)
		if (json_is_string(value))
			learn_word(r, json_string_value(value));
		else if (json_is_string(json_object_get(value, "b64")))
			redact_learn(r, json_string_value(json_object_get(value, "b64")));
}

static void overwrite(char *p, size_t n)
{
	memset(p, '*', n);
}

static bool ends_secret(char c)
{
	return !c || isspace((unsigned char)c) || strchr("\"'&,;)}]", c);
}

/* Finds in `seen`, the text as it was, and overwrites in `text`. */
static void redact_marked(const char *seen, char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		for (size_t k = 0; k < ARRAY_SIZE(marks); k++) {
			size_t m = strlen(marks[k]);
			if (n - i < m || strncasecmp(seen + i, marks[k], m))
				continue;
			size_t from = i + m, to;
			while (from < n && (seen[from] == ' ' || seen[from] == '"' || seen[from] == '\''))
				from++;
			for (to = from; to < n && !ends_secret(seen[to]);)
				to++;
			overwrite(text + from, to - from);
		}
		/* scheme://user:password@host */
		if (n - i >= 3 && !memcmp(seen + i, "://", 3)) {
			size_t to = i + 3;
			while (to < n && seen[to] != '@' && seen[to] != '/' && !ends_secret(seen[to]))
				to++;
			if (to < n && seen[to] == '@')
				overwrite(text + i + 3, to - i - 3);
		}
	}
}

/* Values may overlap: each is looked for in the text as it was, not in what others left. */
void redact_text(const struct redact *r, char *text, size_t n, bool keys_only)
{
	_cleanup_free_ char *seen = malloc(n + 1);
	if (!seen) {
		overwrite(text, n);
		return;
	}
	memcpy(seen, text, n);
	seen[n] = 0;
	for (size_t i = 0; i < (keys_only ? r->n_keys : r->n); i++) {
		size_t m = strlen(r->values[i]);
		for (char *at = seen; (at = memmem(at, n - (size_t)(at - seen), r->values[i], m)); at++)
			overwrite(text + (at - seen), m);
	}
	redact_marked(seen, text, n);
}

void redact_done(struct redact *r)
{
	for (size_t i = 0; i < r->n; i++) {
		explicit_bzero(r->values[i], strlen(r->values[i]));
		free(r->values[i]);
	}
	free(r->values);
	*r = (struct redact){ 0 };
}

static json_t *pick(const json_t *o, const char *const *fields, size_t n)
{
	json_t *out = json_object();
	for (size_t i = 0; out && i < n; i++) {
		json_t *v = json_object_get(o, fields[i]);
		if (v)
			json_object_set(out, fields[i], v);
	}
	return out;
}

static void set_text(const struct redact *r, json_t *out, const char *key, const char *text)
{
	_cleanup_free_ char *copy = text ? strdup(text) : NULL;
	if (!copy)
		return;
	redact_text(r, copy, strlen(copy), false);
	json_object_set_new(out, key, json_string(copy));
}

/* {"A":"x"} to ["A"] */
static void set_names(json_t *out, const char *key, const json_t *map)
{
	json_t *names = json_array(), *value;
	const char *name;
	json_object_foreach((json_t *)map, name, value)
		json_array_append_new(names, json_string(name));
	json_object_set_new(out, key, names);
}

json_t *redact_sandbox(const struct redact *r, const json_t *sandbox)
{
	json_t *out = pick(sandbox, sandbox_fields, ARRAY_SIZE(sandbox_fields));
	if (!out)
		return NULL;
	set_text(r, out, "message", json_string_value(json_object_get(sandbox, "message")));
	set_names(out, "label_names", json_object_get(sandbox, "labels"));
	set_names(out, "env_names", json_object_get(sandbox, "env"));
	return out;
}

json_t *redact_exec(const struct redact *r, const json_t *exec)
{
	json_t *out = pick(exec, exec_fields, ARRAY_SIZE(exec_fields));
	if (!out)
		return NULL;
	const json_t *error = json_object_get(exec, "error");
	json_object_set_new(out, "argv_words", json_integer((json_int_t)json_array_size(json_object_get(exec, "argv"))));
	/* Its message quotes the command, its directory or user. */
	set_text(r, out, "error_code", json_string_value(json_object_get(error, "code")));
	return out;
}
