/* readiness.c: see readiness.h. */
#include "dsecd/readiness.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"

bool readiness_socket(const char *path)
{
	int fd = unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
	if (fd == -EPROTOTYPE)
		fd = unix_connect(path, SOCK_SEQPACKET | SOCK_NONBLOCK);
	base_close(fd);
	/* EAGAIN: it listens, only its queue is full. */
	return fd >= 0 || fd == -EAGAIN;
}

int listen_split(const char *listen, char ret_host[LISTEN_HOST_MAX], char ret_port[6])
{
	const char *colon = strrchr(listen, ':');
	if (!colon || colon == listen)
		return -EINVAL;
	const char *host = listen;
	size_t n = (size_t)(colon - listen);
	if (*host == '[') {
		if (n < 3 || host[n - 1] != ']')
			return -EINVAL;
		host++;
		n -= 2;
	} else if (memchr(host, ':', n))
		return -EINVAL;
	size_t digits = strspn(colon + 1, "0123456789");
	if (n >= LISTEN_HOST_MAX || !digits || digits > 5 || colon[1 + digits])
		return -EINVAL;
	long port = strtol(colon + 1, NULL, 10);
	if (port < 1 || port > 65535)
		return -EINVAL;
	snprintf(ret_host, LISTEN_HOST_MAX, "%.*s", (int)n, host);
	snprintf(ret_port, 6, "%ld", port);
	return 0;
}

static bool wait_for(int fd, short events, uint64_t deadline_ms)
{
	uint64_t now = now_mono_ms();
	struct pollfd p = { .fd = fd, .events = events };
	return now < deadline_ms && poll(&p, 1, (int)(deadline_ms - now)) == 1;
}

static int http_connect(const char *host, const char *port, uint64_t deadline_ms)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV }, *list = NULL;
	/* A server that listens on every address is asked on loopback. */
	if (!strcmp(host, "0.0.0.0"))
		host = "127.0.0.1";
	else if (!strcmp(host, "::"))
		host = "::1";
	if (getaddrinfo(host, port, &hints, &list))
		return -EHOSTUNREACH;
	int r = -EHOSTUNREACH;
	for (struct addrinfo *a = list; a && r < 0; a = a->ai_next) {
		_cleanup_close_ int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		int err = 0;
		socklen_t n = sizeof(err);
		if (fd < 0)
			continue;
		if (connect(fd, a->ai_addr, a->ai_addrlen) < 0 &&
		    (errno != EINPROGRESS || !wait_for(fd, POLLOUT, deadline_ms)))
			continue;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0 || err)
			continue;
		r = TAKE_FD(fd);
	}
	freeaddrinfo(list);
	return r;
}

bool readiness_http(const char *listen)
{
	static const char request[] = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
	char host[LISTEN_HOST_MAX], port[6], reply[32] = { 0 };
	uint64_t deadline = now_mono_ms() + READINESS_PROBE_MS;
	if (listen_split(listen, host, port) < 0)
		return false;
	_cleanup_close_ int fd = http_connect(host, port, deadline);
	if (fd < 0 || send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(request) - 1)
		return false;
	for (size_t n = 0; n < 13 && wait_for(fd, POLLIN, deadline);) {
		ssize_t k = recv(fd, reply + n, sizeof(reply) - 1 - n, 0);
		if (k <= 0)
			break;
		n += (size_t)k;
	}
	return !strncmp(reply, "HTTP/1.1 200 ", 13) || !strncmp(reply, "HTTP/1.0 200 ", 13);
}
