/* scripted_edge.c: an edge that does what a test tells it, for tests of the apiserver.
 *
 * Started by tests/integration/test_api_*.py only. It speaks edge.proto over
 * conn.h like a real edge, but has no sandboxes behind it: what an exec does is
 * told by its argv[0], what a file does by its path. So faults that a real edge
 * shows rarely (a connection cut in the middle, a refusal, a reader that stops)
 * come when the test wants them.
 *
 *   scripted_edge --socket PATH --name e0 [--refuse N] [--cut-create N] [--cpus N]
 *     --refuse N       the first N creates get capacity_exhausted
 *     --cut-create N   the first N creates are carried out, then the connection is cut unanswered
 *   exec: emit BYTES | both | cut | gap | hang | count-stdin | hold-stdin | echo ... | fail CODE
 *   files: read /zeros/N, /cut/N, write to /hold (reads nothing until deleted) or any other
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fdio.h"
#include "base/hashmap.h"
#include "base/id.h"
#include "edge.pb-c.h"
#include "loop/conn.h"

#define CHUNK (16 * 1024)

struct exec {
	char id[EXEC_ID_MAX + 1], sandbox[SANDBOX_ID_MAX + 1];
	uint64_t out, err, in;
	bool finished;
	int code;
	struct exec *next;
};

struct box {
	char id[SANDBOX_ID_MAX + 1];
	uint8_t *packed; /* its Sandbox message */
	size_t n;
	bool deleted;
	struct box *next;
};

/* One call under way. */
struct call {
	struct conn *conn;
	uint32_t stream;
	struct exec *exec;
	uint64_t left;     /* bytes still to be emitted */
	bool cut_at_end, follow, file, hold, upload, closed;
	uint64_t got;      /* uploaded */
	uint64_t held;     /* of that without credit */
	uint8_t *pieces;   /* a request that comes in pieces */
	size_t n_pieces, want;
	struct call *next;
};

static struct {
	uv_loop_t loop;
	const char *name;
	unsigned refuse, cut_create, cpus;
	struct box *boxes;
	struct exec *execs;
	struct call *calls;
	uint64_t creates;
} g = { .name = "e0", .cpus = 4 };

/* ---- answers ---- */

/* False: no room in the window, WRITABLE follows. A stream that was reset is none
 * of our business any more. */
static bool reply(struct call *c, Dsec__Edge__EdgeReply *r)
{
	size_t n = dsec__edge__edge_reply__get_packed_size(r);
	_cleanup_free_ uint8_t *p = malloc(n + 1);
	dsec__edge__edge_reply__pack(r, p);
	return conn_send_msg(c->conn, c->stream, p, n) != -EAGAIN;
}

static void finish(struct call *c)
{
	conn_close_stream(c->conn, c->stream);
	c->closed = true;
}

static void reply_error(struct call *c, enum dsec_code code, const char *text)
{
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__Error e = DSEC__EDGE__ERROR__INIT;
	r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_ERROR;
	r.error = &e;
	e.code = (char *)dsec_code_name(code);
	e.message = (char *)text;
	e.retry_after_ms = code == DSEC_E_CAPACITY ? 3000 : 0;
	reply(c, &r);
	finish(c);
}

static bool reply_exec(struct call *c, const struct exec *x)
{
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__Exec e = DSEC__EDGE__EXEC__INIT;
	r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_EXEC;
	r.exec = &e;
	e.id = (char *)x->id;
	e.sandbox_id = (char *)x->sandbox;
	e.state = x->finished ? "finished" : "running";
	e.has_exit_code = x->finished;
	e.exit_code = (uint32_t)x->code;
	e.stdout_total = x->out;
	e.stderr_total = x->err;
	e.stdin_offset = x->in;
	e.killed_by = "";
	e.started_at_ms = now_real_ms();
	return reply(c, &r);
}

