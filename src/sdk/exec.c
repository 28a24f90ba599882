/* exec.c: see dsec/exec.h: everything of an exec but following its output. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include "sdk/sdk-internal.h"

#define WAIT_SECONDS_MAX 60 /* the server's bound on one wait */
#define WAIT_SLACK_MS 15000

int sdk_exec_fill(struct dsec_exec *x, json_t *o)
{
	struct sdk_holder *h = sdk_holder_new(o);
	const json_t *code = json_object_get(o, "exit_code");
	if (!h)
		return -ENOMEM;
	*x = (struct dsec_exec){
		.id = sdk_str(o, "id"), .sandbox_id = sdk_str(o, "sandbox_id"), .state = sdk_str(o, "state"),
		.killed_by = sdk_str(o, "killed_by"), .started_at = sdk_num(o, "started_at"),
		.finished_at = sdk_num(o, "finished_at"), .has_exit_code = json_is_integer(code),
		.exit_code = (int)json_integer_value(code),
		.signal = json_string_value(json_object_get(o, "signal")), .timed_out = sdk_bool(o, "timed_out"),
		.oom_killed = sdk_bool(o, "oom_killed"), .background_alive = sdk_bool(o, "background_alive"),
		.drain_cut = sdk_bool(o, "drain_cut"), .stdout_truncated = sdk_bool(o, "stdout_truncated"),
		.stderr_truncated = sdk_bool(o, "stderr_truncated"), .pty = json_is_object(json_object_get(o, "pty")) || sdk_bool(o, "pty"),
		.cpu_seconds = sdk_num(o, "cpu_seconds"), .wall_seconds = sdk_num(o, "wall_seconds"),
		.max_rss_bytes = sdk_u64(o, "max_rss_bytes"), .stdout_bytes = sdk_u64(o, "stdout_bytes"),
		.stderr_bytes = sdk_u64(o, "stderr_bytes"), .stdin_offset = sdk_u64(o, "stdin_offset"),
		.json = h->text, .internal = h,
	};
	return 0;
}

void sdk_exec_done(struct dsec_exec *x)
{
	sdk_holder_free(x->internal);
	x->internal = NULL;
}

void dsec_exec_free(struct dsec_exec *x)
{
	if (!x)
		return;
	sdk_exec_done(x);
	free(x);
}

void dsec_exec_list_free(struct dsec_exec_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		sdk_exec_done(&l->items[i]);
	free(l->items);
	free(l);
}

/* Steals the answer. */
static int answer(json_t *reply, struct dsec_exec **ret, struct dsec_error *e)
{
	int r = 0;
	struct dsec_exec *x = NULL;
	if (!*sdk_str(reply, "id"))
		r = sdk_bad_reply(e, "an exec without an id");
	else if (ret) {
		x = calloc(1, sizeof(*x));
		if (!x || sdk_exec_fill(x, reply) < 0) {
			free(x);
			r = sdk_no_memory(e);
		} else
			*ret = x;
	}
	json_decref(reply);
	return r;
}

void sdk_exec_make_id(char ret[65])
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz234567";
	uint8_t random[26];
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		abort(); /* cannot come short once the pool is ready */
	strcpy(ret, "ex-");
	for (size_t i = 0; i < sizeof(random); i++)
		ret[3 + i] = letters[random[i] & 31];
	ret[3 + sizeof(random)] = 0;
}

static int set(json_t *body, const char *key, json_t *value)
{
	return json_object_set_new(body, key, value); /* fails on a NULL value too */
}

static int set_command(json_t *b, const struct dsec_exec_options *o)
{
	if (o->shell)
		return set(b, "shell", json_string(o->shell));
	json_t *argv = json_array();
	int r = argv ? 0 : -1;
	for (size_t i = 0; !r && o->argv && o->argv[i]; i++)
		r = json_array_append_new(argv, sdk_bytes_json(o->argv[i]));
	return r | set(b, "argv", argv);
}

static int set_stdin(json_t *b, const struct dsec_exec_options *o)
{
	if (o->stdin_open)
		return set(b, "stdin", json_string("open"));
	if (!o->stdin_bytes)
		return 0;
	char *b64 = sdk_b64(o->stdin_bytes, o->n_stdin_bytes);
	int r = b64 ? set(b, "stdin_b64", json_string(b64)) : -1;
	free(b64);
	return r;
}

