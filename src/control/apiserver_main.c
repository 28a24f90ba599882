/* apiserver_main.c: options, start and end of `dsecd apiserver`.
 *
 * Order: store and key first (without them nothing may be answered), then edges,
 * then the listening socket, then R/url says where. SIGTERM and SIGINT: no new
 * connections, answers under way get LIMIT_SHUTDOWN_WAIT_MS, then the process
 * ends. Nothing of a sandbox is lost by ending at any moment.
 */
#include "control/apiserver_main.h"
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <uv.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "control/auth.h"
#include "control/control.h"
#include "control/exec_stream.h"
#include "control/idempotency.h"
#include "control/layer_jobs.h"
#include "control/metrics.h"
#include "control/resources.h"
#include "control/server.h"

#define EXIT_USAGE 2
#define LISTEN_BACKLOG 1024

struct options {
	const char *listen, *run_dir, *store, *layer_dir, *key_file;
	const char *edges[LIMIT_EDGES_MAX];
	size_t n_edges;
	bool no_auth;
};

struct process {
	struct control ctl;
	uv_loop_t loop;
	uv_signal_t term, intr;
	uv_timer_t stop_timer; /* looks whether the answers under way are done */
	uint64_t stop_at_ms;
};

static const char usage_text[] =
	"usage: dsecd apiserver --run-dir R --store FILE --layer-dir L --edge NAME=unix:PATH...\n"
	"  --listen HOST:PORT   where to listen (127.0.0.1:7600; port 0: any free one)\n"
	"  --run-dir R          private directory; the URL is written to R/url\n"
	"  --store FILE         the SQLite store, made when missing\n"
	"  --layer-dir L        the layer store, for imports\n"
	"  --edge NAME=unix:P   an edge and its socket; may be given again\n"
	"  --key-file FILE      the first API key; made when missing (mode 0600)\n"
	"  --no-auth            answer without keys: only where nobody else can connect\n";

static int parse_options(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "listen", required_argument, NULL, 'l' },  { "run-dir", required_argument, NULL, 'r' },
		{ "store", required_argument, NULL, 's' },   { "layer-dir", required_argument, NULL, 'L' },
		{ "edge", required_argument, NULL, 'e' },    { "key-file", required_argument, NULL, 'k' },
		{ "no-auth", no_argument, NULL, 'n' },       { "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;
	*o = (struct options){ .listen = "127.0.0.1:7600" };
	optind = 1;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'l': o->listen = optarg; break;
		case 'r': o->run_dir = optarg; break;
		case 's': o->store = optarg; break;
		case 'L': o->layer_dir = optarg; break;
		case 'k': o->key_file = optarg; break;
		case 'n': o->no_auth = true; break;
		case 'e':
			if (o->n_edges == LIMIT_EDGES_MAX)
				return -E2BIG;
			o->edges[o->n_edges++] = optarg;
			break;
		case 'h':
			fputs(usage_text, stdout);
			exit(0);
		default:
			return -EINVAL;
		}
	}
	return optind == argc && o->run_dir && o->store && o->layer_dir ? 0 : -EINVAL;
}

/* ---- listening ---- */

/* "host:port", "[::1]:port". */
static int split_listen(const char *text, char host[256], char port[8])
{
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : 0;
	const char *start = text;
	if (!colon || !colon[1] || strlen(colon + 1) > 5)
		return -EINVAL;
	if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
		start++;
		n -= 2;
	}
	if (n >= 256)
		return -EINVAL;
	snprintf(host, 256, "%.*s", (int)n, start);
	snprintf(port, 8, "%s", colon + 1);
	return 0;
}

static int listen_on(const char *text, struct dsec_error *e)
{
	char host[256], port[8];
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *found;
	if (split_listen(text, host, port) < 0)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_REQUEST, "--listen %s is not HOST:PORT", text);
	int g = getaddrinfo(*host ? host : NULL, port, &hints, &found);
	if (g)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_REQUEST, "--listen %s: %s", text, gai_strerror(g));
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
	int r = fd < 0 ? -errno : 0;
	if (!r)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (!r && (bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0))
		r = -errno;
	freeaddrinfo(found);
	if (r) {
		base_close(fd);
		return dsec_error_errno(e, r, "cannot listen on %s", text);
	}
	return fd;
}

