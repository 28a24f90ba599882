/* conn.h: an aether connection driven by a libuv loop.
 *
 * Used by edge and apiserver on their one loop thread. Owns the descriptor and
 * the aether core. Callbacks run on the loop thread; from inside a callback any
 * conn_* call is allowed, conn_close too (memory is freed after the callbacks
 * unwound). After on_down no other callback comes and the handle is gone: the
 * owner must forget it. Writes are bounded by the core's output bound.
 */
#pragma once
#include <uv.h>
#include "aether/aether.h"

struct conn;

struct conn_callbacks {
	void (*on_ready)(struct conn *c, void *user); /* optional */
	/* Any aether event but READY. Payload borrowed for the call. The callee
	 * gives credit back with conn_consume (now or later). */
	void (*on_event)(struct conn *c, const struct aether_event *ev, void *user);
	/* EOF (0), transport error or -EPROTO (negative errno). */
	void (*on_down)(struct conn *c, int err, void *user);
};

/* fd_take: a connected nonblocking or blocking stream socket, owned from now on
 * also on failure. */
int conn_new(uv_loop_t *loop, int fd_take, const struct aether_config *config,
	     const struct conn_callbacks *cb, void *user, struct conn **ret);
void conn_close(struct conn *c); /* no on_down follows; NULL accepted */

/* Same contracts as the aether_* calls; output is flushed by the loop at the
 * latest before it polls again. */
int conn_open(struct conn *c, const void *payload, size_t n, uint32_t *ret_stream);
int conn_send_msg(struct conn *c, uint32_t stream, const void *payload, size_t n);
long conn_send_data(struct conn *c, uint32_t stream, uint8_t channel, const void *p, size_t n);
size_t conn_sendable(struct conn *c, uint32_t stream);
int conn_close_stream(struct conn *c, uint32_t stream);
int conn_reset(struct conn *c, uint32_t stream, uint32_t code);
void conn_consume(struct conn *c, uint32_t stream, size_t n);
void conn_set_user(struct conn *c, uint32_t stream, void *user);
void *conn_user(struct conn *c, uint32_t stream);
bool conn_ready(const struct conn *c);
/* Bounds how long a silent peer is believed: pings after idle_ms without a byte,
 * on_down(-ETIMEDOUT) when nothing came for 3 x idle_ms. 0 = off (default). */
void conn_keepalive(struct conn *c, uint64_t idle_ms);

/* A listening stream socket on the loop. on_accept gets each new fd (nonblocking,
 * close-on-exec). The descriptor is owned from the call on, also on failure. */
struct conn_listener;
int conn_listen(uv_loop_t *loop, int listen_fd_take, void (*on_accept)(int fd_take, void *user),
		void *user, struct conn_listener **ret);
void conn_listener_close(struct conn_listener *l);
