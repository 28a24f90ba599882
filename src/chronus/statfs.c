/* statfs.c: `df` inside shows the disk limit, not the shared volume.
 *
 * The filter of each command (seccomp.c) sends statfs and fstatfs to a listener
 * that PID 1 holds. For each call:
 *   RECV -> helper LOOKs -> not the root: the kernel goes on with the call
 *                        -> the root: ask the edge for the usage if ours is not
 *                           fresh -> is the call still there? ->
 *                           helper FILLs the caller's memory -> SEND
 * The helper is a child that has entered the user namespace: PID 1 opens nothing
 * of the sandbox and touches no memory of it, so nothing there can hold it up.
 * One call at a time; others wait in their listeners.
 *
 * Every step has a deadline (OP_MS): then the kernel goes on with the call and
 * the helper, stopped or stuck, is killed. Nothing here is a matter of security:
 * a caller that cheats sees the volume's own figures. */
#include "chronus/statfs.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"

#ifndef SECCOMP_USER_NOTIF_FLAG_CONTINUE
#define SECCOMP_USER_NOTIF_FLAG_CONTINUE 1
#endif
#define OP_MS 1000         /* one call, all in */
#define USAGE_WAIT_MS 250  /* of these for the edge */
/* How old an answer of the edge may be: nothing to speak of for whoever writes a
 * file and looks, a second for whoever asks all the time. */
#define USAGE_FRESH_MS 10
#define USAGE_FRESH_BUSY_MS 1000
#define ASKS_MAX 10        /* in a row before it counts as busy; one comes back each */
#define ASK_BACK_MS 500
#define HELPER_IDLE_MS 5000
#define NOTIF_ROOM 256     /* a later kernel's struct may be longer than the header's */

enum op_state { IDLE, LOOKING, ASKING_EDGE, FILLING };

struct statfs_state {
	struct chronus *c;
	struct source sock; /* to the helper; -1: none */
	pid_t pid;
	enum op_state state;
	struct exec *x; /* whose call it is */
	uint64_t id;    /* of the notification */
	struct statfs_question q;
	uint64_t op_at, ask_at, idle_at; /* deadlines */
	uint64_t usage_at, limit, used;  /* last known; usage_at 0: never */
	uint64_t asked_at, asks_at;      /* of the last question; of the last one given back */
	uint32_t asks;                   /* left */
	uint32_t token;
};

static void next_call(struct statfs_state *s);

static void helper_end(struct statfs_state *s)
{
	source_close(s->c, &s->sock);
	if (s->pid) /* reaped later; pid stays ours until then */
		kill(s->pid, SIGKILL);
	s->idle_at = CHRONUS_NONE;
}

static void answer(struct statfs_state *s, bool filled)
{
	union {
		struct seccomp_notif_resp r;
		char room[NOTIF_ROOM];
	} u = { .r = { .id = s->id, .flags = filled ? 0 : SECCOMP_USER_NOTIF_FLAG_CONTINUE } };
	if (s->state == IDLE)
		return;
	if (s->x && s->x->notify.fd >= 0)
		ioctl(s->x->notify.fd, SECCOMP_IOCTL_NOTIF_SEND, &u); /* ENOENT: the caller is gone */
	s->state = IDLE;
	s->x = NULL;
	s->op_at = s->ask_at = CHRONUS_NONE;
	s->idle_at = s->sock.fd >= 0 ? now_mono_ms() + HELPER_IDLE_MS : CHRONUS_NONE;
	next_call(s);
}

