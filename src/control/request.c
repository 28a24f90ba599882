/* request.c: see request.h: checks of what came, and the forms of an answer.
 *
 * Order of the checks, so that an error says the first thing to repair: headers'
 * size, framing, key, path, method, query, body. server.c calls in, handlers call the
 * public part. S4 of server.c (early answers) is done here.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "control/auth.h"
#include "control/json_in.h"
#include "control/render.h"
#include "control/request-internal.h"

/* ---- what was asked ---- */

struct control *request_control(struct request *r)
{
	return r->ctl;
}

const char *request_id(struct request *r)
{
	return r->id;
}

const char *request_project(struct request *r)
{
	return r->project;
}

const char *request_var(struct request *r, int at)
{
	return r->match.vars[at];
}

const json_t *request_body(struct request *r)
{
	return r->json;
}

const char *request_query(struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_GET_ARGUMENT_KIND, name);
}

const char *request_header_in(struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
}

struct query_each {
	const char *name;
	void (*fn)(const char *value, void *user);
	void *user;
};

static enum MHD_Result visit_query(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
	struct query_each *q = cls;
	if (!strcmp(key, q->name))
		q->fn(value ? value : "", q->user);
	return MHD_YES;
}

void request_query_each(struct request *r, const char *name, void (*fn)(const char *value, void *user),
			void *user)
{
	struct query_each q = { name, fn, user };
	MHD_get_connection_values(r->conn, MHD_GET_ARGUMENT_KIND, visit_query, &q);
}

bool request_accepts(struct request *r, const char *type)
{
	const char *accept = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Accept");
	return accept && strcasestr(accept, type);
}

bool request_query_bool(struct request *r, const char *name, bool *ret)
{
	const char *v = request_query(r, name);
	if (!v)
		return true;
	if (strcmp(v, "true") && strcmp(v, "false")) {
		request_failf(r, DSEC_E_BAD_FIELD, "the parameter %s must be true or false", name);
		return false;
	}
	*ret = *v == 't';
	return true;
}

bool request_query_uint(struct request *r, const char *name, uint64_t max, uint64_t *ret)
{
	const char *v = request_query(r, name);
	uint64_t n = 0;
	if (!v)
		return true;
	bool good = *v != 0;
	for (const char *p = v; good && *p; p++) {
		good = *p >= '0' && *p <= '9' && n <= (max - (uint64_t)(*p - '0')) / 10;
		n = n * 10 + (uint64_t)(*p - '0');
	}
	if (!good || n > max) {
		request_failf(r, DSEC_E_BAD_FIELD, "the parameter %s must be a whole number from 0 to %llu", name,
			      (unsigned long long)max);
		return false;
	}
	*ret = n;
	return true;
}

void request_set(struct request *r, const struct request_ops *ops, void *state)
{
	r->ops = ops;
	r->state = state;
}

void *request_state(struct request *r)
{
	return r->state;
}

/* ---- checks of headers and query ---- */

static enum MHD_Result add_size(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
	*(size_t *)cls += strlen(key) + (value ? strlen(value) : 0) + 4; /* ": " and CRLF */
	return MHD_YES;
}

static bool headers_fit(struct request *r, const char *url)
{
	size_t n = strlen(url);
	MHD_get_connection_values(r->conn, MHD_HEADER_KIND | MHD_GET_ARGUMENT_KIND, add_size, &n);
	if (n <= LIMIT_HEADER_BYTES_MAX)
		return true;
	request_header(r, "Connection", "close");
	request_failf(r, DSEC_E_HEADERS_TOO_LARGE, "path, query and headers are %zu bytes; at most %d", n,
		      LIMIT_HEADER_BYTES_MAX);
	return false;
}

static bool id_acceptable(const char *id)
{
	size_t n = strspn(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.");
	return n > 0 && n <= LIMIT_REQUEST_ID_MAX && id[n] == 0;
}

static void choose_id(struct request *r)
{
	const char *id = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "X-Request-Id");
	if (id && id_acceptable(id)) {
		snprintf(r->id, sizeof(r->id), "%s", id);
	} else {
		char random[ID_RANDOM_LEN + 1];
		id_random(random);
		snprintf(r->id, sizeof(r->id), "rq-%s", random);
	}
}

