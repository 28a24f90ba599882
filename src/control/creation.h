/* creation.h: one sandbox being made: placement, and one edge after the other.
 *
 * Loop thread. Used by create (one) and create_batch (many). The id is made here,
 * since it names the edge; asking an edge twice for one id gives one sandbox. So
 * after a broken connection the same edge is asked the same again (edge_client
 * does it). An edge that refuses for want of room leads to the next choice with a
 * new id.
 *
 * With an idempotency key there is one edge and one id (idempotency.h). What was
 * made for nobody is deleted, unless it has a key: its client comes back with it,
 * or the sandbox's lifetime ends it.
 */
#pragma once
#include "control/create_body.h"
#include "control/idempotency.h"

struct creation;

struct creation_request {
	const char *project, *request_id;
	const char *key;                /* "": none */
	const struct create_body *body; /* borrowed until done or abandoned */
};

struct creation_result {
	const struct dsec_error *error; /* NULL: it runs */
	uint32_t retry_after_ms;
	json_t *sandbox; /* borrowed */
	bool adopted;    /* its key had made it before */
	const char *id;  /* borrowed */
	size_t edge;
};

typedef void (*creation_done)(const struct creation_result *result, void *user);

/* Negative and *e: refused at once, done is not called. Else done comes once and
 * *ret is valid until it returned or until it is abandoned. */
int creation_start(struct control *ctl, const struct creation_request *q, creation_done done, void *user,
		   struct creation **ret, struct dsec_error *e);
/* Nobody waits any more: done is not called; what comes of it is deleted. */
void creation_abandon(struct creation *c); /* NULL accepted */
/* Deletes a sandbox that was made and that nobody knows of. */
void creation_undo(struct control *ctl, const char *project, size_t edge, const char *id);
