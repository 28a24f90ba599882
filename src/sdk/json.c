/* json.c: small helpers over jansson: fields with defaults, bytes as base64. */
#include <stdlib.h>
#include <string.h>
#include "sdk/sdk-internal.h"

const char *sdk_str(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	return s ? s : "";
}

double sdk_num(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

uint64_t sdk_u64(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	if (json_is_integer(v))
		return json_integer_value(v) < 0 ? 0 : (uint64_t)json_integer_value(v);
	double d = json_number_value(v);
	return d > 0 && d < 1.8e19 ? (uint64_t)d : 0;
}

bool sdk_bool(const json_t *o, const char *key)
{
	return json_is_true(json_object_get(o, key));
}

json_t *sdk_pairs_json(const struct dsec_pair *pairs, size_t n)
{
	json_t *o = json_object();
	for (size_t i = 0; o && i < n; i++)
		if (json_object_set_new(o, pairs[i].name, json_string(pairs[i].value)) < 0) {
			json_decref(o); /* not UTF-8, or no memory */
			return NULL;
		}
	return o;
}

json_t *sdk_seconds_json(double seconds)
{
	json_int_t whole = seconds < 1e15 ? (json_int_t)seconds : 0;
	return (double)whole == seconds ? json_integer(whole) : json_real(seconds);
}

json_t *sdk_bytes_json(const char *text)
{
	json_t *s = json_string(text);
	if (s)
		return s;
	char *b64 = sdk_b64(text, strlen(text));
	s = b64 ? json_pack("{s:s}", "b64", b64) : NULL;
	free(b64);
	return s;
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *sdk_b64(const void *data, size_t n)
{
	const uint8_t *p = data;
	char *out = malloc((n + 2) / 3 * 4 + 1), *o = out;
	if (!out)
		return NULL;
	for (; n >= 3; n -= 3, p += 3) {
		*o++ = digits[p[0] >> 2];
		*o++ = digits[(p[0] & 3) << 4 | p[1] >> 4];
		*o++ = digits[(p[1] & 15) << 2 | p[2] >> 6];
		*o++ = digits[p[2] & 63];
	}
	if (n) {
		uint8_t second = n > 1 ? p[1] : 0;
		*o++ = digits[p[0] >> 2];
		*o++ = digits[(p[0] & 3) << 4 | second >> 4];
		*o++ = n > 1 ? digits[(second & 15) << 2] : '=';
		*o++ = '=';
	}
	*o = 0;
	return out;
}

char *sdk_unb64(const char *text)
{
	size_t n = strlen(text), k = 0;
	uint32_t bits = 0;
	unsigned have = 0;
	char *out = malloc(n / 4 * 3 + 3);
	if (!out)
		return NULL;
	for (; *text && *text != '='; text++) {
		const char *at = strchr(digits, *text);
		if (!at) {
			free(out);
			return NULL;
		}
		bits = bits << 6 | (uint32_t)(at - digits);
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[k++] = (char)(bits >> have);
		}
	}
	out[k] = 0;
	return out;
}

struct sdk_holder *sdk_holder_new(json_t *json)
{
	struct sdk_holder *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->text = json_dumps(json, JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_ENCODE_ANY | JSON_REAL_PRECISION(16));
	if (!h->text) {
		free(h);
		return NULL;
	}
	h->json = json_incref(json);
	return h;
}

void sdk_holder_free(struct sdk_holder *h)
{
	if (!h)
		return;
	json_decref(h->json);
	free(h->text);
	free(h->extra[0]);
	free(h->extra[1]);
	free(h);
}
