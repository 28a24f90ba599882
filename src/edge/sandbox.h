/* sandbox.h: what happens to a sandbox, from admission to being dropped.
 *
 * The only code that moves a sandbox's state (by the table in lifecycle.h) and
 * the only one that speaks with the backend about it. Loop thread. Calls wait on
 * the sandbox's lists and are answered here.
 */
#pragma once
#include "edge/node.h"
#include "edge/server.h"

/* The sandbox is journaled as an intent; puts it in the queue. */
void sandbox_enqueue(struct sandbox *sb);
/* Starts as many pending ones as may be prepared at once. */
void node_kick(struct node *n);
/* Decides the end, once: the first reason stays. */
void sandbox_stop(struct sandbox *sb, enum stop_reason reason, enum dsec_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Answers now or when it is gone; takes the call. */
void sandbox_delete(struct sandbox *sb, struct call *c, bool wait);
/* Reads the disk use, then answers with the sandbox; takes the call. */
void sandbox_answer_get(struct sandbox *sb, struct call *c);
/* Sets the state and all that hangs on it; the move must be in the table. */
void sandbox_move(struct sandbox *sb, enum sandbox_state to);
void sandbox_touch(struct sandbox *sb); /* API traffic */
void sandbox_arm(struct sandbox *sb);   /* the timer, after deadlines changed */
void sandbox_read_stats(struct sandbox *sb);
void sandbox_drop(struct sandbox *sb);  /* retention is over */
/* Takes back a live one after a restart, whose instance was adopted. */
void sandbox_adopted(struct sandbox *sb);
void sandbox_on_exit(struct backend_instance *inst, void *user);
void sandbox_backend_spec(const struct sandbox *sb, struct sandbox_spec *ret); /* borrows */
/* The instance is given up to the backend; the end of `stopping`. */
void sandbox_destroy(struct sandbox *sb);

/* channel.c tells: */
void sandbox_channel_ready(struct sandbox *sb, const Dsec__Chronus__HelloReply *hello);
void sandbox_channel_down(struct sandbox *sb);
void sandbox_channel_given_up(struct sandbox *sb, const char *why);

/* SIGTERM: all are stopped; n->on_empty when nothing lives. */
void node_shutdown(struct node *n);
