/* edge_main.c: the edge as a program: options, start, signals, end.
 *
 * Start: journal, backend, recovery, and only then the socket, so whoever can
 * connect finds true states. SIGTERM and SIGINT stop every sandbox and exit 0
 * when nothing is left, or 1 after SHUTDOWN_MAX_MS. SIGKILL leaves all alive for
 * the next start. One loop thread; the worker threads of libuv only sync and
 * remove files.
 */
#include "edge/edge_main.h"
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include "base/clock.h"
#include "base/log.h"
#include "edge/channel.h"
#include "edge/exec.h"
#include "edge/record.h"
#include "edge/recover.h"
#include "edge/sandbox.h"

#define TICK_MS 1000
#define SNAPSHOT_TICK_MS 20
#define FDS_RESERVED 4096 /* pools, spools, clients: see raise_fd_limit */
#define SHUTDOWN_MAX_MS (30 * 1000)
#define LEAVE_MAX_MS 3000
#define POOL_DEFAULT 16

struct edge {
	struct node node;
	uv_loop_t loop;
	uv_signal_t term, intr;
	uv_timer_t deadline;
	int status;
	bool cleaning;
	uint64_t leave_by;
};

static void usage(FILE *f)
{
	fprintf(f, "usage: dsecd edge --name NAME --run-dir DIR --state-dir DIR --layer-dir DIR\n"
		   "                  [--max-sandboxes N] [--pool N]\n"
		   "Runs the sandboxes of this node; apiservers connect to RUN-DIR/edge-NAME.sock.\n"
		   "SIGTERM stops all sandboxes; after SIGKILL a new start takes them back.\n");
}

static bool parse_count(const char *text, uint32_t max, uint32_t *ret)
{
	char *end;
	errno = 0;
	unsigned long v = strtoul(text, &end, 10);
	if (errno || end == text || *end || v > max)
		return false;
	*ret = (uint32_t)v;
	return true;
}

static int parse(struct node *n, int argc, char **argv)
{
	static const struct option options[] = {
		{ "name", required_argument, NULL, 'n' },      { "run-dir", required_argument, NULL, 'r' },
		{ "state-dir", required_argument, NULL, 's' }, { "layer-dir", required_argument, NULL, 'l' },
		{ "max-sandboxes", required_argument, NULL, 'm' }, { "pool", required_argument, NULL, 'p' },
		{ "help", no_argument, NULL, 'h' },	       { 0 },
	};
	n->max_sandboxes = EDGE_SANDBOXES_DEFAULT;
	n->pool_size = POOL_DEFAULT;
	optind = 1;
	for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		bool ok = true;
		if (o == 'n')
			ok = id_edge_name_valid(n->name = optarg);
		else if (o == 'r')
			n->run_dir = optarg;
		else if (o == 's')
			n->state_dir = optarg;
		else if (o == 'l')
			n->layer_dir = optarg;
		else if (o == 'm')
			ok = parse_count(optarg, EDGE_SANDBOXES_MAX, &n->max_sandboxes);
		else if (o == 'p')
			ok = parse_count(optarg, EDGE_SANDBOXES_MAX, &n->pool_size);
		else {
			usage(o == 'h' ? stdout : stderr);
			return o == 'h' ? 0 : -EINVAL;
		}
		if (!ok) {
			log_error("bad value '%s'", optarg);
			return -EINVAL;
		}
	}
	if (!n->name || !n->run_dir || !n->state_dir || !n->layer_dir || optind != argc) {
		usage(stderr);
		return -EINVAL;
	}
	return 1;
}

/* A live sandbox takes one descriptor for its pidfd; what remains may be
 * connections to chronus. Beyond that the idle ones are closed, and made again
 * when they are needed. */
static void raise_fd_limit(struct node *n)
{
	struct rlimit l = { 1024, 1024 };
	if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
	rlim_t taken = n->max_sandboxes + FDS_RESERVED;
	n->max_channels = l.rlim_cur > taken + CHANNELS_MIN ? (uint32_t)MIN(l.rlim_cur - taken, (rlim_t)n->max_sandboxes)
							    : CHANNELS_MIN;
}

/* --- the end --- */

static void on_last_deadline(uv_timer_t *h)
{
	uv_stop(h->loop);
}

/* Frees everything; the loop then runs out of handles by itself. */
static void finish(struct edge *ed)
{
	struct node *n = &ed->node;
	edge_server_free(TAKE_PTR(n->server));
	node_done(n);
	uv_close((uv_handle_t *)&n->tick, NULL);
	uv_close((uv_handle_t *)&ed->term, NULL);
	uv_close((uv_handle_t *)&ed->intr, NULL);
	uv_timer_start(&ed->deadline, on_last_deadline, LEAVE_MAX_MS, 0);
	uv_unref((uv_handle_t *)&ed->deadline);
}

