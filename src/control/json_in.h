/* json_in.h: strict reading of a JSON object from outside.
 *
 * One struct json_in reads one object: ask for every field that it may have,
 * then call json_in_end, which refuses fields nobody asked for. The first fault
 * sticks (later calls do nothing) and json_in_end returns it, as a typed error
 * that names the field and its bounds: bad_field, name_too_long, unknown_field.
 * A field that is absent leaves its output alone, so outputs hold the defaults.
 * null is not absence: it is a bad_field. Strings come out borrowed from the
 * object and hold no NUL (the parser refuses it). Any thread, no state.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

#define JSON_IN_FIELDS_MAX 24

struct json_in {
	const json_t *object; /* borrowed */
	const char *prefix;   /* "pty." for a nested object's messages; "" at the top */
	const char *asked[JSON_IN_FIELDS_MAX];
	size_t n_asked;
	int fault; /* negative errno once something was wrong */
	struct dsec_error *error;
};

/* Text to JSON: UTF-8, one value, an object, no duplicate keys, no NUL, at most
 * LIMIT_JSON_DEPTH_MAX deep, else bad_json. Empty text is {}. Caller decrefs. */
int json_parse(const char *text, size_t n, json_t **ret, struct dsec_error *e);

void json_in_begin(struct json_in *in, const json_t *object, const char *prefix, struct dsec_error *e);
/* The raw value or NULL when absent. */
const json_t *json_in_any(struct json_in *in, const char *name);
void json_in_string(struct json_in *in, const char *name, size_t max_bytes, const char **ret);
void json_in_bool(struct json_in *in, const char *name, bool *ret);
void json_in_uint(struct json_in *in, const char *name, uint64_t min, uint64_t max, uint64_t *ret);
/* A number with fractions in thousandths: cpu 0.5 -> 500, seconds 1.5 -> 1500. */
void json_in_milli(struct json_in *in, const char *name, uint64_t min_milli, uint64_t max_milli,
		   uint64_t *ret);
const json_t *json_in_object(struct json_in *in, const char *name);
/* Records a fault of a field that the caller checked by itself. */
void json_in_fault(struct json_in *in, enum dsec_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
int json_in_end(struct json_in *in); /* 0 or the first fault */