static void ask_helper(struct statfs_state *s, enum statfs_ask ask, enum op_state state)
{
	s->q.ask = ask;
	s->state = state;
	if (send(s->sock.fd, &s->q, sizeof(s->q), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(s->q)) {
		helper_end(s);
		answer(s, false);
	}
}

static void fill(struct statfs_state *s)
{
	s->ask_at = CHRONUS_NONE;
	/* The helper holds the caller's memory by descriptor since LOOK. If the call
	 * still waits now, that was the caller and not a later owner of its number. */
	if (!s->x || ioctl(s->x->notify.fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &s->id) < 0) {
		answer(s, false);
		return;
	}
	s->q.limit_bytes = s->usage_at ? s->limit : s->c->boot.disk_bytes;
	s->q.used_bytes = s->usage_at ? s->used : 0;
	ask_helper(s, STATFS_FILL, FILLING);
}

static void ask_edge(struct statfs_state *s)
{
	uint8_t p[32];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	struct conn *conn = &s->c->conn;
	uint64_t now = now_mono_ms();
	uint64_t back = (now - s->asks_at) / ASK_BACK_MS;
	if (back) {
		s->asks = (uint32_t)MIN(s->asks + back, (uint64_t)ASKS_MAX);
		s->asks_at = now;
	}
	/* Fresh enough, or asked a moment ago without an answer. */
	bool unanswered = s->asked_at > s->usage_at;
	uint64_t fresh = s->asks && !unanswered ? USAGE_FRESH_MS : USAGE_FRESH_BUSY_MS;
	if (MAX(s->usage_at, s->asked_at) + fresh > now) {
		fill(s);
		return;
	}
	wire_disk_usage_request(&o, ++s->token);
	if (!conn->a || !conn->hello_stream || aether_send_msg(conn->a, conn->hello_stream, p, o.n) < 0) {
		fill(s); /* with what was last known */
		return;
	}
	s->state = ASKING_EDGE;
	s->asked_at = now;
	s->asks -= s->asks > 0;
	s->ask_at = now + USAGE_WAIT_MS;
}

void statfs_usage_reply(struct chronus *c, const struct wire_disk_usage *u)
{
	struct statfs_state *s = c->statfs;
	if (!s)
		return;
	s->limit = u->limit_bytes ? u->limit_bytes : c->boot.disk_bytes;
	s->used = u->used_bytes;
	s->usage_at = now_mono_ms();
	if (s->state == ASKING_EDGE && u->token == s->token)
		fill(s);
}

static void on_helper(struct source *src, uint32_t events)
{
	struct statfs_state *s = container_of(src, struct statfs_state, sock);
	uint32_t word;
	ssize_t n = recv(src->fd, &word, sizeof(word), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n != sizeof(word)) {
		helper_end(s);
		answer(s, false);
	} else if (s->state == LOOKING && word == STATFS_IS_ROOT) {
		ask_edge(s);
	} else {
		answer(s, s->state == FILLING && word == STATFS_DONE);
	}
}

static int helper_start(struct statfs_state *s)
{
	int socks[2];
	if (s->sock.fd >= 0)
		return 0;
	if (s->pid) /* the former one is not reaped yet */
		return -EAGAIN;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return -errno;
	_cleanup_close_ int ours = socks[0], theirs = socks[1];
	/* In PID 1's own cgroup: `df` works when the sandbox is at its limits. */
	pid_t pid = fork();
	if (pid == 0)
		statfs_helper(s->c, theirs);
	if (pid < 0)
		return -errno;
	s->pid = pid;
	s->sock = (struct source){ .fd = TAKE_FD(ours), .ready = on_helper };
	return source_watch(s->c, &s->sock, EPOLLIN);
}

/* ---- Listeners ---- */

static void receive(struct statfs_state *s, struct exec *x)
{
	union {
		struct seccomp_notif n;
		char room[NOTIF_ROOM];
	} u = { 0 };
	if (ioctl(x->notify.fd, SECCOMP_IOCTL_NOTIF_RECV, &u) < 0)
		return; /* the caller was killed meanwhile */
	s->x = x;
	s->id = u.n.id;
	s->q = (struct statfs_question){ .tid = (int32_t)u.n.pid, .nr = u.n.data.nr,
					 .args = { u.n.data.args[0], u.n.data.args[1] } };
	s->op_at = now_mono_ms() + OP_MS;
	s->idle_at = CHRONUS_NONE;
	s->state = LOOKING;
	if (helper_start(s) < 0)
		answer(s, false);
	else
		ask_helper(s, STATFS_LOOK, LOOKING);
}

static void on_notify(struct source *src, uint32_t events)
{
	struct exec *x = container_of(src, struct exec, notify);
	struct statfs_state *s = x->c->statfs;
	if (!(events & EPOLLIN)) { /* HUP: no task with this filter is left */
		source_close(x->c, src);
		return;
	}
	if (s->state == IDLE) {
		receive(s, x);
		return;
	}
	x->notify_waiting = true;
	source_watch(x->c, src, 0);
}

/* Lets the listeners that had to wait speak again, in the next round. */
static void next_call(struct statfs_state *s)
{
	for (struct exec *x = s->c->execs; x; x = x->next)
		if (x->notify_waiting) {
			x->notify_waiting = false;
			source_watch(s->c, &x->notify, EPOLLIN);
		}
}

void statfs_watch(struct exec *x, int listener_take)
{
	struct chronus *c = x->c;
	if (!c->statfs && (c->statfs = calloc(1, sizeof(*c->statfs)))) {
		c->statfs->c = c;
		c->statfs->sock.fd = -1;
		c->statfs->op_at = c->statfs->ask_at = c->statfs->idle_at = CHRONUS_NONE;
	}
	x->notify = (struct source){ .fd = listener_take, .ready = on_notify };
	/* A closed listener makes these calls fail with ENOSYS, which programs survive. */
	if (!c->statfs || source_watch(c, &x->notify, EPOLLIN) < 0)
		source_close(c, &x->notify);
}

void statfs_forget(struct exec *x)
{
	struct statfs_state *s = x->c->statfs;
	source_close(x->c, &x->notify);
	if (s && s->x == x)
		s->x = NULL; /* the helper's answer, or the deadline, ends the operation */
}

bool statfs_child_exited(struct chronus *c, pid_t pid)
{
	struct statfs_state *s = c->statfs;
	if (!s || s->pid != pid)
		return false;
	s->pid = 0;
	source_close(c, &s->sock);
	answer(s, false);
	return true;
}

void statfs_tick(struct chronus *c, uint64_t now)
{
	struct statfs_state *s = c->statfs;
	if (!s)
		return;
	if (now >= s->op_at) {
		helper_end(s);
		answer(s, false);
	}
	if (now >= s->ask_at)
		fill(s);
	if (now >= s->idle_at)
		helper_end(s);
}

uint64_t statfs_deadline(struct chronus *c)
{
	return c->statfs ? MIN(c->statfs->op_at, MIN(c->statfs->ask_at, c->statfs->idle_at)) : CHRONUS_NONE;
}
