/* limits.h: every bound of the HTTP API, one table.
 *
 * Used by control only. Each row: X(NAME, "name in /v1/limits", value). A test
 * of the API goes to each bound, one under and one over. Bounds that depend on
 * the host (cores, memory) are the edges' own and are checked by placement.
 */
#pragma once
#include <stdint.h>
#include "base/id.h"

#define CONTROL_LIMITS(X)                                                              \
	/* the server */                                                               \
	X(CONNECTIONS_MAX, "connections", 10000)                                       \
	X(HEADER_BYTES_MAX, "header_bytes", 16384)                                     \
	X(JSON_BODY_BYTES_MAX, "json_body_bytes", 2 * 1024 * 1024)                     \
	X(JSON_DEPTH_MAX, "json_depth", 16)                                            \
	X(REQUEST_WAIT_SECONDS, "request_header_seconds", 60)                          \
	X(IDLE_SECONDS, "connection_stall_seconds", 300)                               \
	X(LINGER_BYTES_MAX, "discarded_upload_bytes", 64 * 1024 * 1024)                \
	X(LINGER_SECONDS, "discarded_upload_seconds", 5)                               \
	X(REQUEST_ID_MAX, "request_id_length", 64)                                     \
	X(API_KEY_MIN, "api_key_length_min", 16)                                       \
	X(API_KEY_MAX, "api_key_length_max", 256)                                      \
	/* names */                                                                    \
	X(NAME_LENGTH_MAX, "name_length", NAME_MAX_LEN)                                \
	X(EXEC_ID_LENGTH_MAX, "exec_id_length", EXEC_ID_MAX)                           \
	X(HOSTNAME_LENGTH_MAX, "hostname_length", 63)                                  \
	X(USER_LENGTH_MAX, "user_length", 64)                                          \
	X(PATH_BYTES_MAX, "path_bytes", 4095)                                          \
	X(SOURCE_BYTES_MAX, "layer_source_bytes", 1024)                                \
	X(IDEMPOTENCY_KEY_LENGTH_MAX, "idempotency_key_length", 64)                    \
	/* sandboxes */                                                                \
	X(CPU_MILLIS_MIN, "cpu_millis_min", 50)                                        \
	X(CPU_MILLIS_MAX, "cpu_millis_max", 1024 * 1000)                               \
	X(MEMORY_MB_MIN, "memory_mb_min", 16)                                          \
	X(MEMORY_MB_MAX, "memory_mb_max", 16 * 1024 * 1024)                            \
	X(DISK_MB_MIN, "disk_mb_min", 16)                                              \
	X(DISK_MB_MAX, "disk_mb_max", 64 * 1024 * 1024)                                \
	X(PIDS_MIN, "pids_min", 8)                                                     \
	X(PIDS_MAX, "pids_max", 32768)                                                 \
	X(TTL_SECONDS_MIN, "ttl_seconds_min", 1)                                       \
	X(TTL_SECONDS_MAX, "ttl_seconds_max", 604800)                                  \
	X(IDLE_TTL_SECONDS_MAX, "idle_ttl_seconds_max", 604800)                        \
	X(BATCH_COUNT_MAX, "batch_count", 1000)                                         \
	X(BATCH_PARALLEL, "batch_creates_at_once", 32)                                  \
	X(STATUS_IDS_MAX, "status_ids", 1000)                                           \
	X(CALLS_AT_ONCE, "calls_of_a_request_at_once", 64)                              \
	X(LABELS_MAX, "labels", 32)                                                    \
	X(LABEL_VALUE_BYTES_MAX, "label_value_bytes", 256)                             \
	X(ENV_VARS_MAX, "env_variables", 256)                                          \
	X(ENV_NAME_BYTES_MAX, "env_name_bytes", 256)                                   \
	X(ENV_TOTAL_BYTES_MAX, "env_total_bytes", 32 * 1024)                           \
	/* execs: the kernel's MAX_ARG_STRLEN counts the final NUL */                  \
	X(ARGV_MEMBERS_MAX, "argv_members", 4096)                                      \
	X(ARG_BYTES_MAX, "arg_bytes", 131071)                                          \
	X(ARGV_TOTAL_BYTES_MAX, "argv_total_bytes", 131072)                            \
	X(STDIN_INLINE_BYTES_MAX, "stdin_inline_bytes", 1024 * 1024)                   \
	X(EXEC_TIMEOUT_SECONDS_MAX, "exec_timeout_seconds", 604800)                    \
	X(KILL_GRACE_SECONDS_MAX, "kill_grace_seconds", 3600)                          \
	X(OUTPUT_LIMIT_BYTES_MIN, "output_limit_bytes_min", 4096)                      \
	X(OUTPUT_LIMIT_BYTES_MAX, "output_limit_bytes_max", 1024 * 1024 * 1024)        \
	X(OUTPUT_LIMIT_WAIT_BYTES_MAX, "output_limit_wait_bytes_max", 10 * 1024 * 1024) \
	X(PTY_SIZE_MAX, "pty_size", 65535)                                             \
	X(WAIT_SECONDS_MAX, "wait_seconds", 60)                                        \
	X(SIGNAL_MAX, "signal_max", 64)                                                \
	X(EVENTS_UNSENT_BYTES, "events_unsent_bytes", 1024 * 1024)                      \
	X(KEEPALIVE_SECONDS, "stream_keepalive_seconds", 10)                           \
	/* layers */                                                                   \
	X(LAYER_IMPORTS_MAX, "layer_imports_at_once", 4)                               \
	/* edges */                                                                    \
	X(EDGES_MAX, "edges", 256)                                                     \
	X(EDGE_READ_RETRY_MS, "edge_read_retry_ms", 2000)                              \
	X(EDGE_CREATE_DEADLINE_MS, "create_deadline_ms", 60000)                        \
	X(EDGE_CALLS_MAX, "calls_per_edge", 32768)                                     \
	X(READY_WAIT_MS, "ready_wait_ms", 1000)                                        \
	X(SHUTDOWN_WAIT_MS, "shutdown_wait_ms", 2000)

enum control_limit {
#define X(name, text, value) LIMIT_##name = (value),
	CONTROL_LIMITS(X)
#undef X
};

/* What a body gets that does not say. */
#define DEFAULT_BACKEND "container"
#define DEFAULT_PROJECT "default"
#define DEFAULT_CPU_MILLIS 1000
#define DEFAULT_MEMORY_MB 512
#define DEFAULT_DISK_MB 1024
#define DEFAULT_PIDS 256
#define DEFAULT_TTL_SECONDS 3600
#define DEFAULT_USER "root"
#define DEFAULT_OUTPUT_LIMIT_BYTES (10 * 1024 * 1024)
#define DEFAULT_PTY_ROWS 24
#define DEFAULT_PTY_COLS 80
