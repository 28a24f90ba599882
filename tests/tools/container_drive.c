/* container_drive.c: drives backend_container on a loop by lines on stdin.
 *
 *   container_drive STATE RUN LAYERS MAX POOL
 *   start NAME DIGEST CPU_MILLIS MEMORY_MB DISK_MB PIDS   -> ok start NAME PID SLOT TICKS
 *   adopt NAME PID SLOT TICKS                             -> ok adopt NAME
 *   destroy NAME | stats NAME | usage NAME | ask NAME LINE
 *   reconcile [NAME PID SLOT TICKS]...                    -> ok reconcile
 *   pool                                                  -> ok pool READY (waits until it is full)
 *   close                                                 -> ends, exit status 0
 * A failure is "error VERB NAME CODE WORDS". The death of PID 1 is "exit NAME".
 * ask connects to PID 1 (probe_init), sends LINE, prints what comes back in hex.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <fcntl.h>
#include <unistd.h>
#include <uv.h>
#include "backend/container/container-internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hashmap.h"
#include "base/log.h"

struct box {
	char name[SANDBOX_ID_MAX + 1];
	struct backend_instance *inst;
};

static struct backend *backend;
static struct hashmap boxes;
static uv_poll_t input;
static uv_timer_t pool_timer;
static char pending[1 << 16];
static size_t n_pending;

static void fail(const char *verb, const char *name, const struct dsec_error *e)
{
	printf("error %s %s %s %s\n", verb, name, dsec_code_name(e->code), e->message);
}

static struct box *box_of(const char *name)
{
	struct box *x = hashmap_get(&boxes, name);
	if (!x) {
		x = calloc(1, sizeof(*x));
		snprintf(x->name, sizeof(x->name), "%s", name);
		hashmap_put(&boxes, x->name, x);
	}
	return x;
}

static void on_exit_cb(struct backend_instance *inst, void *user)
{
	printf("exit %s\n", ((struct box *)user)->name);
}

static void on_started(struct backend_instance *inst, const struct backend_record *rec, const struct dsec_error *e, void *user)
{
	struct box *x = user;
	x->inst = inst;
	if (e)
		fail("start", x->name, e);
	else
		printf("ok start %s %d %u %llu\n", x->name, rec->pid, rec->slot, (unsigned long long)rec->start_ticks);
}

static void on_destroyed(const struct dsec_error *e, void *user)
{
	struct box *x = user;
	x->inst = NULL;
	if (e)
		fail("destroy", x->name, e);
	else
		printf("ok destroy %s\n", x->name);
}

static void on_usage(int err, uint64_t limit, uint64_t used, void *user)
{
	printf("%s usage %s %llu %llu %d\n", err ? "error" : "ok", ((struct box *)user)->name, (unsigned long long)limit,
	       (unsigned long long)used, err);
}

static void on_reconciled(struct dsec_error *e, void *user)
{
	if (e)
		fail("reconcile", "-", e);
	else
		printf("ok reconcile -\n");
}

static void do_start(char *name, char *rest)
{
	char digest[DIGEST_MAX + 1];
	unsigned cpu, memory, disk, pids;
	if (sscanf(rest, "%71s %u %u %u %u", digest, &cpu, &memory, &disk, &pids) != 5)
		return;
	const char *layers[] = { digest };
	struct sandbox_spec spec = { .id = name, .layers = layers, .n_layers = 1, .cpu_millis = cpu,
				     .memory_bytes = (uint64_t)memory << 20, .disk_bytes = (uint64_t)disk << 20, .pids = pids };
	backend_container.start(backend, &spec, on_started, on_exit_cb, box_of(name));
}

static void do_adopt(const char *name, const char *rest)
{
	struct box *x = box_of(name);
	struct backend_record rec;
	unsigned long long ticks;
	if (sscanf(rest, "%d %u %llu", &rec.pid, &rec.slot, &ticks) != 3)
		return;
	rec.start_ticks = ticks;
	struct sandbox_spec spec = { .id = name };
	int r = backend_container.adopt(backend, &spec, &rec, on_exit_cb, x, &x->inst);
	printf("%s adopt %s %d\n", r < 0 ? "error" : "ok", name, r);
}

static void do_reconcile(char *rest)
{
	static struct backend_record recs[1024];
	static char names[1024][SANDBOX_ID_MAX + 1];
	const char *ids[1024];
	uint32_t n = 0;
	int used;
	unsigned long long ticks;
	while (n < 1024 && sscanf(rest, "%46s %d %u %llu%n", names[n], &recs[n].pid, &recs[n].slot, &ticks, &used) == 4) {
		recs[n].start_ticks = ticks;
		ids[n] = names[n];
		n++;
		rest += used;
	}
	backend_container.reconcile(backend, recs, ids, n, on_reconciled, NULL);
}

static void do_stats(struct box *x)
{
	struct backend_stats s;
	int r = backend_container.stats(x->inst, &s);
	printf("%s stats %s memory=%llu peak=%llu cpu=%llu oom=%llu pids=%u pids_hit=%d err=%d\n", r < 0 ? "error" : "ok", x->name,
	       (unsigned long long)s.memory_bytes, (unsigned long long)s.memory_peak_bytes, (unsigned long long)s.cpu_usec,
	       (unsigned long long)s.oom_kills, s.pids, s.pids_limit_hit, r);
}

/* Blocks: it is a test's own tool, and the answer is what the test waits for. */
static void do_ask(struct box *x, const char *line)
{
	int fd = backend_container.connect(x->inst);
	if (fd < 0) {
		printf("error ask %s %d\n", x->name, fd);
		return;
	}
	fcntl(fd, F_SETFL, 0);
	dprintf(fd, "%s\n", line);
	printf("ok ask %s ", x->name);
	unsigned char c;
	while (read(fd, &c, 1) == 1)
		printf("%02x", c);
	printf("\n");
	close(fd);
}