static bool callbacks_due(struct node *n)
{
	struct sandbox *sb;
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));)
		if (sb->holds)
			return true;
	return !journal_idle(n->journal);
}

static void on_leave_tick(uv_timer_t *h)
{
	struct node *n = h->data;
	struct edge *ed = container_of(n, struct edge, node);
	if (!callbacks_due(n) || uv_now(h->loop) >= ed->leave_by) {
		uv_timer_stop(h);
		finish(ed);
	}
}

/* Waits for answers that are due, a moment at most: they come with pointers. */
static void leave(struct edge *ed)
{
	ed->leave_by = uv_now(&ed->loop) + LEAVE_MAX_MS;
	uv_timer_start(&ed->node.tick, on_leave_tick, 0, 5);
}

static void on_cleaned(struct dsec_error *e, void *user)
{
	struct edge *ed = user;
	if (e)
		log_error("cleaning up: %s", e->message);
	ed->status = e ? 1 : 0;
	leave(ed);
}

/* Nothing lives: what the backend keeps ready goes too. */
static void on_empty(struct node *n)
{
	struct edge *ed = container_of(n, struct edge, node);
	if (ed->cleaning)
		return;
	ed->cleaning = true;
	n->ops->reconcile(n->backend, NULL, NULL, 0, on_cleaned, ed);
}

static void on_deadline(uv_timer_t *h)
{
	struct edge *ed = h->data;
	log_error("shutdown: %u sandboxes are not gone after %d s", ed->node.n_live, SHUTDOWN_MAX_MS / 1000);
	ed->status = 1;
	leave(ed);
}

static void on_signal(uv_signal_t *h, int sig)
{
	struct edge *ed = h->data;
	if (ed->node.shutting_down)
		return;
	log_info("signal %d: stopping %u sandboxes", sig, ed->node.n_live);
	edge_server_stop_listening(ed->node.server);
	uv_timer_start(&ed->deadline, on_deadline, SHUTDOWN_MAX_MS, 0);
	ed->node.on_empty = on_empty;
	node_shutdown(&ed->node);
}

/* --- the beginning --- */

static void on_tick(uv_timer_t *h)
{
	struct node *n = h->data;
	exec_check_starting(n, now_mono_ms());
	record_compact_step(n);
	/* A snapshot under way goes on soon, so that it does not take many seconds. */
	uv_timer_set_repeat(h, n->snapshot.ids ? SNAPSHOT_TICK_MS : TICK_MS);
}

static void on_recovered(struct node *n, const struct dsec_error *e)
{
	struct edge *ed = container_of(n, struct edge, node);
	char path[4096];
	if (e) {
		log_error("taking back what lives: %s", e->message);
		ed->status = 1;
		leave(ed);
		return;
	}
	if (n->shutting_down)
		return;
	n->admitting = true;
	snprintf(path, sizeof(path), "%s/edge-%s.sock", n->run_dir, n->name);
	int r = edge_server_start(n, path, &n->server);
	if (r < 0) {
		log_error("%s: %s", path, strerror(-r));
		ed->status = 1;
		leave(ed);
		return;
	}
	log_info("edge %s ready: %u sandboxes taken back, at most %u", n->name, n->n_live, n->max_sandboxes);
}

static void init_handles(struct edge *ed)
{
	uv_timer_init(&ed->loop, &ed->node.tick);
	uv_timer_init(&ed->loop, &ed->deadline);
	uv_signal_init(&ed->loop, &ed->term);
	uv_signal_init(&ed->loop, &ed->intr);
	ed->node.tick.data = &ed->node;
	ed->deadline.data = ed->term.data = ed->intr.data = ed;
	uv_timer_start(&ed->node.tick, on_tick, TICK_MS, TICK_MS);
	uv_signal_start(&ed->term, on_signal, SIGTERM);
	uv_signal_start(&ed->intr, on_signal, SIGINT);
}

int edge_main(int argc, char **argv)
{
	static struct edge ed;
	struct dsec_error e;
	log_init("edge");
	int r = parse(&ed.node, argc, argv);
	if (r <= 0)
		return r ? 2 : 0;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk */
	raise_fd_limit(&ed.node);
	uv_loop_init(&ed.loop);
	ed.node.ops = &backend_container;
	r = node_init(&ed.node, &ed.loop, &e);
	if (r < 0) {
		log_error("%s: %s", dsec_code_name(e.code), e.message);
		return 1;
	}
	init_handles(&ed);
	recover_start(&ed.node, on_recovered);
	uv_run(&ed.loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&ed.deadline, NULL);
	uv_run(&ed.loop, UV_RUN_NOWAIT);
	uv_loop_close(&ed.loop); /* refuses if something is stuck; the process ends anyway */
	return ed.status;
}
