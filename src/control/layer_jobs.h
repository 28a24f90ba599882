/* layer_jobs.h: keeps a layer's removal and its users apart, in this process.
 *
 * Loop thread. A create holds its layer's digest from the look-up in the store
 * until the edge has answered: from then on the edge's list shows the use. A
 * removal marks the digest first, so no new create can take it, and is refused
 * while one holds it. (Several apiservers: a create that lost the race gets the
 * edge's layer_broken.)
 */
#pragma once
#include "control/control.h"

int layer_jobs_new(struct layer_jobs **ret);
void layer_jobs_free(struct layer_jobs *j);
int layer_hold(struct control *ctl, const char *digest); /* -EBUSY: being removed */
void layer_unhold(struct control *ctl, const char *digest);
int layer_removal_begin(struct control *ctl, const char *digest); /* -EBUSY: held or being removed */
void layer_removal_end(struct control *ctl, const char *digest);
/* Imports at once: LIMIT_LAYER_IMPORTS_MAX. false: no room. */
bool layer_import_begin(struct control *ctl);
void layer_import_end(struct control *ctl);
