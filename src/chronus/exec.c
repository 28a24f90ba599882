/* exec.c: the life of a command, seen from PID 1.
 *
 *   exec_start --fork--> STARTING --exec seen--> RUNNING --main process reaped--> DRAINING
 *                           |                                                        |
 *                           +--error, or START_DEADLINE--> FAILED        streams at EOF, or drain_at
 *                                                                                    v
 *   freed  <--forgotten, and no process left in the leaf--  ENDED (result kept, sent once an attach)
 *
 * Invariants
 *  E1 An exec lives until the edge forgot it (or was told that it failed) and its
 *     leaf is empty. A connection that goes away changes nothing here but `owner`.
 *  E2 The end event follows all output on the stream (send_output), and only in ENDED.
 *  E3 Whatever is owed to the edge is a flag or an offset, never a queued message:
 *     exec_pump sends what fits and is called again when there is room.
 *  E4 pid is a child of ours that has not been reaped until main_gone, so the
 *     bare number cannot be a stranger's.
 *  E5 After a timeout nothing of the tree survives: KILL follows the grace, or the
 *     main process's end if that comes first.
 *  E6 A main process that was killed is reaped, whoever traces it (tracers.c). */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"

#define REPORT_MAX 1024 /* any report on an exec stream */
#define SETTLE_MS 10           /* for a tree that ends by itself */
#define SETTLE_KILLED_MS 1000  /* for one that was signalled as a whole */

struct exec *exec_find(struct chronus *c, struct slice id)
{
	for (struct exec *x = c->execs; x; x = x->next)
		if (strlen(x->id) == id.n && !memcmp(x->id, id.p, id.n))
			return x;
	return NULL;
}

/* An answer on a stream that belongs to no exec. */
void exec_refuse(struct chronus *c, uint32_t stream, enum dsec_code code, const char *message)
{
	uint8_t p[REPORT_MAX];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	wire_failed(&o, dsec_code_name(code), message);
	if (aether_send_msg(c->conn.a, stream, p, o.n) < 0)
		aether_reset(c->conn.a, stream, AETHER_RESET_INTERNAL);
	else
		aether_close(c->conn.a, stream);
}

/* ---- Attaching and telling ---- */

void exec_attach_stream(struct exec *x, uint32_t stream, const uint64_t offset[2])
{
	struct aether *a = x->c->conn.a;
	if (x->owner.stream) { /* the newest reader counts */
		uint32_t old = x->owner.stream;
		exec_detach(x);
		aether_reset(a, old, AETHER_RESET_CANCELLED);
	}
	x->owner.stream = stream;
	aether_set_user(a, stream, &x->owner);
	for (int i = 0; i < 2; i++)
		x->out[i].sent = MIN(MAX(offset[i], x->out[i].ring.start), x->out[i].ring.end);
	x->owe_started = x->state != EXEC_STARTING && x->state != EXEC_FAILED;
	x->owe_exited = true;
	exec_pump(x);
}

void exec_detach(struct exec *x)
{
	aether_set_user(x->c->conn.a, x->owner.stream, NULL);
	x->owner.stream = 0;
	/* The next reader resends from what the program was given: one truth. */
	exec_io_stdin_forget(x);
}

static bool send_report(struct exec *x, const struct pb_out *o)
{
	return aether_send_msg(x->c->conn.a, x->owner.stream, o->p, o->n) == 0;
}

static bool tell_started(struct exec *x, struct pb_out *o)
{
	struct wire_started s = {
		.pid = (uint32_t)x->pid,
		.stdin_offset = x->in_ring.start,
		.stdin_closed = x->stdin_closed,
		.started_at_ms = x->started_real_ms,
		.out_offset = { x->out[0].sent, x->out[1].sent },
	};
	wire_started(o, &s);
	x->stdin_told = s.stdin_offset;
	return send_report(x, o);
}

static bool tell_failed(struct exec *x, struct pb_out *o)
{
	wire_failed(o, dsec_code_name(x->failure.code), x->failure.message);
	if (!send_report(x, o))
		return false;
	uint32_t stream = x->owner.stream;
	x->forgotten = true; /* the stream ends; nothing is left to ask for */
	exec_detach(x);
	aether_close(x->c->conn.a, stream);
	return true;
}

static bool send_output(struct exec *x)
{
	bool all = true;
	for (int i = 0; i < 2; i++) {
		struct out_stream *s = &x->out[i];
		while (s->sent < s->ring.end) {
			const uint8_t *p;
			size_t n = ring_peek(&s->ring, s->sent, &p);
			long k = aether_send_data(x->c->conn.a, x->owner.stream, (uint8_t)(1 + i), p, n);
			if (k <= 0)
				break;
			s->sent += (uint64_t)k;
		}
		all &= s->sent == s->ring.end;
	}
	return all;
}

