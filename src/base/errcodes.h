/* errcodes.h: the one table of stable error codes.
 *
 * Each row: X(NAME, "wire_code", fault, retry, http_status). The wire code is
 * part of the API and never changes its meaning; clients switch on it. "fault"
 * says whose fault it is: the PROGRAM run in the sandbox, the CALLER of the
 * API, or the PLATFORM. "retry" says whether the same call may succeed later
 * without a change by the caller. api/openapi.yaml and the SDKs list the same
 * codes; tests hold them together.
 */
#pragma once

#define DSEC_ERROR_CODES(X)                                              \
	/* caller: the request itself */                                 \
	X(BAD_REQUEST, "bad_request", CALLER, false, 400)                \
	X(BAD_JSON, "bad_json", CALLER, false, 400)                      \
	X(UNKNOWN_FIELD, "unknown_field", CALLER, false, 400)            \
	X(BAD_FIELD, "bad_field", CALLER, false, 400)                    \
	X(NAME_TOO_LONG, "name_too_long", CALLER, false, 400)            \
	X(BODY_TOO_LARGE, "body_too_large", CALLER, false, 413)          \
	X(HEADERS_TOO_LARGE, "headers_too_large", CALLER, false, 431)    \
	X(UNAUTHENTICATED, "unauthenticated", CALLER, false, 401)        \
	X(FORBIDDEN, "forbidden", CALLER, false, 403)                    \
	X(NOT_FOUND, "not_found", CALLER, false, 404)                    \
	X(METHOD_NOT_ALLOWED, "method_not_allowed", CALLER, false, 405)  \
	X(SANDBOX_NOT_FOUND, "sandbox_not_found", CALLER, false, 404)    \
	X(EXEC_NOT_FOUND, "exec_not_found", CALLER, false, 404)          \
	X(ENV_NOT_FOUND, "environment_not_found", CALLER, false, 404)    \
	X(LAYER_NOT_FOUND, "layer_not_found", CALLER, false, 404)        \
	X(LAYER_IN_USE, "layer_in_use", CALLER, false, 409)              \
	X(CONFLICT, "conflict", CALLER, false, 409)                      \
	X(SANDBOX_STOPPED, "sandbox_stopped", CALLER, false, 409)        \
	X(WRONG_STATE, "wrong_state", CALLER, true, 409)                 \
	X(UNSUPPORTED, "unsupported", CALLER, false, 422)                \
	/* caller: what was asked to run or touch inside the sandbox */  \
	X(BAD_ARGV, "bad_argv", CALLER, false, 400)                      \
	X(BAD_USER, "bad_user", CALLER, false, 422)                      \
	X(BAD_CWD, "bad_cwd", CALLER, false, 422)                        \
	X(EXEC_NO_ENTRY, "command_not_found", CALLER, false, 422)        \
	X(EXEC_FORMAT, "exec_format", CALLER, false, 422)                \
	X(EXEC_PERMISSION, "permission_denied", CALLER, false, 422)      \
	X(FILE_NOT_FOUND, "file_not_found", CALLER, false, 404)          \
	X(FILE_EXISTS, "file_exists", CALLER, false, 409)                \
	X(NOT_A_DIRECTORY, "not_a_directory", CALLER, false, 422)        \
	X(IS_A_DIRECTORY, "is_a_directory", CALLER, false, 422)          \
	X(DIRECTORY_NOT_EMPTY, "directory_not_empty", CALLER, false, 409) \
	X(PATH_UNSAFE, "path_unsafe", CALLER, false, 422)                \
	X(HASH_MISMATCH, "hash_mismatch", CALLER, false, 422)            \
	/* program: limits that the sandbox's own load ran into */       \
	X(DISK_FULL, "disk_full", PROGRAM, false, 507)                   \
	X(PIDS_LIMIT, "pids_limit", PROGRAM, true, 429)                  \
	X(EXEC_BLOCKED, "exec_blocked", PROGRAM, true, 500)              \
	/* platform */                                                   \
	X(CAPACITY, "capacity_exhausted", PLATFORM, true, 503)           \
	X(OVERLOADED, "overloaded", PLATFORM, true, 429)                 \
	X(EDGE_UNAVAILABLE, "edge_unavailable", PLATFORM, true, 503)     \
	X(HOST_LACKS, "host_lacks", PLATFORM, false, 501)                \
	X(DEADLINE, "deadline_exceeded", PLATFORM, true, 504)            \
	X(IMAGE_BROKEN, "layer_broken", PLATFORM, false, 500)            \
	X(SANDBOX_LOST, "sandbox_lost", PLATFORM, false, 410)            \
	X(INTERNAL, "internal", PLATFORM, true, 500)