static void reply_box(struct call *c, struct box *b)
{
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOX;
	r.sandbox = dsec__edge__sandbox__unpack(NULL, b->n, b->packed);
	r.sandbox->state = strdup(b->deleted ? "stopped" : "running");
	reply(c, &r);
	dsec__edge__sandbox__free_unpacked(r.sandbox, NULL);
	finish(c);
}

/* ---- execs ---- */

/* Sends pattern bytes as the window allows; the rest when it opens. */
static void pump(struct call *c)
{
	static uint8_t zeros[CHUNK];
	while (c->left) {
		size_t n = MIN(c->left, (uint64_t)CHUNK);
		long sent = conn_send_data(c->conn, c->stream, 1, zeros, n);
		if (sent <= 0)
			return;
		c->left -= (uint64_t)sent;
		if (c->exec)
			c->exec->out += (uint64_t)sent;
		if ((size_t)sent < n)
			return;
	}
	if (c->closed)
		return;
	if (c->cut_at_end) {
		conn_close(c->conn); /* as a killed edge would look */
		return;
	}
	if (c->exec) {
		c->exec->finished = true;
		if (!reply_exec(c, c->exec))
			return;
	} else {
		Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
		Dsec__Edge__FileDone d = DSEC__EDGE__FILE_DONE__INIT;
		r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_FILE_DONE;
		r.file_done = &d;
		if (!reply(c, &r))
			return;
	}
	finish(c);
}

static bool is(const Dsec__Edge__ExecStart *m, const char *word)
{
	return m->n_argv && m->argv[0].len == strlen(word) && !memcmp(m->argv[0].data, word, m->argv[0].len);
}

static void say(struct call *c, uint8_t channel, const char *text)
{
	conn_send_data(c->conn, c->stream, channel, text, strlen(text));
	*(channel == 2 ? &c->exec->err : &c->exec->out) += strlen(text);
}

static void gap(struct call *c)
{
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__OutputGap gp = DSEC__EDGE__OUTPUT_GAP__INIT;
	r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_GAP;
	r.gap = &gp;
	gp.channel = 1;
	gp.from = 4;
	gp.to = 1000;
	say(c, 1, "head");
	reply(c, &r);
	say(c, 1, "tail");
}

static void exec_run(struct call *c, const Dsec__Edge__ExecStart *m)
{
	char number[32] = "";
	if (m->n_argv > 1)
		snprintf(number, sizeof(number), "%.*s", (int)m->argv[1].len, (const char *)m->argv[1].data);
	if (is(m, "emit") || is(m, "cut")) {
		c->left = is(m, "cut") ? 5 : strtoull(number, NULL, 10);
		c->cut_at_end = is(m, "cut");
	} else if (is(m, "both")) {
		say(c, 1, "out");
		say(c, 2, "err");
		c->exec->code = 3;
	} else if (is(m, "gap")) {
		gap(c);
	} else if (is(m, "size")) { /* how large the request was: argv and stdin */
		char text[64];
		size_t total = 0;
		for (size_t i = 0; i < m->n_argv; i++)
			total += m->argv[i].len;
		snprintf(text, sizeof(text), "%zu %zu", total, m->stdin.len);
		say(c, 1, text);
	} else if (is(m, "hang") || is(m, "count-stdin") || is(m, "hold-stdin")) {
		c->hold = true;
		return;
	}
	pump(c);
}

static void exec_start(struct call *c, const Dsec__Edge__ExecStart *m)
{
	if (is(m, "fail")) {
		char code[64];
		snprintf(code, sizeof(code), "%.*s", (int)m->argv[1].len, (const char *)m->argv[1].data);
		reply_error(c, dsec_code_from_name(code), "as asked");
		return;
	}
	struct exec *x = calloc(1, sizeof(*x));
	snprintf(x->id, sizeof(x->id), "%s", m->exec_id);
	snprintf(x->sandbox, sizeof(x->sandbox), "%s", m->sandbox_id);
	x->next = g.execs;
	g.execs = x;
	c->exec = x;
	c->follow = m->follow;
	reply_exec(c, x);
	if (m->follow)
		exec_run(c, m);
	else
		finish(c);
}

