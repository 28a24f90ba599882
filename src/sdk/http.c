/* http.c: one HTTP call over libcurl.
 *
 * Each call takes an idle transport or makes one, drives its multi handle until
 * the transfer is done and gives it back with its connection kept alive. The
 * multi interface is used for one thing the easy interface cannot: being woken
 * by dsec_client_interrupt at once. The body of a 2xx answer goes to the call's
 * sink; that of any other is kept (bounded) and becomes the error.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sdk/sdk-internal.h"

#define POLL_MS 1000
#define ERROR_BODY_MAX (64u << 10)
#define HEADER_MAX 2048

static struct sdk_transport *transport_new(void)
{
	struct sdk_transport *t = calloc(1, sizeof(*t));
	if (!t)
		return NULL;
	t->multi = curl_multi_init();
	t->easy = curl_easy_init();
	if (t->multi && t->easy)
		return t;
	curl_easy_cleanup(t->easy);
	curl_multi_cleanup(t->multi);
	free(t);
	return NULL;
}

static struct sdk_transport *transport_take(struct dsec_client *c)
{
	struct sdk_transport *t = NULL;
	pthread_mutex_lock(&c->lock);
	if (c->n_idle)
		t = c->idle[--c->n_idle];
	pthread_mutex_unlock(&c->lock);
	if (!t)
		t = transport_new();
	if (!t)
		return NULL;
	atomic_store(&t->interrupted, false);
	pthread_mutex_lock(&c->lock);
	t->prev = NULL;
	t->next = c->in_flight;
	if (t->next)
		t->next->prev = t;
	c->in_flight = t;
	pthread_mutex_unlock(&c->lock);
	return t;
}

static void transport_give(struct dsec_client *c, struct sdk_transport *t)
{
	curl_easy_reset(t->easy); /* options, not connections: those are the multi's */
	pthread_mutex_lock(&c->lock);
	if (t->prev)
		t->prev->next = t->next;
	else
		c->in_flight = t->next;
	if (t->next)
		t->next->prev = t->prev;
	bool keep = c->n_idle < SDK_TRANSPORTS_IDLE_MAX;
	if (keep)
		c->idle[c->n_idle++] = t;
	pthread_mutex_unlock(&c->lock);
	if (keep)
		return;
	curl_easy_cleanup(t->easy);
	curl_multi_cleanup(t->multi);
	free(t);
}

void dsec_client_interrupt(struct dsec_client *c)
{
	pthread_mutex_lock(&c->lock);
	for (struct sdk_transport *t = c->in_flight; t; t = t->next) {
		atomic_store(&t->interrupted, true);
		curl_multi_wakeup(t->multi);
	}
	pthread_mutex_unlock(&c->lock);
}

struct transfer {
	struct sdk_call *call;
	CURL *easy;
	size_t cap;
	bool too_large;
	double retry_after;
};

static int keep(struct transfer *t, const void *p, size_t n, size_t max)
{
	struct sdk_call *call = t->call;
	if (call->n_text + n > max) {
		t->too_large = true;
		return -EFBIG;
	}
	if (call->n_text + n + 1 > t->cap) {
		size_t cap = t->cap ? t->cap : 4096;
		while (cap < call->n_text + n + 1)
			cap *= 2;
		char *text = realloc(call->text, cap);
		if (!text)
			return -ENOMEM;
		call->text = text;
		t->cap = cap;
	}
	memcpy(call->text + call->n_text, p, n);
	call->n_text += n;
	call->text[call->n_text] = 0;
	return 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *user)
{
	struct transfer *t = user;
	struct sdk_call *call = t->call;
	long status = 0;
	n *= size;
	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status >= 200 && status < 300 && call->sink) {
		int r = call->sink(p, n, call->sink_user);
		if (r < 0)
			call->callback_err = r;
		return r < 0 ? 0 : n; /* a short count ends the transfer */
	}
	return keep(t, p, n, status < 300 ? SDK_REPLY_MAX : ERROR_BODY_MAX) < 0 ? 0 : n;
}

static size_t on_read(char *p, size_t size, size_t n, void *user)
{
	struct sdk_call *call = ((struct transfer *)user)->call;
	call->read_began = true;
	ssize_t k = call->read(p, size * n, call->read_user);
	if (k >= 0)
		return (size_t)k;
	call->callback_err = (int)k;
	return CURL_READFUNC_ABORT;
}

