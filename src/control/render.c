/* render.c: see render.h. */
#include "control/render.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/cleanup.h"

static int dump_part(const char *p, size_t n, void *out)
{
	return buf_append(out, p, n) ? -1 : 0;
}

int render_json(const json_t *v, struct buf *out)
{
	/* 15 digits hold milliseconds since 1970 exactly and print short. */
	if (json_dump_callback(v, dump_part, out, JSON_COMPACT | JSON_REAL_PRECISION(15)) < 0)
		return -ENOMEM;
	return buf_append(out, "\n", 1);
}

/* ---- text ---- */

/* Length of the well-formed UTF-8 sequence at p, 0 if there is none. */
static size_t sequence(const uint8_t *p, size_t n)
{
	uint8_t a = p[0];
	size_t len = a < 0x80 ? 1 : a >= 0xc2 && a < 0xe0 ? 2 : a >= 0xe0 && a < 0xf0 ? 3 :
		     a >= 0xf0 && a < 0xf5 ? 4 : 0;
	if (!len || len > n || !a)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if ((a == 0xe0 && p[1] < 0xa0) || (a == 0xed && p[1] > 0x9f) || (a == 0xf0 && p[1] < 0x90) ||
	    (a == 0xf4 && p[1] > 0x8f))
		return 0;
	return len;
}

bool utf8_valid(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t len = sequence(p + i, n - i);
		if (!len)
			return false;
		i += len;
	}
	return true;
}

json_t *render_text(const void *text, size_t n)
{
	const uint8_t *p = text;
	if (utf8_valid(p, n))
		return json_stringn(n ? text : "", n);
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	for (size_t i = 0; i < n;) {
		size_t len = sequence(p + i, n - i);
		int r = len ? buf_append(&b, p + i, len) : buf_append(&b, "\xef\xbf\xbd", 3);
		if (r)
			return NULL;
		i += len ? len : 1;
	}
	return json_stringn((const char *)buf_ptr(&b), buf_len(&b));
}

static json_t *string(const char *s)
{
	return s ? render_text(s, strlen(s)) : json_string("");
}

static json_t *b64(const uint8_t *p, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	if (base64_encode(p, n, &b))
		return NULL;
	return json_stringn(buf_len(&b) ? (const char *)buf_ptr(&b) : "", buf_len(&b));
}

static json_t *seconds(uint64_t ms) /* null while not known */
{
	return ms ? json_real((double)ms / 1000.0) : json_null();
}

static json_t *key_values(Dsec__Edge__KeyValue **kv, size_t n)
{
	json_t *o = json_object();
	for (size_t i = 0; i < n; i++)
		json_object_set_new_nocheck(o, kv[i]->key, string(kv[i]->value));
	return o;
}

/* ---- errors ---- */

json_t *render_error(const struct dsec_error *e)
{
	return json_pack("{s:s, s:o, s:s, s:b}", "code", dsec_code_name(e->code), "message", string(e->message),
			 "fault", dsec_fault_name(dsec_code_fault(e->code)), "retry", dsec_code_retry(e->code));
}

json_t *render_wire_error(const Dsec__Edge__Error *w)
{
	struct dsec_error e;
	if (!w)
		return json_null();
	dsec_error_set(&e, 0, dsec_code_from_name(w->code), "%s", w->message);
	return render_error(&e);
}

/* ---- sandboxes ---- */

static json_t *usage(const Dsec__Edge__Sandbox *s)
{
	return json_pack("{s:I, s:I, s:f, s:I, s:I, s:I}", "memory_bytes", (json_int_t)s->memory_used_bytes,
			 "memory_peak_bytes", (json_int_t)s->memory_peak_bytes, "cpu_seconds",
			 (double)s->cpu_usec / 1e6, "disk_bytes", (json_int_t)s->disk_used_bytes, "pids",
			 (json_int_t)s->pids_used, "oom_kills", (json_int_t)s->oom_kills);
}

json_t *render_sandbox(const Dsec__Edge__Sandbox *s)
{
	json_t *layers = json_array();
	for (size_t i = 0; i < s->n_layers; i++)
		json_array_append_new(layers, string(s->layers[i]));
	json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", string(s->id), "state",
			      string(s->state), "reason", string(s->reason), "message", string(s->message),
			      "backend", string(s->backend), "edge", string(s->edge), "environment",
			      string(s->environment), "layers", layers);
	if (!o)
		return NULL;
	json_t *more = json_pack(
		"{s:f, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:o, s:o}", "cpu", s->cpu_millis / 1000.0, "memory_mb",
		(json_int_t)(s->memory_bytes >> 20), "disk_mb", (json_int_t)(s->disk_bytes >> 20), "pids",
		(json_int_t)s->pids, "created_at", seconds(s->created_at_ms), "running_at",
		seconds(s->running_at_ms), "end_at", seconds(s->end_at_ms), "idle_ttl_seconds",
		(double)s->idle_ttl_ms / 1000.0, "idle_end_at", seconds(s->idle_end_at_ms), "stopped_at",
		seconds(s->stopped_at_ms));
	json_object_update_new(o, more);
	more = json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:I}", "labels", key_values(s->labels, s->n_labels),
			 "env", key_values(s->env, s->n_env), "cwd", string(s->cwd), "user", string(s->user),
			 "hostname", string(s->hostname), "no_new_privileges", (int)s->no_new_privs, "usage",
			 usage(s), "execs_running", (json_int_t)s->execs_running);
	json_object_update_new(o, more);
	return o;
}

