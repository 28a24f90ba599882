/* label_query.h: the `label=k=v` parameters of a request, as an edge wants them.
 *
 * Loop thread. Zero it, read it once, done in any case. At most LIMIT_LABELS_MAX.
 */
#pragma once
#include "control/request.h"
#include "edge.pb-c.h"

struct label_query {
	Dsec__Edge__KeyValue *ptrs[LIMIT_LABELS_MAX];
	Dsec__Edge__KeyValue kv[LIMIT_LABELS_MAX];
	char *text[LIMIT_LABELS_MAX]; /* owned copies, cut in two */
	size_t n;
	bool bad;
};

/* False: answered with bad_field. */
bool label_query_read(struct label_query *q, struct request *r);
void label_query_done(struct label_query *q);