struct query_check {
	struct request *r;
	const char *seen[16];
	size_t n_seen;
	bool bad;
};

static enum MHD_Result check_parameter(void *cls, enum MHD_ValueKind kind, const char *key, size_t key_size,
				       const char *value, size_t value_size)
{
	struct query_check *q = cls;
	const char *const *allowed = q->r->match.route->query;
	bool known = false;
	for (; allowed && *allowed && !known; allowed++)
		known = !strcmp(*allowed, key);
	q->bad = true;
	if (strlen(key) != key_size || !known) {
		request_failf(q->r, DSEC_E_UNKNOWN_FIELD, "there is no parameter \"%.64s\" here", key);
		return MHD_NO;
	}
	if (value && strlen(value) != value_size) {
		request_failf(q->r, DSEC_E_BAD_FIELD, "the parameter %s holds a zero byte", key);
		return MHD_NO;
	}
	bool again = false;
	for (size_t i = 0; i < q->n_seen && !again; i++)
		again = !strcmp(q->seen[i], key);
	if (again && strcmp(key, "label")) {
		request_failf(q->r, DSEC_E_BAD_FIELD, "the parameter %s is given twice", key);
		return MHD_NO;
	}
	if (!again && q->n_seen < ARRAY_SIZE(q->seen))
		q->seen[q->n_seen++] = key;
	q->bad = false;
	return MHD_YES;
}

static bool query_good(struct request *r)
{
	struct query_check q = { .r = r };
	MHD_get_connection_values_n(r->conn, MHD_GET_ARGUMENT_KIND, check_parameter, &q);
	return !q.bad;
}

/* Whoever stands before us may have read the other of two lengths, codings, hosts or
 * keys: what follows would be another request to us than to them. MHD takes the first
 * of each, and waits for the end of a body in a coding that it does not know. */
static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *key, const char *value)
{
	static const char *const once[] = { "Content-Length", "Transfer-Encoding", "Host", "Authorization" };
	unsigned *seen = cls;
	for (size_t i = 0; i < ARRAY_SIZE(once); i++)
		if (!strcasecmp(key, once[i]))
			seen[i]++;
	return MHD_YES;
}

static bool framing_clear(struct request *r)
{
	unsigned seen[4] = { 0 };
	const char *coding = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Transfer-Encoding");
	MHD_get_connection_values(r->conn, MHD_HEADER_KIND, count_header, seen);
	bool twice = seen[0] + seen[1] > 1 || seen[2] > 1 || seen[3] > 1;
	if (!twice && (!coding || !strcasecmp(coding, "chunked")))
		return true;
	request_header(r, "Connection", "close");
	r->content_length = -1; /* where the body ends is not known: nothing more is read as requests */
	r->has_body = true;
	if (twice)
		request_failf(r, DSEC_E_BAD_REQUEST, "Content-Length, Transfer-Encoding, Host and Authorization may come "
			      "once each, and only one of the first two");
	else
		request_failf(r, DSEC_E_BAD_REQUEST, "the transfer coding \"%.32s\" is not understood; use chunked", coding);
	return false;
}

static void look_at_body(struct request *r)
{
	const char *length = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Content-Length");
	const char *coding = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Transfer-Encoding");
	const char *expect = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Expect");
	r->content_length = coding ? -1 : length ? strtoll(length, NULL, 10) : 0;
	r->has_body = r->content_length != 0;
	r->expects_continue = expect && !strcasecmp(expect, "100-continue");
}

static bool body_fits(struct request *r)
{
	enum route_body want = r->match.route->body;
	if (want == ROUTE_BODY_NONE && r->has_body) {
		request_failf(r, DSEC_E_BAD_REQUEST, "this call takes no body");
		return false;
	}
	if (want == ROUTE_BODY_JSON && r->content_length > LIMIT_JSON_BODY_BYTES_MAX) {
		request_failf(r, DSEC_E_BODY_TOO_LARGE, "the body is %lld bytes; at most %d",
			      (long long)r->content_length, LIMIT_JSON_BODY_BYTES_MAX);
		return false;
	}
	return true;
}

