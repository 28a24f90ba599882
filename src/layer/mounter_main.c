/* mounter_main.c: dsec-mounter: its command line, socket and loop.
 *
 *   dsec-mounter --run-dir R --state-dir S --layer-dir L [--volume-bytes N] [--reserve-bytes N]
 *
 * One thread, epoll: the listening socket, a signalfd, one entry a client. A
 * client that does not read its replies is not read from either: a reply that
 * does not fit its socket is kept and nothing more is taken from that client
 * until it went out, so a client holds at most one reply here.
 * SIGTERM or SIGINT: everything is unmounted and the socket file removed.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "layer/mounter.h"
#include "layer/store.h"

#define CLIENTS_MAX 64
#define EVENTS_MAX 16
#define REQUESTS_A_TURN 32 /* taken from one client before the others have theirs */
#define RESERVE_DEFAULT (1ull << 30)

struct client {
	int fd; /* -1: free */
	bool pending;
	struct mounter_reply reply; /* while pending */
	int reply_fd;
};

struct server {
	struct mounter *mounter;
	int epoll, listener, signals;
	struct client clients[CLIENTS_MAX];
};

/* epoll data: two constants, then the client's number. */
enum { EV_LISTENER = CLIENTS_MAX, EV_SIGNAL };

static int watch(struct server *s, int op, int fd, uint32_t events, uint32_t tag)
{
	struct epoll_event ev = { .events = events, .data.u32 = tag };
	return epoll_ctl(s->epoll, op, fd, &ev) < 0 ? -errno : 0;
}

static void client_close(struct client *c)
{
	c->reply_fd = base_close(c->reply_fd);
	c->fd = base_close(c->fd);
	c->pending = false;
}

/* 0: sent; -EAGAIN: kept for later; other: the client is gone. */
static int client_flush(struct client *c)
{
	if (!c->pending)
		return 0;
	ssize_t n = send_fds(c->fd, &c->reply, sizeof(c->reply), &c->reply_fd, c->reply_fd >= 0);
	if (n < 0)
		return (int)n;
	c->reply_fd = base_close(c->reply_fd);
	c->pending = false;
	return 0;
}

static int client_turn(struct server *s, struct client *c)
{
	int r = client_flush(c);
	for (int i = 0; !r && i < REQUESTS_A_TURN; i++) {
		struct mounter_request q;
		int fd = -1;
		size_t nfds = 1;
		ssize_t n = recv_fds(c->fd, &q, sizeof(q), &fd, &nfds);
		if (n <= 0)
			return n == -EAGAIN ? 0 : -ECONNRESET;
		_cleanup_close_ int owned = nfds ? fd : -1;
		if (n != sizeof(q))
			return -EPROTO;
		mounter_handle(s->mounter, &q, owned, &c->reply, &c->reply_fd);
		c->pending = true;
		r = client_flush(c);
		mounter_settle(s->mounter);
	}
	return r;
}

static void client_event(struct server *s, uint32_t number)
{
	struct client *c = &s->clients[number];
	int r = client_turn(s, c);
	if (!r || r == -EAGAIN)
		r = watch(s, EPOLL_CTL_MOD, c->fd, r ? EPOLLOUT : EPOLLIN, number);
	if (r < 0)
		client_close(c);
}

static void accept_clients(struct server *s)
{
	for (;;) {
		_cleanup_close_ int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		uint32_t i = 0;
		while (i < CLIENTS_MAX && s->clients[i].fd >= 0)
			i++;
		if (i == CLIENTS_MAX || watch(s, EPOLL_CTL_ADD, fd, EPOLLIN, i) < 0) {
			log_warn("a client was turned away: %d are connected", CLIENTS_MAX);
			continue;
		}
		s->clients[i].fd = TAKE_FD(fd);
	}
}

