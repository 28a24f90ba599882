/* layer_put.c: PUT of a layer: the body goes to a child, its answer to the store.
 *
 * The child (`dsecd layer-import`) makes the layer file; this process only moves
 * bytes: it reads the socket as fast as the child reads its stdin (at most
 * PIPE_QUEUE_MAX are queued). The job outlives neither: when the client leaves,
 * the child gets SIGTERM, and its stdin is not closed before it is dead, so a cut
 * upload can never look like a whole one. The state is freed when the child is
 * reaped, all handles are closed and the request is released, in any order.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/layer_jobs.h"
#include "control/layers.h"
#include "control/limits.h"
#include "control/render.h"
#include "control/resources.h"

#define PIPE_QUEUE_MAX (256 * 1024)
#define ANSWER_MAX (STORE_CONFIG_MAX + 4096)

struct import {
	struct request *r; /* NULL once released */
	struct control *ctl;
	struct layer_ref ref;
	char source[STORE_SOURCE_MAX + 1];
	uv_process_t process;
	uv_pipe_t in, out; /* the child's stdin and stdout */
	int open_handles;
	bool running, exited, out_ended, in_broken, whole, answered;
	int64_t status;
	struct buf answer;
};

struct piece {
	uv_write_t write;
	struct import *im;
	uint8_t data[];
};

static void maybe_free(struct import *im)
{
	if (im->r || im->open_handles || im->running)
		return;
	layer_import_end(im->ctl);
	buf_done(&im->answer);
	free(im);
}

static void on_closed(uv_handle_t *h)
{
	struct import *im = h->data;
	im->open_handles--;
	maybe_free(im);
}

static void close_handle(uv_handle_t *h)
{
	if (!uv_is_closing(h))
		uv_close(h, on_closed);
}

/* ---- the child's answer ---- */

static void take_json(const struct store_layer *l, void *user)
{
	*(json_t **)user = render_layer(l);
}

/* The file of a layer that did not get its row, unless another row has it. */
static void drop_unreferenced(struct import *im, const char *digest)
{
	uint64_t refs = 1;
	if (store_layer_refs(im->ctl->store, digest, &refs) == 0 && !refs &&
	    layer_removal_begin(im->ctl, digest) == 0) {
		layer_files_remove(im->ctl->layer_dir, digest);
		layer_removal_end(im->ctl, digest);
	}
}

static void register_layer(struct import *im, const json_t *a)
{
	_cleanup_free_ char *config = json_dumps(json_object_get(a, "config"), JSON_COMPACT);
	const char *digest = json_string_value(json_object_get(a, "digest"));
	struct store_layer l = {
		.name = im->ref.name, .version = im->ref.version, .digest = digest,
		.size_bytes = (uint64_t)json_integer_value(json_object_get(a, "size_bytes")),
		.files = (uint64_t)json_integer_value(json_object_get(a, "files")),
		.config = config ? config : "{}", .source = im->source,
	};
	json_t *json = NULL;
	int err = store_layer_put(im->ctl->store, &l);
	if (!err)
		err = store_layer_get(im->ctl->store, l.name, l.version, take_json, &json);
	if (err == -EEXIST) {
		drop_unreferenced(im, digest);
		request_failf(im->r, DSEC_E_CONFLICT, "%s@%s exists with other content; choose another version",
			      l.name, l.version);
	} else if (err) {
		struct dsec_error e;
		drop_unreferenced(im, digest);
		dsec_error_errno(&e, err, "the layer was made but cannot be registered");
		request_fail(im->r, &e, 0);
	} else {
		request_json(im->r, 201, json);
	}
}

static void finish(struct import *im)
{
	struct dsec_error e;
	if (!im->r || !im->exited || !im->out_ended || im->answered)
		return;
	im->answered = true;
	json_t *a = buf_len(&im->answer) ?
			    json_loadb((const char *)buf_ptr(&im->answer), buf_len(&im->answer), 0, NULL) : NULL;
	const json_t *err = json_object_get(a, "error");
	const char *code = json_string_value(json_object_get(err, "code"));
	const char *message = json_string_value(json_object_get(err, "message"));
	const char *digest = json_string_value(json_object_get(a, "digest"));
	if (code) {
		dsec_error_set(&e, 0, dsec_code_from_name(code), "%s", message ? message : "");
		request_fail(im->r, &e, 0);
	} else if (im->status || !digest || strlen(digest) != STORE_DIGEST_LEN) {
		request_failf(im->r, DSEC_E_INTERNAL, "the layer import ended without an answer (status %lld)",
			      (long long)im->status);
	} else if (!im->whole) {
		/* It read an archive's end before the body's: trailing bytes are not a layer. */
		drop_unreferenced(im, digest);
		request_failf(im->r, DSEC_E_BAD_REQUEST, "the body goes on behind the end of the archive");
	} else {
		register_layer(im, a);
	}
	json_decref(a);
}

static void on_exit_child(uv_process_t *p, int64_t status, int signal)
{
	struct import *im = p->data;
	im->exited = true;
	im->running = false;
	im->status = signal ? 128 + signal : status;
	close_handle((uv_handle_t *)p);
	close_handle((uv_handle_t *)&im->in);
	finish(im);
}

