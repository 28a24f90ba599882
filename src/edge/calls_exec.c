/* calls_exec.c: commands and files. See calls.h. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "edge/calls.h"
#include "edge/exec.h"
#include "edge/files.h"
#include "edge/message.h"
#include "edge/sandbox.h"

#define LIST_PART_BYTES (32 * 1024)
#define EXEC_WAIT_MAX_MS (10 * 60 * 1000)
#define EXEC_TIMEOUT_MAX_MS (30ull * 24 * 3600 * 1000)
#define KILL_GRACE_MAX_MS (10 * 60 * 1000)
#define PTY_SIDE_MAX 65535

/* --- start --- */

static int check_argv(const Dsec__Edge__ExecStart *m, struct dsec_error *e)
{
	if (!m->n_argv == !m->shell.len)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_ARGV, "give either argv or shell");
	if (m->n_argv && !m->argv[0].len)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_ARGV, "argv[0] is empty");
	for (size_t i = 0; i < m->n_argv; i++)
		if (memchr(m->argv[i].data, 0, m->argv[i].len))
			return dsec_error_set(e, -EINVAL, DSEC_E_BAD_ARGV, "argv[%zu] has a NUL byte", i);
	if (m->shell.len && memchr(m->shell.data, 0, m->shell.len))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_ARGV, "shell text has a NUL byte");
	return 0;
}

static int check_start(const Dsec__Edge__ExecStart *m, struct dsec_error *e)
{
	if (*m->exec_id && !id_exec_valid(m->exec_id))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD,
				      "id: up to %d of letters, digits, '.', '_', '-', not beginning with '.'",
				      EXEC_ID_MAX);
	int r = check_argv(m, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < m->n_env; i++)
		if (!*m->env[i]->key || strchr(m->env[i]->key, '='))
			return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "env: a name is empty or has '='");
	if (m->stdin.len && m->stdin_open)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "stdin: inline and open exclude each other");
	if (m->stdin.len > EXEC_STDIN_MAX)
		return dsec_error_set(e, -E2BIG, DSEC_E_BODY_TOO_LARGE, "stdin: at most %d bytes inline",
				      EXEC_STDIN_MAX);
	if (dsec__edge__exec_start__get_packed_size(m) - m->stdin.len > EXEC_START_MAX)
		return dsec_error_set(e, -E2BIG, DSEC_E_BAD_ARGV,
				      "argv and environment take more than %d bytes: put them in a file",
				      EXEC_START_MAX);
	if (m->output_limit > SPOOL_LIMIT_MAX)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "output_limit: at most %llu bytes",
				      SPOOL_LIMIT_MAX);
	if (m->timeout_ms > EXEC_TIMEOUT_MAX_MS || m->kill_grace_ms > KILL_GRACE_MAX_MS)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "timeout: at most %llu ms, grace %d ms",
				      EXEC_TIMEOUT_MAX_MS, KILL_GRACE_MAX_MS);
	if (m->pty && (m->rows > PTY_SIDE_MAX || m->cols > PTY_SIDE_MAX))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "pty: rows and cols up to %d", PTY_SIDE_MAX);
	return 0;
}

/* What makes two requests the same: all but the id and how the caller wants the answer. */
static int start_hash(Dsec__Edge__ExecStart *m, uint64_t *ret)
{
	protobuf_c_boolean follow = m->follow;
	char *id = m->exec_id;
	m->follow = false;
	m->exec_id = "";
	size_t n = dsec__edge__exec_start__get_packed_size(m);
	_cleanup_free_ uint8_t *p = malloc(n + 1);
	if (p) {
		dsec__edge__exec_start__pack(m, p);
		*ret = XXH3_64bits(p, n);
	}
	m->follow = follow;
	m->exec_id = id;
	return p ? 0 : -ENOMEM;
}

static ProtobufCBinaryData bytes_of(const char *text)
{
	return (ProtobufCBinaryData){ strlen(text), (uint8_t *)strdup(text) };
}

