/* edge_load.c: creates, first commands and removals asked of an edge directly.
 *
 * A measuring client for bench/create and bench/density: speaks edge.proto over
 * aether on the edge's socket, as an apiserver would, on one loop thread with
 * WORKERS sandboxes in the making at a time. A cycle is: create, start the
 * payload and follow it, remove and wait until nothing is left. It prints one
 * JSON object: latencies in ms (p50, p99) of each step and cycles a second.
 *
 * With --hold N it first makes N sandboxes and keeps them (prints "held N" and
 * waits for a line on stdin before it goes on, so that the caller can read the
 * machine's memory); --execs M then runs M payloads in held ones, one at a time.
 * Everything it made is removed before it ends; any error ends it with exit 1.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/id.h"
#include "edge.pb-c.h"
#include "loop/conn.h"

#define WORKERS_MAX 256

enum step { STEP_CREATE, STEP_EXEC, STEP_DELETE };

struct worker {
	enum step step;
	char id[SANDBOX_ID_MAX + 1];
	uint32_t stream;
	uint64_t t_start_ns, t_created_ns, t_output_ns;
	bool output_seen, done;
};

static struct options {
	const char *socket, *edge, *digests[1024], *argv[64];
	size_t n_digests, n_argv;
	unsigned cycles, workers, hold, execs, memory_mb, disk_mb;
} opt = { .edge = "e0", .cycles = 100, .workers = 1, .memory_mb = 64, .disk_mb = 64 };

static struct worker workers[WORKERS_MAX];
static struct conn *conn;
static uv_loop_t loop;
static unsigned started, finished, active;
static double *ms_create, *ms_output, *ms_cycle, *ms_delete;
static char (*held)[SANDBOX_ID_MAX + 1];
static unsigned n_held;
static enum { PHASE_HOLD, PHASE_CYCLES, PHASE_EXECS, PHASE_RELEASE } phase;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "edge_load: %s: %s\n", what, why);
	exit(1);
}

static void ask(struct worker *w, Dsec__Edge__EdgeRequest *req)
{
	uint8_t packed[8192];
	size_t n = dsec__edge__edge_request__get_packed_size(req);
	if (n > sizeof(packed))
		fail("request", "too large");
	dsec__edge__edge_request__pack(req, packed);
	int r = conn_open(conn, packed, n, &w->stream);
	if (r < 0)
		fail("open", strerror(-r));
	conn_set_user(conn, w->stream, w);
	conn_close_stream(conn, w->stream);
}

static void ask_create(struct worker *w)
{
	Dsec__Edge__Create create = DSEC__EDGE__CREATE__INIT;
	Dsec__Edge__EdgeRequest req = DSEC__EDGE__EDGE_REQUEST__INIT;
	char *layers[1] = { (char *)opt.digests[started % opt.n_digests] };
	id_sandbox(opt.edge, w->id);
	create.id = w->id;
	create.backend = "container";
	create.environment = "bench@1";
	create.layers = layers;
	create.n_layers = 1;
	create.cpu_millis = 1000;
	create.memory_bytes = (uint64_t)opt.memory_mb << 20;
	create.disk_bytes = (uint64_t)opt.disk_mb << 20;
	create.pids = 64;
	create.ttl_ms = 3600 * 1000;
	create.user = "0";
	create.cwd = "/";
	req.project = "default";
	req.request_id = "bench";
	req.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_CREATE;
	req.create = &create;
	w->step = STEP_CREATE;
	w->t_start_ns = now_mono_ns();
	started++;
	ask(w, &req);
}

static void ask_exec(struct worker *w)
{
	Dsec__Edge__ExecStart ex = DSEC__EDGE__EXEC_START__INIT;
	Dsec__Edge__EdgeRequest req = DSEC__EDGE__EDGE_REQUEST__INIT;
	ProtobufCBinaryData argv[64];
	for (size_t i = 0; i < opt.n_argv; i++)
		argv[i] = (ProtobufCBinaryData){ strlen(opt.argv[i]), (uint8_t *)opt.argv[i] };
	ex.sandbox_id = w->id;
	ex.argv = argv;
	ex.n_argv = opt.n_argv;
	ex.follow = true;
	req.project = "default";
	req.request_id = "bench";
	req.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_START;
	req.exec_start = &ex;
	w->step = STEP_EXEC;
	w->output_seen = false;
	w->t_created_ns = now_mono_ns();
	ask(w, &req);
}

static void ask_delete(struct worker *w)
{
	Dsec__Edge__Delete del = DSEC__EDGE__DELETE__INIT;
	Dsec__Edge__EdgeRequest req = DSEC__EDGE__EDGE_REQUEST__INIT;
	del.id = w->id;
	del.wait = true;
	req.project = "default";
	req.request_id = "bench";
	req.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE;
	req.delete_ = &del;
	w->step = STEP_DELETE;
	ask(w, &req);
}

static double ms_since(uint64_t a, uint64_t b)
{
	return (double)(b - a) / 1e6;
}

static void next(struct worker *w);

/* The stream of this step ended well. */
static void step_done(struct worker *w)
{
	uint64_t now = now_mono_ns();
	switch (w->step) {
	case STEP_CREATE:
		if (phase == PHASE_HOLD) {
			memcpy(held[n_held++], w->id, sizeof(w->id));
			next(w);
			return;
		}
		ask_exec(w);
		return;
	case STEP_EXEC:
		if (!w->output_seen)
			fail("exec", "ended without output");
		if (phase == PHASE_EXECS) {
			ms_output[finished] = ms_since(w->t_created_ns, w->t_output_ns);
			finished++;
			next(w);
			return;
		}
		ms_create[finished] = ms_since(w->t_start_ns, w->t_created_ns);
		ms_output[finished] = ms_since(w->t_start_ns, w->t_output_ns);
		w->t_created_ns = now; /* from here: removal */
		ask_delete(w);
		return;
	case STEP_DELETE:
		if (phase == PHASE_CYCLES) {
			ms_delete[finished] = ms_since(w->t_created_ns, now);
			ms_cycle[finished] = ms_since(w->t_start_ns, now);
			finished++;
		}
		next(w);
		return;
	}
}