static void alloc_answer(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
	struct import *im = h->data;
	uint8_t *p;
	if (buf_reserve(&im->answer, 4096, &p))
		*ret = uv_buf_init(NULL, 0);
	else
		*ret = uv_buf_init((char *)p, 4096);
}

static void on_answer(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
	struct import *im = s->data;
	if (n > 0) {
		buf_commit(&im->answer, (size_t)n);
	} else if (n < 0) {
		im->out_ended = true;
		close_handle((uv_handle_t *)s);
		finish(im);
	}
}

/* ---- the body ---- */

static void on_written(uv_write_t *w, int status)
{
	struct piece *p = container_of(w, struct piece, write);
	struct import *im = p->im;
	free(p);
	if (status < 0)
		im->in_broken = true; /* it stopped reading: its answer says why */
	if (im->r)
		request_body_more(im->r);
}

static size_t on_body(struct request *r, const uint8_t *data, size_t n)
{
	struct import *im = request_state(r);
	if (im->in_broken || im->exited)
		return n;
	if (uv_stream_get_write_queue_size((uv_stream_t *)&im->in) >= PIPE_QUEUE_MAX)
		return 0;
	struct piece *p = malloc(sizeof(*p) + n);
	if (!p)
		return 0; /* tried again when a write completes */
	memcpy(p->data, data, n);
	p->im = im;
	uv_buf_t b = uv_buf_init((char *)p->data, (unsigned)n);
	if (uv_write(&p->write, (uv_stream_t *)&im->in, &b, 1, on_written) < 0) {
		free(p);
		im->in_broken = true;
	}
	return n;
}

static void on_shutdown(uv_shutdown_t *s, int status)
{
	struct import *im = s->data;
	free(s);
	close_handle((uv_handle_t *)&im->in);
}

static void on_body_end(struct request *r)
{
	struct import *im = request_state(r);
	im->whole = true;
	uv_shutdown_t *s = malloc(sizeof(*s));
	if (s && !uv_is_closing((uv_handle_t *)&im->in)) {
		s->data = im;
		if (uv_shutdown(s, (uv_stream_t *)&im->in, on_shutdown) == 0)
			return; /* after what is queued */
	}
	free(s);
	close_handle((uv_handle_t *)&im->in);
}

static void on_release(struct request *r)
{
	struct import *im = request_state(r);
	im->r = NULL;
	if (im->running)
		uv_process_kill(&im->process, SIGTERM);
	if (!uv_is_closing((uv_handle_t *)&im->out) && !im->running)
		close_handle((uv_handle_t *)&im->out);
	maybe_free(im);
}

/* ---- starting ---- */

static int spawn(struct import *im)
{
	uv_loop_t *loop = im->ctl->loop;
	char *args[] = { (char *)im->ctl->program, "layer-import", "--layer-dir", (char *)im->ctl->layer_dir, NULL };
	uv_stdio_container_t io[3] = {
		{ .flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&im->in },
		{ .flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&im->out },
		{ .flags = UV_INHERIT_FD, .data.fd = 2 },
	};
	uv_process_options_t o = { .file = im->ctl->program, .args = args, .exit_cb = on_exit_child,
				   .stdio = io, .stdio_count = 3 };
	uv_pipe_init(loop, &im->in, 0);
	uv_pipe_init(loop, &im->out, 0);
	im->open_handles = 3;
	im->in.data = im->out.data = im->process.data = im;
	int r = uv_spawn(loop, &im->process, &o);
	if (r) {
		close_handle((uv_handle_t *)&im->process);
		close_handle((uv_handle_t *)&im->in);
		close_handle((uv_handle_t *)&im->out);
		return r;
	}
	im->running = true;
	uv_read_start((uv_stream_t *)&im->out, alloc_answer, on_answer);
	return 0;
}

void handle_layer_put(struct request *r)
{
	static const struct request_ops ops = { .body = on_body, .body_end = on_body_end, .release = on_release };
	struct control *ctl = request_control(r);
	const char *source = request_query(r, "source");
	struct dsec_error e;
	struct layer_ref ref;
	if (!layer_ref_of(r, &ref))
		return;
	if (source && strlen(source) > LIMIT_SOURCE_BYTES_MAX) {
		request_failf(r, DSEC_E_NAME_TOO_LONG, "source is %zu bytes long; at most %d", strlen(source),
			      LIMIT_SOURCE_BYTES_MAX);
		return;
	}
	if (!layer_import_begin(ctl)) {
		request_failf(r, DSEC_E_OVERLOADED, "%d layers are being imported already", LIMIT_LAYER_IMPORTS_MAX);
		return;
	}
	struct import *im = calloc(1, sizeof(*im));
	if (!im) {
		layer_import_end(ctl);
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	im->r = r;
	im->ctl = ctl;
	im->ref = ref;
	im->answer = BUF_INIT(ANSWER_MAX);
	snprintf(im->source, sizeof(im->source), "%s", source ? source : "");
	request_set(r, &ops, im);
	int err = spawn(im);
	if (err)
		request_fail(r, (dsec_error_errno(&e, err, "cannot start %s", ctl->program), &e), 0);
}
