/* edge_client.c: see edge_client.h: connections to edges, and what edges say of
 * themselves. edge_call.c has the calls.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "control/edge_client-internal.h"

#define BACKOFF_MIN_MS 50
#define BACKOFF_MAX_MS 2000
#define TICK_MS 50
#define SILENCE_MS 5000 /* ping after; three times that is death */

/* ---- connections ---- */

static void ask_info(struct edge *edge);

static void on_ready(struct conn *conn, void *user)
{
	struct edge *edge = user;
	edge->ready = true;
	edge->backoff_ms = BACKOFF_MIN_MS;
	edge->next_info_ms = 0;
	if (edge->told_down)
		log_info("edge %s is connected again", edge->name);
	edge->told_down = false;
	ask_info(edge);
	edge_calls_flush(edge);
}

static void note_down(struct edge *edge, int err)
{
	if (!edge->told_down && !edge->owner->closing)
		log_warn("edge %s at %s is away: %s", edge->name, edge->path,
			 err ? strerror(-err) : "it closed the connection");
	edge->told_down = true;
	edge->next_connect_ms = now_mono_ms() + edge->backoff_ms;
	edge->backoff_ms = MIN(edge->backoff_ms * 2, (uint64_t)BACKOFF_MAX_MS);
}

static void on_down(struct conn *conn, int err, void *user)
{
	struct edge *edge = user;
	edge->conn = NULL; /* I3 of edge_call.c */
	edge->ready = false;
	note_down(edge, err);
	edge_calls_lost(edge);
}

static const struct conn_callbacks callbacks = { on_ready, edge_calls_event, on_down };

static void connect_edge(struct edge *edge)
{
	const struct aether_config config = { .client = true };
	int fd = unix_connect(edge->path, SOCK_STREAM | SOCK_NONBLOCK);
	int r = fd < 0 ? fd : conn_new(edge->owner->loop, fd, &config, &callbacks, edge, &edge->conn);
	if (r < 0) {
		edge->conn = NULL;
		note_down(edge, r);
		return;
	}
	conn_keepalive(edge->conn, SILENCE_MS);
}

/* ---- what an edge says of itself ---- */

static void info_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct edge *edge = user;
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_INFO)
		return;
	size_t n = dsec__edge__edge_info__get_packed_size(reply->info);
	_cleanup_free_ uint8_t *copy = malloc(n + 1);
	if (!copy)
		return;
	dsec__edge__edge_info__pack(reply->info, copy);
	Dsec__Edge__EdgeInfo *info = dsec__edge__edge_info__unpack(NULL, n, copy);
	if (!info)
		return;
	if (edge->info)
		dsec__edge__edge_info__free_unpacked(edge->info, NULL);
	edge->info = info;
}

static void info_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	((struct edge *)user)->info_call = NULL;
}

static void ask_info(struct edge *edge)
{
	static const struct edge_call_ops ops = { .reply = info_reply, .end = info_end };
	static const struct edge_call_policy policy = { .deadline_ms = 5000 };
	Dsec__Edge__EdgeRequest rq = DSEC__EDGE__EDGE_REQUEST__INIT;
	Dsec__Edge__Info info = DSEC__EDGE__INFO__INIT;
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_INFO;
	rq.info = &info;
	edge->next_info_ms = now_mono_ms() + EDGE_INFO_EVERY_MS;
	if (!edge->info_call &&
	    edge_call_start(edge->owner, (size_t)(edge - edge->owner->edge), &rq, &policy, &ops, edge,
			    &edge->info_call, NULL) < 0)
		edge->info_call = NULL;
}

/* ---- time ---- */

static void on_tick(uv_timer_t *t)
{
	struct edges *es = t->data;
	uint64_t now = now_mono_ms();
	for (size_t i = 0; i < es->n; i++) {
		struct edge *edge = &es->edge[i];
		if (!edge->conn && now >= edge->next_connect_ms)
			connect_edge(edge);
		if (edge->ready && now >= edge->next_info_ms)
			ask_info(edge);
		edge_calls_flush(edge);
		edge_calls_expire(edge, now);
	}
}

/* ---- making, asking, closing ---- */

int edges_new(uv_loop_t *loop, struct edges **ret)
{
	struct edges *es = calloc(1, sizeof(*es));
	if (!es)
		return -ENOMEM;
	es->loop = loop;
	uv_timer_init(loop, &es->tick);
	es->tick.data = es;
	*ret = es;
	return 0;
}

int edges_add(struct edges *es, const char *name, const char *where)
{
	if (!id_edge_name_valid(name) || strncmp(where, "unix:", 5) || !where[5])
		return -EINVAL;
	if (edges_find(es, name) >= 0)
		return -EEXIST;
	if (es->n == LIMIT_EDGES_MAX)
		return -ENOSPC;
	struct edge *edge = &es->edge[es->n];
	edge->path = strdup(where + 5);
	if (!edge->path)
		return -ENOMEM;
	edge->owner = es;
	edge->backoff_ms = BACKOFF_MIN_MS;
	snprintf(edge->name, sizeof(edge->name), "%s", name);
	es->n++;
	return 0;
}

void edges_start(struct edges *es)
{
	uv_timer_start(&es->tick, on_tick, 0, TICK_MS);
}

static void on_closed(uv_handle_t *h)
{
	struct edges *es = h->data;
	for (size_t i = 0; i < es->n; i++) {
		if (es->edge[i].info)
			dsec__edge__edge_info__free_unpacked(es->edge[i].info, NULL);
		free(es->edge[i].path);
	}
	free(es);
}

void edges_close(struct edges *es)
{
	es->closing = true;
	for (size_t i = 0; i < es->n; i++) {
		struct edge *edge = &es->edge[i];
		struct conn *conn = TAKE_PTR(edge->conn);
		edge->ready = false;
		edge_calls_lost(edge);
		conn_close(conn);
	}
	uv_close((uv_handle_t *)&es->tick, on_closed);
}

size_t edges_count(const struct edges *es)
{
	return es->n;
}

const char *edges_name(const struct edges *es, size_t i)
{
	return es->edge[i].name;
}

int edges_find(const struct edges *es, const char *name)
{
	for (size_t i = 0; i < es->n; i++)
		if (!strcmp(es->edge[i].name, name))
			return (int)i;
	return -ENOENT;
}

bool edges_connected(const struct edges *es, size_t i)
{
	return es->edge[i].ready;
}

const Dsec__Edge__EdgeInfo *edges_info(const struct edges *es, size_t i)
{
	return es->edge[i].info;
}

void edges_pending_add(struct edges *es, size_t i, int delta)
{
	es->edge[i].pending_creates += (uint32_t)delta;
}

void edges_snapshot(const struct edges *es, struct placement_edge *ret)
{
	for (size_t i = 0; i < es->n; i++) {
		const struct edge *edge = &es->edge[i];
		const Dsec__Edge__EdgeInfo *in = edge->info;
		ret[i] = (struct placement_edge){ .connected = edge->ready, .known = in != NULL,
						  .pending = edge->pending_creates };
		if (!in)
			continue;
		ret[i].cpus = in->cpus;
		ret[i].live = in->sandboxes_live;
		ret[i].max = in->sandboxes_max;
		ret[i].memory_total = in->memory_total_bytes;
		ret[i].memory_available = in->memory_available_bytes;
	}
}
