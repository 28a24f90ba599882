/* server.h: the HTTP/1.1 server: libmicrohttpd on the loop.
 *
 * Made by apiserver_main; loop thread only. Owns connections and requests, calls
 * the route table's handlers (request.h). Bounds in limits.h.
 */
#pragma once
#include "control/control.h"
#include "control/router.h"

struct server_config {
	int listen_fd; /* owned by the server from server_new on */
	const struct route *routes;
	size_t n_routes;
};

int server_new(struct control *ctl, const struct server_config *config, struct server **ret);
size_t server_connections(const struct server *s);
size_t server_requests(const struct server *s); /* answers under way */
void server_quiesce(struct server *s); /* no new connections; idle ones are closed */
void server_free(struct server *s);    /* ends all; NULL accepted. Memory goes once the loop ran */
