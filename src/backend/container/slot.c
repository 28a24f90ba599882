/* slot.c: the pool of slots. See container-internal.h for their states.
 *
 * A slot is a number with all that follows from it: the id range, the outer id,
 * the cgroup directories, the channel's socket. Making one ready takes about two
 * milliseconds, most of it in the kernel's cgroup and network code, so it happens
 * before it is asked for: file work on libuv's threads, namespaces in a spawner.
 * Its number can be read back from a cgroup directory's name after a crash, and
 * nothing else need be known to clean it up. A failure while making one backs off
 * REFILL_RETRY_MS; starts that wait then fail, since something is wrong with the host.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "backend/container/container-internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"

#define REFILL_RETRY_MS 250
#define END_WAIT_FIRST_MS 1
#define END_WAIT_MAX_MS 50
#define ENABLE_TRIES 50 /* of 1 ms: until the helper has left its cgroup */

static void slot_clear(struct slot *s)
{
	s->cg = (struct cgroup_fds)CGROUP_FDS_INIT;
	s->userns = s->netns = s->cgroupns = s->listen = -1;
}

int slots_init(struct backend *b)
{
	TAILQ_INIT(&b->empty);
	TAILQ_INIT(&b->ready);
	TAILQ_INIT(&b->waiting);
	TAILQ_INIT(&b->live);
	b->slots = calloc(b->max_slots, sizeof(*b->slots));
	if (!b->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < b->max_slots; i++) {
		struct slot *s = &b->slots[i];
		s->b = b;
		s->number = i;
		slot_clear(s);
		TAILQ_INSERT_TAIL(&b->empty, s, link);
	}
	return 0;
}

void slot_path(const struct slot *s, char *ret, size_t n)
{
	snprintf(ret, n, "%s/%u.sock", s->b->channel_dir, s->number);
}

void slot_close_fds(struct slot *s)
{
	cgroup_close_fds(&s->cg);
	base_closep(&s->userns);
	base_closep(&s->netns);
	base_closep(&s->cgroupns);
	base_closep(&s->listen);
}

static void slot_unlink(const struct slot *s)
{
	char path[PATH_MAX];
	slot_path(s, path, sizeof(path));
	unlink(path);
}

/* Pooled slots at an orderly end; live ones stay for the next edge. */
void slots_done(struct backend *b)
{
	struct slot *s;
	while ((s = TAILQ_FIRST(&b->ready))) {
		TAILQ_REMOVE(&b->ready, s, link);
		slot_close_fds(s);
		cgroup_remove(b->cgroups, s->number);
		slot_unlink(s);
	}
	/* v1 directories that were kept for reuse. */
	TAILQ_FOREACH(s, &b->empty, link)
		cgroup_remove(b->cgroups, s->number);
}

struct ipc_client *spawner_pick(struct backend *b)
{
	struct ipc_client *best = b->spawners[0];
	for (uint32_t i = 1; i < b->n_spawners; i++) {
		struct ipc_client *c = b->spawners[i];
		if (ipc_client_connected(c) &&
		    (!ipc_client_connected(best) || ipc_client_pending(c) < ipc_client_pending(best)))
			best = c;
	}
	return best;
}

/* ---- making ---- */

static void on_refill(uv_timer_t *t)
{
	slots_fill(t->data);
}

static void on_slot_ended(struct slot *s, int err, void *user)
{
	struct backend *b = s->b;
	if (!b->closing)
		uv_timer_start(&b->refill, on_refill, REFILL_RETRY_MS, 0);
}

static void make_failed(struct slot *s, const char *step, int err, const char *words)
{
	struct backend *b = s->b;
	b->n_making--;
	b->n_live++;
	log_debug("slot %u: %s: %s", s->number, step, words && *words ? words : strerror(-err));
	char text[DSEC_ERROR_MESSAGE_MAX];
	snprintf(text, sizeof(text), "no slot for the sandbox: %s", words && *words ? words : strerror(-err));
	slot_close_fds(s);
	s->state = SLOT_STARTING;
	slot_end(s, on_slot_ended, NULL);
	struct backend_instance *inst = TAILQ_FIRST(&b->waiting);
	if (inst) {
		TAILQ_REMOVE(&b->waiting, inst, link);
		b->n_waiting--;
		instance_refuse(inst, err, err == -ECONNRESET || err == -ETIMEDOUT ? DSEC_E_EDGE_UNAVAILABLE : DSEC_E_INTERNAL,
				text);
	}
}

