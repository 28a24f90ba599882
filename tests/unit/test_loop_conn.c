/* Connections on a real loop over real sockets: traffic, back-pressure, ends. */
#include "unit.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "loop/conn.h"

#define STEP_MS 5000 /* a test that waits longer has failed */

struct end {
	struct conn *conn;
	bool ready, is_down, echo, close_on_data, hold;
	int err;
	size_t data, unconsumed;
	unsigned opens, closes, resets, writables, msgs;
	uint32_t stream;
	char msg[64];
};

struct fixture {
	uv_loop_t loop;
	struct end a, b; /* a: client */
};

static void on_ready(struct conn *c, void *user)
{
	((struct end *)user)->ready = true;
}

static void on_event(struct conn *c, const struct aether_event *ev, void *user)
{
	struct end *e = user;
	e->stream = ev->stream;
	switch (ev->type) {
	case AETHER_EV_OPEN:
		e->opens++;
		break;
	case AETHER_EV_MSG:
		e->msgs++;
		snprintf(e->msg, sizeof(e->msg), "%.*s", (int)ev->n, (const char *)ev->payload);
		if (e->echo)
			assert_int_equal(conn_send_msg(c, ev->stream, ev->payload, ev->n), 0);
		conn_consume(c, ev->stream, ev->n);
		break;
	case AETHER_EV_DATA:
		e->data += ev->n;
		if (e->hold)
			e->unconsumed += ev->n;
		else
			conn_consume(c, ev->stream, ev->n);
		if (e->close_on_data) {
			conn_close(c);
			/* Everything stays callable and does nothing until it unwound. */
			conn_consume(c, ev->stream, 1);
			conn_close(c);
			assert_false(conn_ready(c));
		}
		break;
	case AETHER_EV_CLOSE:
		e->closes++;
		break;
	case AETHER_EV_RESET:
		e->resets++;
		break;
	case AETHER_EV_WRITABLE:
		e->writables++;
		break;
	default:
		break;
	}
}

static void on_down(struct conn *c, int err, void *user)
{
	struct end *e = user;
	assert_false(e->is_down);
	e->is_down = true;
	e->err = err;
	e->conn = NULL;
}

static const struct conn_callbacks callbacks = { on_ready, on_event, on_down };

#define run_until(f, cond)                                                   \
	do {                                                                 \
		uint64_t end_ = now_mono_ms() + STEP_MS;                     \
		while (!(cond)) {                                            \
			uv_run(&(f)->loop, UV_RUN_NOWAIT);                   \
			if (now_mono_ms() > end_)                            \
				fail_msg("not within %d ms: %s", STEP_MS, #cond); \
		}                                                            \
	} while (0)

static void start_on(struct fixture *f, int fd_a, int fd_b)
{
	struct aether_config client = { .client = true }, server = { 0 };
	assert_int_equal(uv_loop_init(&f->loop), 0);
	assert_int_equal(conn_new(&f->loop, fd_a, &client, &callbacks, &f->a, &f->a.conn), 0);
	if (fd_b >= 0)
		assert_int_equal(conn_new(&f->loop, fd_b, &server, &callbacks, &f->b, &f->b.conn), 0);
}

static void start(struct fixture *f)
{
	int sv[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	start_on(f, sv[0], sv[1]);
	run_until(f, f->a.ready && f->b.ready);
}

static void finish(struct fixture *f)
{
	conn_close(f->a.conn);
	conn_close(f->b.conn);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&f->loop), 0); /* no handle is left */
}

static void test_message_and_echo(void **state)
{
	struct fixture f = { 0 };
	uint32_t s;
	f.b.echo = true;
	start(&f);
	assert_true(conn_ready(f.a.conn));
	assert_int_equal(conn_open(f.a.conn, "hello", 5, &s), 0);
	assert_int_equal(conn_send_msg(f.a.conn, s, "echo me", 7), 0);
	run_until(&f, f.a.msgs == 1);
	assert_string_equal(f.a.msg, "echo me");
	assert_int_equal(conn_close_stream(f.a.conn, s), 0);
	run_until(&f, f.b.closes == 1);
	assert_int_equal(conn_reset(f.b.conn, s, AETHER_RESET_CANCELLED), 0);
	run_until(&f, f.a.resets == 1);
	finish(&f);
}

/* Streams `total` bytes; returns how many turns had to wait for WRITABLE. */
static unsigned stream_bytes(struct fixture *f, size_t total)
{
	static uint8_t block[256 * 1024];
	uint32_t s;
	unsigned waits = 0;
	assert_int_equal(conn_open(f->a.conn, "bulk", 4, &s), 0);
	size_t sent = 0, before = f->b.data;
	while (sent < total) {
		size_t n = MIN(sizeof(block), total - sent);
		long k = conn_send_data(f->a.conn, s, 1, block, n);
		assert_true(k >= 0);
		sent += (size_t)k;
		if ((size_t)k < n) {
			unsigned seen = f->a.writables;
			waits++;
			run_until(f, f->a.writables > seen);
		}
	}
	run_until(f, f->b.data - before == total);
	assert_int_equal(conn_close_stream(f->a.conn, s), 0);
	assert_int_equal(conn_close_stream(f->b.conn, s), 0);
	return waits;
}