int sdk_exec_body(const struct dsec_exec_options *o, const char *id, json_t **ret, struct dsec_error *e)
{
	if (!o->shell == !(o->argv && o->argv[0]))
		return sdk_fail(e, -EINVAL, "bad_argv", DSEC_FAULT_CALLER, false,
				"a command needs either argv with at least one word, or shell");
	if (o->n_stdin_bytes > DSEC_STDIN_BYTES_MAX || (o->stdin_bytes && o->stdin_open))
		return sdk_fail(e, -EINVAL, "bad_field", DSEC_FAULT_CALLER, false,
				"input given whole is at most %u bytes and excludes stdin_open", DSEC_STDIN_BYTES_MAX);
	json_t *b = json_object();
	int r = b ? set(b, "id", json_string(id)) | set_command(b, o) | set_stdin(b, o) : -1;
	if (o->n_env)
		r |= set(b, "env", sdk_pairs_json(o->env, o->n_env));
	if (o->cwd)
		r |= set(b, "cwd", json_string(o->cwd));
	if (o->user)
		r |= set(b, "user", json_string(o->user));
	if (o->pty)
		r |= set(b, "pty", json_pack("{s:i,s:i}", "rows", o->rows ? (int)o->rows : 24, "cols",
					     o->cols ? (int)o->cols : 80));
	if (o->timeout_ms)
		r |= set(b, "timeout_seconds", sdk_seconds_json((double)o->timeout_ms / 1000));
	if (o->kill_grace_ms)
		r |= set(b, "kill_grace_seconds", sdk_seconds_json((double)o->kill_grace_ms / 1000));
	if (o->output_limit_bytes)
		r |= set(b, "output_limit_bytes", json_integer((json_int_t)o->output_limit_bytes));
	if (r) {
		json_decref(b);
		return sdk_fail(e, -EINVAL, "bad_field", DSEC_FAULT_CALLER, false,
				"a command's variables, directory, user and shell text must be UTF-8");
	}
	*ret = b;
	return 0;
}

/* "/v1/sandboxes/ID/execs[/EXEC]REST" */
static int exec_path(char path[SDK_PATH_MAX], const char *sandbox_id, const char *exec_id, const char *rest,
		     struct dsec_error *e)
{
	char *sb = sdk_encode(sandbox_id), *id = exec_id ? sdk_encode(exec_id) : strdup("");
	int r = sb && id ? sdk_path(path, e, "/v1/sandboxes/%s/execs%s%s%s", sb, *id ? "/" : "", id, rest)
			 : sdk_no_memory(e);
	free(sb);
	free(id);
	return r;
}

int dsec_exec_start(struct dsec_client *c, const char *sandbox_id, const struct dsec_exec_options *o,
		    struct dsec_exec **ret, struct dsec_error *e)
{
	char path[SDK_PATH_MAX], id[65];
	json_t *body, *reply = NULL;
	sdk_exec_make_id(id);
	int r = exec_path(path, sandbox_id, NULL, "", e);
	r = r < 0 ? r : sdk_exec_body(o, o->id ? o->id : id, &body, e);
	r = r < 0 ? r : sdk_json_call(c, "POST", path, body, 0, &reply, e);
	return r < 0 ? r : answer(reply, ret, e);
}

int dsec_exec_get(struct dsec_client *c, const char *sandbox_id, const char *exec_id, struct dsec_exec **ret,
		  struct dsec_error *e)
{
	char path[SDK_PATH_MAX];
	json_t *reply = NULL;
	int r = exec_path(path, sandbox_id, exec_id, "", e);
	r = r < 0 ? r : sdk_json_call(c, "GET", path, NULL, 0, &reply, e);
	return r < 0 ? r : answer(reply, ret, e);
}

int dsec_exec_list(struct dsec_client *c, const char *sandbox_id, struct dsec_exec_list **ret,
		   struct dsec_error *e)
{
	char path[SDK_PATH_MAX];
	json_t *reply = NULL, *item;
	size_t i;
	int r = exec_path(path, sandbox_id, NULL, "", e);
	r = r < 0 ? r : sdk_json_call(c, "GET", path, NULL, 0, &reply, e);
	if (r < 0)
		return r;
	json_t *items = json_object_get(reply, "execs");
	struct dsec_exec_list *l = calloc(1, sizeof(*l));
	if (l)
		l->items = calloc(json_array_size(items) + 1, sizeof(*l->items));
	if (!l || !l->items)
		r = sdk_no_memory(e);
	json_array_foreach(items, i, item) {
		if (r < 0)
			break;
		if (sdk_exec_fill(&l->items[l->n], item) < 0)
			r = sdk_no_memory(e);
		else
			l->n++;
	}
	json_decref(reply);
	if (r < 0)
		dsec_exec_list_free(l);
	else
		*ret = l;
	return r;
}

