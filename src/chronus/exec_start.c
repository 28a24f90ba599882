/* exec_start.c: making a command: its strings, pipes, cgroup leaf and process.
 *
 * Called by conn.c for an ExecStart. Whatever fails here or in the child before
 * exec makes a FAILED exec, so that the edge is told once, by one path. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "chronus/chronus-internal.h"

struct start_strings {
	char **argv, **env, *cwd, *user;
	void *memory; /* one block for all */
};

static char *zero_ended(char **at, struct slice s)
{
	char *r = *at;
	if (s.n)
		memcpy(r, s.p, s.n);
	r[s.n] = 0;
	*at += s.n + 1;
	return r;
}

static int copy_strings(const struct wire_exec_start *w, struct start_strings *ret, struct dsec_error *e)
{
	size_t pointers = (size_t)w->n_argv + w->n_env + 2;
	size_t n = pointers * sizeof(char *) + w->string_bytes + w->cwd.n + w->user.n + 2;
	if (!w->n_argv)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_ARGV, "argv is empty: there is nothing to run");
	if (!(ret->memory = malloc(n)))
		return dsec_error_set(e, -ENOMEM, DSEC_E_CAPACITY, "no memory for the arguments");
	ret->argv = ret->memory;
	ret->env = ret->argv + w->n_argv + 1;
	char *at = (char *)(ret->argv + pointers);
	ret->cwd = zero_ended(&at, w->cwd);
	ret->user = zero_ended(&at, w->user);
	if (strlen(ret->cwd) != w->cwd.n)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_CWD, "the working directory holds a NUL byte");
	if (strlen(ret->user) != w->user.n)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_USER, "the user holds a NUL byte");
	if (wire_exec_strings(w, ret->argv, ret->env, at) < 0)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_ARGV,
				      "an argument or variable holds a NUL byte, or a variable's name is empty or has a '='");
	return 0;
}

static struct exec *exec_new(struct chronus *c, const struct wire_exec_start *w)
{
	struct exec *x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	x->owner.kind = OWNER_EXEC;
	x->c = c;
	memcpy(x->id, w->id.p, w->id.n);
	x->start_sock.fd = x->notify.fd = x->populated.fd = x->in.fd = x->leaf.dirfd = -1;
	x->out[0].s.fd = x->out[1].s.fd = -1;
	x->out[0].rearm_at = x->out[1].rearm_at = CHRONUS_NONE;
	ring_init(&x->out[0].ring, CHRONUS_OUTPUT_RING);
	ring_init(&x->out[1].ring, CHRONUS_OUTPUT_RING);
	ring_init(&x->in_ring, CHRONUS_WINDOW);
	x->start_deadline = x->timeout_at = x->kill_at = x->reap_at = x->drain_at = x->settle_at = CHRONUS_NONE;
	x->pty = w->pty;
	x->stdin_open = w->stdin_open || w->pty;
	x->kill_grace_ms = w->kill_grace_ms;
	x->drain_ms = w->drain_ms ? w->drain_ms : CHRONUS_DRAIN_DEFAULT_MS;
	x->next = c->execs;
	c->execs = x;
	c->n_execs++;
	return x;
}

/* Pipes: 0 stdin, 1 stdout, 2 stderr; [i][0] read end, [i][1] write end. The
 * program may reopen its own (/dev/stdout): our outer id owns the inode and is
 * not mapped inside, so "others" get the permission bits. */
