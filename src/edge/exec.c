/* exec.c: see exec.h.
 *
 * X1 The intent is journaled before chronus hears of the exec, the result before
 *    chronus is told to forget it. So whenever the edge dies, chronus knows every
 *    exec that started and has no journaled result; one that is starting in the
 *    journal and that chronus does not know was never started.
 * X2 Bytes are acknowledged to chronus after they are in the spool file.
 * X3 sb->execs_running counts execs in starting and running.
 * X4 An exec ends once (exec_end): readers and waiters are answered from there.
 */
#include "edge/exec.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/log.h"
#include "edge/record.h"
#include "edge/sandbox.h"

#define EXEC_DRAIN_MS 500        /* pipes held open by others after the main process ended */
#define ACK_BYTES (64 * 1024)    /* chronus holds 256 KiB; a quarter of it costs no stall */

static void on_event(struct peer *p, const struct aether_event *ev);
static void on_lost(struct peer *p);

struct exec *exec_find(struct sandbox *sb, const char *id)
{
	return hashmap_get(&sb->execs, id);
}

int exec_new(struct sandbox *sb, const char *id, Dsec__Edge__ExecStart *spec_take, struct exec **ret)
{
	struct exec *x = calloc(1, sizeof(*x));
	int r = x ? 0 : -ENOMEM;
	if (!r) {
		snprintf(x->id, sizeof(x->id), "%s", id);
		r = hashmap_put(&sb->execs, x->id, x);
	}
	if (r < 0) {
		free(x);
		dsec__edge__exec_start__free_unpacked(spec_take, NULL);
		return r;
	}
	x->sb = sb;
	x->spec = spec_take;
	x->created_ms = now_mono_ms();
	x->started_at_ms = now_real_ms();
	x->in.file_fd = -1;
	peer_init(&x->peer, on_event, on_lost);
	list_init(&x->link);
	list_init(&x->starting_link);
	list_init(&x->readers);
	list_init(&x->waiters);
	uint64_t limit = spec_take->output_limit ? spec_take->output_limit : SPOOL_LIMIT_DEFAULT;
	spool_init(&x->out[0], &sb->node->spools, sb->id, x->id, "out", limit);
	spool_init(&x->out[1], &sb->node->spools, sb->id, x->id, "err", limit);
	list_append(&sb->exec_list, &x->link);
	list_append(&sb->node->starting, &x->starting_link);
	sb->execs_running++;
	*ret = x;
	return 0;
}

/* Those who still read or wait when it is dropped. */
static void fail_calls(struct link *calls)
{
	struct call *c;
	while ((c = list_first(calls, struct call, waiting)))
		call_fail(c, DSEC_E_EXEC_NOT_FOUND, "the command's record is dropped: its retention is over");
}

void exec_free(struct exec *x)
{
	if (!x)
		return;
	if (!exec_ended(x))
		x->sb->execs_running--;
	fail_calls(&x->readers);
	fail_calls(&x->waiters);
	peer_reset(&x->peer);
	spool_close(&x->out[0]);
	spool_close(&x->out[1]);
	base_close(x->in.file_fd);
	list_drop(&x->link);
	list_drop(&x->starting_link);
	hashmap_remove(&x->sb->execs, x->id);
	dsec__edge__exec_start__free_unpacked(x->spec, NULL);
	free(x->error);
	free(x);
}

void exec_remove(struct exec *x)
{
	if (!x)
		return;
	spool_remove(&x->out[0]);
	spool_remove(&x->out[1]);
	stdin_remove(x);
	exec_free(x);
}

/* --- starting --- */

static bool overridden(const Dsec__Edge__ExecStart *s, const char *key)
{
	for (size_t i = 0; i < s->n_env; i++)
		if (!strcmp(s->env[i]->key, key))
			return true;
	return false;
}

