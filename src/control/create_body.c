/* create_body.c: see create_body.h. */
#include "control/create_body.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/checks.h"
#include "control/idempotency.h"
#include "control/limits.h"

/* ---- environment: name, name@version, name:tag ---- */


static void take_layer(const struct store_layer *l, void *user)
{
	struct create_body *b = user;
	snprintf(b->digest, sizeof(b->digest), "%s", l->digest);
	snprintf(b->environment, sizeof(b->environment), "%s@%s", l->name, l->version);
	b->config = json_loads(l->config, 0, NULL);
}

static int resolve(struct create_body *b, struct store *store, const char *asked, struct dsec_error *e)
{
	char text[2 * NAME_MAX_LEN + 2];
	snprintf(text, sizeof(text), "%s", asked);
	char *version = strpbrk(text, "@:");
	if (version)
		*version++ = 0;
	if (!id_name_valid(text) || (version && !id_name_valid(version)))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD,
				      "environment must be \"name\", \"name@version\" or \"name:tag\" in small letters");
	int r = store_layer_get(store, text, version, take_layer, b);
	if (r == -ENOENT)
		return dsec_error_set(e, r, DSEC_E_ENV_NOT_FOUND,
				      "there is no environment \"%s\"; see GET /v1/layers", asked);
	return r ? dsec_error_errno(e, r, "the store did not answer") : 0;
}

/* ---- single fields ---- */

static void check_hostname(struct json_in *in, const char **ret)
{
	const char *name = NULL;
	json_in_string(in, "hostname", LIMIT_HOSTNAME_LENGTH_MAX, &name);
	if (!name || in->fault)
		return;
	bool good = *name != '-' && *name != '.';
	for (const char *p = name; *p && good; p++)
		good = isalnum((unsigned char)*p) || *p == '-' || (*p == '.' && p[1] && p[1] != '.');
	if (!good)
		json_in_fault(in, DSEC_E_BAD_FIELD, "hostname must be letters, digits, \"-\" and single \".\"");
	else
		*ret = name;
}

static void check_backend(struct json_in *in)
{
	const char *backend = DEFAULT_BACKEND;
	json_in_string(in, "backend", NAME_MAX_LEN, &backend);
	if (!in->fault && strcmp(backend, DEFAULT_BACKEND))
		json_in_fault(in, DSEC_E_UNSUPPORTED, "the backend \"%.64s\" is not available here; use \"%s\"",
			      backend, DEFAULT_BACKEND);
}

/* Nothing can be allowed yet: any rule that is not a plain "no" is refused. */
static void check_network(struct json_in *in)
{
	const json_t *rules = json_in_object(in, "network_rules");
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)rules, key, v) {
		bool no = json_is_false(v) || (json_is_array(v) && !json_array_size(v)) ||
			  (json_is_object(v) && !json_object_size(v));
		if (!no) {
			json_in_fault(in, DSEC_E_UNSUPPORTED,
				      "network: sandboxes have loopback only, \"%.64s\" cannot be allowed", key);
			return;
		}
	}
}

static void check_cwd(struct json_in *in, const char **ret)
{
	json_in_string(in, "cwd", LIMIT_PATH_BYTES_MAX, ret);
	if (!in->fault && **ret && **ret != '/')
		json_in_fault(in, DSEC_E_BAD_CWD, "cwd must be an absolute path");
}

/* ---- what the layer brings along ---- */

static void layer_default(const json_t *config, const char *field, char *to, size_t size)
{
	const char *v = json_string_value(json_object_get(config, field));
	if (v && *v && !*to)
		snprintf(to, size, "%s", v);
}

static int merge_env(struct create_body *b, const json_t *from_body, struct dsec_error *e)
{
	struct json_in in;
	json_t *merged = json_object();
	const char *key;
	json_t *v;
	json_object_foreach(json_object_get(b->config, "env"), key, v)
		if (json_is_string(v))
			json_object_set(merged, key, v);
	if (from_body)
		json_object_update(merged, (json_t *)from_body);
	b->env = json_pack("{s:o}", "env", merged);
	if (!b->env)
		return dsec_error_errno(e, -ENOMEM, "environment");
	json_in_begin(&in, b->env, "", e);
	return check_env(&in, "env", &b->message.env, &b->message.n_env);
}

/* ---- the whole ---- */