static void on_pool(uv_timer_t *t)
{
	if (backend->n_ready >= backend->pool_size) {
		uv_timer_stop(t);
		printf("ok pool %u\n", backend->n_ready);
	}
}

static void do_line(char *line)
{
	char *verb = strsep(&line, " "), *name = line ? strsep(&line, " ") : NULL;
	char *rest = line ? line : (char *)"";
	struct box *x = name ? hashmap_get(&boxes, name) : NULL;
	if (!strcmp(verb, "start") && name)
		do_start(name, rest);
	else if (!strcmp(verb, "adopt") && name)
		do_adopt(name, rest);
	else if (!strcmp(verb, "reconcile")) {
		char all[65536];
		snprintf(all, sizeof(all), "%s %s", name ? name : "", rest);
		do_reconcile(all);
	} else if (!strcmp(verb, "pool"))
		uv_timer_start(&pool_timer, on_pool, 0, 1);
	else if (!strcmp(verb, "close")) {
		uv_close((uv_handle_t *)&input, NULL);
		uv_close((uv_handle_t *)&pool_timer, NULL);
		backend_container.close(backend);
	} else if (!x || !x->inst)
		printf("error %s %s unknown\n", verb, name ? name : "-");
	else if (!strcmp(verb, "destroy"))
		backend_container.destroy(x->inst, on_destroyed, x);
	else if (!strcmp(verb, "stats"))
		do_stats(x);
	else if (!strcmp(verb, "usage"))
		backend_container.disk_usage(x->inst, on_usage, x);
	else if (!strcmp(verb, "ask"))
		do_ask(x, rest);
}

static void on_input(uv_poll_t *h, int status, int events)
{
	ssize_t n = read(0, pending + n_pending, sizeof(pending) - 1 - n_pending);
	if (n <= 0) {
		_exit(1);
	}
	n_pending += (size_t)n;
	pending[n_pending] = 0;
	char *p = pending, *nl;
	while ((nl = strchr(p, '\n'))) {
		*nl = 0;
		do_line(p);
		p = nl + 1;
	}
	n_pending -= (size_t)(p - pending);
	memmove(pending, p, n_pending + 1);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	log_init("container_drive");
	uv_loop_t *loop = uv_default_loop();
	struct backend_env env = { .loop = loop, .state_dir = argv[1], .run_dir = argv[2], .layer_dir = argv[3], .edge_name = "t0",
				   .max_sandboxes = (uint32_t)atoi(argv[4]), .pool_size = (uint32_t)atoi(argv[5]) };
	struct dsec_error e = { 0 };
	if (backend_container.open(&env, &backend, &e) < 0) {
		fail("open", "-", &e);
		return 1;
	}
	printf("ok open -\n");
	uv_timer_init(loop, &pool_timer);
	uv_poll_init(loop, &input, 0);
	uv_poll_start(&input, UV_READABLE, on_input);
	return uv_run(loop, UV_RUN_DEFAULT);
}
