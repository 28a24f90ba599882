/* files.c: file operations, seen from PID 1.
 *
 * Each is a worker process (file_worker.c) that has entered the sandbox as the
 * asked user, so what it may touch is decided by the kernel. PID 1 only carries
 * packets between the worker's socketpair and the edge's stream, in order and
 * with back-pressure both ways; its memory is bounded by one ring (upload) and one
 * packet (download). When the edge goes away the worker reads EOF, removes what
 * is half-written and ends; KILL follows after ORPHAN_MS, for root inside may
 * have stopped it. A worker that moves nothing for CHRONUS_FILE_IDLE_MS while it
 * is its turn is killed too. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "chronus/chronus-internal.h"
#include "chronus/file_worker.h"

#define ORPHAN_MS 1000
#define PACKETS_A_ROUND 8

struct file_op {
	struct owner owner;
	struct file_op *next;
	struct chronus *c;
	pid_t pid; /* 0 once reaped */
	struct leaf leaf;
	struct source sock; /* to the worker */
	struct ring up;     /* uploaded bytes the worker has not taken */
	bool up_fills; /* this operation takes an upload */
	bool up_ended, up_end_sent, commit, final_sent, gone;
	uint64_t commit_bytes;
	struct buf pending; /* a packet of the worker that the stream had no room for */
	uint8_t pending_kind;
	uint64_t idle_at, kill_at;
};

static void refuse(struct chronus *c, uint32_t stream, const struct dsec_error *e)
{
	uint8_t p[DSEC_ERROR_MESSAGE_MAX + 128];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	wire_file_failed(&o, dsec_code_name(e->code), e->message, 0);
	if (aether_send_msg(c->conn.a, stream, p, o.n) < 0)
		aether_reset(c->conn.a, stream, AETHER_RESET_INTERNAL);
	else
		aether_close(c->conn.a, stream);
}

/* ---- The end ---- */

void file_detach(struct file_op *f)
{
	struct chronus *c = f->c;
	if (f->owner.stream) { /* what the edge still sends is taken and dropped */
		aether_consume(c->conn.a, f->owner.stream, ring_len(&f->up));
		aether_set_user(c->conn.a, f->owner.stream, NULL);
	}
	f->owner.stream = 0;
	source_close(c, &f->sock); /* the worker sees EOF and cleans up */
	ring_done(&f->up);
	buf_done(&f->pending);
	f->idle_at = CHRONUS_NONE;
	f->gone = true;
	if (f->pid && f->kill_at == CHRONUS_NONE)
		f->kill_at = now_mono_ms() + ORPHAN_MS;
}

void file_detach_all(struct chronus *c)
{
	for (struct file_op *f = c->files; f; f = f->next)
		if (!f->gone)
			file_detach(f);
}

static void finish(struct file_op *f)
{
	uint32_t stream = f->owner.stream;
	if (!f->final_sent) {
		struct dsec_error e;
		/* By root inside, or for want of memory in the sandbox. */
		dsec_error_set(&e, 0, DSEC_E_EXEC_BLOCKED,
			       "something in the sandbox killed the file worker; the operation may be half done");
		file_detach(f);
		refuse(f->c, stream, &e);
		return;
	}
	file_detach(f);
	aether_close(f->c->conn.a, stream);
}

static void give_up(struct file_op *f)
{
	uint32_t stream = f->owner.stream;
	struct dsec_error e;
	dsec_error_set(&e, 0, DSEC_E_EXEC_BLOCKED,
		       "the file worker made no progress for %d s; something in the sandbox stops it",
		       CHRONUS_FILE_IDLE_MS / 1000);
	file_detach(f);
	f->kill_at = 0;
	refuse(f->c, stream, &e);
}

/* ---- Worker to edge ---- */

/* True when the whole packet is on its way. */
static bool forward(struct file_op *f, uint8_t kind, const uint8_t *p, size_t n, size_t *ret_taken)
{
	struct aether *a = f->c->conn.a;
	*ret_taken = 0;
	if (kind == FILE_PACKET_DATA) {
		long k = aether_send_data(a, f->owner.stream, 1, p, n);
		*ret_taken = k > 0 ? (size_t)k : 0;
		return *ret_taken == n;
	}
	if (aether_send_msg(a, f->owner.stream, p, n) < 0)
		return false;
	f->final_sent |= kind == FILE_PACKET_FINAL;
	*ret_taken = n;
	return true;
}

