/* gather.h: one list question to every edge, answers taken as they come.
 *
 * Loop thread. Ends once: with the first edge's failure (the rest is cancelled;
 * a list that silently lacks an edge would be a lie) or when all are through.
 */
#pragma once
#include "control/edge_client.h"

struct gather;

struct gather_ops {
	void (*sandbox)(const Dsec__Edge__Sandbox *s, void *user);
	/* The gather is gone when this is called. */
	void (*end)(const struct dsec_error *e, uint32_t retry_after_ms, void *user);
};

/* -errno and *e: nothing was started and end is not called. With no edges at all
 * end comes before the call returns and *ret is NULL. */
int gather_start(struct edges *es, const Dsec__Edge__EdgeRequest *list, const struct gather_ops *ops, void *user,
		 struct gather **ret, struct dsec_error *e);
void gather_cancel(struct gather *g); /* no end follows; NULL accepted */
