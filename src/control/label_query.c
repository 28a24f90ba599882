/* label_query.c: see label_query.h. */
#include "control/label_query.h"
#include <stdlib.h>
#include <string.h>
#include "control/checks.h"

static void take(const char *value, void *user)
{
	struct label_query *q = user;
	char *text = q->n < LIMIT_LABELS_MAX ? strdup(value) : NULL;
	if (!text) {
		q->bad = true;
		return;
	}
	Dsec__Edge__KeyValue *kv = &q->kv[q->n];
	dsec__edge__key_value__init(kv);
	if (!label_split(text, &kv->key, &kv->value))
		q->bad = true;
	q->text[q->n] = text;
	q->ptrs[q->n++] = kv;
}

bool label_query_read(struct label_query *q, struct request *r)
{
	request_query_each(r, "label", take, q);
	if (q->bad)
		request_failf(r, DSEC_E_BAD_FIELD, "the parameter label must be key=value, at most %d times",
			      LIMIT_LABELS_MAX);
	return !q->bad;
}

void label_query_done(struct label_query *q)
{
	for (size_t i = 0; i < q->n; i++)
		free(q->text[i]);
	q->n = 0;
}