static void finish_work(uv_work_t *w)
{
	struct slot *s = w->data;
	for (int i = 0; i < ENABLE_TRIES; i++) {
		s->err = cgroup_enable(s->b->cgroups, s->number);
		if (s->err != -EBUSY)
			break;
		usleep(1000);
	}
	if (!s->err)
		s->err = cgroup_open_fds(s->b->cgroups, s->number, &s->cg);
}

static void finish_done(uv_work_t *w, int status)
{
	struct slot *s = w->data;
	struct backend *b = s->b;
	if (s->err < 0) {
		make_failed(s, "open cgroups", s->err, NULL);
	} else {
		b->n_making--;
		s->state = SLOT_STARTING;
		b->n_live++;
		struct backend_instance *inst = b->closing ? NULL : TAILQ_FIRST(&b->waiting);
		if (inst) {
			TAILQ_REMOVE(&b->waiting, inst, link);
			b->n_waiting--;
			instance_slot_ready(inst, s);
		} else {
			slot_give_back(s);
		}
		slots_fill(b);
	}
	backend_unref(b);
}

static void on_namespaces(int err, const void *p, const int *fds, size_t n, void *user)
{
	struct slot *s = user;
	struct backend *b = s->b;
	const struct spawner_reply *reply = p;
	if (!err)
		err = reply->err;
	if (!err && n != 3)
		err = -EPROTO;
	if (err < 0) {
		for (size_t i = 0; i < n; i++)
			base_close(fds[i]);
		make_failed(s, "namespaces", err, reply ? reply->message : "the spawner was restarted");
		backend_unref(b);
		return;
	}
	s->userns = fds[0];
	s->netns = fds[1];
	s->cgroupns = fds[2];
	uv_queue_work(b->loop, &s->work, finish_work, finish_done);
}

static int ask_namespaces(struct slot *s)
{
	struct spawner_request q = {
		.version = SPAWNER_IPC_VERSION,
		.op = SPAWNER_SLOT,
		.outer_id = slot_outer_id(s),
		.id_base = slot_id_base(s),
		.fds = 1u << SPAWNER_FD_CG_SANDBOX,
	};
	int fds[1 + CGROUP_V1_MAX], n = 0;
	fds[n++] = s->cg.sandbox;
	for (int i = 0; i < CGROUP_V1_MAX; i++)
		if (s->cg.v1_tasks[i] >= 0) {
			q.fds |= 1u << (SPAWNER_FD_V1_0 + i);
			fds[n++] = s->cg.v1_tasks[i];
		}
	if (s->b->closing)
		return -ECANCELED;
	return ipc_client_call(spawner_pick(s->b), &q, fds, (size_t)n, on_namespaces, s);
}

static void make_work(uv_work_t *w)
{
	struct slot *s = w->data;
	char path[PATH_MAX];
	s->err = cgroup_make(s->b->cgroups, s->number, slot_outer_id(s));
	if (!s->err)
		s->err = cgroup_open_helper(s->b->cgroups, s->number, &s->cg);
	if (s->err < 0)
		return;
	slot_path(s, path, sizeof(path));
	s->listen = unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK, CONTAINER_LISTEN_BACKLOG);
	if (s->listen < 0)
		s->err = s->listen;
}

static void make_done(uv_work_t *w, int status)
{
	struct slot *s = w->data;
	struct backend *b = s->b;
	if (!s->err)
		s->err = ask_namespaces(s);
	if (s->err < 0) {
		make_failed(s, "make cgroups", s->err, NULL);
		backend_unref(b);
	}
}

void slots_fill(struct backend *b)
{
	while (b->usable && !b->closing && b->n_making < CONTAINER_MAKING_MAX &&
	       b->n_ready + b->n_making < b->pool_size + b->n_waiting) {
		struct slot *s = TAILQ_FIRST(&b->empty);
		if (!s)
			return;
		TAILQ_REMOVE(&b->empty, s, link);
		s->state = SLOT_MAKING;
		s->work.data = s;
		b->n_making++;
		backend_ref(b);
		uv_queue_work(b->loop, &s->work, make_work, make_done);
	}
}

/* ---- taking ---- */

struct slot *slot_take(struct backend *b)
{
	struct slot *s = TAILQ_FIRST(&b->ready);
	if (!s)
		return NULL;
	TAILQ_REMOVE(&b->ready, s, link);
	b->n_ready--;
	b->n_live++;
	s->state = SLOT_STARTING;
	return s;
}

