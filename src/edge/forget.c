/* forget.c: execs that chronus still holds and the edge has no use for.
 *
 * An edge that died between writing a result down and telling chronus left one
 * behind; after a damaged journal there may also be one that nobody knows. Called
 * when a channel gets ready. Each takes a stream of its own that is closed at once.
 */
#include <signal.h>
#include <stdlib.h>
#include "base/log.h"
#include "edge/exec.h"
#include "edge/record.h"

static void send_forget(struct peer *p)
{
	Dsec__Chronus__ExecForget m = DSEC__CHRONUS__EXEC_FORGET__INIT;
	Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_FORGET;
	cmd.forget = &m;
	peer_send(p, &cmd.base);
}

static void send_kill(struct peer *p)
{
	Dsec__Chronus__ExecSignal m = DSEC__CHRONUS__EXEC_SIGNAL__INIT;
	Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	m.signal = SIGKILL;
	m.whole_tree = true;
	cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_SIGNAL;
	cmd.signal = &m;
	peer_send(p, &cmd.base);
}

void forget_ended(struct sandbox *sb, const Dsec__Chronus__HelloReply *hello)
{
	for (size_t i = 0; i < hello->n_execs; i++) {
		const Dsec__Chronus__ExecInfo *info = hello->execs[i];
		struct exec *x = exec_find(sb, info->id);
		struct peer p;
		if (x && !exec_ended(x))
			continue;
		if (x && x->unrecorded && record_exec_finished(x) < 0)
			continue; /* X1 of exec.c: it must not be forgotten yet */
		Dsec__Chronus__ExecAttach m = DSEC__CHRONUS__EXEC_ATTACH__INIT;
		Dsec__Chronus__ChronusOpen open = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
		m.id = info->id;
		m.stdout_offset = x ? x->out[0].total : 0;
		m.stderr_offset = x ? x->out[1].total : 0;
		open.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_ATTACH;
		open.exec_attach = &m;
		peer_init(&p, NULL, NULL); /* detached again below, before any event can come */
		if (peer_open(&p, sb->channel, &open) < 0)
			continue;
		if (info->running) {
			log_warn("%s/%s: runs, and is not known here: killed", sb->id, info->id);
			send_kill(&p);
		}
		send_forget(&p);
		peer_finish(&p);
	}
}