static void read_sizes(struct json_in *in, Dsec__Edge__Create *m)
{
	uint64_t cpu = DEFAULT_CPU_MILLIS, memory = DEFAULT_MEMORY_MB, disk = DEFAULT_DISK_MB;
	uint64_t pids = DEFAULT_PIDS, ttl = DEFAULT_TTL_SECONDS * 1000u, idle = 0;
	json_in_milli(in, "cpu", LIMIT_CPU_MILLIS_MIN, LIMIT_CPU_MILLIS_MAX, &cpu);
	json_in_uint(in, "memory_mb", LIMIT_MEMORY_MB_MIN, LIMIT_MEMORY_MB_MAX, &memory);
	json_in_uint(in, "disk_mb", LIMIT_DISK_MB_MIN, LIMIT_DISK_MB_MAX, &disk);
	json_in_uint(in, "pids", LIMIT_PIDS_MIN, LIMIT_PIDS_MAX, &pids);
	json_in_milli(in, "ttl_seconds", LIMIT_TTL_SECONDS_MIN * 1000u, LIMIT_TTL_SECONDS_MAX * 1000u, &ttl);
	json_in_milli(in, "idle_ttl_seconds", 0, LIMIT_IDLE_TTL_SECONDS_MAX * 1000u, &idle);
	m->cpu_millis = (uint32_t)cpu;
	m->memory_bytes = memory << 20;
	m->disk_bytes = disk << 20;
	m->pids = (uint32_t)pids;
	m->ttl_ms = ttl;
	m->idle_ttl_ms = idle;
}

int create_body_read(struct create_body *b, struct control *ctl, const json_t *body, struct dsec_error *e)
{
	struct json_in in;
	const char *environment = NULL, *hostname = "", *cwd = "", *user = "";
	bool no_new_privs = false;
	memset(b, 0, sizeof(*b));
	dsec__edge__create__init(&b->message);
	json_in_begin(&in, body, "", e);
	json_in_string(&in, "environment", 2 * NAME_MAX_LEN + 1, &environment);
	check_backend(&in);
	read_sizes(&in, &b->message);
	check_cwd(&in, &cwd);
	check_user(&in, "user", &user);
	check_hostname(&in, &hostname);
	json_in_bool(&in, "no_new_privileges", &no_new_privs);
	check_network(&in);
	json_in_string(&in, "idempotency_key", LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX, &b->idempotency_key);
	const json_t *env = json_in_object(&in, "env");
	check_labels(&in, "labels", &b->message.labels, &b->message.n_labels);
	if (!environment)
		json_in_fault(&in, DSEC_E_BAD_FIELD, "environment is missing: name the layer to start from");
	int r = json_in_end(&in);
	if (!r)
		r = resolve(b, ctl->store, environment, e);
	if (!r)
		r = merge_env(b, env, e);
	if (r)
		return r;
	snprintf(b->cwd, sizeof(b->cwd), "%s", cwd);
	snprintf(b->user, sizeof(b->user), "%s", user);
	layer_default(b->config, "cwd", b->cwd, sizeof(b->cwd));
	layer_default(b->config, "user", b->user, sizeof(b->user));
	if (!*b->user)
		snprintf(b->user, sizeof(b->user), "%s", DEFAULT_USER);
	b->layers[0] = b->digest;
	b->message.layers = b->layers;
	b->message.n_layers = 1;
	b->message.backend = (char *)DEFAULT_BACKEND;
	b->message.environment = b->environment;
	b->message.cwd = b->cwd;
	b->message.user = b->user;
	b->message.hostname = (char *)hostname;
	b->message.no_new_privs = no_new_privs;
	return 0;
}

int create_body_key(struct create_body *b, const json_t *body, const char *header, const char **ret_key,
		    struct dsec_error *e)
{
	const char *key;
	int r = idempotency_choose(b->idempotency_key, header, &key, e);
	if (r)
		return r;
	*ret_key = key ? key : "";
	if (!key)
		return 0;
	r = idempotency_hash(body, b->hash);
	if (r)
		return dsec_error_errno(e, r, "idempotency key");
	b->message.body_hash = (ProtobufCBinaryData){ sizeof(b->hash), b->hash };
	return 0;
}

void create_body_done(struct create_body *b)
{
	free(b->message.labels);
	free(b->message.env);
	b->message.labels = b->message.env = NULL;
	json_decref(b->config);
	json_decref(b->env);
	b->config = b->env = NULL;
}