uint32_t slots_coming(const struct backend *b)
{
	uint32_t n_empty = b->max_slots - b->n_live - b->n_ready - b->n_making - b->n_broken;
	return n_empty + b->n_making + b->n_ending;
}

void slot_give_back(struct slot *s)
{
	struct backend *b = s->b;
	s->state = SLOT_READY;
	b->n_live--;
	b->n_ready++;
	TAILQ_INSERT_HEAD(&b->ready, s, link);
}

void slot_reserve(struct slot *s)
{
	if (s->state != SLOT_EMPTY)
		return;
	TAILQ_REMOVE(&s->b->empty, s, link);
	s->state = SLOT_RESERVED;
	s->b->n_live++;
}

/* ---- ending ---- */

static void end_work(uv_work_t *w)
{
	struct slot *s = w->data;
	s->err = cgroup_kill(s->b->cgroups, s->number);
	if (!s->err)
		s->err = cgroup_populated(s->b->cgroups, s->number) ? -EBUSY : cgroup_recycle(s->b->cgroups, s->number);
	if (!s->err)
		slot_unlink(s);
}

static void end_done(uv_work_t *w, int status);

static void on_end_timer(uv_timer_t *t)
{
	struct slot *s = t->data;
	uv_queue_work(s->b->loop, &s->work, end_work, end_done);
}

static void on_timer_closed(uv_handle_t *h)
{
	free(h);
}

/* A slot that starts wait for does not come back. */
static void refuse_hopeless(struct backend *b)
{
	while (b->n_waiting > slots_coming(b)) {
		struct backend_instance *inst = TAILQ_LAST(&b->waiting, instance_list);
		TAILQ_REMOVE(&b->waiting, inst, link);
		b->n_waiting--;
		instance_refuse(inst, -EAGAIN, DSEC_E_CAPACITY, "a sandbox whose place it would have taken cannot be removed");
	}
}

static void end_finish(struct slot *s)
{
	struct backend *b = s->b;
	if (s->timer)
		uv_close((uv_handle_t *)s->timer, on_timer_closed);
	s->timer = NULL;
	b->n_live--;
	b->n_ending--;
	/* What cannot be emptied is never handed out again; the next edge retries. */
	s->state = s->err ? SLOT_BROKEN : SLOT_EMPTY;
	b->n_broken += s->err != 0;
	if (!s->err)
		/* Last in, first out would keep v1 directories few; first in, first out
		 * lets the kernel finish what it does behind. The former counts more. */
		TAILQ_INSERT_HEAD(&b->empty, s, link);
	if (s->err)
		refuse_hopeless(b);
	if (s->ended)
		s->ended(s, s->err, s->ended_user);
	else if (s->err)
		log_error("slot %u is out of use: what ran in it cannot be removed: %s", s->number, strerror(-s->err));
	if (s->state == SLOT_EMPTY && !uv_is_active((uv_handle_t *)&b->refill))
		slots_fill(b);
	backend_unref(b);
}

/* The last task of a namespace is counted in its cgroup a little longer than its
 * pidfd says: look again soon, then ever later. */
static void end_done(uv_work_t *w, int status)
{
	struct slot *s = w->data;
	if (s->err == -EBUSY && now_mono_ms() < s->end_deadline_ms) {
		if (!s->timer && (s->timer = calloc(1, sizeof(*s->timer)))) {
			uv_timer_init(s->b->loop, s->timer);
			s->timer->data = s;
		}
		if (s->timer) {
			uv_timer_start(s->timer, on_end_timer, s->end_wait_ms, 0);
			s->end_wait_ms = MIN(s->end_wait_ms * 2, (uint64_t)END_WAIT_MAX_MS);
			return;
		}
	}
	end_finish(s);
}

void slot_end(struct slot *s, void (*ended)(struct slot *s, int err, void *user), void *user)
{
	slot_close_fds(s);
	s->state = SLOT_ENDING;
	s->b->n_ending++;
	s->ended = ended;
	s->ended_user = user;
	s->end_deadline_ms = now_mono_ms() + CONTAINER_END_DEADLINE_MS;
	s->end_wait_ms = END_WAIT_FIRST_MS;
	s->work.data = s;
	backend_ref(s->b);
	uv_queue_work(s->b->loop, &s->work, end_work, end_done);
}