static bool authenticated(struct request *r)
{
	struct dsec_error e;
	snprintf(r->project, sizeof(r->project), DEFAULT_PROJECT);
	if (!r->ctl->auth || (r->match.route && r->match.route->open))
		return true;
	const char *header = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Authorization");
	if (auth_check(r->ctl->store, header, r->project, &e) == 0)
		return true;
	if (e.code == DSEC_E_UNAUTHENTICATED)
		request_header(r, "WWW-Authenticate", "Bearer");
	request_fail(r, &e, 0);
	return false;
}

static bool routed(struct request *r)
{
	if (r->match.route)
		return true;
	if (!r->match.path_known) {
		request_failf(r, DSEC_E_NOT_FOUND, "there is nothing at this path; see api/openapi.yaml");
	} else if (!strcmp(r->method, "OPTIONS")) {
		struct buf none = BUF_INIT(0);
		request_header(r, "Allow", r->match.allow);
		request_text(r, 204, NULL, &none);
	} else {
		request_header(r, "Allow", r->match.allow);
		request_failf(r, DSEC_E_METHOD_NOT_ALLOWED, "this path takes %s", r->match.allow);
	}
	return false;
}

static bool room(struct request *r, bool crowded)
{
	if (!crowded)
		return true;
	request_header(r, "Connection", "close");
	request_failf(r, DSEC_E_OVERLOADED, "more than %d connections are open", LIMIT_CONNECTIONS_MAX);
	return false;
}

void request_start(struct request *r, const char *url, bool crowded)
{
	choose_id(r);
	look_at_body(r);
	if (room(r, crowded) && headers_fit(r, url) && framing_clear(r) && authenticated(r) && routed(r) &&
	    query_good(r) && body_fits(r) && r->match.route->body == ROUTE_BODY_STREAM)
		r->match.route->handle(r);
}

/* ---- upload ---- */

size_t request_upload(struct request *r, const uint8_t *p, size_t n)
{
	if (r->answer != ANSWER_NONE) {
		r->discarded += n;
		return n;
	}
	if (r->match.route->body == ROUTE_BODY_STREAM)
		return r->ops && r->ops->body ? r->ops->body(r, p, n) : n;
	int e = buf_append(&r->body, p, n);
	if (e == -ENOBUFS)
		request_failf(r, DSEC_E_BODY_TOO_LARGE, "the body is too large; at most %d bytes",
			      LIMIT_JSON_BODY_BYTES_MAX);
	else if (e)
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
	return n;
}

void request_upload_end(struct request *r)
{
	struct dsec_error e;
	r->body_done = true;
	if (r->answer != ANSWER_NONE)
		return;
	if (r->match.route->body == ROUTE_BODY_STREAM) {
		if (r->ops && r->ops->body_end)
			r->ops->body_end(r);
		return;
	}
	if (r->match.route->body == ROUTE_BODY_JSON) {
		if (json_parse(buf_len(&r->body) ? (const char *)buf_ptr(&r->body) : "", buf_len(&r->body),
			       &r->json, &e) < 0) {
			request_fail(r, &e, 0);
			return;
		}
		buf_done(&r->body);
	}
	r->match.route->handle(r);
}

void request_body_more(struct request *r)
{
	if (!r->body_done)
		request_resume(r);
}

/* ---- answers ---- */

void request_header(struct request *r, const char *name, const char *value)
{
	if (r->n_headers == REQUEST_HEADERS_MAX)
		return;
	snprintf(r->headers[r->n_headers].name, sizeof(r->headers[0].name), "%s", name);
	snprintf(r->headers[r->n_headers].value, sizeof(r->headers[0].value), "%s", value);
	r->n_headers++;
}

static const char *reason(int status)
{
	const char *text = MHD_get_reason_phrase_for((unsigned)status);
	return text ? text : "Error";
}

/* S4: the answer goes straight to the socket; nothing else was or will be
 * written to it. It is small, the socket's buffer empty: one send takes it. */
