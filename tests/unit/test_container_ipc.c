/* The connection to mounter and spawner: order, descriptors, a helper that dies, is late, or never comes. */
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "backend/container/ipc_client.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "fault.h"

struct packet {
	uint32_t version;
	int32_t number;
	uint64_t token;
	char text[64];
};

static char dir[32], path[64];
static int answers[64], n_answers;
static int last_err[64];

static int set_up(void **state)
{
	strcpy(dir, "/tmp/ipc-unit-XXXXXX");
	n_answers = 0;
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/s", dir);
	return 0;
}

static int tear_down(void **state)
{
	unlink(path);
	return rmdir(dir);
}

static void on_reply(int err, const void *reply, const int *fds, size_t n, void *user)
{
	const struct packet *p = reply;
	last_err[n_answers] = err;
	answers[n_answers++] = p ? p->number : (int)(intptr_t)user;
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

static int listen_here(void)
{
	int fd = unix_listen(path, SOCK_SEQPACKET | SOCK_NONBLOCK, 4);
	assert_true(fd >= 0);
	return fd;
}

static int accept_here(int l)
{
	struct pollfd p = { .fd = l, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 2000), 1);
	return accept4(l, NULL, NULL, SOCK_CLOEXEC);
}

static void call(struct ipc_client *c, int number, const int *fds, size_t n)
{
	struct packet p = { .version = 1, .number = number };
	assert_int_equal(ipc_client_call(c, &p, fds, n, on_reply, (void *)(intptr_t)number), 0);
}

static struct packet take(int conn, int *ret_fd)
{
	struct packet p;
	int fds[FDIO_FDS_MAX];
	size_t n = FDIO_FDS_MAX;
	assert_int_equal(recv_fds(conn, &p, sizeof(p), fds, &n), sizeof(p));
	if (ret_fd)
		*ret_fd = n ? fds[0] : -1;
	return p;
}

