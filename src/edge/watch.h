/* watch.h: telling clients of state changes. Loop thread.
 *
 * call_watch (calls.h) puts a call on node->watchers; whoever moves a sandbox to
 * another state calls watch_tell once the move is journaled and its fields are
 * set. A watcher whose queue is longer than WATCH_QUEUE_MAX is ended with
 * `overloaded`: it lists anew.
 */
#pragma once
#include "edge/node.h"

#define WATCH_QUEUE_MAX (1024 * 1024) /* bytes, beyond what the first list took */
#define WATCH_WAIT_MAX_MS (10 * 60 * 1000)

void watch_tell(struct sandbox *sb);
