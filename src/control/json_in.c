/* json_in.c: see json_in.h. */
#include "control/json_in.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/limits.h"

/* jansson recurses up to 2,048 levels: look at the text before it does. Brackets
 * inside strings do not count. */
static bool too_deep(const char *text, size_t n)
{
	int depth = 0;
	bool string = false;
	for (size_t i = 0; i < n; i++) {
		char c = text[i];
		if (string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				string = false;
		} else if (c == '"') {
			string = true;
		} else if (c == '{' || c == '[') {
			if (++depth > LIMIT_JSON_DEPTH_MAX)
				return true;
		} else if (c == '}' || c == ']') {
			depth--;
		}
	}
	return false;
}

int json_parse(const char *text, size_t n, json_t **ret, struct dsec_error *e)
{
	json_error_t je;
	if (n == 0) {
		*ret = json_object();
		return *ret ? 0 : dsec_error_errno(e, -ENOMEM, "request body");
	}
	if (too_deep(text, n))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_JSON, "the body is nested more than %d levels deep",
				      LIMIT_JSON_DEPTH_MAX);
	json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES, &je);
	if (!v && json_error_code(&je) == json_error_null_character)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_JSON,
				      "a string holds a zero byte (\\u0000), which no field takes (line %d, column %d)",
				      je.line, je.column);
	if (!v)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_JSON, "the body is not JSON: %s (line %d, column %d)",
				      je.text, je.line, je.column);
	if (!json_is_object(v)) {
		json_decref(v);
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_JSON, "the body must be a JSON object");
	}
	*ret = v;
	return 0;
}

void json_in_begin(struct json_in *in, const json_t *object, const char *prefix, struct dsec_error *e)
{
	*in = (struct json_in){ .object = object, .prefix = prefix, .error = e };
}

void json_in_fault(struct json_in *in, enum dsec_code code, const char *fmt, ...)
{
	char text[DSEC_ERROR_MESSAGE_MAX];
	va_list ap;
	if (in->fault)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	in->fault = dsec_error_set(in->error, -EINVAL, code, "%s", text);
}

const json_t *json_in_any(struct json_in *in, const char *name)
{
	if (in->n_asked < JSON_IN_FIELDS_MAX)
		in->asked[in->n_asked++] = name;
	return in->fault ? NULL : json_object_get(in->object, name);
}

void json_in_string(struct json_in *in, const char *name, size_t max_bytes, const char **ret)
{
	const json_t *v = json_in_any(in, name);
	if (!v)
		return;
	if (!json_is_string(v))
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s%s must be a string", in->prefix, name);
	else if (json_string_length(v) > max_bytes)
		json_in_fault(in, DSEC_E_NAME_TOO_LONG, "%s%s is %zu bytes long; at most %zu", in->prefix, name,
			      json_string_length(v), max_bytes);
	else
		*ret = json_string_value(v);
}

void json_in_bool(struct json_in *in, const char *name, bool *ret)
{
	const json_t *v = json_in_any(in, name);
	if (!v)
		return;
	if (!json_is_boolean(v))
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s%s must be true or false", in->prefix, name);
	else
		*ret = json_is_true(v);
}

void json_in_uint(struct json_in *in, const char *name, uint64_t min, uint64_t max, uint64_t *ret)
{
	const json_t *v = json_in_any(in, name);
	if (!v)
		return;
	json_int_t n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || (uint64_t)n < min || (uint64_t)n > max)
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s%s must be a whole number from %llu to %llu", in->prefix,
			      name, (unsigned long long)min, (unsigned long long)max);
	else
		*ret = (uint64_t)n;
}

void json_in_milli(struct json_in *in, const char *name, uint64_t min_milli, uint64_t max_milli,
		   uint64_t *ret)
{
	const json_t *v = json_in_any(in, name);
	if (!v)
		return;
	double n = json_is_number(v) ? json_number_value(v) : -1;
	double milli = n > 0 ? fmax(round(n * 1000.0), 1.0) : n; /* 0 often means "none": only 0 becomes 0 */
	/* written so that NaN fails too */
	if (!(milli >= (double)min_milli && milli <= (double)max_milli))
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s%s must be a number from %g to %g", in->prefix, name,
			      (double)min_milli / 1000.0, (double)max_milli / 1000.0);
	else
		*ret = (uint64_t)milli;
}

const json_t *json_in_object(struct json_in *in, const char *name)
{
	const json_t *v = json_in_any(in, name);
	if (v && !json_is_object(v)) {
		json_in_fault(in, DSEC_E_BAD_FIELD, "%s%s must be an object", in->prefix, name);
		return NULL;
	}
	return v;
}

int json_in_end(struct json_in *in)
{
	const char *key;
	json_t *v;
	/* The cast: jansson's iteration macro wants a mutable object. */
	json_object_foreach((json_t *)in->object, key, v) {
		bool known = false;
		for (size_t i = 0; i < in->n_asked && !known; i++)
			known = !strcmp(in->asked[i], key);
		if (!known) {
			/* An unknown field outranks a bad one: it is often its cause. */
			in->fault = dsec_error_set(in->error, -EINVAL, DSEC_E_UNKNOWN_FIELD,
						   "there is no field \"%s%.64s\" here", in->prefix, key);
			break;
		}
	}
	return in->fault;
}