static size_t on_header(char *p, size_t size, size_t n, void *user)
{
	struct transfer *t = user;
	n *= size;
	static const char name[] = "retry-after:";
	char text[32] = { 0 };
	if (n > sizeof(name) && !strncasecmp(p, name, sizeof(name) - 1)) {
		snprintf(text, sizeof(text), "%.*s", (int)(n - sizeof(name) + 1), p + sizeof(name) - 1);
		t->retry_after = strtod(text, NULL);
	}
	return n;
}

static int add_header(struct curl_slist **list, const char *fmt, ...)
{
	char text[HEADER_MAX];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	struct curl_slist *l = n < 0 || n >= (int)sizeof(text) ? NULL : curl_slist_append(*list, text);
	if (!l)
		return -ENOMEM;
	*list = l;
	return 0;
}

static int set_up(struct dsec_client *c, struct transfer *t, const char *url, struct curl_slist **headers)
{
	struct sdk_call *call = t->call;
	CURL *h = t->easy;
	int r = *c->key ? add_header(headers, "Authorization: Bearer %s", c->key) : 0;
	r |= add_header(headers, "Accept: %s", call->accept ? call->accept : "application/json");
	bool has_body = call->body || call->read;
	if (has_body)
		r |= add_header(headers, "Content-Type: %s", call->content_type ? call->content_type : "application/json");
	if (!call->read) /* a small body is not worth a round trip */
		r |= add_header(headers, "Expect:");
	curl_easy_setopt(h, CURLOPT_URL, url);
	if (call->read) {
		curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(h, CURLOPT_READFUNCTION, on_read);
		curl_easy_setopt(h, CURLOPT_READDATA, t);
		curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 256L * 1024);
		r |= add_header(headers, "Transfer-Encoding: chunked");
	} else if (call->body || !strcmp(call->method, "POST") || !strcmp(call->method, "PUT")) {
		curl_easy_setopt(h, CURLOPT_POSTFIELDS, call->body ? call->body : "");
		curl_easy_setopt(h, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->n_body);
	}
	curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, call->method);
	curl_easy_setopt(h, CURLOPT_HTTPHEADER, *headers);
	curl_easy_setopt(h, CURLOPT_USERAGENT, c->agent);
	curl_easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(h, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(h, CURLOPT_CONNECTTIMEOUT_MS, (long)c->connect_timeout_ms);
	curl_easy_setopt(h, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
	if (call->silence_s) {
		curl_easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
		curl_easy_setopt(h, CURLOPT_LOW_SPEED_TIME, (long)call->silence_s);
	}
	if (c->local)
		curl_easy_setopt(h, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(h, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(h, CURLOPT_HEADERDATA, t);
	return r;
}

static CURLcode drive(struct sdk_transport *t)
{
	CURLcode code = CURLE_FAILED_INIT;
	if (curl_multi_add_handle(t->multi, t->easy) != CURLM_OK)
		return code;
	for (int running = 1; running;) {
		if (atomic_load(&t->interrupted)) {
			code = CURLE_ABORTED_BY_CALLBACK;
			break;
		}
		if (curl_multi_perform(t->multi, &running) != CURLM_OK)
			break;
		if (running)
			curl_multi_poll(t->multi, NULL, 0, POLL_MS, NULL);
	}
	int left;
	for (CURLMsg *m; (m = curl_multi_info_read(t->multi, &left));)
		if (m->msg == CURLMSG_DONE)
			code = m->data.result;
	curl_multi_remove_handle(t->multi, t->easy);
	return code;
}

static int explain(struct dsec_client *c, struct transfer *t, CURLcode code, struct dsec_error *e)
{
	switch (code) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
		return sdk_fail(e, -ECONNREFUSED, "connection_failed", DSEC_FAULT_PLATFORM, true,
				"no server answers at %s; is it running (`dsec up`)?", c->url);
	case CURLE_OPERATION_TIMEDOUT:
		return sdk_fail(e, -ETIMEDOUT, "deadline_exceeded", DSEC_FAULT_PLATFORM, true,
				"%s %s had no answer in time", t->call->method, c->url);
	case CURLE_ABORTED_BY_CALLBACK:
	case CURLE_WRITE_ERROR:
		if (t->too_large)
			return sdk_bad_reply(e, "it is too large");
		return sdk_fail(e, t->call->callback_err < 0 ? t->call->callback_err : -ECANCELED, "interrupted",
				DSEC_FAULT_CALLER, false, "the call was stopped by this program");
	case CURLE_OUT_OF_MEMORY:
		return sdk_no_memory(e);
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_URL_MALFORMAT:
	case CURLE_UNSUPPORTED_PROTOCOL:
		return sdk_fail(e, -ECONNREFUSED, "connection_failed", DSEC_FAULT_CALLER, false, "%s: %s", c->url,
				curl_easy_strerror(code));
	default:
		return sdk_fail(e, -ECONNRESET, "connection_lost", DSEC_FAULT_PLATFORM, true,
				"the connection to %s broke: %s", c->url, curl_easy_strerror(code));
	}
}

static int conclude(struct dsec_client *c, struct transfer *t, CURLcode code, struct dsec_error *e)
{
	struct sdk_call *call = t->call;
	curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &call->status);
	/* An error status counts even when our upload was cut off by it. */
	if (call->status >= 300) {
		int r = sdk_fail_json(e, call->text, call->n_text, (int)call->status);
		if (e)
			e->retry_after_seconds = t->retry_after;
		return r;
	}
	if (code != CURLE_OK)
		return explain(c, t, code, e);
	return call->status >= 200 ? 0 : sdk_bad_reply(e, "no HTTP status");
}

int sdk_perform(struct dsec_client *c, struct sdk_call *call, struct dsec_error *e)
{
	struct curl_slist *headers = NULL;
	char *url = NULL;
	struct sdk_transport *transport = transport_take(c);
	if (!transport)
		return sdk_no_memory(e);
	struct transfer t = { .call = call, .easy = transport->easy };
	int r = asprintf(&url, "%s%s", c->url, call->path);
	if (r < 0)
		url = NULL;
	if (!url || set_up(c, &t, url, &headers) < 0)
		r = sdk_no_memory(e);
	else
		r = conclude(c, &t, drive(transport), e);
	transport_give(c, transport);
	curl_slist_free_all(headers);
	free(url);
	return r;
}

void sdk_call_done(struct sdk_call *call)
{
	free(call->text);
	call->text = NULL;
	call->n_text = 0;
}

int sdk_path(char ret[SDK_PATH_MAX], struct dsec_error *e, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(ret, SDK_PATH_MAX, fmt, ap);
	va_end(ap);
	if (n < 0 || n >= SDK_PATH_MAX)
		return sdk_fail(e, -ENAMETOOLONG, "name_too_long", DSEC_FAULT_CALLER, false,
				"the names in this request are too long");
	return 0;
}

char *sdk_encode(const char *text)
{
	static const char hex[] = "0123456789ABCDEF";
	char *out = malloc(3 * strlen(text) + 1), *o = out;
	if (!out)
		return NULL;
	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		if ((*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') ||
		    strchr("-._~", *p))
			*o++ = (char)*p;
		else {
			*o++ = '%';
			*o++ = hex[*p >> 4];
			*o++ = hex[*p & 15];
		}
	}
	*o = 0;
	return out;
}

int sdk_json_call(struct dsec_client *c, const char *method, const char *path, json_t *body_take,
		  uint64_t timeout_ms, json_t **ret, struct dsec_error *e)
{
	char *body = body_take ? json_dumps(body_take, JSON_COMPACT) : NULL;
	bool failed = body_take && !body;
	json_decref(body_take);
	if (failed)
		return sdk_no_memory(e);
	struct sdk_call call = { .method = method,
				 .path = path,
				 .body = body,
				 .n_body = body ? strlen(body) : 0,
				 .timeout_ms = timeout_ms ? timeout_ms : c->call_timeout_ms };
	int r = sdk_perform(c, &call, e);
	if (!r && ret) {
		/* U+0000 may be part of a command's words. */
		*ret = json_loadb(call.text ? call.text : "", call.n_text, JSON_ALLOW_NUL, NULL);
		if (!*ret)
			r = sdk_bad_reply(e, "not JSON");
	}
	sdk_call_done(&call);
	free(body);
	return r;
}
