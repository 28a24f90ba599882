/* each.h: the same question about each of many sandboxes, some at once.
 *
 * Loop thread. LIMIT_CALLS_AT_ONCE calls are under way at a time. `one` gets what
 * came of each id, in any order; `end` comes once, after the last, and the each
 * is gone by then. An id of no edge of ours is sandbox_not_found, as any other
 * that is not there.
 */
#pragma once
#include "control/request.h"

struct each;

enum each_question { EACH_GET, EACH_DELETE, EACH_DELETE_WAIT };

struct each_ops {
	/* e NULL: sandbox is there. Both borrowed. */
	void (*one)(size_t at, const struct dsec_error *e, json_t *sandbox, void *user);
	void (*end)(void *user);
};

/* ids are borrowed until the end, r until then or each_cancel. -ENOMEM: nothing
 * was started. end may come before this returns; *ret was set before it. */
int each_start(struct request *r, enum each_question question, const char *const *ids, size_t n,
	       const struct each_ops *ops, void *user, struct each **ret);
void each_cancel(struct each *e); /* nothing follows; NULL accepted */
