/* create_body.h: the body of POST /v1/sandboxes, checked and completed.
 *
 * Loop thread (it asks the store for the environment). The message borrows from
 * the request's JSON and from what the struct owns; create_body_done frees that.
 */
#pragma once
#include <jansson.h>
#include "control/control.h"
#include "edge.pb-c.h"

struct create_body {
	Dsec__Edge__Create message; /* all but id */
	char digest[STORE_DIGEST_LEN + 1];
	char *layers[1];
	char environment[2 * NAME_MAX_LEN + 2]; /* name@version */
	char cwd[LIMIT_PATH_BYTES_MAX + 1];
	char user[LIMIT_USER_LENGTH_MAX + 1];
	const char *idempotency_key; /* borrowed; NULL: none */
	uint8_t hash[32];            /* of the body, with a key */
	json_t *config; /* owned: the layer's config; env borrows from it */
	json_t *env;    /* owned: config's env with the body's over it */
};

int create_body_read(struct create_body *b, struct control *ctl, const json_t *body, struct dsec_error *e);
/* The idempotency key of the request, "" if none (borrowed); with one, the message
 * gets the hash of the body. */
int create_body_key(struct create_body *b, const json_t *body, const char *header, const char **ret_key,
		    struct dsec_error *e);
void create_body_done(struct create_body *b);