static struct exec *exec_find(const char *id)
{
	struct exec *x = g.execs;
	while (x && strcmp(x->id, id))
		x = x->next;
	return x;
}

/* ---- sandboxes ---- */

static struct box *box_find(const char *id)
{
	struct box *b = g.boxes;
	while (b && strcmp(b->id, id))
		b = b->next;
	return b;
}

static struct box *box_new(const Dsec__Edge__Create *m)
{
	Dsec__Edge__Sandbox s = DSEC__EDGE__SANDBOX__INIT;
	struct box *b = calloc(1, sizeof(*b));
	s.id = m->id;
	s.state = "running";
	s.backend = m->backend;
	s.edge = (char *)g.name;
	s.environment = m->environment;
	s.layers = m->layers;
	s.n_layers = m->n_layers;
	s.cpu_millis = m->cpu_millis;
	s.memory_bytes = m->memory_bytes;
	s.disk_bytes = m->disk_bytes;
	s.pids = m->pids;
	s.labels = m->labels;
	s.n_labels = m->n_labels;
	s.env = m->env;
	s.n_env = m->n_env;
	s.cwd = m->cwd;
	s.user = m->user;
	s.hostname = m->hostname;
	s.no_new_privs = m->no_new_privs;
	s.idle_ttl_ms = m->idle_ttl_ms;
	s.created_at_ms = now_real_ms();
	s.end_at_ms = s.created_at_ms + m->ttl_ms;
	snprintf(b->id, sizeof(b->id), "%s", m->id);
	b->n = dsec__edge__sandbox__get_packed_size(&s);
	b->packed = malloc(b->n + 1);
	dsec__edge__sandbox__pack(&s, b->packed);
	b->next = g.boxes;
	g.boxes = b;
	g.creates++;
	return b;
}

static void create(struct call *c, const Dsec__Edge__Create *m)
{
	if (g.refuse) {
		g.refuse--;
		reply_error(c, DSEC_E_CAPACITY, "full, as asked");
		return;
	}
	struct box *b = box_find(m->id);
	if (!b)
		b = box_new(m);
	if (g.cut_create) {
		g.cut_create--;
		conn_close(c->conn);
		return;
	}
	reply_box(c, b);
}

static void list(struct call *c, const Dsec__Edge__List *m)
{
	for (struct box *b = g.boxes; b; b = b->next) {
		Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
		Dsec__Edge__SandboxList l = DSEC__EDGE__SANDBOX_LIST__INIT;
		if (b->deleted && !m->include_stopped)
			continue;
		Dsec__Edge__Sandbox *s = dsec__edge__sandbox__unpack(NULL, b->n, b->packed);
		r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOXES;
		r.sandboxes = &l;
		l.n_sandboxes = 1;
		l.sandboxes = &s;
		reply(c, &r);
		dsec__edge__sandbox__free_unpacked(s, NULL);
	}
	finish(c);
}

static void info(struct call *c)
{
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__EdgeInfo i = DSEC__EDGE__EDGE_INFO__INIT;
	r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_INFO;
	r.info = &i;
	i.name = (char *)g.name;
	i.version = "scripted";
	i.cpus = g.cpus;
	i.sandboxes_max = 100;
	i.creates_total = g.creates;
	i.memory_total_bytes = 8ull << 30;
	i.memory_available_bytes = 4ull << 30;
	reply(c, &r);
	finish(c);
}

/* ---- files ---- */

