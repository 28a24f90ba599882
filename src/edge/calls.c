/* calls.c: which function answers which request. See calls.h. */
#include "edge/calls.h"
#include "edge/sandbox.h"

struct sandbox *call_sandbox(struct call *c, const char *id)
{
	struct sandbox *sb = node_find_in(c->node, c->request->project, id);
	if (!sb)
		call_fail(c, DSEC_E_SANDBOX_NOT_FOUND, "no sandbox %.64s on edge %s", id, c->node->name);
	return sb;
}

struct sandbox *call_running(struct call *c, const char *id)
{
	struct sandbox *sb = call_sandbox(c, id);
	if (!sb)
		return NULL;
	if (sb->state == SB_RUNNING && !sb->exited) {
		sandbox_touch(sb);
		return sb;
	}
	if (sb->state == SB_STOPPING || sb->state == SB_STOPPED || sb->exited)
		call_fail(c, DSEC_E_SANDBOX_STOPPED, "the sandbox is stopped (%s)%s%s",
			  sb->reason ? stop_reason_name(sb->reason) : "exited", sb->message ? ": " : "",
			  sb->message ? sb->message : "");
	else
		call_fail(c, DSEC_E_WRONG_STATE, "the sandbox is %s", lifecycle_name(sb->state));
	return NULL;
}

void calls_dispatch(struct call *c)
{
	static void (*const table[])(struct call *) = {
		[DSEC__EDGE__EDGE_REQUEST__WHAT_CREATE] = call_create,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_GET] = call_get,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_LIST] = call_list,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_DELETE] = call_delete,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_SET_TTL] = call_set_ttl,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_WATCH] = call_watch,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_START] = call_exec_start,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_GET] = call_exec_get,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_LIST] = call_exec_list,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_OUTPUT] = call_exec_output,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_STDIN] = call_exec_stdin,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_SIGNAL] = call_exec_signal,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_RESIZE] = call_exec_resize,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_EXEC_WAIT] = call_exec_wait,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_FILE] = call_file,
		[DSEC__EDGE__EDGE_REQUEST__WHAT_INFO] = call_info,
	};
	size_t what = c->request->what_case;
	if (what < ARRAY_SIZE(table) && table[what])
		table[what](c);
	else
		call_fail(c, DSEC_E_UNSUPPORTED, "this edge does not know the request");
}
