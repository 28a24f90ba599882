/* files.h: file operations, relayed between a call and chronus.
 *
 * One relay a call, on its sandbox's list; loop thread. Back-pressure both ways
 * and constant memory: what one side sent and the other does not take yet waits
 * here, at most one stream window. Reads and writes carry a SHA-256.
 */
#pragma once
#include "edge/node.h"
#include "edge/server.h"

#define FILES_RUNNING_MAX 64 /* per sandbox */

void files_call(struct call *c, struct sandbox *sb, const Dsec__Edge__FileCall *req);
void files_resume_all(struct sandbox *sb);  /* the channel is ready: those that waited start */
void files_abandon_all(struct sandbox *sb); /* the sandbox is gone */
