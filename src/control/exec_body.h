/* exec_body.h: the body of POST .../execs, checked. Pure.
 *
 * The message borrows from the JSON body and from what the struct owns;
 * exec_body_done frees that.
 */
#pragma once
#include <jansson.h>
#include "base/buf.h"
#include "base/id.h"
#include "control/checks.h"
#include "edge.pb-c.h"

struct exec_body {
	Dsec__Edge__ExecStart message; /* all but sandbox_id and follow */
	char id[EXEC_ID_MAX + 1];      /* the client's or a new one */
	struct buf bytes;              /* decoded base64 of argv and stdin */
};

int exec_body_read(struct exec_body *b, const json_t *body, struct dsec_error *e);
void exec_body_done(struct exec_body *b);
