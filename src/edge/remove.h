/* remove.h: output directories of sandboxes that are no longer known.
 *
 * remove_output is cheap when there was no output; a directory with files is
 * emptied by a worker thread, which needs nothing of the tables. Ids are never
 * used again, so nobody can be making what is being removed.
 */
#pragma once
#include "edge/node.h"

void remove_output(struct node *n, const char *id);
/* At start: every directory that belongs to no sandbox of the tables. */
void remove_strays(struct node *n);
