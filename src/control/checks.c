/* checks.c: see checks.h. */
#include "control/checks.h"
#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/id.h"
#include "control/limits.h"

/* Pointers and messages in one block, so that the caller frees one thing. */
static Dsec__Edge__KeyValue **key_values_new(size_t n)
{
	Dsec__Edge__KeyValue **kv = calloc(1, n * (sizeof(*kv) + sizeof(**kv)) + 1);
	if (!kv)
		return NULL;
	Dsec__Edge__KeyValue *at = (Dsec__Edge__KeyValue *)(kv + n);
	for (size_t i = 0; i < n; i++) {
		dsec__edge__key_value__init(&at[i]);
		kv[i] = &at[i];
	}
	return kv;
}

typedef void (*pair_check)(struct json_in *in, const char *field, const char *key, const char *value, size_t n);

static int check_pairs(struct json_in *in, const char *field, size_t max, pair_check check,
		       Dsec__Edge__KeyValue ***ret, size_t *ret_n)
{
	const json_t *o = json_in_object(in, field);
	const char *key;
	json_t *v;
	size_t n = json_object_size(o), i = 0;
	if (!o)
		return in->fault;
	if (n > max)
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s has %zu members; at most %zu", field, n, max);
	if (in->fault)
		return in->fault;
	Dsec__Edge__KeyValue **kv = key_values_new(n);
	if (!kv) {
		json_in_fault(in, DSEC_E_CAPACITY, "out of memory");
		return in->fault;
	}
	json_object_foreach((json_t *)o, key, v) {
		if (!json_is_string(v))
			json_in_fault(in, DSEC_E_BAD_FIELD, "%s: the value of \"%.64s\" must be a string", field, key);
		else
			check(in, field, key, json_string_value(v), json_string_length(v));
		if (in->fault)
			break;
		kv[i]->key = (char *)key;
		kv[i++]->value = (char *)json_string_value(v);
	}
	if (in->fault) {
		free(kv);
		return in->fault;
	}
	*ret = kv;
	*ret_n = n;
	return 0;
}

static void check_env_pair(struct json_in *in, const char *field, const char *key, const char *value, size_t n)
{
	if (!*key || strchr(key, '='))
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s: a name must not be empty or hold \"=\"", field);
	else if (strlen(key) > LIMIT_ENV_NAME_BYTES_MAX)
		json_in_fault(in, DSEC_E_NAME_TOO_LONG, "%s: a name is %zu bytes long; at most %d", field,
			      strlen(key), LIMIT_ENV_NAME_BYTES_MAX);
}

int check_env(struct json_in *in, const char *field, Dsec__Edge__KeyValue ***ret, size_t *ret_n)
{
	size_t total = 0;
	Dsec__Edge__KeyValue **kv = NULL;
	size_t n = 0;
	int r = check_pairs(in, field, LIMIT_ENV_VARS_MAX, check_env_pair, &kv, &n);
	if (r)
		return r;
	for (size_t i = 0; i < n; i++)
		total += strlen(kv[i]->key) + strlen(kv[i]->value) + 2; /* "=" and NUL */
	if (total > LIMIT_ENV_TOTAL_BYTES_MAX) {
		free(kv);
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s is %zu bytes in all; at most %d", field, total,
			      LIMIT_ENV_TOTAL_BYTES_MAX);
		return in->fault;
	}
	*ret = kv;
	*ret_n = n;
	return 0;
}

static void check_label_pair(struct json_in *in, const char *field, const char *key, const char *value, size_t n)
{
	if (strlen(key) > NAME_MAX_LEN)
		json_in_fault(in, DSEC_E_NAME_TOO_LONG, "%s: a key is %zu bytes long; at most %d", field,
			      strlen(key), NAME_MAX_LEN);
	else if (!id_name_valid(key))
		json_in_fault(in, DSEC_E_BAD_FIELD,
			      "%s: the key \"%.64s\" must be small letters, digits, \".\", \"_\" or \"-\"", field, key);
	else if (n > LIMIT_LABEL_VALUE_BYTES_MAX)
		json_in_fault(in, DSEC_E_NAME_TOO_LONG, "%s: a value is %zu bytes long; at most %d", field, n,
			      LIMIT_LABEL_VALUE_BYTES_MAX);
}

int check_labels(struct json_in *in, const char *field, Dsec__Edge__KeyValue ***ret, size_t *ret_n)
{
	return check_pairs(in, field, LIMIT_LABELS_MAX, check_label_pair, ret, ret_n);
}

static uint32_t signal_number(const char *name)
{
	if (!strncasecmp(name, "SIG", 3))
		name += 3;
	for (int i = 1; i < 32; i++) {
		const char *abbrev = sigabbrev_np(i);
		if (abbrev && !strcasecmp(abbrev, name))
			return (uint32_t)i;
	}
	return 0;
}

void check_signal(struct json_in *in, const char *field, uint32_t *ret)
{
	const json_t *v = json_in_any(in, field);
	uint32_t n = 0;
	if (in->fault)
		return;
	if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= LIMIT_SIGNAL_MAX)
		n = (uint32_t)json_integer_value(v);
	else if (json_is_string(v))
		n = signal_number(json_string_value(v));
	if (!n)
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s must be a signal's name (\"TERM\") or number from 1 to %d",
			      field, LIMIT_SIGNAL_MAX);
	else
		*ret = n;
}

void check_user(struct json_in *in, const char *field, const char **ret)
{
	const char *user = NULL;
	json_in_string(in, field, LIMIT_USER_LENGTH_MAX, &user);
	if (!user || in->fault)
		return;
	size_t colons = 0;
	for (const char *p = user; *p; p++) {
		colons += *p == ':';
		if ((unsigned char)*p <= ' ' || *p == '/' || *p == 0x7f)
			colons = 2;
	}
	if (colons > 1 || *user == ':' || (*user && user[strlen(user) - 1] == ':'))
		json_in_fault(in, DSEC_E_BAD_USER, "%s must be \"name\", \"name:group\", \"uid\" or \"uid:gid\"", field);
	else
		*ret = user;
}

bool mode_parse(const char *text, uint32_t *ret)
{
	uint32_t mode = 0;
	size_t n = strlen(text);
	if (n < 1 || n > 5)
		return false;
	for (; *text; text++) {
		if (*text < '0' || *text > '7')
			return false;
		mode = mode * 8 + (uint32_t)(*text - '0');
	}
	*ret = mode;
	return mode <= 07777;
}

bool label_split(char *text, char **ret_key, char **ret_value)
{
	char *eq = strchr(text, '=');
	if (!eq)
		return false;
	*eq = 0;
	*ret_key = text;
	*ret_value = eq + 1;
	return id_name_valid(text) && strlen(eq + 1) <= LIMIT_LABEL_VALUE_BYTES_MAX;
}
