/* listener.c: a listening stream socket on the loop; see conn.h.
 *
 * When the process or the system is out of descriptors, accept(2) fails and the
 * socket stays readable: polling on would spin. The listener then rests for
 * REST_MS; waiting clients stay in the backlog.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "loop/conn.h"

#define ACCEPTS_PER_EVENT 64 /* then others get their turn */
#define REST_MS 100

struct conn_listener {
	int fd; /* owned */
	bool closed;
	uint8_t handles;
	uv_poll_t poll;
	uv_timer_t timer;
	void (*on_accept)(int fd_take, void *user);
	void *user;
};

static void on_poll(uv_poll_t *h, int status, int events);

static void on_rested(uv_timer_t *h)
{
	struct conn_listener *l = h->data;
	uv_poll_start(&l->poll, UV_READABLE, on_poll);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct conn_listener *l = h->data;
	for (int i = 0; i < ACCEPTS_PER_EVENT && !l->closed; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0) {
			l->on_accept(fd, l->user);
			continue;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		if (errno != EAGAIN) {
			uv_poll_stop(&l->poll);
			uv_timer_start(&l->timer, on_rested, REST_MS, 0);
		}
		return;
	}
}

int conn_listen(uv_loop_t *loop, int listen_fd_take, void (*on_accept)(int fd_take, void *user),
		void *user, struct conn_listener **ret)
{
	_cleanup_close_ int fd = listen_fd_take;
	_cleanup_free_ struct conn_listener *l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	int r = uv_poll_init(loop, &l->poll, fd);
	if (r < 0)
		return r;
	uv_timer_init(loop, &l->timer);
	l->poll.data = l->timer.data = l;
	l->handles = 2;
	l->fd = TAKE_FD(fd);
	l->on_accept = on_accept;
	l->user = user;
	uv_poll_start(&l->poll, UV_READABLE, on_poll);
	*ret = TAKE_PTR(l);
	return 0;
}

static void on_closed(uv_handle_t *h)
{
	struct conn_listener *l = h->data;
	if (--l->handles)
		return;
	base_close(l->fd);
	free(l);
}

void conn_listener_close(struct conn_listener *l)
{
	if (!l || l->closed)
		return;
	l->closed = true;
	uv_close((uv_handle_t *)&l->poll, on_closed);
	uv_close((uv_handle_t *)&l->timer, on_closed);
}
