/* create.c: POST /v1/sandboxes: one creation, one answer.
 *
 * When the client leaves before the answer, nobody knows the id: the creation
 * goes on alone and what it made is deleted, see creation.h.
 */
#include <stdlib.h>
#include "control/creation.h"
#include "control/request.h"
#include "control/resources.h"

struct create {
	struct request *r;
	struct create_body body;
	struct creation *creation; /* NULL once it is done */
};

static void on_done(const struct creation_result *result, void *user)
{
	struct create *c = user;
	c->creation = NULL;
	if (result->error)
		request_fail(c->r, result->error, result->retry_after_ms);
	else
		request_json(c->r, result->adopted ? 200 : 201, json_incref(result->sandbox));
}

static void on_release(struct request *r)
{
	struct create *c = request_state(r);
	creation_abandon(c->creation);
	create_body_done(&c->body);
	free(c);
}

void handle_sandbox_create(struct request *r)
{
	static const struct request_ops ops = { .release = on_release };
	struct dsec_error e;
	const char *key;
	struct control *ctl = request_control(r);
	struct create *c = calloc(1, sizeof(*c));
	if (!c) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	c->r = r;
	request_set(r, &ops, c);
	if (create_body_read(&c->body, ctl, request_body(r), &e) < 0 ||
	    create_body_key(&c->body, request_body(r), request_header_in(r, "Idempotency-Key"), &key, &e) < 0) {
		request_fail(r, &e, 0);
		return;
	}
	struct creation_request q = { request_project(r), request_id(r), key, &c->body };
	if (creation_start(ctl, &q, on_done, c, &c->creation, &e) < 0)
		request_fail(r, &e, 0);
}
