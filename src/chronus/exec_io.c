/* exec_io.c: the streams of a command.
 *
 * Output: pipe (or PTY master) -> ring of CHRONUS_OUTPUT_RING -> edge. The ring
 * keeps what the edge has not acknowledged; when it is full the pipe is no longer
 * read and the program blocks. Nothing written before the main process ended is
 * lost to a slow edge: the drain limit cuts only what came after (cut_left).
 * After the end event, processes left in the background may write on; their
 * output is read and forgotten at a slow pace, so they neither die of SIGPIPE nor
 * cost PID 1 its processor.
 *
 * Input: edge -> in_ring -> program. Credit goes back as the program takes bytes.
 * in_ring.start is the one truth of how much it was given; when the edge goes
 * away the rest is dropped and sent again from there. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "chronus/chronus-internal.h"

#define READS_A_ROUND 4
#define STDIN_TELL_BYTES (32 * 1024) /* progress is reported at least this often */
#define DISCARD_BYTES (16 * 1024)    /* read and forgotten each CHRONUS_DISCARD_MS */

/* ---- Output ---- */

static void out_eof(struct exec *x, struct out_stream *s)
{
	source_close(x->c, &s->s);
	s->eof = true;
	s->rearm_at = CHRONUS_NONE;
}

static void discard_some(struct exec *x, struct out_stream *s)
{
	char waste[DISCARD_BYTES];
	ssize_t k = read(s->s.fd, waste, sizeof(waste));
	if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) {
		out_eof(x, s);
		return;
	}
	source_watch(x->c, &s->s, 0);
	s->rearm_at = now_mono_ms() + CHRONUS_DISCARD_MS;
}

/* One read. False: nothing more now (empty, full, cut or EOF). */
static bool read_some(struct exec *x, struct out_stream *s)
{
	uint8_t *p;
	size_t n;
	if (ring_tail(&s->ring, &p, &n) < 0 || !n) {
		source_watch(x->c, &s->s, 0); /* exec_io_ack resumes */
		return false;
	}
	if (s->cutting)
		n = MIN(n, s->cut_left);
	if (!n) {
		source_watch(x->c, &s->s, 0);
		return false;
	}
	ssize_t k = read(s->s.fd, p, n);
	if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
		s->cut_left = 0; /* a PTY may count what it does not give */
		return false;
	}
	if (k <= 0) { /* EIO: the last user of the PTY is gone */
		out_eof(x, s);
		return false;
	}
	ring_commit(&s->ring, (size_t)k);
	if (s->cutting)
		s->cut_left -= (size_t)k;
	return (size_t)k == n;
}

static void on_out(struct exec *x, struct out_stream *s)
{
	if (s->discard) {
		discard_some(x, s);
		return;
	}
	for (int i = 0; i < READS_A_ROUND && read_some(x, s); i++)
		;
	exec_pump(x);
	exec_check_end(x);
}

static void on_out0(struct source *s, uint32_t events)
{
	struct exec *x = container_of(s, struct exec, out[0].s);
	on_out(x, &x->out[0]);
}

static void on_out1(struct source *s, uint32_t events)
{
	struct exec *x = container_of(s, struct exec, out[1].s);
	on_out(x, &x->out[1]);
}

void exec_io_resume(struct exec *x)
{
	for (int i = 0; i < 2; i++) {
		struct out_stream *s = &x->out[i];
		if (s->s.fd >= 0 && !s->discard && ring_room(&s->ring) && !(s->cutting && !s->cut_left))
			source_watch(x->c, &s->s, EPOLLIN);
	}
}

void exec_io_ack(struct exec *x, const uint64_t offset[2])
{
	for (int i = 0; i < 2; i++)
		ring_release(&x->out[i].ring, MIN(offset[i], x->out[i].sent));
	if (x->state == EXEC_ENDED)
		exec_io_tidy(x);
	else
		exec_io_resume(x);
}

/* The drain limit: what is in the pipes now still counts, what comes later not.
 * True when nothing of it is left to read. */
bool exec_io_cut(struct exec *x)
{
	bool all = true;
	for (int i = 0; i < 2; i++) {
		struct out_stream *s = &x->out[i];
		int pending = 0;
		if (s->eof)
			continue;
		if (!s->cutting) {
			s->cutting = true;
			s->cut_left = ioctl(s->s.fd, FIONREAD, &pending) == 0 && pending > 0 ? (size_t)pending : 0;
		}
		all &= s->cut_left == 0;
	}
	return all;
}

void exec_io_discard(struct exec *x)
{
	for (int i = 0; i < 2; i++) {
		struct out_stream *s = &x->out[i];
		if (s->eof)
			continue;
		s->discard = true;
		source_watch(x->c, &s->s, EPOLLIN);
	}
}

/* Nobody will ask for these bytes again. */
void exec_io_forget(struct exec *x)
{
	for (int i = 0; i < 2; i++) {
		struct out_stream *s = &x->out[i];
		ring_release(&s->ring, s->ring.end);
		s->sent = s->ring.end;
		ring_done(&s->ring);
	}
}

/* Memory of rings that hold nothing goes back once a second, not at each ack. */
void exec_io_tidy(struct exec *x)
{
	for (int i = 0; i < 2; i++)
		if (!ring_len(&x->out[i].ring))
			ring_done(&x->out[i].ring);
	if (!ring_len(&x->in_ring))
		ring_done(&x->in_ring);
}

/* ---- Input ---- */

