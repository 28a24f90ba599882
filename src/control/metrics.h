/* metrics.h: counters of the apiserver as Prometheus text.
 *
 * Loop thread only. Labels are bounded: route templates, methods and statuses of
 * our own, names of configured edges; nothing a client can make up.
 */
#pragma once
#include "base/buf.h"
#include "control/control.h"
#include "control/router.h"

int metrics_new(const struct route *routes, size_t n, struct metrics **ret);
void metrics_free(struct metrics *m);
/* route NULL: a request that no route served. */
void metrics_request(struct metrics *m, const struct route *route, int status, uint64_t duration_ns);
int metrics_render(struct metrics *m, const struct control *ctl, struct buf *out);
