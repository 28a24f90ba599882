/* common.c: options that every verb takes, and how errors are told. See cli.h. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "cli/cli.h"
#include "cli/json_out.h"

int common_option(struct common *c, int option)
{
	switch (option) {
	case OPT_JSON:
		c->json = true;
		return -1;
	case OPT_STATE_DIR:
		c->state_dir = optarg;
		return -1;
	case 'h':
	case OPT_HELP:
		fputs(c->verb->usage, stdout);
		return 0;
	default: /* getopt has said what is wrong */
		fprintf(stderr, "`dsec %s --help` tells how it is used\n", c->verb->name);
		return EXIT_USAGE;
	}
}

int usage_error(const struct verb *v, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fprintf(stderr, "dsec %s: ", v->name);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n`dsec %s --help` tells how it is used\n", v->name);
	return EXIT_USAGE;
}

static const char *fault_name(enum dsec_fault fault)
{
	return fault == DSEC_FAULT_PROGRAM ? "program" : fault == DSEC_FAULT_CALLER ? "caller" : "platform";
}

/* What the server cannot know: how this program finds or shows the thing. */
static const char *hint_of(const char *code)
{
	static const struct {
		const char *code, *hint;
	} hints[] = {
		{ "environment_not_found", "`dsec layer ls` lists what there is" },
		{ "sandbox_not_found", "`dsec ps -a` lists what there is" },
		{ "unauthenticated", "set DSEC_API_KEY to a key of the server that DSEC_URL names; `dsec up` leaves its own in "
				     "STATE_DIR/api-key" },
	};
	for (size_t i = 0; i < ARRAY_SIZE(hints); i++)
		if (!strcmp(hints[i].code, code))
			return hints[i].hint;
	return NULL;
}

int cli_fail(const struct common *c, const struct dsec_error *e, int status)
{
	fflush(stdout);
	if (c && c->json) {
		fputs("{\"error\":{\"code\":", stderr);
		json_string_out(stderr, e->code);
		fputs(",\"message\":", stderr);
		json_string_out(stderr, e->message);
		fprintf(stderr, ",\"fault\":\"%s\",\"retry\":%s", fault_name(e->fault), e->retry ? "true" : "false");
		if (*e->request_id) {
			fputs(",\"request_id\":", stderr);
			json_string_out(stderr, e->request_id);
		}
		fputs("}}\n", stderr);
	} else {
		fprintf(stderr, "dsec: %s: %s\n", e->code, e->message);
		if (hint_of(e->code))
			fprintf(stderr, "%s\n", hint_of(e->code));
	}
	return status;
}

int cli_fail_with(const struct common *c, int status, const char *code, const char *fmt, ...)
{
	struct dsec_error e = { .fault = DSEC_FAULT_CALLER };
	va_list ap;
	va_start(ap, fmt);
	snprintf(e.code, sizeof(e.code), "%s", code);
	vsnprintf(e.message, sizeof(e.message), fmt, ap);
	va_end(ap);
	return cli_fail(c, &e, status);
}

struct dsec_client *open_client(const struct common *c)
{
	struct dsec_client *client = NULL;
	struct dsec_error e;
	struct dsec_client_options o = { .state_dir = c->state_dir, .user_agent = "dsec/" DSEC_VERSION };
	if (dsec_client_new(&o, &client, &e) < 0) {
		cli_fail(c, &e, EXIT_FAILED);
		return NULL;
	}
	return client;
}

bool parse_number(const char *text, double min, double max, double *ret)
{
	char *end;
	if (!*text || !strchr("0123456789.", *text)) /* no signs, blanks, words or hex */
		return false;
	if (strspn(text, "0123456789.") != strlen(text))
		return false;
	errno = 0;
	double d = strtod(text, &end);
	if (errno || *end || d < min || d > max)
		return false;
	*ret = d;
	return true;
}

bool parse_count(const char *text, uint64_t max, uint64_t *ret)
{
	size_t n = strlen(text);
	if (!n || n > 19 || strspn(text, "0123456789") != n)
		return false;
	uint64_t v = strtoull(text, NULL, 10);
	if (v > max)
		return false;
	*ret = v;
	return true;
}

/* A number with one of the unit letters behind it; the factor of "no letter" is first. */
static bool parse_unit(const char *text, const char *letters, const double *factors, double *ret)
{
	char number[32];
	size_t n = strlen(text);
	double factor = factors[0], value;
	if (!n || n >= sizeof(number))
		return false;
	strcpy(number, text);
	const char *at = strchr(letters, number[n - 1]);
	if (at) {
		factor = factors[1 + (at - letters)];
		number[n - 1] = 0;
	}
	if (!parse_number(number, 0, 1e12, &value))
		return false;
	*ret = value * factor;
	return true;
}

bool parse_duration(const char *text, double *ret_seconds)
{
	static const double factors[] = { 1, 1, 60, 3600, 86400 };
	return parse_unit(text, "smhd", factors, ret_seconds);
}

bool parse_mebibytes(const char *text, uint64_t *ret_mb)
{
	static const double factors[] = { 1, 1, 1, 1024, 1024, 1048576, 1048576 };
	double mb;
	if (!parse_unit(text, "mMgGtT", factors, &mb) || mb < 1)
		return false;
	*ret_mb = (uint64_t)mb;
	return true;
}

bool parse_pair(char *text, bool bare_env, struct dsec_pair *ret)
{
	char *eq = strchr(text, '=');
	if (!*text || eq == text)
		return false;
	if (!eq) {
		const char *value = bare_env ? getenv(text) : NULL;
		if (!value)
			return false;
		*ret = (struct dsec_pair){ text, value };
		return true;
	}
	*eq = 0;
	*ret = (struct dsec_pair){ text, eq + 1 };
	return true;
}
