/* calls.h: the calls of edge.proto, one function each.
 *
 * Called by calls_dispatch (calls.c) with a whole request; loop thread. A
 * function answers at once or leaves the call on a list of what it waits for.
 */
#pragma once
#include "edge/node.h"
#include "edge/server.h"

/* calls_sandbox.c */
void call_create(struct call *c);
void call_get(struct call *c);
void call_list(struct call *c);
void call_delete(struct call *c);
void call_set_ttl(struct call *c);
void call_info(struct call *c);
/* The project's sandboxes that carry the labels, in parts; nothing is ended. */
int list_send(struct call *c, Dsec__Edge__KeyValue **labels, size_t n_labels, bool include_stopped);
bool sandbox_carries(const struct sandbox *sb, Dsec__Edge__KeyValue **labels, size_t n_labels);

/* watch.c */
void call_watch(struct call *c);

/* calls_exec.c */
void call_exec_start(struct call *c);
void call_exec_get(struct call *c);
void call_exec_list(struct call *c);
void call_exec_output(struct call *c);
void call_exec_stdin(struct call *c);
void call_exec_signal(struct call *c);
void call_exec_resize(struct call *c);
void call_exec_wait(struct call *c);
void call_file(struct call *c);

/* NULL and the call failed, unless it is the project's. */
struct sandbox *call_sandbox(struct call *c, const char *id);
/* The same, and it runs; counts as traffic. */
struct sandbox *call_running(struct call *c, const char *id);
