/* follow.c: following an exec's output over connections that may break.
 *
 * Theory of operation. The server keeps output by byte offset, so a position is
 * two numbers: how many bytes of each stream the caller has been given. An
 * attempt is one HTTP stream; it ends with the exit event (done), with a refusal
 * (an error), or broken. After a break the next attempt asks for the same exec
 * from the present position.
 *  1. The position moves exactly when a callback was given the bytes, or when a
 *     gap event says that they do not exist any more.
 *  2. Starting is repeated only with the same id, which the server treats as
 *     attaching: one command runs however often the call was sent.
 *  3. A break (also an error event that says retry: the edge restarts) is retried
 *     while there was progress (bytes, gaps) within the client's reconnect_ms; a server that was never reached is not retried.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "sdk/frames.h"
#include "sdk/sdk-internal.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 1000

struct follow {
	struct dsec_client *client;
	const char *sandbox_id, *exec_id;
	const struct dsec_output_callbacks *cb;
	uint64_t offset[2]; /* stdout, stderr: the position */
	bool reached;       /* the server has taken one attempt */
	bool told_started, finished, broken_frames;
	json_t *exec;  /* owned: the latest that an event carried */
	json_t *error; /* owned: what the server ended this attempt with */
	uint64_t progress_ms;
};

static uint64_t mono_ms(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static int on_data(enum frame_type type, const void *p, size_t n, void *user)
{
	struct follow *f = user;
	uint64_t *at = &f->offset[type == FRAME_STDERR];
	f->progress_ms = mono_ms();
	int r = f->cb && f->cb->on_output
			? f->cb->on_output(type == FRAME_STDERR ? DSEC_STDERR : DSEC_STDOUT, *at, p, n, f->cb->user)
			: 0;
	if (r < 0)
		return r;
	*at += n;
	return 0;
}

static int on_gap(struct follow *f, const json_t *o)
{
	bool err = !strcmp(sdk_str(o, "stream"), "stderr");
	uint64_t from = sdk_u64(o, "from"), to = sdk_u64(o, "to"), *at = &f->offset[err];
	if (to <= *at)
		return 0;
	if (from < *at)
		from = *at;
	*at = to;
	f->progress_ms = mono_ms();
	return f->cb && f->cb->on_gap ? f->cb->on_gap(err ? DSEC_STDERR : DSEC_STDOUT, from, to, f->cb->user) : 0;
}

static int on_started(struct follow *f)
{
	struct dsec_exec x;
	if (f->told_started || !f->cb || !f->cb->on_started)
		return 0;
	f->told_started = true;
	if (sdk_exec_fill(&x, f->exec) < 0)
		return -ENOMEM;
	int r = f->cb->on_started(&x, f->cb->user);
	sdk_exec_done(&x);
	return r;
}

static int on_event(const char *text, size_t n, void *user)
{
	struct follow *f = user;
	json_t *o = json_loadb(text, n, JSON_ALLOW_NUL, NULL), *exec = json_object_get(o, "exec");
	const char *event = sdk_str(o, "event");
	int r = 0;
	if (json_is_object(exec)) {
		json_decref(f->exec);
		f->exec = json_incref(exec);
	}
	if (!strcmp(event, "started") && f->exec)
		r = on_started(f);
	else if (!strcmp(event, "exit") && f->exec)
		f->finished = true;
	else if (!strcmp(event, "gap"))
		r = on_gap(f, o);
	else if (!strcmp(event, "error")) {
		json_decref(f->error);
		f->error = json_incref(json_object_get(o, "error"));
	}
	else if (!*event) {
		f->broken_frames = true;
		r = -EPROTO;
	} /* other events are of a later version */
	json_decref(o);
	return r;
}

struct attempt {
	struct frames frames;
	struct follow *f;
};

static int sink(const void *p, size_t n, void *user)
{
	struct attempt *a = user;
	a->f->reached = true;
	int r = sdk_frames_feed(&a->frames, p, n);
	if (r == -EPROTO)
		a->f->broken_frames = true;
	return r;
}

/* One HTTP stream; body NULL: attach. */
static int attempt(struct follow *f, const char *path, const char *body, struct dsec_error *e)
{
	struct attempt a = { .frames = { .on_data = on_data, .on_event = on_event, .user = f }, .f = f };
	struct sdk_call call = { .method = body ? "POST" : "GET",
				 .path = path,
				 .body = body,
				 .n_body = body ? strlen(body) : 0,
				 .accept = "application/vnd.dsec.frames",
				 .sink = sink,
				 .sink_user = &a,
				 .silence_s = SDK_STREAM_SILENCE_S };
	json_decref(f->error); /* of an earlier attempt, such as an edge that restarts */
	f->error = NULL;
	int r = sdk_perform(f->client, &call, e);
	bool partial = sdk_frames_partial(&a.frames);
	sdk_frames_reset(&a.frames);
	sdk_call_done(&call);
	if (f->broken_frames)
		return sdk_bad_reply(e, "a broken frame stream");
	if (f->error)
		return sdk_fail_object(e, f->error, 410);
	if (!r && partial)
		r = sdk_fail(e, -ECONNRESET, "connection_lost", DSEC_FAULT_PLATFORM, true,
			     "the output stream ended inside a frame");
	return r;
}

/* May the same be tried again after this failure? */
static bool is_break(const struct follow *f, const struct dsec_error *e, bool sent)
{
	if (!strcmp(e->code, "connection_lost"))
		return true;
	if (!strcmp(e->code, "connection_failed") || !strcmp(e->code, "deadline_exceeded"))
		return e->retry && (f->reached || sent);
	/* A refusal of a start is an answer; one of an attach may be an edge that restarts. */
	return f->reached && e->retry;
}

static void nap(unsigned ms)
{
	struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
	nanosleep(&ts, NULL);
}

static int output_path(const struct follow *f, bool follow, char path[SDK_PATH_MAX], struct dsec_error *e)
{
	char *sb = sdk_encode(f->sandbox_id), *id = sdk_encode(f->exec_id);
	int r = sb && id ? sdk_path(path, e,
				    "/v1/sandboxes/%s/execs/%s/output?stdout_offset=%llu&stderr_offset=%llu&follow=%s", sb,
				    id, (unsigned long long)f->offset[0], (unsigned long long)f->offset[1],
				    follow ? "true" : "false")
			 : sdk_no_memory(e);
	free(sb);
	free(id);
	return r;
}

/* start_path, start_body: NULL when only attaching. */
static int drive(struct follow *f, const char *start_path, const char *start_body, bool follow,
		 struct dsec_error *e)
{
	unsigned backoff_ms = BACKOFF_MIN_MS;
	struct dsec_error own;
	bool sent = false;
	f->progress_ms = mono_ms();
	for (;;) {
		char path[SDK_PATH_MAX];
		uint64_t before = f->progress_ms;
		bool start = start_body && !f->reached;
		int r = start ? attempt(f, start_path, start_body, &own) : output_path(f, follow, path, &own);
		if (!r && !start)
			r = attempt(f, path, NULL, &own);
		if (f->finished || (!r && !follow))
			return 0; /* the result counts, however its connection ended */
		if (!r)
			r = sdk_fail(&own, -ECONNRESET, "connection_lost", DSEC_FAULT_PLATFORM, true,
				     "the output stream ended before the command did");
		if (strcmp(own.code, "connection_failed"))
			sent = true;
		if (!is_break(f, &own, sent) || mono_ms() - f->progress_ms > f->client->reconnect_ms) {
			if (e)
				*e = own;
			return r;
		}
		backoff_ms = f->progress_ms > before ? BACKOFF_MIN_MS : backoff_ms;
		nap(backoff_ms);
		backoff_ms = backoff_ms * 2 < BACKOFF_MAX_MS ? backoff_ms * 2 : BACKOFF_MAX_MS;
	}
}

static int conclude(struct follow *f, int r, struct dsec_exec **ret, struct dsec_error *e)
{
	struct dsec_exec *x = NULL;
	if (!r && !f->exec)
		r = sdk_bad_reply(e, "an output stream without its exec");
	if (!r && ret) {
		x = calloc(1, sizeof(*x));
		if (!x || sdk_exec_fill(x, f->exec) < 0) {
			free(x);
			r = sdk_no_memory(e);
		} else
			*ret = x;
	}
	json_decref(f->exec);
	json_decref(f->error);
	return r;
}

int dsec_exec_follow(struct dsec_client *c, const char *sandbox_id, const char *exec_id,
		     uint64_t stdout_offset, uint64_t stderr_offset, bool follow,
		     const struct dsec_output_callbacks *callbacks, struct dsec_exec **ret, struct dsec_error *e)
{
	struct follow f = { .client = c,
			    .sandbox_id = sandbox_id,
			    .exec_id = exec_id,
			    .cb = callbacks,
			    .offset = { stdout_offset, stderr_offset } };
	return conclude(&f, drive(&f, NULL, NULL, follow, e), ret, e);
}

int dsec_exec_run(struct dsec_client *c, const char *sandbox_id, const struct dsec_exec_options *o,
		  const struct dsec_output_callbacks *callbacks, struct dsec_exec **ret, struct dsec_error *e)
{
	char path[SDK_PATH_MAX], made[65], *sb = sdk_encode(sandbox_id), *text = NULL;
	json_t *body = NULL;
	sdk_exec_make_id(made);
	struct follow f = { .client = c, .sandbox_id = sandbox_id, .exec_id = o->id ? o->id : made, .cb = callbacks };
	int r = sb ? sdk_path(path, e, "/v1/sandboxes/%s/execs?stream=true", sb) : sdk_no_memory(e);
	free(sb);
	r = r < 0 ? r : sdk_exec_body(o, f.exec_id, &body, e);
	if (!r) {
		text = json_dumps(body, JSON_COMPACT);
		json_decref(body);
		r = text ? conclude(&f, drive(&f, path, text, true, e), ret, e) : sdk_no_memory(e);
		free(text);
	}
	return r;
}