/* The sandbox's environment, then the exec's, each name once. Borrows. */
static size_t fill_env(const struct exec *x, Dsec__Chronus__EnvVar *vars, Dsec__Chronus__EnvVar **ptrs)
{
	const Dsec__Edge__Create *c = x->sb->spec;
	size_t n = 0;
	for (size_t i = 0; i < c->n_env + x->spec->n_env; i++) {
		bool own = i >= c->n_env;
		const Dsec__Edge__KeyValue *kv = own ? x->spec->env[i - c->n_env] : c->env[i];
		if (!own && overridden(x->spec, kv->key))
			continue;
		dsec__chronus__env_var__init(&vars[n]);
		vars[n].name = (ProtobufCBinaryData){ strlen(kv->key), (uint8_t *)kv->key };
		vars[n].value = (ProtobufCBinaryData){ strlen(kv->value), (uint8_t *)kv->value };
		ptrs[n] = &vars[n];
		n++;
	}
	return n;
}

static ProtobufCBinaryData or_default(ProtobufCBinaryData own, char *text)
{
	return own.len ? own : (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
}

/* x begins beside others of its sandbox. */
static void mark_shared(struct exec *x)
{
	x->shared = true;
	list_for_each(other, &x->sb->exec_list, struct exec, link)
		if (!exec_ended(other))
			other->shared = true;
}

static int send_start(struct exec *x)
{
	const Dsec__Edge__ExecStart *s = x->spec;
	const Dsec__Edge__Create *c = x->sb->spec;
	size_t n = c->n_env + s->n_env;
	_cleanup_free_ Dsec__Chronus__EnvVar *vars = calloc(n + 1, sizeof(*vars));
	_cleanup_free_ Dsec__Chronus__EnvVar **ptrs = calloc(n + 1, sizeof(*ptrs));
	if (!vars || !ptrs)
		return -ENOMEM;
	Dsec__Chronus__ExecStart m = DSEC__CHRONUS__EXEC_START__INIT;
	Dsec__Chronus__ChronusOpen open = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	m.id = x->id;
	m.n_argv = s->n_argv;
	m.argv = s->argv;
	m.n_env = fill_env(x, vars, ptrs);
	m.env = ptrs;
	m.cwd = or_default(s->cwd, c->cwd);
	m.user = or_default(s->user, c->user);
	m.stdin_open = s->stdin_open || x->in.file_bytes;
	m.pty = s->pty;
	m.rows = s->rows;
	m.cols = s->cols;
	m.timeout_ms = s->timeout_ms;
	m.kill_grace_ms = s->kill_grace_ms;
	m.drain_ms = EXEC_DRAIN_MS;
	m.no_new_privs = c->no_new_privs;
	open.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_START;
	open.exec_start = &m;
	/* Where nothing ran since the last reading, nothing can have been killed. */
	if (x->sb->execs_running > 1 || x->sb->background) {
		sandbox_read_stats(x->sb);
		mark_shared(x);
	}
	x->oom_base = x->sb->stats.oom_kills;
	return peer_open(&x->peer, x->sb->channel, &open);
}

static int send_attach(struct exec *x)
{
	Dsec__Chronus__ExecAttach m = DSEC__CHRONUS__EXEC_ATTACH__INIT;
	Dsec__Chronus__ChronusOpen open = DSEC__CHRONUS__CHRONUS_OPEN__INIT;
	m.id = x->id;
	m.stdout_offset = x->out[0].total;
	m.stderr_offset = x->out[1].total;
	open.what_case = DSEC__CHRONUS__CHRONUS_OPEN__WHAT_EXEC_ATTACH;
	open.exec_attach = &m;
	return peer_open(&x->peer, x->sb->channel, &open);
}

static void exec_fail(struct exec *x, enum dsec_code code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static bool listed(const Dsec__Chronus__HelloReply *hello, const char *id)
{
	for (size_t i = 0; i < hello->n_execs; i++)
		if (!strcmp(hello->execs[i]->id, id))
			return true;
	return false;
}

void exec_resume_all(struct sandbox *sb, const Dsec__Chronus__HelloReply *hello)
{
	forget_ended(sb, hello);
	list_for_each(x, &sb->exec_list, struct exec, link) {
		if (exec_ended(x) || x->peer.stream)
			continue;
		bool known = listed(hello, x->id); /* X1 */
		int r = known ? send_attach(x) : x->state == EXEC_STARTING ? send_start(x) : -ESRCH;
		if (r == -ESRCH)
			exec_fail(x, DSEC_E_SANDBOX_LOST, "the sandbox's runtime does not know this command any more");
		else if (r < 0)
			exec_fail(x, DSEC_E_INTERNAL, "the command could not be sent to the sandbox: %s",
				  strerror(-r));
	}
}

int exec_create(struct sandbox *sb, const char *id, Dsec__Edge__ExecStart *spec_take, uint64_t hash,
		struct exec **ret, struct dsec_error *e)
{
	struct exec *x;
	ProtobufCBinaryData input = spec_take->stdin;
	int r = exec_new(sb, id, spec_take, &x);
	if (r < 0)
		return dsec_error_errno(e, r, "exec");
	x->start_hash = hash;
	x->in.open = x->spec->stdin_open;
	if (input.len)
		r = stdin_save(x, input.data, input.len);
	if (!r)
		r = record_exec_intent(x); /* X1 */
	if (r < 0) {
		record_error(e, r, "the command");
		exec_remove(x);
		return r;
	}
	sb->node->execs_total++;
	exec_drop_old(sb); /* here, where no caller walks the list */
	if (channel_use(sb->channel) && (r = send_start(x)) < 0)
		exec_fail(x, DSEC_E_OVERLOADED, "the command could not be sent to the sandbox: %s", strerror(-r));
	*ret = x;
	return 0;
}

/* --- the end --- */

/* Once it has started only what is shown of it is kept. */
static void trim_spec(struct exec *x)
{
	Dsec__Edge__ExecStart *s = x->spec;
	for (size_t i = 0; i < s->n_env; i++)
		dsec__edge__key_value__free_unpacked(s->env[i], NULL);
	free(TAKE_PTR(s->env));
	s->n_env = 0;
	free(s->stdin.data);
	s->stdin = (ProtobufCBinaryData){ 0 };
	size_t room = EXEC_ARGV_SHOWN_MAX, n = 0;
	while (n < s->n_argv && room) {
		s->argv[n].len = MIN(s->argv[n].len, room);
		room -= MIN(s->argv[n].len + EXEC_ARGV_OVERHEAD, room);
		n++;
	}
	for (size_t i = n; i < s->n_argv; i++)
		free(s->argv[i].data);
	s->n_argv = n;
}

/* X4. forget: chronus has the exec and is told to drop it. */
static void exec_end(struct exec *x, enum exec_state state, bool forget)
{
	struct sandbox *sb = x->sb;
	x->state = state;
	x->finished_at_ms = now_real_ms();
	list_drop(&x->starting_link);
	sb->execs_running--;
	sb->spooled += spool_stored(&x->out[0]) + spool_stored(&x->out[1]);
	if (record_exec_finished(x) < 0) {
		log_error("%s/%s: the journal does not take its result; chronus keeps it", sb->id, x->id);
		x->unrecorded = true; /* forget_ended tries again */
		forget = false;
	}
	if (forget) {
		Dsec__Chronus__ExecForget m = DSEC__CHRONUS__EXEC_FORGET__INIT;
		Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
		cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_FORGET;
		cmd.forget = &m;
		peer_send(&x->peer, &cmd.base);
	}
	peer_finish(&x->peer);
	stdin_ended(x);
	trim_spec(x);
	sandbox_touch(sb);
	sandbox_arm(sb);
	output_progress(x);
	spool_close(&x->out[0]);
	spool_close(&x->out[1]);
}

static void exec_fail(struct exec *x, enum dsec_code code, const char *fmt, ...)
{
	va_list ap;
	x->error = calloc(1, sizeof(*x->error));
	if (x->error) {
		x->error->code = code;
		va_start(ap, fmt);
		vsnprintf(x->error->message, sizeof(x->error->message), fmt, ap);
		va_end(ap);
	}
	exec_end(x, EXEC_FAILED, x->peer.stream != 0);
}

/* The first ended exec that nobody reads is dropped while too much is kept. */
void exec_drop_old(struct sandbox *sb)
{
	list_for_each(x, &sb->exec_list, struct exec, link) {
		size_t kept = hashmap_len(&sb->execs) - sb->execs_running;
		if (kept <= EXECS_KEPT_MAX && sb->spooled <= SPOOL_SANDBOX_MAX)
			return;
		/* Never the newest: its caller is about to ask for it. */
		if (!exec_ended(x) || !list_empty(&x->readers) || x->link.next == &sb->exec_list)
			continue;
		sb->spooled -= spool_stored(&x->out[0]) + spool_stored(&x->out[1]);
		record_exec_dropped(x);
		exec_remove(x);
	}
}

void exec_sandbox_gone(struct sandbox *sb)
{
	list_for_each(x, &sb->exec_list, struct exec, link) {
		if (exec_ended(x))
			continue;
		peer_reset(&x->peer);
		if (x->state == EXEC_STARTING) {
			exec_fail(x, DSEC_E_SANDBOX_STOPPED, "the sandbox ended before the command started: %s",
				  sb->message ? sb->message : stop_reason_name(sb->reason));
			continue;
		}
		/* With its first process the kernel kills every other one. */
		x->result = (struct exec_result){ .signal = SIGKILL, .killed_by = "sandbox" };
		x->result.wall_ms = now_real_ms() - x->started_at_ms;
		exec_end(x, EXEC_FINISHED, false);
	}
}

/* --- what chronus reports --- */

static void on_started(struct exec *x, const Dsec__Chronus__ExecStarted *m)
{
	bool first = x->state == EXEC_STARTING;
	x->state = EXEC_RUNNING;
	if (m->started_at_ms)
		x->started_at_ms = m->started_at_ms;
	list_drop(&x->starting_link);
	/* Without it a restart would call it starting; chronus's word counts then. */
	if (first && record_exec_running(x) < 0)
		log_warn("%s/%s: the journal does not take its start", x->sb->id, x->id);
	spool_skip(&x->out[0], m->stdout_offset);
	spool_skip(&x->out[1], m->stderr_offset);
	x->acked[0] = x->out[0].total;
	x->acked[1] = x->out[1].total;
	trim_spec(x);
	stdin_attached(x, m->stdin_offset, m->stdin_closed);
	if (first)
		output_progress(x);
}

static const char *cause(const struct exec *x, const Dsec__Chronus__ExecExited *m)
{
	if (m->timed_out)
		return "timeout";
	if (x->result.oom_killed && m->signaled && m->signal == SIGKILL && !m->user_killed)
		return "oom";
	return m->user_killed && m->signaled ? "user" : "";
}

static void on_exited(struct exec *x, const Dsec__Chronus__ExecExited *m)
{
	struct sandbox *sb = x->sb;
	spool_skip(&x->out[0], m->stdout_total);
	spool_skip(&x->out[1], m->stderr_total);
	sandbox_read_stats(sb);
	sb->background |= m->background_alive;
	x->result = (struct exec_result){
		.has_exit_code = !m->signaled,
		.exit_code = m->signaled ? 0 : (uint8_t)m->exit_code,
		.signal = m->signaled ? (uint8_t)m->signal : 0,
		.timed_out = m->timed_out,
		.user_killed = m->user_killed,
		/* The counter is the sandbox's: where others ran too, one that ended well was not it. */
		.oom_killed = sb->stats.oom_kills > x->oom_base && (m->signaled || m->exit_code || !x->shared),
		.background_alive = m->background_alive,
		.drain_cut = m->drain_cut,
		.cpu_usec = m->cpu_usec,
		.max_rss_bytes = m->max_rss_bytes,
		.wall_ms = m->wall_ms,
	};
	x->result.killed_by = cause(x, m);
	sb->oom_seen = sb->stats.oom_kills;
	exec_end(x, EXEC_FINISHED, true);
}

static void on_report(struct exec *x, const void *p, size_t n)
{
	Dsec__Chronus__ExecReport *m = dsec__chronus__exec_report__unpack(NULL, n, p);
	switch (m ? m->what_case : 0) {
	case DSEC__CHRONUS__EXEC_REPORT__WHAT_STARTED:
		on_started(x, m->started);
		break;
	case DSEC__CHRONUS__EXEC_REPORT__WHAT_FAILED:
		exec_fail(x, dsec_code_from_name(m->failed->code), "%s", m->failed->message);
		break;
	case DSEC__CHRONUS__EXEC_REPORT__WHAT_EXITED:
		on_exited(x, m->exited);
		break;
	case DSEC__CHRONUS__EXEC_REPORT__WHAT_STDIN_STATE:
		stdin_state(x, m->stdin_state->offset, m->stdin_state->closed);
		break;
	default:
		exec_fail(x, DSEC_E_INTERNAL, "the sandbox's runtime sent a report that cannot be decoded");
		break;
	}
	if (m)
		dsec__chronus__exec_report__free_unpacked(m, NULL);
}

static void send_ack(struct exec *x, uint64_t at_least)
{
	uint64_t due = x->out[0].total - x->acked[0] + x->out[1].total - x->acked[1];
	if (due < at_least && !x->ack_due)
		return;
	Dsec__Chronus__ExecAck m = DSEC__CHRONUS__EXEC_ACK__INIT;
	Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	m.stdout_offset = x->out[0].total;
	m.stderr_offset = x->out[1].total;
	cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_ACK;
	cmd.ack = &m;
	x->ack_due = peer_send(&x->peer, &cmd.base) == -EAGAIN; /* WRITABLE tries again */
	if (!x->ack_due) {
		x->acked[0] = x->out[0].total;
		x->acked[1] = x->out[1].total;
	}
}

static void on_output(struct exec *x, uint8_t channel, const void *p, size_t n)
{
	if (channel == 1 || channel == 2) {
		int r = spool_append(&x->out[channel - 1], p, n);
		if (r < 0)
			log_error("%s/%s: output is not kept from here on: %s", x->sb->id, x->id, strerror(-r));
		output_progress(x);
	}
	peer_consume(&x->peer, n);
	send_ack(x, ACK_BYTES); /* X2 */
}

static void on_event(struct peer *p, const struct aether_event *ev)
{
	struct exec *x = container_of(p, struct exec, peer);
	switch (ev->type) {
	case AETHER_EV_MSG:
		peer_consume(p, ev->n);
		on_report(x, ev->payload, ev->n);
		break;
	case AETHER_EV_DATA:
		on_output(x, ev->channel, ev->payload, ev->n);
		break;
	case AETHER_EV_WRITABLE:
		if (x->ack_due)
			send_ack(x, 0);
		stdin_pump(x);
		break;
	case AETHER_EV_CLOSE:
	case AETHER_EV_RESET:
		exec_fail(x, DSEC_E_INTERNAL, "the sandbox's runtime ended the command's stream without a result");
		break;
	default:
		break;
	}
}

/* The connection, not the command: exec_resume_all goes on when it is back. */
static void on_lost(struct peer *p)
{
	struct exec *x = container_of(p, struct exec, peer);
	x->ack_due = false;
	if (x->in.uploader)
		call_fail(x->in.uploader, DSEC_E_EDGE_UNAVAILABLE,
			  "the sandbox's connection broke: go on from the command's stdin_offset");
}

void exec_check_starting(struct node *n, uint64_t now_ms)
{
	list_for_each(x, &n->starting, struct exec, starting_link) {
		if (now_ms < x->created_ms + EXEC_START_DEADLINE_MS)
			return;
		exec_signal(x, SIGKILL, true);
		exec_fail(x, DSEC_E_EXEC_BLOCKED, "the command did not start within %d s",
			  EXEC_START_DEADLINE_MS / 1000);
		return; /* others may be gone with it; the next tick goes on */
	}
}

int exec_signal(struct exec *x, uint32_t sig, bool whole_tree)
{
	Dsec__Chronus__ExecSignal m = DSEC__CHRONUS__EXEC_SIGNAL__INIT;
	Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	m.signal = sig;
	m.whole_tree = whole_tree;
	m.by_user_kill = true;
	cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_SIGNAL;
	cmd.signal = &m;
	return peer_send(&x->peer, &cmd.base);
}

int exec_resize(struct exec *x, uint32_t rows, uint32_t cols)
{
	Dsec__Chronus__ExecResize m = DSEC__CHRONUS__EXEC_RESIZE__INIT;
	Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	m.rows = rows;
	m.cols = cols;
	cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_RESIZE;
	cmd.resize = &m;
	return peer_send(&x->peer, &cmd.base);
}
