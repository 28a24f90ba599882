/* server.c: see server.h.
 *
 * Theory of operation. libmicrohttpd runs without threads on its own epoll
 * descriptor, which the loop polls; MHD_run does the work, a timer serves its
 * timeouts, and an idle handle runs it again after a resume. Inside MHD_run our
 * callbacks run: on_request (headers, pieces of the upload, then the answer),
 * read_answer (streamed answers), on_completed.
 *
 * A request that waits for an edge is suspended: MHD drops the connection from
 * its epoll set and so would never see the client leave. Therefore each
 * connection is also in a second epoll set of ours, for EPOLLRDHUP alone and one
 * shot (no dup of the descriptor is needed: a descriptor may be in many sets).
 * Half-close counts as gone: a client that has shut its sending side while its
 * answer is pending is taken for dead, since nothing tells it from one.
 *
 * A client that vanishes without a word (a host that lost its power, a cut
 * network) is found within a minute: where nothing is under way by TCP's own
 * probes (probe_idle), where sent bytes wait for their acknowledgement, which
 * stops those probes, by the sweep (has_vanished). TCP_USER_TIMEOUT would do both
 * in one, but also cuts a client that lives and does not read for that long.
 *
 * Invariants
 *  S1 MHD_suspend_connection is called only at the end of on_request or
 *     read_answer, never when an answer or data is at hand; so a resume can never
 *     come before its suspend.
 *  S2 No connection is suspended when the daemon is stopped (server_free).
 *  S3 A client's pointer is in the hang-up set exactly while MHD's socket lives:
 *     removed on MHD's close notification, which precedes the close.
 *  S4 MHD cannot answer in the middle of an upload. Where an answer is due by then
 *     (a refused or failed upload) and the rest is not small, request.c writes it
 *     to the socket itself, shuts the sending side and the rest is discarded,
 *     bounded in bytes and time: closing at once would reset the connection and
 *     destroy the answer on its way.
 *  S5 A request that is marked gone is freed before anything else is called: an
 *     answer that came in between would be lost, and what it tells of (a new
 *     sandbox) would be nobody's.
 */
#include "control/server.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "control/metrics.h"
#include "control/request-internal.h"

#define POOL_BYTES (32 * 1024)  /* a connection's memory in MHD: headers and one block */
#define BLOCK_BYTES (16 * 1024) /* one read of a streamed answer */
#define CONNECTIONS_SPARE 64    /* above the limit: these get a typed refusal */
#define SWEEP_MS 500
#define VANISHED_SWEEPS 10       /* every so many sweeps the requests' peers are looked at */
#define VANISHED_MS 35000        /* no acknowledgement for so long */
#define VANISHED_RETRANSMITS 5   /* and so many times sent again */
#define PROBE_IDLE_SECONDS 15
#define PROBE_INTERVAL_SECONDS 10
#define PROBES 3

struct server {
	struct control *ctl;
	struct MHD_Daemon *daemon;
	const struct route *routes;
	size_t n_routes;
	uv_poll_t poll, hup_poll;
	uv_timer_t timer, sweep;
	uv_idle_t idle;
	int hup_fd; /* epoll set for hang-ups */
	int handles; /* not yet closed by libuv */
	struct client_list waiting, lingering;
	unsigned n_sweeps;
	size_t n_clients, n_requests;
	struct request *requests;
	bool quiesced;
	int old_listen_fd; /* after quiescing: ours to close */
};

static void run(struct server *s);
static void on_idle(uv_idle_t *h);

/* ---- clients and their lists ---- */

static void list_remove(struct client *c)
{
	struct client_list *l = c->list;
	if (!l)
		return;
	*(c->prev ? &c->prev->next : &l->first) = c->next;
	*(c->next ? &c->next->prev : &l->last) = c->prev;
	c->list = NULL;
}

static void list_put(struct client_list *l, struct client *c, uint64_t ms)
{
	list_remove(c);
	c->until_ms = now_mono_ms() + ms;
	c->list = l;
	c->next = NULL;
	c->prev = l->last;
	*(l->last ? &l->last->next : &l->first) = c;
	l->last = c;
}

