/* recover.h: a restarted edge takes back what still lives.
 *
 * Called once by edge_main.c, after the journal was replayed and the backend is
 * open; loop thread. done is called when every sandbox of the tables is in a true
 * state and everything unowned is gone: only then creates may be admitted.
 */
#pragma once
#include "edge/node.h"

void recover_start(struct node *n, void (*done)(struct node *n, const struct dsec_error *e));
