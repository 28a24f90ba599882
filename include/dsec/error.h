/* dsec/error.h: how calls of the C client library fail.
 *
 * Every call returns 0 (or a count) on success and a negative errno on failure;
 * what happened in words, and as a stable code to switch on, is in the struct
 * dsec_error that the caller passes (NULL: not wanted). It is a plain value: no
 * ownership, valid as long as the caller keeps it.
 *
 * The server's codes are listed in api/openapi.yaml (ErrorCode). The library adds:
 *   not_configured     no server is known, or its key cannot be read
 *   connection_failed  the server could not be reached
 *   connection_lost    the connection broke and could not be had again in time
 *   bad_reply          the answer is not what the API promises
 *   interrupted        dsec_client_interrupt, or a callback asked to stop
 *   deadline_exceeded  the call's own time limit was over
 */
#ifndef DSEC_ERROR_H
#define DSEC_ERROR_H
#include <stdbool.h>

#if defined(__GNUC__)
#define DSEC_API __attribute__((visibility("default")))
#else
#define DSEC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Whose fault it is: what ran in the sandbox, the caller of the API, or us. */
enum dsec_fault { DSEC_FAULT_PROGRAM = 1, DSEC_FAULT_CALLER = 2, DSEC_FAULT_PLATFORM = 3 };

struct dsec_error {
	char code[48];      /* "sandbox_not_found" */
	char message[512];  /* a sentence that says what to do; cut when longer */
	enum dsec_fault fault;
	bool retry;         /* the same call may succeed later */
	int http_status;    /* 0: the failure was on this side */
	double retry_after_seconds; /* the server's wish; 0: none */
	char request_id[65]; /* for the server's logs; "" when unknown */
};

#ifdef __cplusplus
}
#endif
#endif