static void file(struct call *c, const Dsec__Edge__FileCall *m)
{
	char path[256];
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__FileEntry s = DSEC__EDGE__FILE_ENTRY__INIT;
	snprintf(path, sizeof(path), "%.*s", (int)m->path.len, (const char *)m->path.data);
	c->file = true;
	if (m->op == DSEC__EDGE__FILE_CALL__OP__WRITE || m->op == DSEC__EDGE__FILE_CALL__OP__TAR_IN) {
		c->upload = true;
		c->hold = !strcmp(path, "/hold");
		if (!strcmp(path, "/refused"))
			reply_error(c, DSEC_E_FILE_NOT_FOUND, "no such directory, as asked");
		return;
	}
	if (m->op == DSEC__EDGE__FILE_CALL__OP__READ) {
		char *number = strrchr(path, '/');
		c->left = strtoull(number + 1, NULL, 10);
		c->cut_at_end = !strncmp(path, "/cut/", 5);
		r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_STAT;
		r.stat = &s;
		s.size = c->left;
		s.mode = 0100640;
		reply(c, &r);
		pump(c);
		return;
	}
	reply_error(c, DSEC_E_FILE_NOT_FOUND, "no such file, as asked");
}

/* ---- uploads ---- */

static void upload_data(struct call *c, size_t n)
{
	c->got += n;
	if (c->exec)
		c->exec->in += n;
	if (c->hold)
		c->held += n; /* no credit: the sender must stop */
	else
		conn_consume(c->conn, c->stream, n);
}

static void upload_end(struct call *c)
{
	Dsec__Edge__EdgeReply r = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__FileDone f = DSEC__EDGE__FILE_DONE__INIT;
	Dsec__Edge__StdinDone s = DSEC__EDGE__STDIN_DONE__INIT;
	if (c->file) {
		r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_FILE_DONE;
		r.file_done = &f;
		f.bytes = c->got;
		f.entries = 1;
	} else {
		r.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_STDIN_DONE;
		r.stdin_done = &s;
		s.offset = c->exec->in;
	}
	reply(c, &r);
	finish(c);
}

static void with_exec(struct call *c, const char *id, void (*fn)(struct call *c))
{
	c->exec = exec_find(id);
	if (!c->exec)
		reply_error(c, DSEC_E_EXEC_NOT_FOUND, "no such exec");
	else
		fn(c);
}

static void exec_tell(struct call *c)
{
	reply_exec(c, c->exec);
	finish(c);
}

static void exec_take(struct call *c)
{
	c->upload = true;
}

/* ---- requests ---- */

static void serve(struct call *c, const Dsec__Edge__EdgeRequest *rq)
{
	Dsec__Edge__EdgeReply ok = DSEC__EDGE__EDGE_REPLY__INIT;
	Dsec__Edge__Ok o = DSEC__EDGE__OK__INIT;
	const char *id = NULL;
	ok.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_OK;
	ok.ok = &o;
	switch (rq->what_case) {
	case DSEC__EDGE__EDGE_REQUEST__WHAT_GET: id = rq->get->id; break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE: id = rq->delete_->id; break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_SET_TTL: id = rq->set_ttl->id; break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_START: id = rq->exec_start->sandbox_id; break;
	default: break;
	}
	struct box *b = id ? box_find(id) : NULL;
	if (id && !b) {
		reply_error(c, DSEC_E_SANDBOX_NOT_FOUND, "no such sandbox");
		return;
	}
	switch (rq->what_case) {
	case DSEC__EDGE__EDGE_REQUEST__WHAT_CREATE: create(c, rq->create); break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE: b->deleted = true; /* fall through */
	case DSEC__EDGE__EDGE_REQUEST__WHAT_GET:
	case DSEC__EDGE__EDGE_REQUEST__WHAT_SET_TTL: reply_box(c, b); break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_LIST: list(c, rq->list); break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_INFO: info(c); break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_START: exec_start(c, rq->exec_start); break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_GET: with_exec(c, rq->exec_get->exec_id, exec_tell); break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_STDIN:
		with_exec(c, rq->exec_stdin->exec_id, exec_take);
		break;
	case DSEC__EDGE__EDGE_REQUEST__WHAT_FILE: file(c, rq->file); break;
	default:
		reply(c, &ok);
		finish(c);
	}
}