static int write_url(const char *run_dir, int fd, char ret[128])
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	char host[64], port[8], path[4096];
	if (getsockname(fd, (struct sockaddr *)&a, &n) < 0)
		return -errno;
	if (getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EINVAL;
	/* a wildcard is no address to call */
	const char *shown = !strcmp(host, "0.0.0.0") ? "127.0.0.1" : !strcmp(host, "::") ? "::1" : host;
	int len = snprintf(ret, 128, strchr(shown, ':') ? "http://[%s]:%s\n" : "http://%s:%s\n", shown, port);
	if (snprintf(path, sizeof(path), "%s/url", run_dir) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	int r = write_file_atomic(AT_FDCWD, path, ret, (size_t)len, 0600);
	ret[len - 1] = 0;
	return r;
}

/* ---- the end ---- */

static void on_stop_tick(uv_timer_t *t)
{
	struct process *p = t->data;
	if (server_requests(p->ctl.server) && now_mono_ms() < p->stop_at_ms)
		return;
	uv_stop(&p->loop);
}

static void on_signal(uv_signal_t *h, int number)
{
	struct process *p = h->data;
	if (p->ctl.stopping) {
		uv_stop(&p->loop); /* asked twice: now */
		return;
	}
	log_info("stopping: %zu answers under way", server_requests(p->ctl.server));
	p->ctl.stopping = true;
	p->stop_at_ms = now_mono_ms() + LIMIT_SHUTDOWN_WAIT_MS;
	server_quiesce(p->ctl.server);
	uv_timer_start(&p->stop_timer, on_stop_tick, 0, 20);
}

static void close_all(struct process *p)
{
	server_free(p->ctl.server);
	edges_close(p->ctl.edges);
	streams_close(p->ctl.streams);
	uv_close((uv_handle_t *)&p->term, NULL);
	uv_close((uv_handle_t *)&p->intr, NULL);
	uv_close((uv_handle_t *)&p->stop_timer, NULL);
	/* Whatever still has a handle (a killed import) gets a moment. */
	for (int i = 0; i < 50 && uv_run(&p->loop, UV_RUN_NOWAIT); i++)
		uv_sleep(10);
	uv_loop_close(&p->loop);
	metrics_free(p->ctl.metrics);
	layer_jobs_free(p->ctl.layer_jobs);
	store_close(p->ctl.store);
}

/* ---- the start ---- */

static void raise_files(void)
{
	struct rlimit l;
	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

static int add_edges(struct edges *es, const struct options *o, struct dsec_error *e)
{
	for (size_t i = 0; i < o->n_edges; i++) {
		char name[EDGE_NAME_MAX + 1];
		const char *eq = strchr(o->edges[i], '=');
		size_t n = eq ? (size_t)(eq - o->edges[i]) : 0;
		int r = -EINVAL;
		if (n && n <= EDGE_NAME_MAX) {
			snprintf(name, sizeof(name), "%.*s", (int)n, o->edges[i]);
			r = edges_add(es, name, eq + 1);
		}
		if (r)
			return dsec_error_set(e, r, DSEC_E_BAD_REQUEST, "--edge %s is not NAME=unix:PATH%s", o->edges[i],
					      r == -EEXIST ? " (the name is given twice)" : "");
	}
	return 0;
}

static int open_store(struct control *ctl, const struct options *o, struct dsec_error *e)
{
	int r = store_open(o->store, &ctl->store);
	if (r)
		return dsec_error_errno(e, r, "cannot open the store %s", o->store);
	r = store_project_put(ctl->store, DEFAULT_PROJECT);
	if (r)
		return dsec_error_errno(e, r, "cannot write to the store %s", o->store);
	r = store_secret(ctl->store, IDEMPOTENCY_SECRET_NAME, ctl->idempotency_secret);
	if (r)
		return dsec_error_errno(e, r, "cannot read or write the store %s", o->store);
	return o->key_file ? auth_key_file(ctl->store, o->key_file, e) : 0;
}

static int make_parts(struct process *p, const struct options *o, struct dsec_error *e)
{
	struct control *ctl = &p->ctl;
	int r = metrics_new(api_routes, api_routes_count, &ctl->metrics);
	if (!r)
		r = layer_jobs_new(&ctl->layer_jobs);
	if (!r)
		r = streams_new(ctl, &ctl->streams);
	if (!r)
		r = edges_new(&p->loop, &ctl->edges);
	if (r)
		return dsec_error_errno(e, r, "cannot start");
	r = add_edges(ctl->edges, o, e);
	if (r)
		return r;
	edges_start(ctl->edges);
	int fd = listen_on(o->listen, e);
	if (fd < 0)
		return fd;
	char url[128];
	r = write_url(o->run_dir, fd, url);
	struct server_config config = { fd, api_routes, api_routes_count };
	if (!r)
		r = server_new(ctl, &config, &ctl->server);
	else
		close(fd);
	if (r)
		return dsec_error_errno(e, r, "cannot serve on %s", o->listen);
	log_info("listening on %s%s", url, ctl->auth ? "" : " without keys");
	return 0;
}

static void watch_signals(struct process *p)
{
	uv_signal_init(&p->loop, &p->term);
	uv_signal_init(&p->loop, &p->intr);
	uv_timer_init(&p->loop, &p->stop_timer);
	p->term.data = p->intr.data = p->stop_timer.data = p;
	uv_signal_start(&p->term, on_signal, SIGTERM);
	uv_signal_start(&p->intr, on_signal, SIGINT);
	signal(SIGPIPE, SIG_IGN);
}

int apiserver_main(int argc, char **argv)
{
	struct options o;
	struct process p = { 0 };
	struct dsec_error e;
	char program[4096];
	size_t n = sizeof(program);
	log_init("apiserver");
	if (parse_options(argc, argv, &o) < 0) {
		fputs(usage_text, stderr);
		return EXIT_USAGE;
	}
	raise_files();
	uv_loop_init(&p.loop);
	p.ctl = (struct control){ .loop = &p.loop, .layer_dir = o.layer_dir, .auth = !o.no_auth,
				  .started_at_ms = now_real_ms(), .program = program };
	(void)!getrandom(&p.ctl.seed, sizeof(p.ctl.seed), 0);
	if (uv_exepath(program, &n) < 0) {
		log_error("cannot find my own program file");
		return EXIT_FAILURE;
	}
	watch_signals(&p);
	if (open_store(&p.ctl, &o, &e) < 0 || make_parts(&p, &o, &e) < 0) {
		log_error("%s", e.message);
		return EXIT_FAILURE;
	}
	uv_run(&p.loop, UV_RUN_DEFAULT);
	close_all(&p);
	return EXIT_SUCCESS;
}