/* Gives a worker its next piece of the phase, or retires it. */
static void next(struct worker *w)
{
	switch (phase) {
	case PHASE_HOLD:
		if (started < opt.hold) {
			ask_create(w);
			return;
		}
		break;
	case PHASE_CYCLES:
		if (started < opt.cycles) {
			ask_create(w);
			return;
		}
		break;
	case PHASE_EXECS:
		if (started < opt.execs) {
			memcpy(w->id, held[(started * 7919u) % n_held], sizeof(w->id));
			started++;
			ask_exec(w);
			return;
		}
		break;
	case PHASE_RELEASE:
		if (started < n_held) {
			memcpy(w->id, held[started++], sizeof(w->id));
			ask_delete(w);
			return;
		}
		break;
	}
	if (!--active)
		uv_stop(&loop);
}

static void on_reply(struct worker *w, const struct aether_event *ev)
{
	Dsec__Edge__EdgeReply *r = dsec__edge__edge_reply__unpack(NULL, ev->n, ev->payload);
	if (!r)
		fail("reply", "cannot be decoded");
	if (r->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_ERROR)
		fail(r->error->code, r->error->message);
	bool done = false;
	if (r->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOX)
		done = w->step != STEP_EXEC;
	if (r->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_OK)
		done = w->step == STEP_DELETE;
	if (r->what_case == DSEC__EDGE__EDGE_REPLY__WHAT_EXEC && !strcmp(r->exec->state, "finished")) {
		if (!r->exec->has_exit_code || r->exec->exit_code)
			fail("exec", "the payload did not exit with 0");
		done = true;
	}
	dsec__edge__edge_reply__free_unpacked(r, NULL);
	if (done)
		w->done = true;
}

static void on_event(struct conn *c, const struct aether_event *ev, void *user)
{
	struct worker *w = conn_user(c, ev->stream);
	if (ev->type == AETHER_EV_MSG || ev->type == AETHER_EV_DATA)
		conn_consume(c, ev->stream, ev->n);
	if (!w || w->stream != ev->stream)
		return;
	if (ev->type == AETHER_EV_MSG)
		on_reply(w, ev);
	else if (ev->type == AETHER_EV_DATA && !w->output_seen) {
		w->output_seen = true;
		w->t_output_ns = now_mono_ns();
	} else if (ev->type == AETHER_EV_RESET)
		fail("edge", "reset the call");
	if (ev->type == AETHER_EV_CLOSE && w->done) {
		w->done = false;
		w->stream = 0;
		step_done(w);
	} else if (ev->type == AETHER_EV_CLOSE)
		fail("edge", "ended the call without an answer");
}

static void on_down(struct conn *c, int err, void *user)
{
	fail("edge connection", err ? strerror(-err) : "closed");
}