static void test_bulk_with_back_pressure(void **state)
{
	struct fixture f = { 0 };
	start(&f);
	assert_true(stream_bytes(&f, 64 * 1024 * 1024 + 5) > 0);
	finish(&f);
}

static void test_bulk_over_a_tiny_socket_buffer(void **state)
{
	struct fixture f = { 0 };
	int sv[2], size = 1; /* the kernel raises it to its minimum */
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size)), 0);
	start_on(&f, sv[0], sv[1]);
	run_until(&f, f.a.ready && f.b.ready);
	stream_bytes(&f, 3 * 1024 * 1024 + 1);
	finish(&f);
}

static void test_reader_that_holds_stops_the_writer(void **state)
{
	struct fixture f = { 0 };
	static uint8_t block[AETHER_WINDOW_DEFAULT];
	uint32_t s;
	f.b.hold = true;
	start(&f);
	assert_int_equal(conn_open(f.a.conn, "h", 1, &s), 0);
	assert_int_equal(conn_send_data(f.a.conn, s, 1, block, sizeof(block)), sizeof(block));
	assert_int_equal(conn_send_data(f.a.conn, s, 1, block, 1), 0);
	run_until(&f, f.b.data == sizeof(block));
	for (int i = 0; i < 50; i++)
		uv_run(&f.loop, UV_RUN_NOWAIT);
	assert_int_equal(f.a.writables, 0);
	assert_int_equal(conn_sendable(f.a.conn, s), 0);
	conn_consume(f.b.conn, s, f.b.unconsumed);
	run_until(&f, f.a.writables == 1);
	assert_int_equal(conn_sendable(f.a.conn, s), AETHER_WINDOW_DEFAULT);
	finish(&f);
}

static int tcp_pair(int sv[2])
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(in);
	_cleanup_close_ int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(l, (struct sockaddr *)&in, n) < 0 || listen(l, 1) < 0 ||
	    getsockname(l, (struct sockaddr *)&in, &n) < 0)
		return -errno;
	sv[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(sv[0], (struct sockaddr *)&in, n) < 0)
		return -errno;
	sv[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	return sv[1] < 0 ? -errno : 0;
}

static void test_works_over_tcp(void **state)
{
	struct fixture f = { 0 };
	int sv[2] = { -1, -1 };
	assert_int_equal(tcp_pair(sv), 0);
	start_on(&f, sv[0], sv[1]);
	run_until(&f, f.a.ready && f.b.ready);
	stream_bytes(&f, 5 * 1024 * 1024);
	finish(&f);
}

static void test_peer_gone_reports_what_it_said_first(void **state)
{
	struct fixture f = { 0 };
	uint32_t s;
	start(&f);
	assert_int_equal(conn_open(f.a.conn, "x", 1, &s), 0);
	run_until(&f, f.b.opens == 1);
	/* b's last words and its end arrive while a itself has bytes to write. */
	assert_int_equal(conn_send_msg(f.b.conn, s, "last words", 10), 0);
	conn_close(f.b.conn);
	f.b.conn = NULL;
	assert_int_equal(conn_send_msg(f.a.conn, s, "too late", 8), 0);
	run_until(&f, f.a.is_down);
	assert_string_equal(f.a.msg, "last words");
	assert_false(f.b.is_down); /* no callback after conn_close */
	finish(&f);
}