static int serve(struct server *s)
{
	uint64_t next_tick = now_mono_ms() + MOUNTER_TICK_MS;
	for (;;) {
		struct epoll_event events[EVENTS_MAX];
		uint64_t now = now_mono_ms();
		if (now >= next_tick) {
			mounter_tick(s->mounter);
			next_tick = now + MOUNTER_TICK_MS;
		}
		int n = epoll_wait(s->epoll, events, EVENTS_MAX, (int)(next_tick - MIN(now, next_tick)));
		if (n < 0 && errno != EINTR)
			return -errno;
		for (int i = 0; i < n; i++) {
			if (events[i].data.u32 == EV_SIGNAL)
				return 0;
			if (events[i].data.u32 == EV_LISTENER)
				accept_clients(s);
			else
				client_event(s, events[i].data.u32);
		}
	}
}

static int server_open(struct server *s, const char *socket_path)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < CLIENTS_MAX; i++)
		s->clients[i] = (struct client){ .fd = -1, .reply_fd = -1 };
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (s->epoll < 0 || s->signals < 0)
		return -errno;
	s->listener = unix_listen(socket_path, SOCK_SEQPACKET | SOCK_NONBLOCK, CLIENTS_MAX);
	if (s->listener < 0)
		return s->listener;
	int r = watch(s, EPOLL_CTL_ADD, s->signals, EPOLLIN, EV_SIGNAL);
	return r < 0 ? r : watch(s, EPOLL_CTL_ADD, s->listener, EPOLLIN, EV_LISTENER);
}

static void server_close(struct server *s, const char *socket_path)
{
	for (int i = 0; i < CLIENTS_MAX; i++)
		client_close(&s->clients[i]);
	if (s->listener >= 0)
		unlink(socket_path);
	base_close(s->listener);
	base_close(s->signals);
	base_close(s->epoll);
}

static int parse_bytes(const char *text, uint64_t *ret)
{
	char *end;
	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || *end || end == text || *text == '-' ? -EINVAL : 0;
}

static int parse(int argc, char **argv, struct mounter_options *o)
{
	static const struct option longs[] = {
		{ "run-dir", required_argument, NULL, 'r' },	  { "state-dir", required_argument, NULL, 's' },
		{ "layer-dir", required_argument, NULL, 'l' },	  { "volume-bytes", required_argument, NULL, 'v' },
		{ "reserve-bytes", required_argument, NULL, 'm' }, { NULL, 0, NULL, 0 },
	};
	int c, r = 0;
	o->reserve_bytes = RESERVE_DEFAULT;
	while (!r && (c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'r': o->run_dir = optarg; break;
		case 's': o->state_dir = optarg; break;
		case 'l': o->layer_dir = optarg; break;
		case 'v': r = parse_bytes(optarg, &o->volume_bytes); break;
		case 'm': r = parse_bytes(optarg, &o->reserve_bytes); break;
		default: r = -EINVAL;
		}
	}
	if (r < 0 || optind != argc || !o->run_dir || !o->state_dir || !o->layer_dir)
		return -EINVAL;
	return 0;
}

int main(int argc, char **argv)
{
	struct mounter_options o = { 0 };
	struct dsec_error e = { 0 };
	struct server s = { .epoll = -1, .listener = -1, .signals = -1 };
	log_init("dsec-mounter");
	if (parse(argc, argv, &o) < 0) {
		fprintf(stderr, "usage: dsec-mounter --run-dir R --state-dir S --layer-dir L "
				"[--volume-bytes N] [--reserve-bytes N]\n");
		return 2;
	}
	umask(022);
	_cleanup_free_ char *path = NULL;
	if (asprintf(&path, "%s/mounter.sock", o.run_dir) < 0)
		return 1;
	layer_store_sweep(o.layer_dir);
	int r = mounter_open(&o, &s.mounter, &e);
	if (r < 0) {
		log_error("%s: %s", dsec_code_name(e.code), e.message);
		return 1;
	}
	r = server_open(&s, path);
	if (!r) {
		log_info("ready at %s", path);
		r = serve(&s);
	}
	if (r < 0)
		log_error("%s: %s", path, strerror(-r));
	server_close(&s, path);
	mounter_close(s.mounter);
	return r < 0;
}