static void run_phase(int which, unsigned parallel)
{
	phase = which;
	started = finished = 0;
	active = parallel;
	for (unsigned i = 0; i < parallel; i++)
		next(&workers[i]);
	if (active)
		uv_run(&loop, UV_RUN_DEFAULT);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void print_ms(const char *name, double *v, unsigned n, const char *end)
{
	qsort(v, n, sizeof(*v), by_value);
	printf("\"%s_p50_ms\": %.3f, \"%s_p99_ms\": %.3f%s", name, v[n / 2], name, v[(size_t)n * 99 / 100], end);
}

static void parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "socket", 1, 0, 's' }, { "edge", 1, 0, 'e' },   { "digest", 1, 0, 'd' },
		{ "cycles", 1, 0, 'n' }, { "workers", 1, 0, 'w' }, { "hold", 1, 0, 'H' },
		{ "execs", 1, 0, 'x' },  { "memory-mb", 1, 0, 'm' }, { "disk-mb", 1, 0, 'k' }, { 0 },
	};
	int c;
	while ((c = getopt_long(argc, argv, "+", longs, NULL)) != -1) {
		switch (c) {
		case 's': opt.socket = optarg; break;
		case 'e': opt.edge = optarg; break;
		case 'd':
			if (opt.n_digests < ARRAY_SIZE(opt.digests))
				opt.digests[opt.n_digests++] = optarg;
			break;
		case 'n': opt.cycles = (unsigned)atoi(optarg); break;
		case 'w': opt.workers = (unsigned)atoi(optarg); break;
		case 'H': opt.hold = (unsigned)atoi(optarg); break;
		case 'x': opt.execs = (unsigned)atoi(optarg); break;
		case 'm': opt.memory_mb = (unsigned)atoi(optarg); break;
		case 'k': opt.disk_mb = (unsigned)atoi(optarg); break;
		default: exit(2);
		}
	}
	for (; optind < argc && opt.n_argv < ARRAY_SIZE(opt.argv); optind++)
		opt.argv[opt.n_argv++] = argv[optind];
	if (!opt.socket || !opt.n_digests || !opt.n_argv || !opt.workers || opt.workers > WORKERS_MAX) {
		fprintf(stderr, "usage: edge_load --socket S --digest sha256:... [--cycles N] [--workers W] "
				"[--hold N] [--execs M] -- PAYLOAD...\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	unsigned n = MAX(MAX(opt.cycles, opt.execs), 1);
	ms_create = calloc(n, sizeof(double));
	ms_output = calloc(n, sizeof(double));
	ms_cycle = calloc(n, sizeof(double));
	ms_delete = calloc(n, sizeof(double));
	held = calloc(opt.hold + 1, sizeof(*held));
	if (!ms_create || !ms_output || !ms_cycle || !ms_delete || !held)
		fail("memory", strerror(ENOMEM));
	uv_loop_init(&loop);
	int fd = unix_connect(opt.socket, SOCK_STREAM);
	if (fd < 0)
		fail(opt.socket, strerror(-fd));
	static const struct conn_callbacks cb = { .on_event = on_event, .on_down = on_down };
	int r = conn_new(&loop, fd, &(struct aether_config){ .client = true }, &cb, NULL, &conn);
	if (r < 0)
		fail("aether", strerror(-r));

	uint64_t t0 = now_mono_ns();
	if (opt.hold) {
		run_phase(PHASE_HOLD, opt.workers);
		printf("held %u %.3f\n", n_held, ms_since(t0, now_mono_ns()) / 1000);
		fflush(stdout);
		if (getchar() == EOF)
			fprintf(stderr, "edge_load: stdin ended, going on\n");
	}
	printf("{");
	if (opt.execs && n_held) {
		run_phase(PHASE_EXECS, 1);
		print_ms("exec", ms_output, opt.execs, ", ");
	}
	if (opt.cycles) {
		t0 = now_mono_ns();
		run_phase(PHASE_CYCLES, MIN(opt.workers, opt.cycles));
		double s = ms_since(t0, now_mono_ns()) / 1000;
		print_ms("create", ms_create, opt.cycles, ", ");
		print_ms("output", ms_output, opt.cycles, ", ");
		print_ms("delete", ms_delete, opt.cycles, ", ");
		print_ms("cycle", ms_cycle, opt.cycles, ", ");
		printf("\"per_s\": %.1f, ", opt.cycles / s);
	}
	printf("\"workers\": %u, \"cycles\": %u, \"held\": %u}\n", opt.workers, opt.cycles, n_held);
	fflush(stdout);
	if (n_held)
		run_phase(PHASE_RELEASE, MIN(opt.workers, n_held));
	conn_close(conn);
	uv_run(&loop, UV_RUN_NOWAIT);
	return 0;
}