void exec_pump(struct exec *x)
{
	uint8_t p[REPORT_MAX];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	if (!x->owner.stream || x->state == EXEC_STARTING)
		return;
	if (x->state == EXEC_FAILED) {
		tell_failed(x, &o);
		return;
	}
	if (x->owe_started) {
		if (!tell_started(x, &o))
			return;
		x->owe_started = false;
	}
	bool all = send_output(x);
	if (x->owe_stdin_state) {
		o.n = 0;
		wire_stdin_state(&o, x->in_ring.start, x->stdin_closed);
		if (!send_report(x, &o))
			return;
		x->owe_stdin_state = false;
		x->stdin_told = x->in_ring.start;
	}
	if (all && x->owe_exited && x->state == EXEC_ENDED) {
		o.n = 0;
		wire_exited(&o, &x->result);
		if (send_report(x, &o))
			x->owe_exited = false;
	}
}

void exec_attach(struct chronus *c, uint32_t stream, const struct wire_exec_attach *w)
{
	struct exec *x = exec_find(c, w->id);
	if (!x) {
		exec_refuse(c, stream, DSEC_E_EXEC_NOT_FOUND, "chronus knows no such exec; it was forgotten or never started");
		return;
	}
	exec_attach_stream(x, stream, w->out_offset);
}

/* ---- Ending ---- */

void exec_fail(struct exec *x, enum dsec_code code, const char *message)
{
	leaf_kill(&x->leaf);
	exec_io_done(x);
	source_close(x->c, &x->start_sock);
	x->state = EXEC_FAILED;
	x->start_deadline = x->timeout_at = x->kill_at = x->reap_at = x->drain_at = x->settle_at = CHRONUS_NONE;
	if (message)
		dsec_error_set(&x->failure, 0, code, "%s", message);
	exec_pump(x);
}

static void on_populated(struct source *s, uint32_t events)
{
	struct exec *x = container_of(s, struct exec, populated);
	char text[128];
	ssize_t n = pread(s->fd, text, sizeof(text) - 1, 0); /* on this descriptor: it re-arms the event */
	text[MAX(n, 0)] = 0;
	if (strstr(text, "populated 1"))
		return;
	source_close(x->c, s);
	exec_check_end(x);
}