/* ---- execs ---- */

static json_t *argv(const Dsec__Edge__Exec *x)
{
	json_t *a = json_array();
	for (size_t i = 0; i < x->n_argv; i++) {
		const ProtobufCBinaryData *d = &x->argv[i];
		json_array_append_new(a, utf8_valid(d->data, d->len) ? render_text(d->data, d->len) :
				      json_pack("{s:o}", "b64", b64(d->data, d->len)));
	}
	return a;
}

static json_t *signal_name(uint32_t number)
{
	char text[16];
	if (!number)
		return json_null();
	const char *abbrev = sigabbrev_np((int)number);
	snprintf(text, sizeof(text), "%u", number);
	return json_string(abbrev ? abbrev : text); /* real-time signals have no name */
}

json_t *render_exec(const Dsec__Edge__Exec *x)
{
	json_t *o = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "id", string(x->id), "sandbox_id",
			      string(x->sandbox_id), "state", string(x->state), "argv", argv(x), "started_at",
			      seconds(x->started_at_ms), "finished_at", seconds(x->finished_at_ms), "exit_code",
			      x->has_exit_code ? json_integer(x->exit_code) : json_null(), "signal",
			      signal_name(x->signal));
	if (!o)
		return NULL;
	json_t *more = json_pack("{s:b, s:o, s:b, s:b, s:b, s:f, s:I, s:f}", "timed_out", (int)x->timed_out,
				 "killed_by", string(x->killed_by), "oom_killed", (int)x->oom_killed,
				 "background_alive", (int)x->background_alive, "drain_cut", (int)x->drain_cut,
				 "cpu_seconds", (double)x->cpu_usec / 1e6, "max_rss_bytes",
				 (json_int_t)x->max_rss_bytes, "wall_seconds", (double)x->wall_ms / 1000.0);
	json_object_update_new(o, more);
	more = json_pack("{s:I, s:I, s:b, s:b, s:I, s:b, s:o}", "stdout_bytes", (json_int_t)x->stdout_total,
			 "stderr_bytes", (json_int_t)x->stderr_total, "stdout_truncated", (int)x->stdout_truncated,
			 "stderr_truncated", (int)x->stderr_truncated, "stdin_offset", (json_int_t)x->stdin_offset,
			 "pty", (int)x->pty, "error", render_wire_error(x->error));
	json_object_update_new(o, more);
	return o;
}

/* ---- files, layers, edges ---- */

static const char *file_type(uint32_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "directory";
	case S_IFLNK:
		return "symlink";
	case S_IFIFO:
		return "fifo";
	case S_IFSOCK:
		return "socket";
	case S_IFCHR:
		return "char";
	default:
		return "block";
	}
}

static void set_bytes(json_t *o, const char *key, const char *key_b64, ProtobufCBinaryData d)
{
	json_object_set_new(o, key, render_text(d.data, d.len));
	if (!utf8_valid(d.data, d.len))
		json_object_set_new(o, key_b64, b64(d.data, d.len));
}

json_t *render_file(const Dsec__Edge__FileEntry *f)
{
	char mode[8];
	json_t *o = json_object();
	snprintf(mode, sizeof(mode), "%04o", f->mode & 07777);
	set_bytes(o, "name", "name_b64", f->name);
	json_t *more = json_pack("{s:s, s:s, s:I, s:f, s:I, s:I, s:I, s:I}", "type", file_type(f->mode), "mode",
				 mode, "size", (json_int_t)f->size, "mtime", (double)f->mtime_ns / 1e9, "uid",
				 (json_int_t)f->uid, "gid", (json_int_t)f->gid, "inode", (json_int_t)f->inode,
				 "nlink", (json_int_t)f->nlink);
	json_object_update_new(o, more);
	set_bytes(o, "link", "link_b64", f->link);
	return o;
}

json_t *render_layer(const struct store_layer *l)
{
	json_t *config = json_loads(l->config, 0, NULL);
	if (!json_is_object(config)) {
		json_decref(config);
		config = json_object();
	}
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "name", l->name, "version", l->version, "digest",
			 l->digest, "size_bytes", (json_int_t)l->size_bytes, "files", (json_int_t)l->files,
			 "created_at", seconds(l->created_at_ms), "config", config, "source", string(l->source));
}

json_t *render_edge(const char *name, bool connected, const Dsec__Edge__EdgeInfo *in)
{
	json_t *o = json_pack("{s:s, s:b}", "name", name, "connected", (int)connected);
	if (!in)
		return o;
	json_t *more = json_pack(
		"{s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "version", string(in->version),
		"sandboxes_live", (json_int_t)in->sandboxes_live, "sandboxes_max", (json_int_t)in->sandboxes_max,
		"sandboxes_stopping", (json_int_t)in->sandboxes_stopping, "creates_total",
		(json_int_t)in->creates_total, "creates_failed", (json_int_t)in->creates_failed, "execs_total",
		(json_int_t)in->execs_total, "adopted_total", (json_int_t)in->adopted_total, "memory_total_bytes",
		(json_int_t)in->memory_total_bytes, "memory_available_bytes",
		(json_int_t)in->memory_available_bytes, "cpus", (json_int_t)in->cpus, "started_at",
		seconds(in->started_at_ms));
	json_object_update_new(o, more);
	return o;
}
