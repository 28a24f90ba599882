/* stdin.c: what goes into a command's standard input. See exec.h.
 *
 * Two sources: inline input, kept in a file until chronus has all of it so that
 * a killed edge can go on, and uploads, one call at a time. Positions are
 * absolute; x->in.sent is the next byte that chronus expects. An upload that
 * begins below it is a resumed one: the known bytes are swallowed.
 *
 * An upload with EOF is answered when chronus has closed the pipe behind it: what
 * lies in streams and rings before that dies with this process, and the caller,
 * who says nothing more, could not know. (Without EOF the next upload finds out:
 * stdin_offset lies below what was taken.) Repeated after the end, because the
 * answer was lost, an upload is answered again (late_ops).
 * Back-pressure: an upload's credit is given back when chronus's stream took
 * the bytes; what it did not take waits here, at most one window.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/fdio.h"
#include "edge/exec.h"

#define STDIN_CHUNK (32 * 1024)

struct upload {
	struct exec *x;
	uint64_t at;       /* position of the next byte to come from the caller */
	bool eof;
	struct buf held;   /* came, not yet taken by chronus's stream */
};

static void file_name(const struct exec *x, char ret[SPOOL_NAME_MAX])
{
	spool_file_name(x->sb->id, x->id, "in", ret);
}

