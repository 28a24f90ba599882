/* error.c: see error.h. Tables are generated from errcodes.h by X macros. */
#include "base/error.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *wire;
	enum dsec_fault fault;
	bool retry;
	int http;
} codes[DSEC_E_COUNT_] = {
	[DSEC_OK] = { "ok", 0, false, 200 },
#define X(name, wire, fault, retry, http) \
	[DSEC_E_##name] = { wire, DSEC_FAULT_##fault, retry, http },
	DSEC_ERROR_CODES(X)
#undef X
};

int dsec_error_set(struct dsec_error *e, int ret, enum dsec_code code, const char *fmt, ...)
{
	if (!e)
		return ret;
	va_list ap;
	e->code = code;
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	return ret;
}

static enum dsec_code from_errno(int err)
{
	switch (err) {
	case ENOSPC:
	case EDQUOT:
		return DSEC_E_DISK_FULL;
	case ETIMEDOUT:
		return DSEC_E_DEADLINE;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
		return DSEC_E_CAPACITY;
	default:
		return DSEC_E_INTERNAL;
	}
}

int dsec_error_errno(struct dsec_error *e, int ret, const char *fmt, ...)
{
	if (!e)
		return ret;
	va_list ap;
	e->code = from_errno(-ret);
	va_start(ap, fmt);
	int n = vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(e->message))
		snprintf(e->message + n, sizeof(e->message) - (size_t)n, ": %s", strerror(-ret));
	return ret;
}

const char *dsec_code_name(enum dsec_code code)
{
	return code < DSEC_E_COUNT_ ? codes[code].wire : "internal";
}

enum dsec_code dsec_code_from_name(const char *name)
{
	for (int i = 0; i < DSEC_E_COUNT_; i++)
		if (!strcmp(codes[i].wire, name))
			return i;
	return DSEC_E_INTERNAL;
}

enum dsec_fault dsec_code_fault(enum dsec_code code)
{
	return code < DSEC_E_COUNT_ ? codes[code].fault : DSEC_FAULT_PLATFORM;
}

const char *dsec_fault_name(enum dsec_fault fault)
{
	switch (fault) {
	case DSEC_FAULT_PROGRAM:
		return "program";
	case DSEC_FAULT_CALLER:
		return "caller";
	default:
		return "platform";
	}
}

bool dsec_code_retry(enum dsec_code code)
{
	return code < DSEC_E_COUNT_ && codes[code].retry;
}

int dsec_code_http(enum dsec_code code)
{
	return code < DSEC_E_COUNT_ ? codes[code].http : 500;
}
