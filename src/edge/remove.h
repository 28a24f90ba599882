/* remove.h: kept output (and input) of sandboxes that are no longer known.
 *
 * remove_output is cheap: the files are removed by a worker thread, which needs
 * nothing of the tables. Ids of sandboxes are never used again, so nobody can be
 * making what is being removed.
 */
#pragma once
#include "edge/node.h"

void remove_output(struct sandbox *sb);
/* At start: every file that belongs to no exec of the tables. */
void remove_strays(struct node *n);