/* Background processes are left: be told when the last one is gone. */
static void watch_populated(struct exec *x)
{
	if (x->leaf.dirfd < 0 || x->populated.fd >= 0)
		return;
	x->populated.fd = openat(x->leaf.dirfd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	x->populated.ready = on_populated;
	source_watch(x->c, &x->populated, EPOLLPRI);
}

static void end(struct exec *x, bool cut)
{
	x->state = EXEC_ENDED;
	x->drain_at = CHRONUS_NONE;
	x->result.drain_cut = cut;
	x->result.background_alive = leaf_populated(&x->leaf);
	uint64_t cpu = leaf_cpu_usec(&x->leaf);
	x->result.cpu_usec = MAX(cpu, x->result.cpu_usec);
	x->result.out_total[0] = x->out[0].ring.end;
	x->result.out_total[1] = x->out[1].ring.end;
	exec_io_discard(x);
	exec_io_stdin_close(x);
	x->settle_at = CHRONUS_NONE;
	exec_pump(x);
}

/* Processes that were killed with the tree, or are just ending, are not
 * "alive in the background": they get a moment to be gone. */
static void settle(struct exec *x, bool cut)
{
	uint64_t now = now_mono_ms();
	if (x->settle_at == CHRONUS_NONE)
		x->settle_at = now + (x->tree_killed ? SETTLE_KILLED_MS : SETTLE_MS);
	if (now < x->settle_at && leaf_populated(&x->leaf)) {
		watch_populated(x);
		return;
	}
	end(x, cut);
}

void exec_check_end(struct exec *x)
{
	if (x->state != EXEC_DRAINING)
		return;
	if (x->out[0].eof && x->out[1].eof)
		settle(x, x->out[0].cutting || x->out[1].cutting);
	else if (x->drain_at == CHRONUS_NONE && exec_io_cut(x))
		settle(x, true);
}

static void started(struct exec *x)
{
	x->state = EXEC_RUNNING;
	x->start_deadline = CHRONUS_NONE;
	source_close(x->c, &x->start_sock);
	x->owe_started = true;
	exec_io_resume(x);
	exec_pump(x);
}

/* The child's word: an error, descriptors, or (EOF) a successful exec. */
void exec_on_start_sock(struct source *s, uint32_t events)
{
	struct exec *x = container_of(s, struct exec, start_sock);
	while (x->start_sock.fd >= 0) {
		struct start_message m;
		int fds[2];
		size_t n_fds = 2;
		ssize_t k = recv_fds(s->fd, &m, sizeof(m), fds, &n_fds);
		if (k == -EAGAIN)
			return;
		if (k == sizeof(m) && m.kind == START_FDS) {
			size_t i = 0;
			if (x->pty && i < n_fds) {
				fcntl(fds[i], F_SETFL, O_RDWR | O_NONBLOCK);
				exec_io_start(x, fds[i], fds[i], -1);
				i++;
			}
			if (i < n_fds)
				statfs_watch(x, fds[i++]);
			while (i < n_fds)
				close(fds[i++]);
		} else if (k == sizeof(m) && m.kind == START_FAILED) {
			m.error.message[DSEC_ERROR_MESSAGE_MAX - 1] = 0;
			x->failure = m.error;
			if (m.error.code == DSEC_OK || m.error.code >= DSEC_E_COUNT_)
				x->failure.code = DSEC_E_INTERNAL;
			exec_fail(x, 0, NULL);
		} else if (k == 0) {
			started(x);
		} else {
			exec_fail(x, DSEC_E_INTERNAL, "the starting process sent something unexpected");
		}
	}
}

/* E6 */
static void expect_death(struct exec *x)
{
	if (!x->main_gone && x->reap_at == CHRONUS_NONE)
		x->reap_at = now_mono_ms() + CHRONUS_REAP_MS;
}

static void kill_tree(struct exec *x)
{
	leaf_kill(&x->leaf);
	expect_death(x);
}

static void drain(struct exec *x)
{
	x->state = EXEC_DRAINING;
	x->timeout_at = CHRONUS_NONE;
	if (x->result.timed_out) {
		leaf_kill(&x->leaf); /* E5 */
		x->tree_killed = true;
		x->kill_at = CHRONUS_NONE;
	}
	x->drain_at = now_mono_ms() + x->drain_ms;
	exec_io_resume(x);
	exec_check_end(x);
}

bool exec_child_exited(struct chronus *c, pid_t pid, int status, const struct rusage *ru)
{
	struct exec *x = c->execs;
	while (x && (x->pid != pid || x->main_gone))
		x = x->next;
	if (!x)
		return false;
	x->main_gone = true;
	x->reap_at = CHRONUS_NONE;
	if (x->state == EXEC_STARTING) /* what it said before it ended */
		exec_on_start_sock(&x->start_sock, 0);
	if (x->state == EXEC_STARTING)
		exec_fail(x, DSEC_E_INTERNAL, "the starting process ended without a word");
	if (x->state == EXEC_FAILED)
		return true;
	x->result.signaled = WIFSIGNALED(status);
	x->result.signal = WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0;
	x->result.exit_code = WIFEXITED(status) ? (uint32_t)WEXITSTATUS(status) : 0;
	x->result.max_rss_bytes = (uint64_t)ru->ru_maxrss * 1024;
	x->result.cpu_usec = (uint64_t)(ru->ru_utime.tv_sec + ru->ru_stime.tv_sec) * 1000000u +
			     (uint64_t)(ru->ru_utime.tv_usec + ru->ru_stime.tv_usec);
	x->result.wall_ms = now_mono_ms() - x->started_mono_ms;
	drain(x);
	return true;
}

/* ---- Commands of the edge ---- */

static void signal_exec(struct exec *x, const struct wire_command *w)
{
	if (!w->signal || w->signal > 64)
		return;
	if (w->by_user_kill && x->state < EXEC_ENDED)
		x->result.user_killed = true;
	if (w->whole_tree && (w->signal == SIGKILL || w->signal == SIGTERM))
		x->tree_killed = true;
	if (w->whole_tree)
		leaf_signal(&x->leaf, (int)w->signal);
	else if (!x->main_gone) /* E4 */
		kill(x->pid, (int)w->signal);
	if (w->signal == SIGKILL)
		expect_death(x);
}

static void forget(struct exec *x)
{
	uint32_t stream = x->owner.stream;
	if (x->state != EXEC_ENDED && x->state != EXEC_FAILED)
		kill_tree(x); /* nobody will collect it */
	x->forgotten = true;
	if (x->state == EXEC_ENDED)
		exec_io_forget(x);
	exec_detach(x);
	aether_close(x->c->conn.a, stream);
}

void exec_command(struct exec *x, const void *p, size_t n)
{
	struct wire_command w;
	if (wire_decode_command(p, n, &w) < 0) {
		uint32_t stream = x->owner.stream;
		exec_detach(x);
		aether_reset(x->c->conn.a, stream, AETHER_RESET_PROTOCOL);
		return;
	}
	switch (w.what) {
	case WIRE_ACK:
		exec_io_ack(x, w.out_offset);
		break;
	case WIRE_SIGNAL:
		signal_exec(x, &w);
		break;
	case WIRE_RESIZE:
		if (x->pty && x->in.fd >= 0) {
			struct winsize ws = { .ws_row = (unsigned short)w.rows, .ws_col = (unsigned short)w.cols };
			ioctl(x->in.fd, TIOCSWINSZ, &ws); /* the kernel sends SIGWINCH */
		}
		break;
	case WIRE_STDIN_EOF:
		exec_io_stdin_eof(x);
		break;
	case WIRE_FORGET:
		forget(x);
		break;
	}
	exec_pump(x);
}

/* ---- Time and collection ---- */

static void tick_one(struct exec *x, uint64_t now)
{
	if (now >= x->start_deadline)
		exec_fail(x, DSEC_E_EXEC_BLOCKED,
		     "the command did not start within 5 s; something in the sandbox stops new processes");
	if (now >= x->timeout_at) {
		x->timeout_at = CHRONUS_NONE;
		x->result.timed_out = true;
		if (x->kill_grace_ms) {
			leaf_signal(&x->leaf, SIGTERM);
			leaf_signal(&x->leaf, SIGCONT); /* a stopped process must see it */
			x->kill_at = now + x->kill_grace_ms;
		} else {
			kill_tree(x);
		}
	}
	if (now >= x->kill_at) {
		x->kill_at = CHRONUS_NONE;
		kill_tree(x);
	}
	if (now >= x->reap_at) {
		x->tracer = tracers_kill(x->pid, x->tracer);
		x->reap_at = now + CHRONUS_REAP_MS;
	}
	if (x->state == EXEC_DRAINING && now >= x->settle_at)
		exec_check_end(x);
	if (x->state == EXEC_DRAINING && now >= x->drain_at) {
		x->drain_at = CHRONUS_NONE; /* from here on exec_io_cut decides */
		exec_check_end(x);
	}
	exec_io_tick(x, now);
}

void exec_tidy(struct chronus *c)
{
	for (struct exec *x = c->execs; x; x = x->next)
		exec_io_tidy(x);
}

void exec_tick(struct chronus *c, uint64_t now)
{
	for (struct exec *x = c->execs; x; x = x->next)
		tick_one(x, now);
}

uint64_t exec_deadline(struct chronus *c)
{
	uint64_t at = CHRONUS_NONE;
	for (struct exec *x = c->execs; x; x = x->next) {
		at = MIN(at, MIN(x->start_deadline, x->timeout_at));
		at = MIN(at, MIN(x->kill_at, x->reap_at));
		at = MIN(at, x->drain_at);
		at = MIN(at, x->settle_at);
		at = MIN(at, exec_io_deadline(x));
	}
	return at;
}

unsigned exec_running(const struct chronus *c)
{
	unsigned n = 0;
	for (const struct exec *x = c->execs; x; x = x->next)
		n += x->state != EXEC_ENDED && x->state != EXEC_FAILED;
	return n;
}

static void exec_free(struct exec *x)
{
	exec_io_done(x);
	ring_done(&x->in_ring);
	source_close(x->c, &x->start_sock);
	statfs_forget(x);
	source_close(x->c, &x->populated);
	base_close(x->leaf.dirfd);
	x->c->n_execs--;
	free(x);
}

/* An empty leaf may be busy for a moment after its last process; then again soon. */
static void try_remove_leaf(struct exec *x)
{
	if (x->leaf.dirfd < 0 || x->populated.fd >= 0 || leaf_remove(x->c->boot.work_fd, &x->leaf) == 0)
		return;
	if (leaf_populated(&x->leaf))
		watch_populated(x);
	else
		x->c->collect_at = now_mono_ms() + CHRONUS_COLLECT_MS;
}

void exec_collect(struct chronus *c)
{
	for (struct exec **at = &c->execs; *at;) {
		struct exec *x = *at;
		bool over = (x->state == EXEC_ENDED || x->state == EXEC_FAILED) && x->main_gone;
		if (over)
			try_remove_leaf(x);
		if (over && x->forgotten && x->leaf.dirfd < 0 && !x->owner.stream) {
			*at = x->next;
			exec_free(x);
			continue;
		}
		at = &x->next;
	}
}
