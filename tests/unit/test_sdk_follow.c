/* follow: output over connections that break comes without gap or repeat.
 *
 * The peer is a thread that serves a list of scripted HTTP answers on a loopback
 * socket, one a connection, and notes what was asked. */
#include "unit.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dsec/dsec.h"

#define STEPS_MAX 8
#define STARTED "{\"event\":\"started\",\"exec\":{\"id\":\"x1\",\"state\":\"running\"}}"
#define EXIT "{\"event\":\"exit\",\"exec\":{\"id\":\"x1\",\"state\":\"finished\",\"exit_code\":3}}"
#define LOST "{\"event\":\"error\",\"error\":{\"code\":\"edge_unavailable\",\"message\":\"m\",\"fault\":\"platform\",\"retry\":true}}"

struct step {
	char bytes[2048];
	size_t n;
};

struct peer {
	int fd, port;
	struct step steps[STEPS_MAX];
	size_t n_steps, served;
	char asked[STEPS_MAX][256];
	pthread_t thread;
};

static void add(struct step *s, uint8_t type, const char *payload)
{
	size_t n = strlen(payload);
	uint8_t h[5] = { type, 0, 0, (uint8_t)(n >> 8), (uint8_t)n };
	memcpy(s->bytes + s->n, h, 5);
	memcpy(s->bytes + s->n + 5, payload, n);
	s->n += 5 + n;
}

static struct step *ok_step(struct peer *p)
{
	struct step *s = &p->steps[p->n_steps++];
	/* A promised length that is never reached: its end is a break. */
	s->n = (size_t)sprintf(s->bytes, "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.dsec.frames\r\n"
					 "Content-Length: 100000\r\nConnection: close\r\n\r\n");
	return s;
}

static void *serve(void *user)
{
	struct peer *p = user;
	for (; p->served < p->n_steps; p->served++) {
		int c = accept(p->fd, NULL, NULL);
		char request[4096];
		size_t n = 0;
		ssize_t k;
		while (n < sizeof(request) - 1 && (k = recv(c, request + n, sizeof(request) - 1 - n, 0)) > 0) {
			n += (size_t)k;
			request[n] = 0;
			char *end = strstr(request, "\r\n\r\n"), *length = strcasestr(request, "content-length:");
			size_t body = length ? strtoul(length + 15, NULL, 10) : 0;
			if (end && n >= (size_t)(end - request) + 4 + body)
				break;
		}
		snprintf(p->asked[p->served], sizeof(p->asked[0]), "%.*s", (int)strcspn(request, "\r"), request);
		(void)!write(c, p->steps[p->served].bytes, p->steps[p->served].n);
		close(c);
	}
	return NULL;
}

static struct dsec_client *start(struct peer *p)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(a);
	struct dsec_client *c;
	char url[64];
	p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(p->fd, (struct sockaddr *)&a, n), 0);
	assert_int_equal(listen(p->fd, 8), 0);
	getsockname(p->fd, (struct sockaddr *)&a, &n);
	snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(a.sin_port));
	pthread_create(&p->thread, NULL, serve, p);
	assert_int_equal(dsec_client_new(&(struct dsec_client_options){ .url = url, .api_key = "k", .reconnect_ms = 2000 },
					 &c, NULL), 0);
	return c;
}

static void finish(struct peer *p, struct dsec_client *c)
{
	pthread_join(p->thread, NULL);
	close(p->fd);
	dsec_client_free(c);
}

struct seen {
	char out[256];
	size_t n;
	uint64_t gap;
	int started;
};

static int on_started(const struct dsec_exec *x, void *user)
{
	((struct seen *)user)->started++;
	return strcmp(x->id, "x1") ? -EINVAL : 0;
}

static int on_output(enum dsec_stream stream, uint64_t offset, const void *p, size_t n, void *user)
{
	struct seen *s = user;
	assert_int_equal(offset, s->n + s->gap);
	memcpy(s->out + s->n, p, n);
	s->n += n;
	return 0;
}

static int on_gap(enum dsec_stream stream, uint64_t from, uint64_t to, void *user)
{
	((struct seen *)user)->gap += to - from;
	return 0;
}