/* shell -> argv, so that what is shown and journaled is what runs. */
static int shell_to_argv(Dsec__Edge__ExecStart *m)
{
	if (!m->shell.len)
		return 0;
	m->argv = calloc(3, sizeof(*m->argv));
	if (!m->argv)
		return -ENOMEM;
	m->n_argv = 3;
	m->argv[0] = bytes_of("/bin/sh");
	m->argv[1] = bytes_of("-c");
	m->argv[2] = m->shell;
	m->shell = (ProtobufCBinaryData){ 0 };
	return m->argv[0].data && m->argv[1].data ? 0 : -ENOMEM;
}

static void answer_start(struct call *c, struct exec *x, bool follow)
{
	if (follow)
		output_follow(c, x, 0, 0, true);
	else
		output_wait_started(c, x);
}

void call_exec_start(struct call *c)
{
	Dsec__Edge__ExecStart *m = c->request->exec_start;
	struct dsec_error e;
	struct exec *x;
	uint64_t hash;
	bool follow = m->follow;
	char id[EXEC_ID_MAX + 1];
	if (check_start(m, &e) < 0) {
		call_fail_error(c, &e);
		return;
	}
	struct sandbox *sb = call_sandbox(c, m->sandbox_id);
	if (!sb)
		return;
	if (start_hash(m, &hash) < 0 || shell_to_argv(m) < 0) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	if (*m->exec_id && (x = exec_find(sb, m->exec_id))) { /* also after the sandbox stopped */
		if (x->start_hash != hash)
			call_fail(c, DSEC_E_CONFLICT, "command %s exists and was started differently", x->id);
		else
			answer_start(c, x, follow);
		return;
	}
	sb = call_running(c, m->sandbox_id);
	if (!sb)
		return;
	if (sb->execs_running >= EXECS_RUNNING_MAX) {
		call_fail(c, DSEC_E_OVERLOADED, "%d commands run in this sandbox", EXECS_RUNNING_MAX);
		return;
	}
	if (*m->exec_id)
		snprintf(id, sizeof(id), "%s", m->exec_id);
	else
		id_exec(id);
	c->request->exec_start = NULL;
	c->request->what_case = DSEC__EDGE__EDGE_REQUEST__WHAT__NOT_SET;
	if (exec_create(sb, id, m, hash, &x, &e) < 0)
		call_fail_error(c, &e);
	else
		answer_start(c, x, follow);
}

/* --- the others --- */

static struct exec *find_exec(struct call *c, const char *sandbox_id, const char *exec_id)
{
	struct sandbox *sb = call_sandbox(c, sandbox_id);
	if (!sb)
		return NULL;
	struct exec *x = exec_find(sb, exec_id);
	if (!x)
		call_fail(c, DSEC_E_EXEC_NOT_FOUND, "no command %.64s in sandbox %s", exec_id, sb->id);
	else if (sb->state == SB_RUNNING)
		sandbox_touch(sb);
	return x;
}

/* One that can be spoken to. */
static struct exec *find_running(struct call *c, const char *sandbox_id, const char *exec_id)
{
	struct exec *x = find_exec(c, sandbox_id, exec_id);
	if (x && x->state == EXEC_RUNNING)
		return x;
	if (x && exec_ended(x))
		call_fail(c, DSEC_E_CONFLICT, "the command has ended");
	else if (x)
		call_fail(c, DSEC_E_WRONG_STATE, "the command has not started yet");
	return NULL;
}

void call_exec_get(struct call *c)
{
	struct exec *x = find_exec(c, c->request->exec_get->sandbox_id, c->request->exec_get->exec_id);
	if (!x)
		return;
	reply_exec(c, x);
	call_end(c);
}

static void send_execs(struct call *c, Dsec__Edge__Exec **ptrs, size_t n)
{
	Dsec__Edge__ExecList m = DSEC__EDGE__EXEC_LIST__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	m.n_execs = n;
	m.execs = ptrs;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_EXECS;
	reply.execs = &m;
	call_reply(c, &reply);
}

