/* routes.c: the table of every path of the API. api/openapi.yaml lists the same;
 * tests/integration/test_api_openapi.py holds the two together. */
#include "base/cleanup.h"
#include "control/resources.h"

#define QUERY(...) (const char *const[]){ __VA_ARGS__, NULL }
#define SB "/v1/sandboxes/{id}"

const struct route api_routes[] = {
	{ "GET", "/healthz", ROUTE_BODY_NONE, true, NULL, handle_healthz },
	{ "GET", "/readyz", ROUTE_BODY_NONE, true, NULL, handle_readyz },
	{ "GET", "/metrics", ROUTE_BODY_NONE, false, NULL, handle_metrics },
	{ "GET", "/v1/version", ROUTE_BODY_NONE, false, NULL, handle_version },
	{ "GET", "/v1/limits", ROUTE_BODY_NONE, false, NULL, handle_limits },
	{ "GET", "/v1/edges", ROUTE_BODY_NONE, false, NULL, handle_edges },

	{ "POST", "/v1/sandboxes", ROUTE_BODY_JSON, false, NULL, handle_sandbox_create },
	{ "GET", "/v1/sandboxes", ROUTE_BODY_NONE, false, QUERY("label", "state", "include_stopped"),
	  handle_sandbox_list },
	{ "DELETE", "/v1/sandboxes", ROUTE_BODY_NONE, false, QUERY("label", "wait"), handle_sandbox_delete_many },
	{ "POST", "/v1/sandboxes/batch", ROUTE_BODY_JSON, false, NULL, handle_sandbox_create_batch },
	{ "POST", "/v1/sandboxes/status", ROUTE_BODY_JSON, false, NULL, handle_sandbox_status },
	{ "GET", "/v1/sandboxes/events", ROUTE_BODY_NONE, false, QUERY("label"), handle_sandbox_events },
	{ "GET", SB, ROUTE_BODY_NONE, false, QUERY("wait_seconds", "until"), handle_sandbox_get },
	{ "DELETE", SB, ROUTE_BODY_NONE, false, QUERY("wait"), handle_sandbox_delete },
	{ "POST", SB "/ttl", ROUTE_BODY_JSON, false, NULL, handle_sandbox_ttl },

	{ "POST", SB "/execs", ROUTE_BODY_JSON, false, QUERY("wait", "stream"), handle_exec_start },
	{ "GET", SB "/execs", ROUTE_BODY_NONE, false, NULL, handle_exec_list },
	{ "GET", SB "/execs/{eid}", ROUTE_BODY_NONE, false, QUERY("wait_seconds"), handle_exec_get },
	{ "GET", SB "/execs/{eid}/output", ROUTE_BODY_NONE, false,
	  QUERY("stdout_offset", "stderr_offset", "follow"), handle_exec_output },
	{ "POST", SB "/execs/{eid}/stdin", ROUTE_BODY_STREAM, false, QUERY("offset", "eof"), handle_exec_stdin },
	{ "POST", SB "/execs/{eid}/signal", ROUTE_BODY_JSON, false, NULL, handle_exec_signal },
	{ "POST", SB "/execs/{eid}/resize", ROUTE_BODY_JSON, false, NULL, handle_exec_resize },

	{ "GET", SB "/files", ROUTE_BODY_NONE, false, QUERY("path", "user", "offset", "length"), handle_file_read },
	{ "PUT", SB "/files", ROUTE_BODY_STREAM, false, QUERY("path", "user", "mode", "parents", "sha256"),
	  handle_file_write },
	{ "DELETE", SB "/files", ROUTE_BODY_NONE, false, QUERY("path", "user", "recursive"), handle_file_remove },
	{ "GET", SB "/files/stat", ROUTE_BODY_NONE, false, QUERY("path", "user", "follow"), handle_file_stat },
	{ "GET", SB "/files/list", ROUTE_BODY_NONE, false, QUERY("path", "user"), handle_file_list },
	{ "POST", SB "/files/mkdir", ROUTE_BODY_JSON, false, QUERY("user"), handle_file_mkdir },
	{ "POST", SB "/files/move", ROUTE_BODY_JSON, false, QUERY("user"), handle_file_move },
	{ "GET", SB "/archive", ROUTE_BODY_NONE, false, QUERY("path", "user"), handle_archive_get },
	{ "PUT", SB "/archive", ROUTE_BODY_STREAM, false, QUERY("path", "user"), handle_archive_put },

	{ "GET", "/v1/layers", ROUTE_BODY_NONE, false, NULL, handle_layer_list },
	{ "GET", "/v1/layers/{name_version}", ROUTE_BODY_NONE, false, NULL, handle_layer_get },
	{ "PUT", "/v1/layers/{name_version}", ROUTE_BODY_STREAM, false, QUERY("source"), handle_layer_put },
	{ "DELETE", "/v1/layers/{name_version}", ROUTE_BODY_NONE, false, NULL, handle_layer_delete },
};
const size_t api_routes_count = ARRAY_SIZE(api_routes);
