/* record.h: the edge's tables in the journal.
 *
 * record_* writes what has just been decided about a sandbox or an exec; the
 * caller acts or answers only if it returned 0. record_open replays a journal
 * into empty tables: states are then as journaled, and recover.c finds out what
 * of it still lives. Loop thread; the only user of journal.h.
 */
#pragma once
#include "edge/exec.h"
#include "edge/node.h"

int record_open(struct node *n);
/* "the edge cannot write down WHAT": whose disk is full is the platform's matter. */
void record_error(struct dsec_error *e, int r, const char *what);
int record_head(struct node *n);
int record_intent(struct sandbox *sb);
int record_started(struct sandbox *sb);
int record_ttl(struct sandbox *sb);
int record_stopping(struct sandbox *sb);
int record_stopped(struct sandbox *sb);
int record_dropped(struct node *n, const char *id);
int record_exec_intent(struct exec *x);
int record_exec_running(struct exec *x);
int record_exec_finished(struct exec *x); /* finished or failed */
int record_exec_dropped(struct exec *x);
/* Writes a snapshot of the tables as the new journal, at once: at start. */
int record_compact(struct node *n);
/* The same in slices between which the loop runs; calls with nothing to do are
 * cheap: called by the node's tick. */
void record_compact_step(struct node *n);
