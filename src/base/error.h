/* error.h: the error object that crosses a boundary (API, wire, CLI, SDK).
 *
 * Inside a component functions return negative errno; where an answer leaves
 * it, the reason becomes a struct dsec_error: a stable code (errcodes.h), whose
 * fault it is, whether a retry may help, and a sentence that says what to do.
 * Plain value type, no allocation, any thread. A NULL struct dsec_error * is
 * accepted everywhere and means "the caller does not want the words".
 */
#pragma once
#include <stdbool.h>
#include <stdarg.h>
#include "base/errcodes.h"

#define DSEC_ERROR_MESSAGE_MAX 384 /* longer sentences are cut, never overrun */

enum dsec_fault { DSEC_FAULT_PROGRAM = 1, DSEC_FAULT_CALLER = 2, DSEC_FAULT_PLATFORM = 3 };

enum dsec_code {
	DSEC_OK = 0,
#define X(name, wire, fault, retry, http) DSEC_E_##name,
	DSEC_ERROR_CODES(X)
#undef X
	DSEC_E_COUNT_
};

struct dsec_error {
	enum dsec_code code;
	char message[DSEC_ERROR_MESSAGE_MAX];
};

/* Fills *e (if not NULL) and returns `ret` (a negative errno)
 * so that "return dsec_error_set(e, -EINVAL, CODE, ...)" reads naturally. */
int dsec_error_set(struct dsec_error *e, int ret, enum dsec_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* "internal"/"disk_full"/... from a negative errno, with strerror's words after
 * the given prefix. For failures that have no better name. Returns ret. */
int dsec_error_errno(struct dsec_error *e, int ret, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

const char *dsec_code_name(enum dsec_code code);        /* "bad_request"; "ok" for 0 */
enum dsec_code dsec_code_from_name(const char *name);   /* INTERNAL if unknown */
enum dsec_fault dsec_code_fault(enum dsec_code code);
const char *dsec_fault_name(enum dsec_fault fault);     /* "program" | "caller" | "platform" */
bool dsec_code_retry(enum dsec_code code);
int dsec_code_http(enum dsec_code code);