static void test_violation_is_reported(void **state)
{
	struct fixture f = { 0 };
	int sv[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	start_on(&f, sv[0], -1);
	assert_int_equal(write_all(sv[1], "HTTP/1.1 200 OK\r\n\r\n", 19), 0);
	run_until(&f, f.a.is_down);
	assert_int_equal(f.a.err, -EPROTO);
	assert_false(f.a.ready);
	close(sv[1]);
	finish(&f);
}

static void test_close_from_inside_a_callback(void **state)
{
	struct fixture f = { 0 };
	static uint8_t block[200000];
	uint32_t s;
	f.b.close_on_data = true;
	start(&f);
	assert_int_equal(conn_open(f.a.conn, "x", 1, &s), 0);
	assert_int_equal(conn_send_data(f.a.conn, s, 0, block, sizeof(block)), sizeof(block));
	run_until(&f, f.a.is_down);
	assert_false(f.b.is_down);
	f.b.conn = NULL;
	finish(&f);
}

static void test_keepalive(void **state)
{
	struct fixture f = { 0 };
	int sv[2];
	start(&f);
	conn_keepalive(f.a.conn, 20); /* the peer answers pings: it lives on */
	uint64_t until = now_mono_ms() + 200;
	while (now_mono_ms() < until)
		uv_run(&f.loop, UV_RUN_ONCE);
	assert_false(f.a.is_down);
	conn_keepalive(f.a.conn, 0);
	finish(&f);

	/* A peer that is silent, its socket open. */
	struct fixture g = { 0 };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	start_on(&g, sv[0], -1);
	uint64_t began = now_mono_ms();
	conn_keepalive(g.a.conn, 20);
	run_until(&g, g.a.is_down);
	assert_int_equal(g.a.err, -ETIMEDOUT);
	assert_true(now_mono_ms() - began >= 55);
	close(sv[1]);
	finish(&g);
}

static void test_owns_the_descriptor_on_failure(void **state)
{
	uv_loop_t loop;
	struct aether_config bad = { .window = 1 };
	struct conn *c = NULL;
	int sv[2];
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	assert_int_equal(conn_new(&loop, sv[0], &bad, &callbacks, NULL, &c), -EINVAL);
	assert_null(c);
	assert_int_equal(fcntl(sv[0], F_GETFD), -1);
	close(sv[1]);
	assert_int_equal(uv_loop_close(&loop), 0);
}

static struct fixture *accepting;
static unsigned accepted;

static void on_accept(int fd_take, void *user)
{
	struct aether_config c = { 0 };
	accepted++;
	assert_ptr_equal(user, accepting);
	assert_int_not_equal(fcntl(fd_take, F_GETFD) & FD_CLOEXEC, 0);
	assert_int_equal(conn_new(&accepting->loop, fd_take, &c, &callbacks, &accepting->b, &accepting->b.conn), 0);
}

static void test_listener(void **state)
{
	struct fixture f = { 0 };
	char path[] = "/tmp/dsec-test-XXXXXX/a.sock";
	struct conn_listener *l;
	*strrchr(path, '/') = 0;
	assert_non_null(mkdtemp(path));
	path[strlen(path)] = '/';
	int lfd = unix_listen(path, SOCK_STREAM, 16);
	assert_true(lfd >= 0);
	int fd = unix_connect(path, SOCK_STREAM); /* may connect before anyone accepts */
	assert_true(fd >= 0);
	start_on(&f, fd, -1);
	accepting = &f;
	assert_int_equal(conn_listen(&f.loop, lfd, on_accept, &f, &l), 0);
	run_until(&f, f.a.ready && f.b.ready);
	assert_int_equal(accepted, 1);
	conn_listener_close(l);
	finish(&f);
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
}

static void discard(int fd_take, void *user)
{
	accepted++;
	close(fd_take);
}

static void test_listener_rests_without_descriptors(void **state)
{
	uv_loop_t loop;
	struct conn_listener *l;
	struct rlimit old, low;
	char path[] = "/tmp/dsec-test-XXXXXX/b.sock";
	*strrchr(path, '/') = 0;
	assert_non_null(mkdtemp(path));
	path[strlen(path)] = '/';
	assert_int_equal(uv_loop_init(&loop), 0);
	int lfd = unix_listen(path, SOCK_STREAM, 16);
	assert_int_equal(conn_listen(&loop, lfd, discard, NULL, &l), 0);
	int fd = unix_connect(path, SOCK_STREAM);
	assert_true(fd >= 0);
	accepted = 0;
	getrlimit(RLIMIT_NOFILE, &old);
	low = old;
	low.rlim_cur = (rlim_t)fd + 1; /* every number below is taken or at the limit */
	int filler[64];
	size_t n = 0;
	setrlimit(RLIMIT_NOFILE, &low);
	while (n < 64 && (filler[n] = dup(0)) >= 0)
		n++;
	unsigned turns = 0;
	uint64_t until = now_mono_ms() + 150;
	while (now_mono_ms() < until) {
		uv_run(&loop, UV_RUN_ONCE);
		turns++;
	}
	assert_int_equal(accepted, 0);
	assert_true(turns < 50); /* it waits, it does not spin */
	while (n)
		close(filler[--n]);
	setrlimit(RLIMIT_NOFILE, &old);
	until = now_mono_ms() + STEP_MS;
	while (!accepted && now_mono_ms() < until)
		uv_run(&loop, UV_RUN_ONCE);
	assert_int_equal(accepted, 1); /* the client was kept waiting, not lost */
	conn_listener_close(l);
	conn_listener_close(NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&loop), 0);
	close(fd);
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_message_and_echo),
		cmocka_unit_test(test_bulk_with_back_pressure),
		cmocka_unit_test(test_bulk_over_a_tiny_socket_buffer),
		cmocka_unit_test(test_reader_that_holds_stops_the_writer),
		cmocka_unit_test(test_works_over_tcp),
		cmocka_unit_test(test_peer_gone_reports_what_it_said_first),
		cmocka_unit_test(test_violation_is_reported),
		cmocka_unit_test(test_close_from_inside_a_callback),
		cmocka_unit_test(test_keepalive),
		cmocka_unit_test(test_owns_the_descriptor_on_failure),
		cmocka_unit_test(test_listener),
		cmocka_unit_test(test_listener_rests_without_descriptors),
	};
	return cmocka_run_group_tests_name("loop_conn", tests, NULL, NULL);
}