static void client_wait(struct client *c)
{
	list_put(&c->server->waiting, c, LIMIT_REQUEST_WAIT_SECONDS * 1000u);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct server *s = cls;
	struct client *c = *context;
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (c) {
			epoll_ctl(s->hup_fd, EPOLL_CTL_DEL, c->fd, NULL); /* S3 */
			list_remove(c);
			s->n_clients--;
			free(c);
		}
		return;
	}
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	c = calloc(1, sizeof(*c));
	if (!info || !c) {
		free(c); /* on_request refuses a connection without a client */
		return;
	}
	struct epoll_event ev = { .events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c };
	c->server = s;
	c->fd = info->connect_fd;
	epoll_ctl(s->hup_fd, EPOLL_CTL_ADD, c->fd, &ev);
	s->n_clients++;
	client_wait(c);
	*context = c;
}

/* Ends connections whose time is over: MHD sees the end of file and closes. */
static void cut_late(struct client_list *l, uint64_t now)
{
	while (l->first && now >= l->first->until_ms) {
		struct client *c = l->first;
		list_remove(c);
		shutdown(c->fd, SHUT_RDWR);
	}
}

/* Connections inherit these from the listening socket. */
static void probe_idle(int listen_fd)
{
	static const int on = 1, idle = PROBE_IDLE_SECONDS, interval = PROBE_INTERVAL_SECONDS, probes = PROBES;
	setsockopt(listen_fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(listen_fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(listen_fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	setsockopt(listen_fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

static bool has_vanished(int fd)
{
	struct tcp_info ti = { 0 };
	socklen_t n = sizeof(ti);
	return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &ti, &n) == 0 && ti.tcpi_unacked > 0 &&
	       ti.tcpi_retransmits >= VANISHED_RETRANSMITS && ti.tcpi_last_ack_recv > VANISHED_MS;
}

static void on_sweep(uv_timer_t *t)
{
	struct server *s = t->data;
	cut_late(&s->waiting, now_mono_ms());
	cut_late(&s->lingering, now_mono_ms());
	if (++s->n_sweeps % VANISHED_SWEEPS)
		return;
	for (struct request *r = s->requests; r; r = r->next)
		if (has_vanished(r->client->fd))
			shutdown(r->client->fd, SHUT_RDWR); /* on_hup ends the request */
}

static void on_hup(uv_poll_t *h, int status, int events)
{
	struct server *s = h->data;
	struct epoll_event ev[64];
	bool ended = false;
	int n;
	while ((n = epoll_wait(s->hup_fd, ev, ARRAY_SIZE(ev), 0)) > 0) {
		for (int i = 0; i < n; i++) {
			struct client *c = ev[i].data.ptr;
			c->hup = true;
			if (c->request && c->request->suspended) {
				c->request->gone = ended = true;
				request_resume(c->request);
			}
		}
	}
	if (ended)
		run(s); /* S5 */
}

/* ---- MHD's callbacks ---- */

static struct request *request_new(struct server *s, struct MHD_Connection *conn, struct client *c,
				   const char *method)
{
	struct request *r = calloc(1, sizeof(*r));
	if (!r)
		return NULL;
	r->ctl = s->ctl;
	r->client = c;
	r->conn = conn;
	r->method = method;
	r->start_ns = now_mono_ns();
	r->body = BUF_INIT(LIMIT_JSON_BODY_BYTES_MAX);
	r->next = s->requests;
	if (r->next)
		r->next->prev = r;
	s->requests = r;
	s->n_requests++;
	c->request = r;
	return r;
}

/* S1: false when the client has left already (then nothing would wake us). */
static bool suspend(struct request *r)
{
	if (r->client->hup || r->gone) {
		r->gone = true;
		return false;
	}
	r->suspended = true;
	MHD_suspend_connection(r->conn);
	return true;
}

void request_resume(struct request *r)
{
	if (!r->suspended)
		return;
	r->suspended = false;
	MHD_resume_connection(r->conn);
	uv_idle_start(&r->client->server->idle, on_idle);
}

void request_linger(struct request *r)
{
	list_put(&r->client->server->lingering, r->client, LIMIT_LINGER_SECONDS * 1000u);
	request_resume(r);
}

static ssize_t read_answer(void *cls, uint64_t pos, char *p, size_t max)
{
	struct request *r = cls;
	size_t n = MIN(buf_len(&r->out), max);
	if (r->gone)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (n) {
		memcpy(p, buf_ptr(&r->out), n);
		buf_consume(&r->out, n);
		if (r->ops && r->ops->drained && !r->out_end && !r->out_abort)
			r->ops->drained(r, buf_len(&r->out));
		return (ssize_t)n;
	}
	if (r->out_abort)
		return MHD_CONTENT_READER_END_WITH_ERROR;
	if (r->out_end)
		return MHD_CONTENT_READER_END_OF_STREAM;
	buf_done(&r->out); /* an idle stream holds no memory */
	return suspend(r) ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
}

static enum MHD_Result begin(struct server *s, struct MHD_Connection *conn, const char *url,
			     const char *method, void **context)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct client *c = info ? info->socket_context : NULL;
	struct request *r = c ? request_new(s, conn, c, method) : NULL;
	if (!r)
		return MHD_NO;
	*context = r;
	route_find(s->routes, s->n_routes, method, url, &r->match);
	r->in_first_call = true;
	request_start(r, url, s->n_clients > LIMIT_CONNECTIONS_MAX);
	r->in_first_call = false;
	if (r->answer == ANSWER_NONE && r->match.route->body == ROUTE_BODY_STREAM && r->has_body)
		list_remove(c); /* an upload may take its time; MHD's stall limit holds */
	if (r->answer == ANSWER_WHOLE && r->has_body && !r->early_sent && r->expects_continue)
		return request_queue(r); /* nothing was sent yet and nothing will be */
	return MHD_YES;
}

/* MHD hands paths over decoded and as C strings: "/v1/x%00y" and "/v1%2fx" would be
 * "/v1/x". No path of the API has such a byte in a name, so they are marked before. */
static char bad_path;

static void *on_uri(void *cls, const char *uri, struct MHD_Connection *conn)
{
	for (const char *p = uri; *p && *p != '?'; p++)
		if (!strncmp(p, "%00", 3) || !strncasecmp(p, "%2f", 3))
			return &bad_path;
	return NULL;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
				  const char *method, const char *version, const char *data, size_t *n,
				  void **context)
{
	struct request *r = *context;
	if (!r || *context == &bad_path)
		return begin(cls, conn, r ? "" : url, method, context);
	if (r->gone)
		return MHD_NO;
	if (*n) {
		size_t taken = request_upload(r, (const uint8_t *)data, *n);
		*n -= taken;
		if (r->early_sent && r->discarded > LIMIT_LINGER_BYTES_MAX)
			return MHD_NO;
		return *n == 0 || suspend(r) ? MHD_YES : MHD_NO;
	}
	if (!r->body_done) {
		if (r->client->list == &r->client->server->waiting)
			list_remove(r->client);
		request_upload_end(r);
	}
	if (r->early_sent)
		return MHD_NO;
	if (r->answer != ANSWER_NONE)
		return request_queue(r);
	return suspend(r) ? MHD_YES : MHD_NO;
}

enum MHD_Result request_queue(struct request *r)
{
	struct MHD_Response *mr;
	if (r->answer == ANSWER_STREAM) {
		mr = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, read_answer, r, NULL);
	} else {
		/* buf grows from offset 0 and nothing was consumed: data is the allocation */
		size_t n = buf_len(&r->out);
		void *p = TAKE_PTR(r->out.data);
		buf_done(&r->out);
		mr = MHD_create_response_from_buffer(n, p, MHD_RESPMEM_MUST_FREE);
		if (!mr)
			free(p);
	}
	if (!mr)
		return MHD_NO;
	MHD_add_response_header(mr, "X-Request-Id", r->id);
	if (r->content_type)
		MHD_add_response_header(mr, "Content-Type", r->content_type);
	for (size_t i = 0; i < r->n_headers; i++)
		MHD_add_response_header(mr, r->headers[i].name, r->headers[i].value);
	if (r->client->server->quiesced)
		MHD_add_response_header(mr, "Connection", "close");
	enum MHD_Result q = MHD_queue_response(r->conn, (unsigned)r->status, mr);
	MHD_destroy_response(mr);
	return q;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **context,
			 enum MHD_RequestTerminationCode code)
{
	struct server *s = cls;
	struct request *r = *context == &bad_path ? NULL : *context;
	*context = NULL;
	if (!r)
		return;
	metrics_request(s->ctl->metrics, r->match.route, r->answer ? r->status : 499, now_mono_ns() - r->start_ns);
	*(r->prev ? &r->prev->next : &s->requests) = r->next;
	if (r->next)
		r->next->prev = r->prev;
	s->n_requests--;
	r->client->request = NULL;
	client_wait(r->client);
	request_free(r);
}

/* ---- driving MHD ---- */

static void on_idle(uv_idle_t *h)
{
	uv_idle_stop(h);
	run(h->data);
}

static void on_timer(uv_timer_t *t)
{
	run(t->data);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	run(h->data);
}

static void run(struct server *s)
{
	MHD_UNSIGNED_LONG_LONG ms;
	if (!s->daemon)
		return;
	MHD_run(s->daemon);
	if (MHD_get_timeout(s->daemon, &ms) != MHD_YES)
		uv_timer_stop(&s->timer);
	else if (ms == 0)
		uv_idle_start(&s->idle, on_idle);
	else
		uv_timer_start(&s->timer, on_timer, ms, 0);
}

static struct MHD_Daemon *start_daemon(struct server *s, int listen_fd)
{
	return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, s,
				MHD_OPTION_LISTEN_SOCKET, listen_fd,
				MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIMIT_CONNECTIONS_MAX + CONNECTIONS_SPARE,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES,
				MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)LIMIT_IDLE_SECONDS,
				MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
				MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
				MHD_OPTION_URI_LOG_CALLBACK, on_uri, s,
				MHD_OPTION_STRICT_FOR_CLIENT, 1,
				MHD_OPTION_END);
}