static uint64_t mono_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int dsec_exec_wait(struct dsec_client *c, const char *sandbox_id, const char *exec_id, uint64_t timeout_ms,
		   struct dsec_exec **ret, struct dsec_error *e)
{
	uint64_t start = mono_ms();
	for (;;) {
		char path[SDK_PATH_MAX], rest[64];
		uint64_t gone = mono_ms() - start, seconds = WAIT_SECONDS_MAX;
		json_t *reply = NULL;
		if (timeout_ms && timeout_ms - (gone < timeout_ms ? gone : timeout_ms) < seconds * 1000)
			seconds = gone < timeout_ms ? (timeout_ms - gone + 999) / 1000 : 0;
		snprintf(rest, sizeof(rest), "?wait_seconds=%u", (unsigned)seconds);
		int r = exec_path(path, sandbox_id, exec_id, rest, e);
		r = r < 0 ? r : sdk_json_call(c, "GET", path, NULL, seconds * 1000 + WAIT_SLACK_MS, &reply, e);
		if (r < 0)
			return r;
		const char *state = sdk_str(reply, "state");
		if (!strcmp(state, "finished") || !strcmp(state, "failed"))
			return answer(reply, ret, e);
		json_decref(reply);
		if (timeout_ms && mono_ms() - start >= timeout_ms)
			return sdk_fail(e, -ETIMEDOUT, "deadline_exceeded", DSEC_FAULT_CALLER, true,
					"the command is still running");
	}
}

int dsec_exec_stdin(struct dsec_client *c, const char *sandbox_id, const char *exec_id, uint64_t offset,
		    const void *data, size_t n, bool eof, uint64_t *ret_offset, bool *ret_closed,
		    struct dsec_error *e)
{
	char path[SDK_PATH_MAX], rest[80];
	snprintf(rest, sizeof(rest), "/stdin?offset=%llu&eof=%s", (unsigned long long)offset, eof ? "true" : "false");
	int r = exec_path(path, sandbox_id, exec_id, rest, e);
	if (r < 0)
		return r;
	/* No time limit: a program may take its time to read. */
	struct sdk_call call = { .method = "POST",
				 .path = path,
				 .body = n ? data : "",
				 .n_body = n,
				 .content_type = "application/octet-stream" };
	r = sdk_perform(c, &call, e);
	json_t *reply = r < 0 ? NULL : json_loadb(call.text ? call.text : "", call.n_text, 0, NULL);
	if (!r && !json_is_object(reply))
		r = sdk_bad_reply(e, "not JSON");
	if (!r && ret_offset)
		*ret_offset = sdk_u64(reply, "offset");
	if (!r && ret_closed)
		*ret_closed = sdk_bool(reply, "closed");
	json_decref(reply);
	sdk_call_done(&call);
	return r;
}

int dsec_exec_signal(struct dsec_client *c, const char *sandbox_id, const char *exec_id, const char *signal,
		     bool whole_tree, struct dsec_error *e)
{
	char path[SDK_PATH_MAX], *end;
	long number = strtol(signal, &end, 10);
	json_t *value = *signal && !*end ? json_integer(number) : json_string(signal);
	json_t *body = json_pack("{s:o,s:b}", "signal", value, "whole_tree", whole_tree);
	int r = body ? exec_path(path, sandbox_id, exec_id, "/signal", e) : sdk_no_memory(e);
	if (r < 0) {
		json_decref(body);
		return r;
	}
	return sdk_json_call(c, "POST", path, body, 0, NULL, e);
}

int dsec_exec_resize(struct dsec_client *c, const char *sandbox_id, const char *exec_id, unsigned rows,
		     unsigned cols, struct dsec_error *e)
{
	char path[SDK_PATH_MAX];
	int r = exec_path(path, sandbox_id, exec_id, "/resize", e);
	return r < 0 ? r
		     : sdk_json_call(c, "POST", path, json_pack("{s:i,s:i}", "rows", (int)rows, "cols", (int)cols), 0,
				     NULL, e);
}