static bool flush_pending(struct file_op *f)
{
	size_t taken;
	if (!buf_len(&f->pending))
		return true;
	bool all = forward(f, f->pending_kind, buf_ptr(&f->pending), buf_len(&f->pending), &taken);
	buf_consume(&f->pending, taken);
	if (all)
		buf_done(&f->pending);
	return all;
}

static void watch(struct file_op *f)
{
	bool want_up = ring_len(&f->up) || f->commit || (f->up_ended && !f->up_end_sent);
	source_watch(f->c, &f->sock, (buf_len(&f->pending) ? 0 : EPOLLIN) | (want_up ? EPOLLOUT : 0));
	/* Whose turn is it? Only the worker's has a deadline. */
	bool edges = buf_len(&f->pending) || (f->up_fills && !want_up && !f->up_ended);
	f->idle_at = edges ? CHRONUS_NONE : now_mono_ms() + CHRONUS_FILE_IDLE_MS;
}

static void receive(struct file_op *f)
{
	static uint8_t packet[FILE_PACKET_MAX]; /* one thread: shared by all */
	for (int i = 0; i < PACKETS_A_ROUND && f->sock.fd >= 0; i++) {
		if (!flush_pending(f))
			return;
		ssize_t k = recv(f->sock.fd, packet, sizeof(packet), MSG_DONTWAIT);
		if (k < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		/* The worker ended before it read all of ours (END after a commit): said
		 * once, ahead of what it sent before. */
		if (k < 0 && errno == ECONNRESET)
			continue;
		if (k <= 0) {
			finish(f);
			return;
		}
		size_t taken;
		if (packet[0] == FILE_PACKET_TICK || forward(f, packet[0], packet + 1, (size_t)k - 1, &taken))
			continue;
		f->pending_kind = packet[0];
		if (buf_append(&f->pending, packet + 1 + taken, (size_t)k - 1 - taken) < 0)
			give_up(f);
	}
}

/* ---- Edge to worker ---- */

static bool send_packet(struct file_op *f, uint8_t kind, const void *p, size_t n)
{
	struct iovec iov[2] = { { &kind, 1 }, { (void *)p, n } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	return sendmsg(f->sock.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EPIPE;
}

static void flush_upload(struct file_op *f)
{
	while (ring_len(&f->up)) {
		const uint8_t *p;
		size_t n = MIN(ring_peek(&f->up, f->up.start, &p), (size_t)FILE_CHUNK);
		if (!send_packet(f, FILE_PACKET_DATA, p, n))
			return;
		ring_release(&f->up, f->up.start + n);
		aether_consume(f->c->conn.a, f->owner.stream, n);
	}
	if (f->commit && send_packet(f, FILE_PACKET_COMMIT, &f->commit_bytes, sizeof(f->commit_bytes)))
		f->commit = false;
	if (f->up_ended && !f->up_end_sent && !f->commit)
		f->up_end_sent = send_packet(f, FILE_PACKET_END, NULL, 0);
}

void file_upload(struct file_op *f, const uint8_t *p, size_t n)
{
	if (!f->up_fills || f->up_ended || ring_write(&f->up, p, n) < n) {
		aether_consume(f->c->conn.a, f->owner.stream, n);
		return;
	}
	file_pump(f);
}

void file_upload_end(struct file_op *f)
{
	f->up_ended = true;
	file_pump(f);
}

void file_command(struct file_op *f, const void *p, size_t n)
{
	if (wire_decode_file_command(p, n, &f->commit_bytes) == 0)
		f->commit = true;
	file_pump(f);
}

void file_pump(struct file_op *f)
{
	if (f->sock.fd < 0)
		return;
	flush_upload(f);
	receive(f);
	if (f->sock.fd >= 0)
		watch(f);
}

static void on_sock(struct source *s, uint32_t events)
{
	file_pump(container_of(s, struct file_op, sock));
}

/* ---- Starting ---- */

static int make_plan(struct chronus *c, const struct wire_file *w, struct file_plan *ret, struct dsec_error *e)
{
	const struct {
		struct slice from;
		char *to;
		const char *what;
	} strings[] = { { w->path, ret->path, "path" }, { w->to, ret->to, "target path" }, { w->user, ret->user, "user" } };
	const size_t caps[] = { sizeof(ret->path), sizeof(ret->to), sizeof(ret->user) };
	for (size_t i = 0; i < ARRAY_SIZE(strings); i++) {
		if (strings[i].from.n >= caps[i])
			return dsec_error_set(e, -ENAMETOOLONG, DSEC_E_NAME_TOO_LONG, "the %s is longer than %zu bytes",
					      strings[i].what, caps[i] - 1);
		if (strings[i].from.n && memchr(strings[i].from.p, 0, strings[i].from.n))
			return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "the %s holds a NUL byte", strings[i].what);
		if (strings[i].from.n)
			memcpy(strings[i].to, strings[i].from.p, strings[i].from.n);
		strings[i].to[strings[i].from.n] = 0;
	}
	if (!*ret->path || (w->op == FILE_MOVE && !*ret->to))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "the path is empty");
	ret->c = c;
	ret->w = w;
	return 0;
}

static int spawn(struct file_op *f, struct file_plan *plan, struct dsec_error *e)
{
	int socks[2];
	char name[24];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return dsec_error_errno(e, -errno, "cannot make the file worker's channel");
	f->sock = (struct source){ .fd = socks[0], .ready = on_sock };
	_cleanup_close_ int theirs = socks[1];
	snprintf(name, sizeof(name), "f-%llu", (unsigned long long)++f->c->leaf_counter);
	int r = leaf_make(f->c->boot.work_fd, name, &f->leaf);
	if (r < 0)
		return dsec_error_errno(e, r, "cannot make the file worker's cgroup");
	plan->sock = theirs;
	r = leaf_fork(&f->leaf);
	if (r == 0)
		file_worker(plan);
	if (r == -EAGAIN)
		return dsec_error_set(e, r, DSEC_E_PIDS_LIMIT, "the sandbox's limit of processes is reached");
	if (r < 0)
		return dsec_error_errno(e, r, "cannot fork");
	f->pid = r;
	return 0;
}

void file_start(struct chronus *c, uint32_t stream, const struct wire_file *w)
{
	static struct file_plan plan; /* 8 KiB of paths; the fork copies it */
	struct dsec_error e;
	int r = make_plan(c, w, &plan, &e);
	struct file_op *f = r < 0 ? NULL : c->n_files < CHRONUS_FILE_OPS_MAX ? calloc(1, sizeof(*f)) : NULL;
	if (!f) {
		if (r == 0)
			dsec_error_set(&e, -EAGAIN, DSEC_E_OVERLOADED, "%d file operations are under way in this sandbox",
				       CHRONUS_FILE_OPS_MAX);
		refuse(c, stream, &e);
		return;
	}
	f->owner = (struct owner){ .kind = OWNER_FILE, .stream = stream };
	f->c = c;
	f->leaf.dirfd = f->sock.fd = -1;
	f->idle_at = f->kill_at = CHRONUS_NONE;
	f->up_fills = w->op == FILE_WRITE || w->op == FILE_TAR_IN;
	ring_init(&f->up, CHRONUS_WINDOW);
	f->next = c->files;
	c->files = f;
	c->n_files++;
	aether_set_user(c->conn.a, stream, &f->owner);
	if (spawn(f, &plan, &e) < 0) {
		file_detach(f);
		refuse(c, stream, &e);
		return;
	}
	watch(f);
}

/* ---- Time and collection ---- */

bool file_child_exited(struct chronus *c, pid_t pid, int status)
{
	for (struct file_op *f = c->files; f; f = f->next)
		if (f->pid == pid) {
			f->pid = 0;
			f->kill_at = CHRONUS_NONE;
			return true;
		}
	return false;
}

void file_tick(struct chronus *c, uint64_t now)
{
	for (struct file_op *f = c->files; f; f = f->next) {
		if (now >= f->idle_at)
			give_up(f);
		if (now >= f->kill_at) {
			f->kill_at = CHRONUS_NONE;
			leaf_kill(&f->leaf);
		}
	}
}

uint64_t file_deadline(struct chronus *c)
{
	uint64_t at = CHRONUS_NONE;
	for (struct file_op *f = c->files; f; f = f->next)
		at = MIN(at, MIN(f->idle_at, f->kill_at));
	return at;
}

void file_collect(struct chronus *c)
{
	for (struct file_op **at = &c->files; *at;) {
		struct file_op *f = *at;
		bool over = f->gone && !f->pid;
		if (!over || leaf_remove(c->boot.work_fd, &f->leaf) < 0) {
			if (over) /* busy for a moment after the worker's end */
				c->collect_at = now_mono_ms() + CHRONUS_COLLECT_MS;
			at = &f->next;
			continue;
		}
		*at = f->next;
		c->n_files--;
		free(f);
	}
}
