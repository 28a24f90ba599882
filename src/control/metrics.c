/* metrics.c: see metrics.h. */
#include "control/metrics.h"
#include <errno.h>
#include <stdlib.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "control/server.h"

/* Statuses the API can answer with, plus 499: the client left first. */
static const int statuses[] = { 200, 201, 204, 400, 401, 403, 404, 405, 409, 410, 413, 422, 429, 431, 499, 500,
				501, 503, 504, 507, 0 /* any other */ };
static const double bounds[] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60 };

struct route_counts {
	uint64_t by_status[ARRAY_SIZE(statuses)];
	uint64_t bucket[ARRAY_SIZE(bounds) + 1]; /* not cumulative; the last: beyond all */
	uint64_t count, sum_ns;
};

struct metrics {
	const struct route *routes;
	size_t n; /* routes; counts has one more, for requests without a route */
	struct route_counts counts[];
};

int metrics_new(const struct route *routes, size_t n, struct metrics **ret)
{
	struct metrics *m = calloc(1, sizeof(*m) + (n + 1) * sizeof(m->counts[0]));
	if (!m)
		return -ENOMEM;
	m->routes = routes;
	m->n = n;
	*ret = m;
	return 0;
}

void metrics_free(struct metrics *m)
{
	free(m);
}

void metrics_request(struct metrics *m, const struct route *route, int status, uint64_t duration_ns)
{
	struct route_counts *c = &m->counts[route ? (size_t)(route - m->routes) : m->n];
	size_t s = 0, b = 0;
	while (statuses[s] && statuses[s] != status)
		s++;
	while (b < ARRAY_SIZE(bounds) && (double)duration_ns / 1e9 > bounds[b])
		b++;
	c->by_status[s]++;
	c->bucket[b]++;
	c->count++;
	c->sum_ns += duration_ns;
}

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void render_requests(struct metrics *m, struct buf *out)
{
	head(out, "dsec_http_requests_total", "counter", "Answered requests by route and status (499: client left).");
	for (size_t i = 0; i <= m->n; i++) {
		const struct route *r = i < m->n ? &m->routes[i] : NULL;
		for (size_t s = 0; s < ARRAY_SIZE(statuses); s++)
			if (m->counts[i].by_status[s])
				buf_printf(out, "dsec_http_requests_total{method=\"%s\",route=\"%s\",status=\"%d\"} %llu\n",
					   r ? r->method : "", r ? r->template : "", statuses[s],
					   (unsigned long long)m->counts[i].by_status[s]);
	}
}

static void render_durations(struct metrics *m, struct buf *out)
{
	head(out, "dsec_http_request_seconds", "histogram", "Time from a request's headers to the end of its answer.");
	for (size_t i = 0; i < m->n; i++) {
		const struct route_counts *c = &m->counts[i];
		const struct route *r = &m->routes[i];
		uint64_t total = 0;
		if (!c->count)
			continue;
		for (size_t b = 0; b < ARRAY_SIZE(bounds); b++) {
			total += c->bucket[b];
			buf_printf(out, "dsec_http_request_seconds_bucket{method=\"%s\",route=\"%s\",le=\"%g\"} %llu\n",
				   r->method, r->template, bounds[b], (unsigned long long)total);
		}
		buf_printf(out,
			   "dsec_http_request_seconds_bucket{method=\"%s\",route=\"%s\",le=\"+Inf\"} %llu\n"
			   "dsec_http_request_seconds_sum{method=\"%s\",route=\"%s\"} %.6f\n"
			   "dsec_http_request_seconds_count{method=\"%s\",route=\"%s\"} %llu\n",
			   r->method, r->template, (unsigned long long)c->count, r->method, r->template,
			   (double)c->sum_ns / 1e9, r->method, r->template, (unsigned long long)c->count);
	}
}

#define EDGE_METRICS(X)                                                                                     \
	X("dsec_edge_sandboxes_live", "gauge", "Sandboxes that exist on the edge.", sandboxes_live)          \
	X("dsec_edge_sandboxes_max", "gauge", "Sandboxes that the edge takes at most.", sandboxes_max)       \
	X("dsec_edge_sandboxes_stopping", "gauge", "Sandboxes being removed.", sandboxes_stopping)           \
	X("dsec_edge_creates_total", "counter", "Sandboxes created since the edge started.", creates_total)  \
	X("dsec_edge_creates_failed_total", "counter", "Creates that failed.", creates_failed)               \
	X("dsec_edge_execs_total", "counter", "Execs started.", execs_total)                                 \
	X("dsec_edge_adopted_total", "counter", "Sandboxes taken back after a restart.", adopted_total)      \
	X("dsec_edge_memory_total_bytes", "gauge", "Memory of the edge's host.", memory_total_bytes)         \
	X("dsec_edge_memory_available_bytes", "gauge", "Memory still available.", memory_available_bytes)    \
	X("dsec_edge_cpus", "gauge", "Cores of the edge's host.", cpus)

static void render_edges(const struct edges *es, struct buf *out)
{
	head(out, "dsec_edge_connected", "gauge", "1 while the edge is connected.");
	for (size_t i = 0; i < edges_count(es); i++)
		buf_printf(out, "dsec_edge_connected{edge=\"%s\"} %d\n", edges_name(es, i), edges_connected(es, i));
#define X(name, type, help, field)                                                                  \
	head(out, name, type, help);                                                                 \
	for (size_t i = 0; i < edges_count(es); i++)                                                 \
		if (edges_info(es, i))                                                               \
			buf_printf(out, name "{edge=\"%s\"} %llu\n", edges_name(es, i),              \
				   (unsigned long long)edges_info(es, i)->field);
	EDGE_METRICS(X)
#undef X
}

static void render_limits(struct buf *out)
{
	head(out, "dsec_limit", "gauge", "Bounds of the API, as in GET /v1/limits.");
#define X(name, text, value) buf_printf(out, "dsec_limit{name=\"" text "\"} %d\n", LIMIT_##name);
	CONTROL_LIMITS(X)
#undef X
}

int metrics_render(struct metrics *m, const struct control *ctl, struct buf *out)
{
	head(out, "dsec_apiserver_start_time_seconds", "gauge", "When this process started.");
	buf_printf(out, "dsec_apiserver_start_time_seconds %.3f\n", (double)ctl->started_at_ms / 1000.0);
	head(out, "dsec_http_connections", "gauge", "Open client connections.");
	buf_printf(out, "dsec_http_connections %zu\n", server_connections(ctl->server));
	head(out, "dsec_http_requests_active", "gauge", "Requests under way.");
	buf_printf(out, "dsec_http_requests_active %zu\n", server_requests(ctl->server));
	render_requests(m, out);
	render_durations(m, out);
	render_edges(ctl->edges, out);
	render_limits(out);
	/* buf_printf fails only for want of memory, and then so does this */
	return buf_append(out, "", 0);
}
