/* client.c: which server, which key; making and releasing a client. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sdk/sdk-internal.h"

#define STATE_DIR_DEFAULT "/var/lib/dsec"
#define CONNECT_TIMEOUT_MS 10000
#define CALL_TIMEOUT_MS 120000
#define RECONNECT_MS 30000
#define LINE_MAX_BYTES 1024

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static void curl_start(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

const char *dsec_version(void) { return DSEC_VERSION; }

/* The first line of DIR/NAME. */
static int read_line(const char *dir, const char *name, char **ret, struct dsec_error *e)
{
	char path[4096], text[LINE_MAX_BYTES];
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
		return sdk_fail(e, -ENAMETOOLONG, "not_configured", DSEC_FAULT_CALLER, false,
				"the state directory's path is too long");
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int err = errno;
	if (fd >= 0)
		close(fd);
	if (n < 0 && err == EACCES)
		return sdk_fail(e, -EACCES, "not_configured", DSEC_FAULT_CALLER, false,
				"%s cannot be read by this user; run as root, or set DSEC_URL and DSEC_API_KEY", path);
	if (n < 0)
		return sdk_fail(e, -ENOENT, "not_configured", DSEC_FAULT_CALLER, false,
				"no server runs with the state directory %s: start one with `dsec up`, or set DSEC_URL and DSEC_API_KEY",
				dir);
	text[n] = 0;
	text[strcspn(text, "\r\n")] = 0;
	*ret = strdup(text);
	return *ret ? 0 : sdk_no_memory(e);
}

static const char *env_or(const char *given, const char *name)
{
	const char *v = given ? given : getenv(name);
	return v && *v ? v : NULL;
}

static int find_server(struct dsec_client *c, const struct dsec_client_options *o, struct dsec_error *e)
{
	const char *url = env_or(o->url, "DSEC_URL"), *key = env_or(o->api_key, "DSEC_API_KEY");
	/* A state directory that was named beats the environment. */
	if (!o->url && o->state_dir)
		url = NULL;
	if (!o->api_key && !o->url && o->state_dir)
		key = NULL;
	const char *dir = env_or(o->state_dir, "DSEC_STATE_DIR");
	if (!dir)
		dir = STATE_DIR_DEFAULT;
	int r = 0;
	if (url) {
		c->url = strdup(url);
		c->key = strdup(key ? key : "");
	} else {
		r = read_line(dir, "run/url", &c->url, e);
		if (!r && key)
			c->key = strdup(key);
		else if (!r)
			r = read_line(dir, "api-key", &c->key, e);
	}
	if (!r && (!c->url || !c->key))
		r = sdk_no_memory(e);
	return r;
}

/* "http://HOST..." with HOST on this machine: a proxy in the environment would not
 * find it. */
static bool is_local(const char *url)
{
	static const char *const hosts[] = { "127.0.0.1", "localhost", "[::1]" };
	const char *host = strstr(url, "://");
	for (size_t i = 0; host && i < sizeof(hosts) / sizeof(*hosts); i++) {
		size_t n = strlen(hosts[i]);
		if (!strncmp(host + 3, hosts[i], n) && (!host[3 + n] || host[3 + n] == ':' || host[3 + n] == '/'))
			return true;
	}
	return false;
}

static int check_url(struct dsec_client *c, struct dsec_error *e)
{
	size_t n = strlen(c->url);
	while (n && c->url[n - 1] == '/')
		c->url[--n] = 0;
	if (strncmp(c->url, "http://", 7) && strncmp(c->url, "https://", 8))
		return sdk_fail(e, -EINVAL, "not_configured", DSEC_FAULT_CALLER, false,
				"the server's address \"%.200s\" must begin with http:// or https://", c->url);
	for (const char *k = c->key; *k; k++)
		if (*k <= ' ' || *k > '~')
			return sdk_fail(e, -EINVAL, "not_configured", DSEC_FAULT_CALLER, false,
					"the API key holds a character that no key has");
	c->local = is_local(c->url);
	return 0;
}

int dsec_client_new(const struct dsec_client_options *options, struct dsec_client **ret, struct dsec_error *e)
{
	struct dsec_client_options o = options ? *options : (struct dsec_client_options){ 0 };
	pthread_once(&curl_once, curl_start);
	struct dsec_client *c = calloc(1, sizeof(*c));
	if (!c)
		return sdk_no_memory(e);
	pthread_mutex_init(&c->lock, NULL);
	c->connect_timeout_ms = o.connect_timeout_ms ? o.connect_timeout_ms : CONNECT_TIMEOUT_MS;
	c->call_timeout_ms = o.call_timeout_ms ? o.call_timeout_ms : CALL_TIMEOUT_MS;
	c->reconnect_ms = o.reconnect_ms ? o.reconnect_ms : RECONNECT_MS;
	c->agent = strdup(o.user_agent ? o.user_agent : "libdsec/" DSEC_VERSION);
	int r = c->agent ? find_server(c, &o, e) : sdk_no_memory(e);
	if (!r)
		r = check_url(c, e);
	if (r < 0) {
		dsec_client_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

void dsec_client_free(struct dsec_client *c)
{
	if (!c)
		return;
	for (unsigned i = 0; i < c->n_idle; i++) {
		curl_easy_cleanup(c->idle[i]->easy);
		curl_multi_cleanup(c->idle[i]->multi);
		free(c->idle[i]);
	}
	pthread_mutex_destroy(&c->lock);
	free(c->url);
	free(c->key);
	free(c->agent);
	free(c);
}

const char *dsec_client_url(const struct dsec_client *c) { return c->url; }

int dsec_client_call(struct dsec_client *c, const char *method, const char *path, const char *json_body,
		     char **ret_json, struct dsec_error *e)
{
	struct sdk_call call = { .method = method,
				 .path = path,
				 .body = json_body,
				 .n_body = json_body ? strlen(json_body) : 0,
				 .timeout_ms = c->call_timeout_ms };
	int r = sdk_perform(c, &call, e);
	if (!r) {
		*ret_json = call.text ? call.text : strdup("");
		call.text = NULL;
		if (!*ret_json)
			r = sdk_no_memory(e);
	}
	sdk_call_done(&call);
	return r;
}