static int start_handles(struct server *s)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
	uv_loop_t *loop = s->ctl->loop;
	if (!info)
		return -EIO;
	int r = uv_poll_init(loop, &s->poll, info->epoll_fd);
	if (r)
		return r;
	s->handles++;
	r = uv_poll_init(loop, &s->hup_poll, s->hup_fd);
	if (r)
		return r;
	s->handles++;
	uv_timer_init(loop, &s->timer);
	uv_timer_init(loop, &s->sweep);
	uv_idle_init(loop, &s->idle);
	s->handles += 3;
	s->poll.data = s->hup_poll.data = s->timer.data = s->sweep.data = s->idle.data = s;
	uv_poll_start(&s->poll, UV_READABLE, on_poll);
	uv_poll_start(&s->hup_poll, UV_READABLE, on_hup);
	uv_timer_start(&s->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
	return 0;
}

int server_new(struct control *ctl, const struct server_config *config, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));
	if (!s) {
		close(config->listen_fd);
		return -ENOMEM;
	}
	s->ctl = ctl;
	s->routes = config->routes;
	s->n_routes = config->n_routes;
	s->old_listen_fd = -1;
	probe_idle(config->listen_fd);
	s->hup_fd = epoll_create1(EPOLL_CLOEXEC);
	s->daemon = s->hup_fd < 0 ? NULL : start_daemon(s, config->listen_fd);
	int r = s->daemon ? start_handles(s) : -EIO;
	if (r) { /* only at start-up: the process ends, handles need no closing */
		if (!s->daemon)
			close(config->listen_fd);
		return r;
	}
	ctl->server = s;
	*ret = s;
	run(s);
	return 0;
}