void call_exec_list(struct call *c)
{
	struct sandbox *sb = call_sandbox(c, c->request->exec_list->id);
	if (!sb)
		return;
	size_t all = hashmap_len(&sb->execs), n = 0, bytes = 0;
	_cleanup_free_ struct exec_message *items = calloc(all + 1, sizeof(*items));
	_cleanup_free_ Dsec__Edge__Exec **ptrs = calloc(all + 1, sizeof(*ptrs));
	if (!items || !ptrs) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	list_for_each(x, &sb->exec_list, struct exec, link) {
		message_exec(x, &items[n]);
		size_t size = dsec__edge__exec__get_packed_size(&items[n].m) + 8;
		if (n && bytes + size > LIST_PART_BYTES) {
			send_execs(c, ptrs, n);
			items[0] = items[n];
			if (items[0].m.error)
				items[0].m.error = &items[0].error;
			n = bytes = 0;
		}
		ptrs[n] = &items[n].m;
		n++;
		bytes += size;
	}
	send_execs(c, ptrs, n);
	call_end(c);
}

void call_exec_output(struct call *c)
{
	const Dsec__Edge__ExecOutput *m = c->request->exec_output;
	struct exec *x = find_exec(c, m->sandbox_id, m->exec_id);
	if (x)
		output_follow(c, x, m->stdout_offset, m->stderr_offset, m->follow);
}

void call_exec_stdin(struct call *c)
{
	const Dsec__Edge__ExecStdin *m = c->request->exec_stdin;
	struct exec *x = find_exec(c, m->sandbox_id, m->exec_id);
	if (x)
		stdin_call(c, x, m);
}

static void answer_sent(struct call *c, int r)
{
	if (!r)
		call_ok(c);
	else if (r == -ENOTCONN)
		call_fail(c, DSEC_E_EDGE_UNAVAILABLE, "the connection to the sandbox is being made again");
	else if (r == -EAGAIN)
		call_fail(c, DSEC_E_OVERLOADED, "the command's stream is full");
	else
		call_fail(c, DSEC_E_INTERNAL, "could not be sent to the sandbox: %s", strerror(-r));
}

void call_exec_signal(struct call *c)
{
	const Dsec__Edge__ExecSignal *m = c->request->exec_signal;
	if (!m->signal || m->signal > (uint32_t)SIGRTMAX) {
		call_fail(c, DSEC_E_BAD_FIELD, "signal: 1 to %d", SIGRTMAX);
		return;
	}
	struct exec *x = find_running(c, m->sandbox_id, m->exec_id);
	if (x)
		answer_sent(c, exec_signal(x, m->signal, m->whole_tree));
}

void call_exec_resize(struct call *c)
{
	const Dsec__Edge__ExecResize *m = c->request->exec_resize;
	if (!m->rows || !m->cols || m->rows > PTY_SIDE_MAX || m->cols > PTY_SIDE_MAX) {
		call_fail(c, DSEC_E_BAD_FIELD, "rows and cols: 1 to %d", PTY_SIDE_MAX);
		return;
	}
	struct exec *x = find_running(c, m->sandbox_id, m->exec_id);
	if (x && !x->spec->pty)
		call_fail(c, DSEC_E_CONFLICT, "the command has no terminal");
	else if (x)
		answer_sent(c, exec_resize(x, m->rows, m->cols));
}

void call_exec_wait(struct call *c)
{
	const Dsec__Edge__ExecWait *m = c->request->exec_wait;
	struct exec *x = find_exec(c, m->sandbox_id, m->exec_id);
	if (x)
		output_wait(c, x, MIN(m->timeout_ms, (uint64_t)EXEC_WAIT_MAX_MS));
}

void call_file(struct call *c)
{
	struct sandbox *sb = call_running(c, c->request->file->sandbox_id);
	if (sb)
		files_call(c, sb, c->request->file);
}
