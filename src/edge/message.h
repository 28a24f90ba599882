/* message.h: the edge's state as messages of edge.proto.
 *
 * Used by the calls and by record.c; loop thread. Strings in a built message are
 * borrowed from the sandbox or exec, arrays from the small struct that the
 * caller holds, so a message is good until either changes.
 */
#pragma once
#include "edge/exec.h"
#include "edge/node.h"
#include "edge/server.h"

struct exec_message {
	Dsec__Edge__Exec m;
	Dsec__Edge__Error error;
};

void message_sandbox(struct sandbox *sb, Dsec__Edge__Sandbox *ret);
void message_exec(struct exec *x, struct exec_message *ret);
void message_info(struct node *n, Dsec__Edge__EdgeInfo *ret);
int reply_sandbox(struct call *c, struct sandbox *sb);
int reply_exec(struct call *c, struct exec *x);
