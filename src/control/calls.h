/* calls.h: the usual ways of a handler to ask an edge.
 *
 * Loop thread. Each takes the request over: it is answered, now or later, and
 * the call is cancelled when the client leaves.
 */
#pragma once
#include "control/edge_client.h"
#include "control/request.h"

/* Calls that change nothing, or may run twice: wait for a lost edge a while. */
extern const struct edge_call_policy policy_read;
/* Calls that must not run twice once they were sent. */
extern const struct edge_call_policy policy_once;

/* An EdgeRequest with request id and project of r filled in. */
void edge_request_init(Dsec__Edge__EdgeRequest *rq, struct request *r);
/* Index of the edge that a sandbox id names; answers sandbox_not_found: -1. */
int edge_of_sandbox(struct request *r, const char *sandbox_id);

/* Renders a reply; NULL when it is not the kind that was asked for (it is passed
 * over: a stat is followed by a done). The last that is not NULL is the answer. */
typedef json_t *(*unary_render)(const Dsec__Edge__EdgeReply *reply);
/* One question, one answer, as JSON with `status`. */
void unary_call(struct request *r, const char *sandbox_id, const Dsec__Edge__EdgeRequest *rq,
		const struct edge_call_policy *policy, int status, unary_render render);
json_t *unary_sandbox(const Dsec__Edge__EdgeReply *reply);
json_t *unary_exec(const Dsec__Edge__EdgeReply *reply);
json_t *unary_nothing(const Dsec__Edge__EdgeReply *reply); /* any reply: {} */
