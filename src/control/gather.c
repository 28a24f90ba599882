/* gather.c: see gather.h. */
#include "control/gather.h"
#include <errno.h>
#include <stdlib.h>
#include "control/calls.h"

struct part {
	struct gather *g;
	struct edge_call *call; /* NULL once it ended */
};

struct gather {
	const struct gather_ops *ops;
	void *user;
	size_t n, open;
	struct part part[];
};

void gather_cancel(struct gather *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->n; i++)
		edge_call_cancel(g->part[i].call);
	free(g);
}

static void on_reply(struct edge_call *c, const Dsec__Edge__EdgeReply *reply, void *user)
{
	struct part *p = user;
	if (reply->what_case != DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOXES)
		return;
	for (size_t i = 0; i < reply->sandboxes->n_sandboxes; i++)
		p->g->ops->sandbox(reply->sandboxes->sandboxes[i], p->g->user);
}

static void on_end(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct part *p = user;
	struct gather *g = p->g;
	p->call = NULL;
	g->open--;
	if (!e && g->open)
		return;
	const struct gather_ops *ops = g->ops;
	void *owner = g->user;
	gather_cancel(g);
	ops->end(e, retry_after_ms, owner);
}

int gather_start(struct edges *es, const Dsec__Edge__EdgeRequest *list, const struct gather_ops *ops, void *user,
		 struct gather **ret, struct dsec_error *e)
{
	static const struct edge_call_ops cops = { .reply = on_reply, .end = on_end };
	size_t n = edges_count(es);
	struct gather *g = calloc(1, sizeof(*g) + n * sizeof(g->part[0]));
	*ret = NULL;
	if (!g)
		return dsec_error_errno(e, -ENOMEM, "list");
	g->ops = ops;
	g->user = user;
	g->n = n;
	for (size_t i = 0; i < n; i++) {
		g->part[i].g = g;
		int r = edge_call_start(es, i, list, &policy_read, &cops, &g->part[i], &g->part[i].call, e);
		if (r < 0) {
			g->part[i].call = NULL;
			gather_cancel(g);
			return r;
		}
		g->open++;
	}
	if (!n) {
		free(g);
		ops->end(NULL, 0, user);
		return 0;
	}
	*ret = g;
	return 0;
}