static void turn_until(uv_loop_t *loop, int n)
{
	for (int i = 0; i < 3000 && n_answers < n; i++) {
		uv_run(loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	assert_int_equal(n_answers, n);
}

static struct ipc_client *client(uv_loop_t *loop)
{
	struct ipc_client *c = NULL;
	assert_int_equal(uv_loop_init(loop), 0);
	assert_int_equal(ipc_client_new(loop, path, sizeof(struct packet), sizeof(struct packet), &c), 0);
	return c;
}

static void end(uv_loop_t *loop, struct ipc_client *c)
{
	ipc_client_free(c);
	uv_run(loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(loop), 0); /* no handle is left */
}

static void test_replies_in_any_order_with_descriptors(void **state)
{
	uv_loop_t loop;
	_cleanup_close_ int l = listen_here();
	struct ipc_client *c = client(&loop);
	_cleanup_close_ int conn = accept_here(l);
	int pipe_fds[2], got = -1;
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	call(c, 1, &pipe_fds[1], 1);
	call(c, 2, NULL, 0);
	assert_int_equal(ipc_client_pending(c), 2);
	struct packet a = take(conn, &got), b = take(conn, NULL);
	assert_int_not_equal(a.token, b.token);
	assert_int_equal(write(got, "x", 1), 1); /* the same pipe */
	char x;
	assert_int_equal(read(pipe_fds[0], &x, 1), 1);
	assert_true(send_fds(conn, &b, sizeof(b), NULL, 0) > 0);
	assert_true(send_fds(conn, &a, sizeof(a), &got, 1) > 0);
	turn_until(&loop, 2);
	assert_int_equal(answers[0], 2);
	assert_int_equal(answers[1], 1);
	assert_int_equal(ipc_client_pending(c), 0);
	close(got);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	end(&loop, c);
}

static void test_waits_for_a_helper_that_starts_later(void **state)
{
	uv_loop_t loop;
	struct ipc_client *c = client(&loop);
	assert_false(ipc_client_connected(c));
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), got = -1;
	call(c, 1, &null, 1);
	call(c, 2, NULL, 0);
	close(null); /* copies were kept */
	_cleanup_close_ int l = listen_here();
	for (int i = 0; i < 2000 && !ipc_client_connected(c); i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	_cleanup_close_ int conn = accept_here(l);
	struct packet a = take(conn, &got), b = take(conn, NULL);
	assert_int_equal(a.number, 1);
	assert_int_equal(b.number, 2);
	assert_int_equal(write(got, "x", 1), 1);
	close(got);
	send_fds(conn, &a, sizeof(a), NULL, 0);
	send_fds(conn, &b, sizeof(b), NULL, 0);
	turn_until(&loop, 2);
	end(&loop, c);
}

static void test_death_fails_what_was_sent_only(void **state)
{
	uv_loop_t loop;
	_cleanup_close_ int l = listen_here();
	struct ipc_client *c = client(&loop);
	int conn = accept_here(l);
	call(c, 1, NULL, 0);
	take(conn, NULL);
	close(conn);
	turn_until(&loop, 1);
	assert_int_equal(last_err[0], -ECONNRESET);
	call(c, 2, NULL, 0); /* waits, goes to the next connection */
	for (int i = 0; i < 2000 && !ipc_client_connected(c); i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	conn = accept_here(l);
	struct packet p = take(conn, NULL);
	assert_int_equal(p.number, 2);
	send_fds(conn, &p, sizeof(p), NULL, 0);
	turn_until(&loop, 2);
	assert_int_equal(last_err[1], 0);
	close(conn);
	end(&loop, c);
}

static void test_strange_packets_end_the_connection(void **state)
{
	uv_loop_t loop;
	_cleanup_close_ int l = listen_here();
	struct ipc_client *c = client(&loop);
	_cleanup_close_ int conn = accept_here(l);
	call(c, 1, NULL, 0);
	struct packet p = take(conn, NULL), stranger = p;
	stranger.token += 1000; /* of no call: dropped */
	send_fds(conn, &stranger, sizeof(stranger), NULL, 0);
	uv_run(&loop, UV_RUN_NOWAIT);
	assert_int_equal(n_answers, 0);
	assert_true(ipc_client_connected(c));
	send_fds(conn, &p, sizeof(p) - 1, NULL, 0); /* a short one: not our build */
	turn_until(&loop, 1);
	assert_int_equal(last_err[0], -ECONNRESET);
	end(&loop, c);
}

static void count_cancelled(int err, const void *reply, const int *fds, size_t n, void *user)
{
	*(int *)user += err == -ECANCELED;
}

static void test_queue_is_bounded(void **state)
{
	uv_loop_t loop;
	struct ipc_client *c = client(&loop);
	struct packet p = { 0 };
	int cancelled = 0, fds[FDIO_FDS_MAX + 1] = { 0 };
	assert_int_equal(ipc_client_call(c, &p, fds, FDIO_FDS_MAX + 1, count_cancelled, &cancelled), -EINVAL);
	for (int i = 0; i < IPC_QUEUE_MAX; i++)
		assert_int_equal(ipc_client_call(c, &p, NULL, 0, count_cancelled, &cancelled), 0);
	assert_int_equal(ipc_client_call(c, &p, NULL, 0, count_cancelled, &cancelled), -ENOBUFS);
	assert_int_equal(ipc_client_pending(c), IPC_QUEUE_MAX);
	end(&loop, c);
	assert_int_equal(cancelled, IPC_QUEUE_MAX);
}

static void test_allocation_failures(void **state)
{
	uv_loop_t loop;
	struct ipc_client *c = client(&loop);
	for (unsigned n = 0;; n++) {
		struct packet p = { 0 };
		fault_alloc_arm(n);
		int r = ipc_client_call(c, &p, NULL, 0, on_reply, NULL);
		if (!fault_alloc_disarm())
			break;
		assert_int_equal(r, -ENOMEM);
		assert_int_equal(ipc_client_pending(c), 0);
	}
	end(&loop, c);
	assert_int_equal(n_answers, 1);
	assert_int_equal(last_err[0], -ECANCELED);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_replies_in_any_order_with_descriptors), T(test_waits_for_a_helper_that_starts_later),
		T(test_death_fails_what_was_sent_only), T(test_strange_packets_end_the_connection),
		T(test_queue_is_bounded), T(test_allocation_failures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
