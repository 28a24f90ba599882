/* error.c: filling struct dsec_error, from here and from the server's words. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "sdk/sdk-internal.h"

int sdk_fail(struct dsec_error *e, int ret, const char *code, enum dsec_fault fault, bool retry,
	     const char *fmt, ...)
{
	if (!e)
		return ret;
	*e = (struct dsec_error){ .fault = fault, .retry = retry };
	snprintf(e->code, sizeof(e->code), "%s", code);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->message, sizeof(e->message), fmt, ap);
	va_end(ap);
	return ret;
}

int sdk_no_memory(struct dsec_error *e)
{
	return sdk_fail(e, -ENOMEM, "capacity_exhausted", DSEC_FAULT_CALLER, true, "out of memory in this program");
}

int sdk_bad_reply(struct dsec_error *e, const char *what)
{
	return sdk_fail(e, -EBADMSG, "bad_reply", DSEC_FAULT_PLATFORM, false,
			"the server's answer is not understood: %s; is it a DSec server of this version?", what);
}

/* For callers that look at the number only. */
static int errno_of_status(int status)
{
	switch (status) {
	case 400:
	case 422:
		return -EINVAL;
	case 401:
	case 403:
		return -EACCES;
	case 404:
	case 410:
		return -ENOENT;
	case 409:
		return -EBUSY;
	case 413:
		return -E2BIG;
	case 429:
	case 503:
		return -EAGAIN;
	case 504:
		return -ETIMEDOUT;
	case 507:
		return -ENOSPC;
	default:
		return -EREMOTEIO;
	}
}

int sdk_fail_object(struct dsec_error *e, const json_t *error, int status)
{
	const char *code = sdk_str(error, "code"), *message = sdk_str(error, "message");
	const char *fault = sdk_str(error, "fault");
	enum dsec_fault whose = !strcmp(fault, "program") ? DSEC_FAULT_PROGRAM
				: !strcmp(fault, "caller") ? DSEC_FAULT_CALLER
							   : DSEC_FAULT_PLATFORM;
	if (!*code)
		return sdk_bad_reply(e, "an error without a code");
	int r = sdk_fail(e, errno_of_status(status), code, whose, sdk_bool(error, "retry"), "%s", message);
	if (e) {
		e->http_status = status;
		snprintf(e->request_id, sizeof(e->request_id), "%s", sdk_str(error, "request_id"));
	}
	return r;
}

int sdk_fail_json(struct dsec_error *e, const char *text, size_t n, int status)
{
	json_t *reply = json_loadb(text ? text : "", n, 0, NULL);
	json_t *error = json_object_get(reply, "error");
	int r;
	if (json_is_object(error) && *sdk_str(error, "code"))
		r = sdk_fail_object(e, error, status);
	else {
		r = sdk_fail(e, errno_of_status(status), "bad_reply", DSEC_FAULT_PLATFORM, status >= 500,
			     "the server answered with HTTP status %d and no error of ours; is it a DSec server?", status);
		if (e)
			e->http_status = status;
	}
	json_decref(reply);
	return r;
}