static int make_pipes(const struct exec *x, int pipes[3][2])
{
	static const mode_t modes[3] = { 0644, 0622, 0622 };
	for (int i = x->stdin_open ? 0 : 1; i < 3 && !x->pty; i++) {
		if (pipe2(pipes[i], O_CLOEXEC) < 0)
			return -errno;
		int ours = pipes[i][i == 0];
		if (fchmod(ours, modes[i]) < 0 || fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
			return -errno;
	}
	return 0;
}

static int spawn(struct exec *x, const struct wire_exec_start *w, struct start_strings *strings, int pipes[3][2],
		 int socks[2], struct dsec_error *e)
{
	char name[24];
	int r = make_pipes(x, pipes);
	if (r < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return dsec_error_errno(e, r < 0 ? r : -errno, "cannot make the command's pipes");
	fcntl(socks[0], F_SETFL, O_NONBLOCK);
	snprintf(name, sizeof(name), "e-%llu", (unsigned long long)++x->c->leaf_counter);
	r = leaf_make(x->c->boot.work_fd, name, &x->leaf);
	if (r < 0)
		return dsec_error_errno(e, r, "cannot make the command's cgroup");
	x->started_mono_ms = now_mono_ms();
	x->started_real_ms = now_real_ms();
	r = leaf_fork(&x->leaf);
	if (r == 0)
		exec_child(&(struct exec_plan){
			.c = x->c, .argv = strings->argv, .env = strings->env, .cwd = strings->cwd,
			.user = strings->user, .pty = x->pty, .no_new_privs = w->no_new_privs,
			.rows = w->rows, .cols = w->cols, .start_sock = socks[1],
			.in_fd = pipes[0][0], .out_fd = pipes[1][1], .err_fd = pipes[2][1] });
	if (r == -EAGAIN)
		return dsec_error_set(e, r, DSEC_E_PIDS_LIMIT, "the sandbox's limit of processes is reached");
	if (r < 0)
		return dsec_error_errno(e, r, "cannot fork");
	x->pid = r;
	return 0;
}

static void start_new(struct chronus *c, struct exec *x, const struct wire_exec_start *w)
{
	int pipes[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } }, socks[2] = { -1, -1 };
	struct start_strings strings = { 0 };
	int r = copy_strings(w, &strings, &x->failure);
	if (r == 0) {
		meminfo_refresh(c, now_mono_ms());
		r = spawn(x, w, &strings, pipes, socks, &x->failure);
	}
	free(strings.memory);
	for (int i = 0; i < 3; i++)
		base_close(pipes[i][i != 0]); /* the program's ends */
	base_close(socks[1]);
	if (r < 0) {
		for (int i = 0; i < 3; i++)
			base_close(pipes[i][i == 0]);
		base_close(socks[0]);
		x->main_gone = true;
		exec_fail(x, 0, NULL);
		return;
	}
	x->start_sock = (struct source){ .fd = socks[0], .ready = exec_on_start_sock };
	source_watch(c, &x->start_sock, EPOLLIN);
	x->start_deadline = x->started_mono_ms + CHRONUS_START_DEADLINE_MS;
	if (w->timeout_ms)
		x->timeout_at = x->started_mono_ms + MIN(w->timeout_ms, (uint64_t)INT64_MAX);
	if (!x->pty)
		exec_io_start(x, pipes[0][1], pipes[1][0], pipes[2][0]);
}

void exec_start(struct chronus *c, uint32_t stream, const struct wire_exec_start *w)
{
	static const uint64_t from_start[2];
	char id[EXEC_ID_MAX + 1] = "";
	if (w->id.n <= EXEC_ID_MAX && w->id.n)
		memcpy(id, w->id.p, w->id.n);
	if (strlen(id) != w->id.n || !id_exec_valid(id)) {
		exec_refuse(c, stream, DSEC_E_BAD_FIELD, "the exec id must be 1 to 64 of A-Z a-z 0-9 . _ -");
		return;
	}
	struct exec *x = exec_find(c, w->id);
	if (!x) {
		if (c->n_execs >= CHRONUS_EXECS_MAX || !(x = exec_new(c, w))) {
			exec_refuse(c, stream, DSEC_E_CAPACITY, "too many execs in this sandbox are running or not yet collected");
			return;
		}
		start_new(c, x, w);
	}
	exec_attach_stream(x, stream, from_start);
}