size_t server_connections(const struct server *s)
{
	return s->n_clients;
}

size_t server_requests(const struct server *s)
{
	return s->n_requests;
}

void server_quiesce(struct server *s)
{
	if (s->quiesced)
		return;
	s->quiesced = true;
	s->old_listen_fd = MHD_quiesce_daemon(s->daemon);
	s->old_listen_fd = base_close(s->old_listen_fd); /* new clients are refused at once */
	cut_late(&s->waiting, UINT64_MAX);
	run(s);
}

static void on_closed(uv_handle_t *h)
{
	struct server *s = h->data;
	if (--s->handles == 0) {
		close(s->hup_fd);
		free(s);
	}
}

void server_free(struct server *s)
{
	if (!s)
		return;
	for (struct request *r = s->requests; r; r = r->next) {
		r->gone = true;
		if (r->suspended) { /* S2 */
			r->suspended = false;
			MHD_resume_connection(r->conn);
		}
	}
	MHD_run(s->daemon);
	uv_poll_stop(&s->poll);
	MHD_stop_daemon(s->daemon);
	s->daemon = NULL;
	uv_handle_t *all[] = { (uv_handle_t *)&s->poll, (uv_handle_t *)&s->hup_poll,
			       (uv_handle_t *)&s->timer, (uv_handle_t *)&s->sweep,
			       (uv_handle_t *)&s->idle };
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		uv_close(all[i], on_closed);
}