int stdin_save(struct exec *x, const void *p, size_t n)
{
	char name[SPOOL_NAME_MAX];
	file_name(x, name);
	int dirfd = x->sb->node->spool_fd;
	x->in.file_fd = openat(dirfd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (x->in.file_fd < 0)
		return -errno;
	x->in.file_bytes = n;
	return write_all(x->in.file_fd, p, n);
}

void stdin_remove(struct exec *x)
{
	char name[SPOOL_NAME_MAX];
	x->in.file_fd = base_close(x->in.file_fd);
	if (!x->in.file_bytes)
		return;
	file_name(x, name);
	unlinkat(x->sb->node->spool_fd, name, 0);
}

static void send_eof(struct exec *x)
{
	Dsec__Chronus__StdinEof m = DSEC__CHRONUS__STDIN_EOF__INIT;
	Dsec__Chronus__ExecCommand cmd = DSEC__CHRONUS__EXEC_COMMAND__INIT;
	cmd.what_case = DSEC__CHRONUS__EXEC_COMMAND__WHAT_STDIN_EOF;
	cmd.stdin_eof = &m;
	if (!x->in.eof_due || x->in.eof_sent || peer_send(&x->peer, &cmd.base) < 0)
		return; /* WRITABLE or the next attach tries again */
	x->in.eof_sent = true;
	x->in.open = false; /* the file stays until chronus has closed: it may ask for all of it again */
}

static int pump_file(struct exec *x)
{
	uint8_t chunk[STDIN_CHUNK];
	if (x->in.file_fd < 0 && x->in.sent < x->in.file_bytes) { /* after a restart */
		char name[SPOOL_NAME_MAX];
		file_name(x, name);
		x->in.file_fd = openat(x->sb->node->spool_fd, name, O_RDONLY | O_CLOEXEC);
		if (x->in.file_fd < 0)
			return -errno;
	}
	while (x->in.sent < x->in.file_bytes) {
		ssize_t n = pread(x->in.file_fd, chunk, sizeof(chunk), (off_t)x->in.sent);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		long k = peer_send_data(&x->peer, 0, chunk, (size_t)n);
		if (k < 0)
			return (int)k;
		x->in.sent += (uint64_t)k;
		if (k < n)
			return 0; /* WRITABLE goes on */
	}
	x->in.eof_due = true;
	return 0;
}

/* --- uploads --- */

static void reply_done(struct call *c, uint64_t offset, bool closed)
{
	Dsec__Edge__StdinDone m = DSEC__EDGE__STDIN_DONE__INIT;
	Dsec__Edge__EdgeReply reply = DSEC__EDGE__EDGE_REPLY__INIT;
	m.offset = offset;
	m.closed = closed;
	reply.what_case = DSEC__EDGE__EDGE_REPLY__WHAT_STDIN_DONE;
	reply.stdin_done = &m;
	call_reply(c, &reply);
	call_end(c);
}

static void finish_upload(struct call *c)
{
	const struct exec *x = ((struct upload *)c->data)->x;
	reply_done(c, x->in.sent, x->in.closed);
}

static void pump_upload(struct exec *x)
{
	struct call *c = x->in.uploader;
	struct upload *u = c->data;
	while (buf_len(&u->held)) {
		long k = peer_send_data(&x->peer, 0, buf_ptr(&u->held), buf_len(&u->held));
		if (k <= 0)
			return;
		buf_consume(&u->held, (size_t)k);
		x->in.sent += (uint64_t)k;
		call_consume(c, (size_t)k);
	}
	buf_done(&u->held);
	if (!c->upload_ended)
		return;
	if (u->eof)
		x->in.eof_due = true;
	else
		finish_upload(c);
}

void stdin_pump(struct exec *x)
{
	if (x->state != EXEC_RUNNING || !x->peer.stream || x->in.closed)
		return;
	if (x->in.file_bytes && !x->in.eof_due && pump_file(x) < 0)
		x->in.eof_due = true; /* the input is cut; the program sees its end */
	if (x->in.uploader)
		pump_upload(x);
	send_eof(x);
}

void stdin_attached(struct exec *x, uint64_t offset, bool closed)
{
	x->in.sent = offset;
	x->in.closed = closed;
	x->in.eof_sent = false; /* asked again of a chronus that has it: harmless */
	/* Bytes before EOF may be lost: the file, or the caller who was told nothing, says both again. */
	x->in.eof_due = false;
	x->in.open = x->spec->stdin_open && !closed;
	stdin_pump(x);
}

void stdin_state(struct exec *x, uint64_t offset, bool closed)
{
	x->in.given = offset;
	if (closed)
		stdin_ended(x);
}

void stdin_ended(struct exec *x)
{
	x->in.closed = true;
	x->in.open = false;
	if (x->in.uploader)
		finish_upload(x->in.uploader);
	stdin_remove(x);
}

static void upload_data(struct call *c, uint8_t channel, const void *p, size_t n)
{
	struct upload *u = c->data;
	struct exec *x = u->x;
	/* What chronus expects next lies behind everything that is held. */
	uint64_t known = x->in.sent + buf_len(&u->held);
	size_t skip = u->at < known ? (size_t)MIN(known - u->at, (uint64_t)n) : 0;
	u->at += n;
	if (channel) {
		call_fail(c, DSEC_E_BAD_REQUEST, "standard input comes on channel 0");
		return;
	}
	call_consume(c, skip);
	if (n > skip && buf_append(&u->held, (const uint8_t *)p + skip, n - skip) < 0) {
		call_fail(c, DSEC_E_CAPACITY, "out of memory for standard input");
		return;
	}
	stdin_pump(x);
}

static void upload_half_closed(struct call *c)
{
	struct upload *u = c->data;
	stdin_pump(u->x);
}

static void upload_release(struct call *c)
{
	struct upload *u = c->data;
	u->x->in.uploader = NULL;
	buf_done(&u->held);
	free(u);
}

static const struct call_ops upload_ops = {
	.data = upload_data, .half_closed = upload_half_closed, .release = upload_release
};

/* --- uploads after the end: nothing is sent, it is only seen whether all is known --- */

struct late {
	uint64_t at, known;
};

static void late_data(struct call *c, uint8_t channel, const void *p, size_t n)
{
	struct late *l = c->data;
	l->at += n;
	if (l->at > l->known)
		call_fail(c, DSEC_E_CONFLICT, "standard input of this command is closed");
	else
		call_consume(c, n);
}

static void late_half_closed(struct call *c)
{
	reply_done(c, ((struct late *)c->data)->known, true);
}

static void late_release(struct call *c)
{
	free(c->data);
}

static const struct call_ops late_ops = {
	.data = late_data, .half_closed = late_half_closed, .release = late_release
};

static void late_call(struct call *c, const struct exec *x, uint64_t offset)
{
	struct late *l = x->spec->stdin_open && offset <= x->in.sent ? calloc(1, sizeof(*l)) : NULL;
	if (!l) {
		call_fail(c, DSEC_E_CONFLICT, "standard input of this command is closed");
		return;
	}
	*l = (struct late){ offset, x->in.sent };
	c->data = l;
	c->ops = &late_ops;
	if (c->upload_ended)
		late_half_closed(c);
}

void stdin_call(struct call *c, struct exec *x, const Dsec__Edge__ExecStdin *req)
{
	if (x->state == EXEC_STARTING)
		call_fail(c, DSEC_E_WRONG_STATE, "the command has not started yet");
	else if (!x->in.open || exec_ended(x))
		late_call(c, x, req->offset);
	else if (x->in.uploader)
		call_fail(c, DSEC_E_WRONG_STATE, "another upload to this command's standard input is running");
	else if (req->offset > x->in.sent)
		call_fail(c, DSEC_E_BAD_FIELD, "offset %llu leaves a gap: standard input is at %llu",
			  (unsigned long long)req->offset, (unsigned long long)x->in.sent);
	else {
		struct upload *u = calloc(1, sizeof(*u));
		if (!u) {
			call_fail(c, DSEC_E_CAPACITY, "out of memory");
			return;
		}
		u->x = x;
		u->at = req->offset;
		u->eof = req->eof;
		u->held = BUF_INIT(0);
		c->data = u;
		c->ops = &upload_ops;
		x->in.uploader = c;
		if (c->upload_ended)
			stdin_pump(x);
	}
}
