/* message.c: see message.h. */
#include "edge/message.h"
#include "base/clock.h"

static uint64_t mono_to_real(uint64_t mono_ms)
{
	uint64_t mono = now_mono_ms(), real = now_real_ms();
	return mono_ms >= mono ? real + (mono_ms - mono) : real - (mono - mono_ms);
}

static void fill_spec(const Dsec__Edge__Create *c, Dsec__Edge__Sandbox *m)
{
	m->backend = c->backend;
	m->environment = c->environment;
	m->n_layers = c->n_layers;
	m->layers = c->layers;
	m->cpu_millis = c->cpu_millis;
	m->memory_bytes = c->memory_bytes;
	m->disk_bytes = c->disk_bytes;
	m->pids = c->pids;
	m->n_labels = c->n_labels;
	m->labels = c->labels;
	m->n_env = c->n_env;
	m->env = c->env;
	m->cwd = c->cwd;
	m->user = c->user;
	m->hostname = c->hostname;
	m->no_new_privs = c->no_new_privs;
}

/* As last read: a list of thousands must not read thousands of control files. */
static void fill_usage(const struct sandbox *sb, Dsec__Edge__Sandbox *m)
{
	if (sb->inst) {
		m->memory_used_bytes = sb->stats.memory_bytes;
		m->pids_used = sb->stats.pids;
		m->disk_used_bytes = sb->disk_used;
	}
	m->memory_peak_bytes = sb->stats.memory_peak_bytes;
	m->cpu_usec = sb->stats.cpu_usec;
	m->oom_kills = sb->stats.oom_kills;
}

void message_sandbox(struct sandbox *sb, Dsec__Edge__Sandbox *ret)
{
	dsec__edge__sandbox__init(ret);
	ret->id = sb->id;
	ret->state = (char *)lifecycle_name(sb->state);
	ret->reason = (char *)stop_reason_name(sb->reason);
	if (sb->message)
		ret->message = sb->message;
	ret->edge = (char *)sb->node->name;
	fill_spec(sb->spec, ret);
	ret->created_at_ms = sb->created_at_ms;
	ret->running_at_ms = sb->running_at_ms;
	ret->stopped_at_ms = sb->stopped_at_ms;
	ret->end_at_ms = mono_to_real(sb->ttl.end_ms);
	ret->idle_ttl_ms = sb->ttl.idle_ms;
	uint64_t idle_end = ttl_idle_end_ms(&sb->ttl, sb->execs_running > 0);
	if (idle_end && sb->state == SB_RUNNING)
		ret->idle_end_at_ms = mono_to_real(idle_end);
	ret->execs_running = sb->execs_running;
	fill_usage(sb, ret);
}

/* argv for display, cut to EXEC_ARGV_SHOWN_MAX in all. */
static void fill_argv(const Dsec__Edge__ExecStart *spec, Dsec__Edge__Exec *m)
{
	size_t bytes = 0, n = 0;
	while (n < spec->n_argv && bytes + spec->argv[n].len <= EXEC_ARGV_SHOWN_MAX)
		bytes += spec->argv[n++].len + EXEC_ARGV_OVERHEAD;
	m->n_argv = n;
	m->argv = spec->argv;
}

static void fill_result(const struct exec_result *r, Dsec__Edge__Exec *m)
{
	m->has_exit_code = r->has_exit_code;
	m->exit_code = r->exit_code;
	m->signal = r->signal;
	m->timed_out = r->timed_out;
	m->user_killed = r->user_killed;
	m->oom_killed = r->oom_killed;
	m->background_alive = r->background_alive;
	m->drain_cut = r->drain_cut;
	m->cpu_usec = r->cpu_usec;
	m->max_rss_bytes = r->max_rss_bytes;
	m->wall_ms = r->wall_ms;
	m->killed_by = (char *)(r->killed_by ? r->killed_by : "");
}

void message_exec(struct exec *x, struct exec_message *ret)
{
	static const char *const states[] = { "starting", "running", "finished", "failed" };
	Dsec__Edge__Exec *m = &ret->m;
	dsec__edge__exec__init(m);
	m->id = x->id;
	m->sandbox_id = x->sb->id;
	m->state = (char *)states[x->state];
	fill_argv(x->spec, m);
	m->pty = x->spec->pty;
	m->started_at_ms = x->started_at_ms;
	m->finished_at_ms = x->finished_at_ms;
	m->stdout_total = x->out[0].total;
	m->stderr_total = x->out[1].total;
	m->stdout_truncated = spool_truncated(&x->out[0]);
	m->stderr_truncated = spool_truncated(&x->out[1]);
	m->stdin_offset = x->in.sent;
	if (x->state == EXEC_FINISHED)
		fill_result(&x->result, m);
	if (x->state == EXEC_FAILED && x->error) {
		dsec__edge__error__init(&ret->error);
		ret->error.code = (char *)dsec_code_name(x->error->code);
		ret->error.message = x->error->message;
		m->error = &ret->error;
	}
}

void message_info(struct node *n, Dsec__Edge__EdgeInfo *ret)
{
	dsec__edge__edge_info__init(ret);
	ret->name = (char *)n->name;
	ret->version = (char *)DSEC_VERSION;
	ret->sandboxes_live = n->n_live;
	ret->sandboxes_max = n->max_sandboxes;
	ret->sandboxes_stopping = n->n_stopping;
	ret->creates_total = n->creates_total;
	ret->creates_failed = n->creates_failed;
	ret->execs_total = n->execs_total;
	ret->adopted_total = n->adopted_total;
	ret->memory_total_bytes = n->memory_total;
	ret->memory_available_bytes = n->memory_available;
	ret->cpus = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
	ret->started_at_ms = n->started_at_ms;
}

int reply_sandbox(struct call *c, struct sandbox *sb)
{
	Dsec__Edge__Sandbox m;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	message_sandbox(sb, &m);
	m.adopted = c->adopted;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_SANDBOX;
	reply.sandbox = &m;
	return call_reply(c, &reply);
}

int reply_exec(struct call *c, struct exec *x)
{
	struct exec_message m;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	message_exec(x, &m);
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_EXEC;
	reply.exec = &m.m;
	return call_reply(c, &reply);
}