static void test_follow_resumes(void **state)
{
	struct peer p = { 0 };
	struct seen seen = { 0 };
	struct dsec_output_callbacks cb = { on_started, on_output, on_gap, &seen };
	struct dsec_exec *x = NULL;
	struct dsec_error e;
	struct step *s = ok_step(&p);
	add(s, 3, STARTED);
	add(s, 1, "one ");
	add(s, 1, "two "); /* and cut in the middle of a frame */
	s->n -= 2;
	s = ok_step(&p); /* the edge restarts */
	add(s, 3, STARTED);
	add(s, 3, LOST);
	p.steps[p.n_steps].n = (size_t)sprintf(p.steps[p.n_steps].bytes,
					       "HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 83\r\n\r\n"
					       "{\"error\":{\"code\":\"edge_unavailable\",\"message\":\"mm\",\"fault\":\"platform\",\"retry\":true}}");
	p.n_steps++;
	s = ok_step(&p);
	add(s, 3, STARTED);
	add(s, 1, "o ");
	add(s, 3, "{\"event\":\"gap\",\"stream\":\"stdout\",\"from\":8,\"to\":20}");
	s = ok_step(&p);
	add(s, 1, "end");
	add(s, 3, EXIT);
	struct dsec_client *c = start(&p);
	const char *const argv[] = { "true", NULL };
	int r = dsec_exec_run(c, "sb-1", &(struct dsec_exec_options){ .id = "x1", .argv = argv }, &cb, &x, &e);
	finish(&p, c);
	assert_int_equal(r, 0);
	assert_string_equal(seen.out, "one two end");
	assert_int_equal(seen.gap, 12);
	assert_int_equal(seen.started, 1);
	assert_int_equal(x->exit_code, 3);
	dsec_exec_free(x);
	static const char get[] = "GET /v1/sandboxes/sb-1/execs/x1/output?stdout_offset=%d&stderr_offset=0&follow=true HTTP/1.1";
	static const int offsets[] = { 6, 6, 6, 20 };
	assert_int_equal(p.served, 5);
	assert_string_equal(p.asked[0], "POST /v1/sandboxes/sb-1/execs?stream=true HTTP/1.1");
	for (int i = 0; i < 4; i++) {
		char want[256];
		snprintf(want, sizeof(want), get, offsets[i]);
		assert_string_equal(p.asked[i + 1], want);
	}
}

/* A start whose answer was lost is sent again with the same id, and only then. */
static void test_follow_repeats_a_lost_start(void **state)
{
	struct peer p = { 0 };
	struct dsec_exec *x = NULL;
	struct dsec_error e;
	const char *const argv[] = { "true", NULL };
	p.n_steps++; /* takes the request and closes without a word */
	struct step *s = ok_step(&p);
	add(s, 3, STARTED);
	add(s, 3, EXIT);
	struct dsec_client *c = start(&p);
	int r = dsec_exec_run(c, "sb-1", &(struct dsec_exec_options){ .argv = argv }, NULL, &x, &e);
	finish(&p, c);
	assert_int_equal(r, 0);
	assert_int_equal(p.served, 2);
	assert_string_equal(p.asked[1], "POST /v1/sandboxes/sb-1/execs?stream=true HTTP/1.1");
	dsec_exec_free(x);
}

static void test_follow_tells_a_refusal(void **state)
{
	struct peer p = { 0 };
	struct dsec_exec *x = NULL;
	struct dsec_error e;
	const char *const argv[] = { "nosuch", NULL };
	static const char body[] = "{\"error\":{\"code\":\"command_not_found\",\"message\":\"m\",\"fault\":\"caller\",\"retry\":false,\"request_id\":\"rq-1\"}}";
	p.steps[0].n = (size_t)sprintf(p.steps[0].bytes, "HTTP/1.1 422 No\r\nRetry-After: 7\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	p.n_steps = 1;
	struct dsec_client *c = start(&p);
	int r = dsec_exec_run(c, "sb-1", &(struct dsec_exec_options){ .argv = argv }, NULL, &x, &e);
	finish(&p, c);
	assert_int_equal(r, -EINVAL);
	assert_string_equal(e.code, "command_not_found");
	assert_int_equal(e.fault, DSEC_FAULT_CALLER);
	assert_int_equal(e.http_status, 422);
	assert_string_equal(e.request_id, "rq-1");
	assert_true(e.retry_after_seconds == 7);
	assert_null(x);
}

static void test_follow_gives_up_where_nobody_is(void **state)
{
	struct dsec_client *c;
	struct dsec_exec *x = NULL;
	struct dsec_error e;
	const char *const argv[] = { "true", NULL };
	/* Port 9 of loopback: nobody listens there. */
	assert_int_equal(dsec_client_new(&(struct dsec_client_options){ .url = "http://127.0.0.1:9" }, &c, &e), 0);
	assert_int_equal(dsec_exec_run(c, "sb-1", &(struct dsec_exec_options){ .argv = argv }, NULL, &x, &e), -ECONNREFUSED);
	assert_string_equal(e.code, "connection_failed");
	dsec_client_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_follow_resumes),
		cmocka_unit_test(test_follow_repeats_a_lost_start),
		cmocka_unit_test(test_follow_tells_a_refusal),
		cmocka_unit_test(test_follow_gives_up_where_nobody_is),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
