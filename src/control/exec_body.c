/* exec_body.c: see exec_body.h. */
#include "control/exec_body.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "control/limits.h"
#include "control/render.h"

/* Decoded bytes of all members go into one buffer that may move while it grows:
 * offsets first, pointers at the end. */
struct span {
	const char *text; /* plain text, or NULL: at `offset` of bytes */
	size_t offset, n;
};

static int read_member(struct exec_body *b, const json_t *v, struct span *ret)
{
	const json_t *b64 = json_is_object(v) && json_object_size(v) == 1 ? json_object_get(v, "b64") : NULL;
	if (json_is_string(v)) {
		*ret = (struct span){ json_string_value(v), 0, json_string_length(v) };
		return 0;
	}
	if (!json_is_string(b64))
		return -EINVAL;
	size_t at = buf_len(&b->bytes);
	int r = base64_decode(json_string_value(b64), json_string_length(b64), &b->bytes);
	if (r)
		return r;
	*ret = (struct span){ NULL, at, buf_len(&b->bytes) - at };
	/* Arguments are C strings: a zero byte cannot be passed. */
	return memchr(buf_ptr(&b->bytes) + at, 0, ret->n) ? -EINVAL : 0;
}

static void read_argv(struct json_in *in, struct exec_body *b, struct span **ret_spans)
{
	const json_t *argv = json_in_any(in, "argv");
	size_t n = json_array_size(argv), total = 0;
	if (!argv || in->fault)
		return;
	if (!json_is_array(argv) || n < 1 || n > LIMIT_ARGV_MEMBERS_MAX) {
		json_in_fault(in, DSEC_E_BAD_ARGV, "argv must be a list of 1 to %d strings", LIMIT_ARGV_MEMBERS_MAX);
		return;
	}
	struct span *spans = calloc(n, sizeof(*spans));
	b->message.argv = calloc(n, sizeof(*b->message.argv));
	*ret_spans = spans;
	if (!spans || !b->message.argv) {
		json_in_fault(in, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	for (size_t i = 0; i < n && !in->fault; i++) {
		int r = read_member(b, json_array_get(argv, i), &spans[i]);
		if (r == -ENOMEM)
			json_in_fault(in, DSEC_E_CAPACITY, "out of memory");
		else if (r < 0)
			json_in_fault(in, DSEC_E_BAD_ARGV,
				      "argv[%zu] must be a string or {\"b64\": base64 without zero bytes}", i);
		else if (spans[i].n > LIMIT_ARG_BYTES_MAX)
			json_in_fault(in, DSEC_E_BAD_ARGV, "argv[%zu] is %zu bytes; at most %d", i, spans[i].n,
				      LIMIT_ARG_BYTES_MAX);
		total += spans[i].n + 1;
	}
	if (total > LIMIT_ARGV_TOTAL_BYTES_MAX)
		json_in_fault(in, DSEC_E_BAD_ARGV, "argv is %zu bytes in all (with a zero byte each); at most %d",
			      total, LIMIT_ARGV_TOTAL_BYTES_MAX);
	else if (!in->fault && spans[0].n == 0)
		json_in_fault(in, DSEC_E_BAD_ARGV, "argv[0] is empty: name the program");
	b->message.n_argv = n;
}

static void read_shell(struct json_in *in, struct exec_body *b)
{
	const json_t *v = json_in_any(in, "shell");
	bool argv = json_object_get(in->object, "argv") != NULL;
	if (in->fault)
		return;
	if (!v == !argv) {
		json_in_fault(in, DSEC_E_BAD_ARGV, "give either argv or shell");
	} else if (v && !json_is_string(v)) {
		json_in_fault(in, DSEC_E_BAD_ARGV, "shell must be a string");
	} else if (v && (json_string_length(v) > LIMIT_ARG_BYTES_MAX || !json_string_length(v))) {
		json_in_fault(in, DSEC_E_BAD_ARGV, "shell must have 1 to %d bytes", LIMIT_ARG_BYTES_MAX);
	} else if (v) {
		b->message.shell.data = (uint8_t *)json_string_value(v);
		b->message.shell.len = json_string_length(v);
	}
}

static void read_stdin(struct json_in *in, struct exec_body *b, struct span *ret)
{
	const char *mode = NULL, *text = NULL;
	json_in_string(in, "stdin", NAME_MAX_LEN, &mode);
	json_in_string(in, "stdin_b64", (LIMIT_STDIN_INLINE_BYTES_MAX + 2) / 3 * 4, &text);
	if (in->fault)
		return;
	if (mode && strcmp(mode, "open") && strcmp(mode, "closed")) {
		json_in_fault(in, DSEC_E_BAD_FIELD, "stdin must be \"open\" or \"closed\"");
		return;
	}
	b->message.stdin_open = mode && !strcmp(mode, "open");
	if (!text)
		return;
	if (b->message.stdin_open) {
		json_in_fault(in, DSEC_E_BAD_FIELD, "stdin_b64 is the whole input: it cannot go with \"stdin\": \"open\"");
		return;
	}
	*ret = (struct span){ NULL, buf_len(&b->bytes), 0 };
	int r = base64_decode(text, strlen(text), &b->bytes);
	if (r == -ENOMEM)
		json_in_fault(in, DSEC_E_CAPACITY, "out of memory");
	else if (r < 0)
		json_in_fault(in, DSEC_E_BAD_FIELD, "stdin_b64 is not base64");
	ret->n = buf_len(&b->bytes) - ret->offset;
	if (ret->n > LIMIT_STDIN_INLINE_BYTES_MAX)
		json_in_fault(in, DSEC_E_BAD_FIELD, "stdin_b64 holds %zu bytes; at most %d", ret->n,
			      LIMIT_STDIN_INLINE_BYTES_MAX);
}

static void read_pty(struct json_in *in, struct exec_body *b, struct dsec_error *e)
{
	const json_t *v = json_in_object(in, "pty");
	struct json_in pty;
	uint64_t rows = DEFAULT_PTY_ROWS, cols = DEFAULT_PTY_COLS;
	if (!v)
		return;
	json_in_begin(&pty, v, "pty.", e);
	json_in_uint(&pty, "rows", 1, LIMIT_PTY_SIZE_MAX, &rows);
	json_in_uint(&pty, "cols", 1, LIMIT_PTY_SIZE_MAX, &cols);
	in->fault = json_in_end(&pty);
	b->message.pty = true;
	b->message.rows = (uint32_t)rows;
	b->message.cols = (uint32_t)cols;
}

static void read_id(struct json_in *in, struct exec_body *b)
{
	const char *id = NULL;
	json_in_string(in, "id", LIMIT_EXEC_ID_LENGTH_MAX, &id);
	if (in->fault)
		return;
	if (!id)
		id_exec(b->id);
	else if (!id_exec_valid(id))
		json_in_fault(in, DSEC_E_BAD_FIELD, "id must be letters, digits, \".\", \"_\" or \"-\"");
	else
		snprintf(b->id, sizeof(b->id), "%s", id);
}

static void read_rest(struct json_in *in, Dsec__Edge__ExecStart *m)
{
	uint64_t timeout = 0, grace = 0, limit = DEFAULT_OUTPUT_LIMIT_BYTES;
	const char *cwd = "", *user = "";
	json_in_milli(in, "timeout_seconds", 0, (uint64_t)LIMIT_EXEC_TIMEOUT_SECONDS_MAX * 1000, &timeout);
	json_in_milli(in, "kill_grace_seconds", 0, (uint64_t)LIMIT_KILL_GRACE_SECONDS_MAX * 1000, &grace);
	json_in_uint(in, "output_limit_bytes", LIMIT_OUTPUT_LIMIT_BYTES_MIN, LIMIT_OUTPUT_LIMIT_BYTES_MAX, &limit);
	json_in_string(in, "cwd", LIMIT_PATH_BYTES_MAX, &cwd);
	if (!in->fault && *cwd && *cwd != '/')
		json_in_fault(in, DSEC_E_BAD_CWD, "cwd must be an absolute path");
	check_user(in, "user", &user);
	m->timeout_ms = timeout;
	m->kill_grace_ms = (uint32_t)grace;
	m->output_limit = limit;
	m->cwd.data = (uint8_t *)cwd;
	m->cwd.len = strlen(cwd);
	m->user.data = (uint8_t *)user;
	m->user.len = strlen(user);
}

int exec_body_read(struct exec_body *b, const json_t *body, struct dsec_error *e)
{
	struct json_in in;
	struct span *argv = NULL, input = { 0 };
	memset(b, 0, sizeof(*b));
	dsec__edge__exec_start__init(&b->message);
	json_in_begin(&in, body, "", e);
	read_id(&in, b);
	read_argv(&in, b, &argv);
	read_shell(&in, b);
	read_stdin(&in, b, &input);
	read_pty(&in, b, e);
	read_rest(&in, &b->message);
	check_env(&in, "env", &b->message.env, &b->message.n_env);
	int r = json_in_end(&in);
	if (!r) {
		for (size_t i = 0; i < b->message.n_argv; i++) {
			b->message.argv[i].data = argv[i].text ? (uint8_t *)argv[i].text :
						  buf_ptr(&b->bytes) + argv[i].offset;
			b->message.argv[i].len = argv[i].n;
		}
		if (input.n) {
			b->message.stdin.data = buf_ptr(&b->bytes) + input.offset;
			b->message.stdin.len = input.n;
		}
		b->message.exec_id = b->id;
	}
	free(argv);
	return r;
}

void exec_body_done(struct exec_body *b)
{
	free(b->message.argv);
	free(b->message.env);
	buf_done(&b->bytes);
}
