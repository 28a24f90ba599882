/* dsec/dsec.h: the whole C client library of DSec. Link with `pkg-config --libs dsec`.
 *
 *   struct dsec_client *c;
 *   struct dsec_sandbox *s;
 *   struct dsec_error e;
 *   if (dsec_client_new(NULL, &c, &e) < 0) ...
 *   if (dsec_sandbox_create(c, &(struct dsec_create_options){ .environment = "base" }, &s, &e) < 0) ...
 */
#ifndef DSEC_DSEC_H
#define DSEC_DSEC_H
#include "dsec/client.h"
#include "dsec/error.h"
#include "dsec/exec.h"
#include "dsec/file.h"
#include "dsec/layer.h"
#include "dsec/sandbox.h"
#endif