static void on_open(struct conn *conn, const struct aether_event *ev)
{
	struct call *c = calloc(1, sizeof(*c));
	c->conn = conn;
	c->stream = ev->stream;
	c->next = g.calls;
	g.calls = c;
	conn_set_user(conn, ev->stream, c);
	Dsec__Edge__EdgeRequest *rq = dsec__edge__edge_request__unpack(NULL, ev->n, ev->payload);
	if (rq->follow_bytes) {
		c->want = ev->n + rq->follow_bytes;
		c->pieces = malloc(c->want + 1);
		memcpy(c->pieces, ev->payload, ev->n);
		c->n_pieces = ev->n;
	} else {
		serve(c, rq);
	}
	dsec__edge__edge_request__free_unpacked(rq, NULL);
}

static void on_piece(struct call *c, const struct aether_event *ev)
{
	conn_consume(c->conn, c->stream, ev->n);
	if (!c->pieces || c->n_pieces + ev->n > c->want)
		abort();
	memcpy(c->pieces + c->n_pieces, ev->payload, ev->n);
	c->n_pieces += ev->n;
	if (c->n_pieces < c->want)
		return;
	Dsec__Edge__EdgeRequest *rq = dsec__edge__edge_request__unpack(NULL, c->n_pieces, c->pieces);
	serve(c, rq);
	dsec__edge__edge_request__free_unpacked(rq, NULL);
}

static void on_event(struct conn *conn, const struct aether_event *ev, void *user)
{
	struct call *c = ev->stream ? conn_user(conn, ev->stream) : NULL;
	if (ev->type == AETHER_EV_OPEN)
		on_open(conn, ev);
	else if (c && ev->type == AETHER_EV_MSG)
		on_piece(c, ev);
	else if (c && ev->type == AETHER_EV_DATA)
		upload_data(c, ev->n);
	else if (c && ev->type == AETHER_EV_WRITABLE && !c->hold)
		pump(c);
	else if (c && ev->type == AETHER_EV_CLOSE && c->upload && !c->closed && !c->hold)
		upload_end(c);
}

static void on_down(struct conn *conn, int err, void *user)
{
}

static void on_accept(int fd, void *user)
{
	static const struct conn_callbacks cb = { .on_event = on_event, .on_down = on_down };
	const struct aether_config config = { .client = false };
	struct conn *conn;
	conn_new(&g.loop, fd, &config, &cb, NULL, &conn);
}

static void on_term(uv_signal_t *h, int number)
{
	exit(0); /* the kernel frees the rest */
}

int main(int argc, char **argv)
{
	static const struct option longs[] = { { "socket", 1, NULL, 's' }, { "name", 1, NULL, 'n' },
					       { "refuse", 1, NULL, 'r' }, { "cut-create", 1, NULL, 'c' },
					       { "cpus", 1, NULL, 'p' }, { 0 } };
	const char *path = NULL;
	struct conn_listener *l;
	uv_signal_t term;
	int c;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's') path = optarg;
		else if (c == 'n') g.name = optarg;
		else if (c == 'r') g.refuse = (unsigned)atoi(optarg);
		else if (c == 'c') g.cut_create = (unsigned)atoi(optarg);
		else if (c == 'p') g.cpus = (unsigned)atoi(optarg);
		else return 2;
	}
	if (!path)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	uv_loop_init(&g.loop);
	uv_signal_init(&g.loop, &term);
	uv_signal_start(&term, on_term, SIGTERM);
	int fd = unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK, 128);
	if (fd < 0 || conn_listen(&g.loop, fd, on_accept, NULL, &l) < 0)
		return 1;
	puts("ready");
	fflush(stdout);
	return uv_run(&g.loop, UV_RUN_DEFAULT);
}