static void send_early(struct request *r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	buf_printf(&b, "HTTP/1.1 %d %s\r\nConnection: close\r\nX-Request-Id: %s\r\nContent-Length: %zu\r\n",
		   r->status, reason(r->status), r->id, buf_len(&r->out));
	if (r->content_type)
		buf_printf(&b, "Content-Type: %s\r\n", r->content_type);
	for (size_t i = 0; i < r->n_headers; i++)
		if (strcmp(r->headers[i].name, "Connection"))
			buf_printf(&b, "%s: %s\r\n", r->headers[i].name, r->headers[i].value);
	buf_printf(&b, "\r\n");
	if (strcmp(r->method, "HEAD") && buf_len(&r->out))
		buf_append(&b, buf_ptr(&r->out), buf_len(&r->out));
	if (buf_len(&b))
		(void)!send(r->client->fd, buf_ptr(&b), buf_len(&b), MSG_DONTWAIT | MSG_NOSIGNAL);
	shutdown(r->client->fd, SHUT_WR);
	r->early_sent = true;
	request_linger(r);
}

/* The answer is whole: see that it gets out. */
static void answer_ready(struct request *r)
{
	r->answer = ANSWER_WHOLE;
	bool rest_small = r->content_length >= 0 && r->content_length <= LIMIT_JSON_BODY_BYTES_MAX;
	if (!r->has_body || r->body_done || rest_small)
		request_resume(r); /* the rest is read and dropped, the connection lives on */
	else if (!(r->in_first_call && r->expects_continue))
		send_early(r);
}

void request_text(struct request *r, int status, const char *type, struct buf *body_take)
{
	if (r->answer != ANSWER_NONE) {
		buf_done(body_take);
		return;
	}
	r->status = status;
	r->content_type = type;
	r->out = *body_take;
	*body_take = BUF_INIT(0);
	answer_ready(r);
}

void request_json(struct request *r, int status, json_t *body_take)
{
	struct buf b = BUF_INIT(0);
	int e = body_take ? render_json(body_take, &b) : -ENOMEM;
	json_decref(body_take);
	if (e) {
		buf_done(&b);
		b = BUF_INIT(0);
		buf_printf(&b, "{\"error\":{\"code\":\"capacity_exhausted\",\"message\":\"out of memory\","
			       "\"fault\":\"platform\",\"retry\":true,\"request_id\":\"%s\"}}\n", r->id);
		status = 503;
	}
	request_text(r, status, "application/json", &b);
}

void request_fail(struct request *r, const struct dsec_error *e, uint32_t retry_after_ms)
{
	int status = dsec_code_http(e->code);
	char seconds[16];
	if (r->answer != ANSWER_NONE)
		return;
	if (status == 429 || status == 503) {
		snprintf(seconds, sizeof(seconds), "%u", retry_after_ms > 1000 ? (retry_after_ms + 999) / 1000 : 1);
		request_header(r, "Retry-After", seconds);
	}
	json_t *body = render_error(e);
	if (body)
		json_object_set_new(body, "request_id", json_string(r->id));
	request_json(r, status, json_pack("{s:o}", "error", body));
}

void request_failf(struct request *r, enum dsec_code code, const char *fmt, ...)
{
	struct dsec_error e = { .code = code };
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e.message, sizeof(e.message), fmt, ap);
	va_end(ap);
	request_fail(r, &e, 0);
}

void request_stream(struct request *r, int status, const char *type)
{
	if (r->answer != ANSWER_NONE)
		return;
	r->answer = ANSWER_STREAM;
	r->status = status;
	r->content_type = type;
	request_resume(r);
}

int request_write(struct request *r, const void *p, size_t n)
{
	int e = buf_append(&r->out, p, n);
	if (e) {
		request_abort(r);
		return e;
	}
	request_resume(r);
	return 0;
}

size_t request_unsent(struct request *r)
{
	return buf_len(&r->out);
}

void request_stream_end(struct request *r)
{
	r->out_end = true;
	request_resume(r);
}

void request_abort(struct request *r)
{
	r->out_abort = true;
	request_resume(r);
}

void request_free(struct request *r)
{
	if (r->ops && r->ops->release)
		r->ops->release(r);
	json_decref(r->json);
	buf_done(&r->body);
	buf_done(&r->out);
	free(r);
}