static void give_credit(struct exec *x, size_t n)
{
	if (x->owner.stream && n)
		aether_consume(x->c->conn.a, x->owner.stream, n);
}

static void drop_input(struct exec *x)
{
	give_credit(x, ring_len(&x->in_ring));
	x->in_ring.end = x->in_ring.start;
}

void exec_io_stdin_forget(struct exec *x)
{
	x->in_ring.end = x->in_ring.start;
	x->stdin_eof_asked = false; /* it was asked behind what is forgotten, and comes again */
}

void exec_io_stdin_close(struct exec *x)
{
	if (x->stdin_closed)
		return;
	x->stdin_closed = true;
	drop_input(x);
	ring_done(&x->in_ring);
	if (x->pty)
		source_watch(x->c, &x->in, 0); /* the master stays: resize needs it */
	else
		source_close(x->c, &x->in);
	x->owe_stdin_state = true;
}

/* End of file on a terminal is typed: once at the start of a line, twice within
 * one (the first only hands the line over). */
static bool write_veof(struct exec *x)
{
	struct termios t;
	char eof[2] = { 4, 4 };
	if (tcgetattr(x->in.fd, &t) == 0 && t.c_cc[VEOF])
		eof[0] = eof[1] = (char)t.c_cc[VEOF];
	return write(x->in.fd, eof, x->pty_line_open ? 2 : 1) > 0 || errno != EAGAIN;
}

static void finish_input(struct exec *x)
{
	if (x->pty && !write_veof(x)) {
		source_watch(x->c, &x->in, EPOLLOUT);
		return;
	}
	exec_io_stdin_close(x);
}

static void flush_input(struct exec *x)
{
	while (ring_len(&x->in_ring)) {
		const uint8_t *p;
		size_t n = ring_peek(&x->in_ring, x->in_ring.start, &p);
		ssize_t k = write(x->in.fd, p, n);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0 && errno == EAGAIN) {
			source_watch(x->c, &x->in, EPOLLOUT);
			break;
		}
		if (k <= 0) { /* the program closed its input */
			exec_io_stdin_close(x);
			break;
		}
		x->pty_line_open = p[k - 1] != '\n' && p[k - 1] != '\r';
		ring_release(&x->in_ring, x->in_ring.start + (uint64_t)k);
		give_credit(x, (size_t)k);
	}
	if (!x->stdin_closed && !ring_len(&x->in_ring)) {
		source_watch(x->c, &x->in, EPOLLERR); /* only "nobody reads any more" */
		if (x->stdin_eof_asked)
			finish_input(x);
	}
	uint64_t untold = x->in_ring.start - x->stdin_told;
	if (untold >= STDIN_TELL_BYTES || (untold && !ring_len(&x->in_ring)))
		x->owe_stdin_state = true;
	exec_pump(x);
}

static void on_in(struct source *s, uint32_t events)
{
	struct exec *x = container_of(s, struct exec, in);
	if (events & (EPOLLERR | EPOLLHUP)) {
		exec_io_stdin_close(x);
		exec_pump(x);
		return;
	}
	flush_input(x);
}

void exec_stdin_data(struct exec *x, const uint8_t *p, size_t n)
{
	if (x->stdin_closed || x->stdin_eof_asked || !x->stdin_open) {
		give_credit(x, n);
		return;
	}
	/* The window bounds what may be under way, and the ring holds a window. */
	size_t k = ring_write(&x->in_ring, p, n);
	if (k < n) {
		exec_io_stdin_close(x);
		give_credit(x, n);
		return;
	}
	if (x->in.fd >= 0)
		flush_input(x);
}

void exec_io_stdin_eof(struct exec *x)
{
	x->stdin_eof_asked = true;
	if (x->in.fd >= 0 && !x->stdin_closed)
		flush_input(x);
}

/* ---- Life ---- */

/* in_fd -1: closed; err_fd -1: a PTY, whose master is in_fd and out_fd alike. All are taken. */
void exec_io_start(struct exec *x, int in_fd, int out_fd, int err_fd)
{
	x->out[0].s = (struct source){ .fd = out_fd, .ready = on_out0 };
	x->out[1].s = (struct source){ .fd = err_fd, .ready = on_out1 };
	x->out[1].eof = err_fd < 0;
	if (in_fd == out_fd) /* epoll knows a descriptor once: input gets its own number */
		in_fd = fcntl(in_fd, F_DUPFD_CLOEXEC, 3);
	x->in = (struct source){ .fd = in_fd, .ready = on_in };
	exec_io_resume(x);
	if (in_fd < 0) {
		exec_io_stdin_close(x);
		x->owe_stdin_state = false; /* ExecStarted says so */
	} else {
		flush_input(x);
	}
}

void exec_io_done(struct exec *x)
{
	for (int i = 0; i < 2; i++) {
		source_close(x->c, &x->out[i].s);
		x->out[i].rearm_at = CHRONUS_NONE;
		ring_done(&x->out[i].ring);
		x->out[i].sent = x->out[i].ring.start = x->out[i].ring.end;
	}
	source_close(x->c, &x->in);
}

void exec_io_tick(struct exec *x, uint64_t now)
{
	for (int i = 0; i < 2; i++) {
		struct out_stream *s = &x->out[i];
		if (now >= s->rearm_at) {
			s->rearm_at = CHRONUS_NONE;
			source_watch(x->c, &s->s, EPOLLIN);
		}
	}
}

uint64_t exec_io_deadline(const struct exec *x)
{
	return MIN(x->out[0].rearm_at, x->out[1].rearm_at);
}
