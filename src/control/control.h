/* control.h: what the parts of one apiserver process share.
 *
 * Made by apiserver_main, lives as long as the process, loop thread only. Holds
 * nothing of any sandbox.
 */
#pragma once
#include <uv.h>
#include "control/edge_client.h"
#include "store/store.h"

struct server;
struct metrics;
struct streams;
struct layer_jobs;

struct control {
	uv_loop_t *loop;
	struct store *store;
	struct edges *edges;
	struct server *server;
	struct metrics *metrics;
	struct streams *streams;       /* exec streams that want keepalives */
	struct layer_jobs *layer_jobs; /* imports under way, layers being removed */
	const char *layer_dir;
	const char *program; /* path of dsecd, for layer-import */
	bool auth;           /* keys are asked for */
	bool stopping;       /* SIGTERM seen: readyz says no */
	uint64_t seed;       /* placement's */
	uint8_t idempotency_secret[STORE_SECRET_LEN]; /* the store's, see idempotency.h */
	uint64_t started_at_ms;
};
