/* instance.c: one sandbox from start to end. See container.c for the whole.
 *
 * start:   a slot (pooled, or waited for) -> limits -> mounter PREPARE (the overlay)
 *          -> spawner SPAWN (PID 1) -> pidfd watched -> cb.
 * end:     SIGKILL to PID 1, which takes its whole pid namespace along; when the
 *          pidfd says it is gone, the mounter releases the subvolume -> cb. The
 *          slot (empty cgroups, a socket's name) is recycled beside that, by itself
 *          (docs/decisions/0107-removal-does-not-wait-for-recycling.md).
 * A start that fails after PREPARE goes through the same end, then reports: nothing
 * is left behind. When a helper was restarted in between, PREPARE is asked again
 * (RELEASE goes first, so it is safe); SPAWN is not, the caller gets a retryable error.
 * Invariants: `start` is set until cb ran; a slot is ended once; on_exit fires at
 * most once, never after destroy was called.
 */
#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "backend/container/container-internal.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "kernel/process.h"

#define HOSTNAME_OF_ID 12 /* letters of the id's random part, when no name was asked for */

struct start {
	void (*cb)(struct backend_instance *, const struct backend_record *, const struct dsec_error *, void *);
	struct mounter_request prepare;
	struct spawner_request spawn;
	struct cgroup_limits limits;
	struct dsec_error error; /* why it fails, while the end runs */
};

/* ---- letting go ---- */

static void on_poll_closed(uv_handle_t *h)
{
	struct backend_instance *inst = container_of((uv_poll_t *)h, struct backend_instance, poll);
	struct backend *b = inst->b;
	base_close(inst->pidfd);
	free(inst->start);
	free(inst);
	backend_unref(b);
}

static void on_deadline_closed(uv_handle_t *h)
{
	free(h);
}

static void deadline_stop(struct backend_instance *inst)
{
	if (inst->deadline)
		uv_close((uv_handle_t *)inst->deadline, on_deadline_closed);
	inst->deadline = NULL;
}

void instance_free(struct backend_instance *inst)
{
	struct backend *b = inst->b;
	deadline_stop(inst);
	if (inst->listed)
		TAILQ_REMOVE(&b->live, inst, link);
	inst->listed = false;
	if (inst->polling) {
		uv_close((uv_handle_t *)&inst->poll, on_poll_closed);
		return;
	}
	base_close(inst->pidfd);
	free(inst->start);
	free(inst);
	backend_unref(b);
}

static struct backend_instance *instance_new(struct backend *b, const char *id,
					     void (*on_exit)(struct backend_instance *, void *), void *user)
{
	struct backend_instance *inst = calloc(1, sizeof(*inst));
	if (!inst)
		return NULL;
	inst->b = b;
	inst->pidfd = -1;
	inst->on_exit = on_exit;
	inst->user = user;
	snprintf(inst->id, sizeof(inst->id), "%s", id);
	backend_ref(b);
	return inst;
}

/* ---- the end ---- */

static void end_reported(struct backend_instance *inst)
{
	struct dsec_error e = { 0 };
	if (inst->start) {
		inst->start->cb(NULL, NULL, &inst->start->error, inst->user);
	} else if (inst->destroyed) {
		if (inst->end_err == -EBUSY)
			dsec_error_set(&e, -EBUSY, DSEC_E_DEADLINE,
				       "a process of the sandbox %s does not end; what is left is removed at the edge's next start",
				       inst->id);
		else if (inst->end_err)
			dsec_error_errno(&e, inst->end_err, "removing the sandbox %s", inst->id);
		inst->destroyed(inst->end_err ? &e : NULL, inst->destroyed_user);
	}
	instance_free(inst);
}

static void end_part_done(struct backend_instance *inst, int err)
{
	if (err && !inst->end_err)
		inst->end_err = err;
	if (--inst->left == 0)
		end_reported(inst);
}

static void on_slot_ended(struct slot *s, int err, void *user)
{
	end_part_done(user, err);
}

static void on_released(int err, const void *p, const int *fds, size_t n, void *user)
{
	const struct mounter_reply *reply = p;
	/* A mounter that died meanwhile deletes what no record owns at the next
	 * RECONCILE; until then the subvolume is only space. */
	end_part_done(user, err == -ECONNRESET || err == -ECANCELED ? 0 : err ? err : reply->err);
}

static int ask_release(struct backend_instance *inst, ipc_reply_cb cb)
{
	struct mounter_request q = { .version = MOUNTER_IPC_VERSION, .op = MOUNTER_RELEASE };
	if (inst->b->closing)
		return -ECANCELED;
	snprintf(q.id, sizeof(q.id), "%s", inst->id);
	return ipc_client_call(inst->b->mounter, &q, NULL, 0, cb, inst);
}

/* PID 1 is gone, or never was. */
static void end_parts(struct backend_instance *inst)
{
	inst->left = 3;
	deadline_stop(inst);
	if (inst->polling)
		uv_poll_stop(&inst->poll);
	if (inst->slot && inst->exited && !inst->start) {
		/* No process of it is left: what remains is ours to tidy, not its user's
		 * to wait for. A start that comes now may wait for this slot. */
		slot_end(TAKE_PTR(inst->slot), NULL, NULL);
		end_part_done(inst, 0);
	} else if (inst->slot) {
		slot_end(inst->slot, on_slot_ended, inst);
	} else {
		end_part_done(inst, 0);
	}
	int r = ask_release(inst, on_released);
	if (r < 0)
		end_part_done(inst, r == -ECANCELED ? 0 : r);
	end_part_done(inst, 0);
}

static void on_pidfd(uv_poll_t *h, int status, int events)
{
	struct backend_instance *inst = container_of(h, struct backend_instance, poll);
	uv_poll_stop(h);
	inst->exited = true;
	if (inst->destroying)
		end_parts(inst);
	else
		inst->on_exit(inst, inst->user);
}

static int watch_pidfd(struct backend_instance *inst)
{
	int r = uv_poll_init(inst->b->loop, &inst->poll, inst->pidfd);
	if (r < 0)
		return r;
	inst->polling = true;
	r = uv_poll_start(&inst->poll, UV_READABLE, on_pidfd);
	if (r < 0)
		return r;
	TAILQ_INSERT_TAIL(&inst->b->live, inst, link);
	inst->listed = true;
	return 0;
}

/* PID 1 does not die. The slot's own end kills again, waits, and says what is left. */
static void on_deadline(uv_timer_t *t)
{
	end_parts(t->data);
}

void container_destroy(struct backend_instance *inst, void (*cb)(const struct dsec_error *, void *), void *user)
{
	if (inst->destroying)
		return;
	inst->destroying = true;
	inst->destroyed = cb;
	inst->destroyed_user = user;
	if (inst->exited) {
		end_parts(inst);
		return;
	}
	/* -ESRCH: it is dead already, and the poll is about to say so. */
	pidfd_kill(inst->pidfd, SIGKILL);
	inst->deadline = malloc(sizeof(*inst->deadline));
	if (!inst->deadline)
		return; /* then only the kernel's word ends the wait */
	uv_timer_init(inst->b->loop, inst->deadline);
	inst->deadline->data = inst;
	uv_timer_start(inst->deadline, on_deadline, CONTAINER_DEATH_DEADLINE_MS, 0);
}

/* ---- the start ---- */

static void start_fail(struct backend_instance *inst, const struct dsec_error *e)
{
	inst->start->error = *e;
	end_parts(inst);
}

static void start_fail_errno(struct backend_instance *inst, int err, const char *who)
{
	struct dsec_error e = { 0 };
	if (err == -ECONNRESET || err == -ETIMEDOUT || err == -ECANCELED)
		dsec_error_set(&e, err, DSEC_E_EDGE_UNAVAILABLE, "the %s was restarted or did not answer; try again", who);
	else if (err == -ENOBUFS)
		dsec_error_set(&e, err, DSEC_E_OVERLOADED, "too many requests wait for the %s", who);
	else
		dsec_error_errno(&e, err, "the %s", who);
	start_fail(inst, &e);
}

static void start_done(struct backend_instance *inst)
{
	struct start *st = inst->start;
	inst->start = NULL;
	inst->slot->state = SLOT_LIVE;
	slot_close_fds(inst->slot);
	st->cb(inst, &inst->rec, NULL, inst->user);
	free(st);
}

static void on_spawned(int err, const void *p, const int *fds, size_t n, void *user)
{
	struct backend_instance *inst = user;
	const struct spawner_reply *reply = p;
	if (err < 0 || reply->err < 0 || n != 1) {
		for (size_t i = 0; i < n; i++)
			base_close(fds[i]);
		struct dsec_error e = { 0 };
		if (err < 0 || !reply->err)
			start_fail_errno(inst, err < 0 ? err : -EPROTO, "spawner");
		else {
			dsec_error_set(&e, reply->err, (enum dsec_code)reply->code, "%.*s", SPAWNER_MESSAGE_MAX,
				       reply->message);
			start_fail(inst, &e);
		}
		return;
	}
	inst->pidfd = fds[0];
	inst->rec = (struct backend_record){ reply->pid, reply->start_ticks, inst->slot->number };
	int r = watch_pidfd(inst);
	if (r < 0)
		start_fail_errno(inst, r, "loop");
	else
		start_done(inst);
}

static void ask_spawn(struct backend_instance *inst, int overlay)
{
	struct slot *s = inst->slot;
	struct spawner_request *q = &inst->start->spawn;
	const int by_kind[SPAWNER_FD_COUNT] = {
		[SPAWNER_FD_OVERLAY] = overlay,
		[SPAWNER_FD_USERNS] = s->userns,
		[SPAWNER_FD_NETNS] = s->netns,
		[SPAWNER_FD_CGROUPNS] = s->cgroupns,
		[SPAWNER_FD_CG_SANDBOX] = -1,
		[SPAWNER_FD_CG_CHRONUS] = s->cg.chronus,
		[SPAWNER_FD_CG_WORK] = s->cg.work,
		[SPAWNER_FD_V1_0] = s->cg.v1_tasks[0],
		[SPAWNER_FD_V1_1] = s->cg.v1_tasks[1],
		[SPAWNER_FD_V1_2] = s->cg.v1_tasks[2],
		[SPAWNER_FD_MEMORY_USAGE] = s->cg.memory_usage,
		[SPAWNER_FD_MEMORY_STAT] = s->cg.memory_stat,
		[SPAWNER_FD_LISTEN] = s->listen,
	};
	int fds[SPAWNER_FD_COUNT];
	size_t n = 0;
	q->fds = 0;
	for (int i = 0; i < SPAWNER_FD_COUNT; i++)
		if (by_kind[i] >= 0) {
			q->fds |= 1u << i;
			fds[n++] = by_kind[i];
		}
	int r = inst->b->closing ? -ECANCELED : ipc_client_call(spawner_pick(inst->b), q, fds, n, on_spawned, inst);
	if (r < 0)
		start_fail_errno(inst, r, "spawner");
}

static void ask_prepare(struct backend_instance *inst);

static void on_released_for_retry(int err, const void *p, const int *fds, size_t n, void *user)
{
	struct backend_instance *inst = user;
	if (err < 0)
		start_fail_errno(inst, err, "mounter");
	else
		ask_prepare(inst);
}

static void on_prepared(int err, const void *p, const int *fds, size_t n, void *user)
{
	struct backend_instance *inst = user;
	const struct mounter_reply *reply = p;
	if (err == -ECONNRESET && !inst->prepared_twice) {
		inst->prepared_twice = true;
		err = ask_release(inst, on_released_for_retry);
		if (!err)
			return;
	}
	if (err < 0) {
		start_fail_errno(inst, err, "mounter");
	} else if (reply->err < 0) {
		start_fail(inst, &reply->error);
	} else if (n != 1) {
		start_fail_errno(inst, -EPROTO, "mounter");
	} else {
		ask_spawn(inst, fds[0]);
	}
	for (size_t i = 0; i < n; i++)
		base_close(fds[i]);
}

static void ask_prepare(struct backend_instance *inst)
{
	struct mounter_request *q = &inst->start->prepare;
	q->root_uid = q->root_gid = slot_id_base(inst->slot);
	int r = inst->b->closing ? -ECANCELED
				 : ipc_client_call(inst->b->mounter, q, &inst->slot->userns, 1, on_prepared, inst);
	if (r < 0)
		start_fail_errno(inst, r, "mounter");
}

void instance_slot_ready(struct backend_instance *inst, struct slot *s)
{
	inst->slot = s;
	struct start *st = inst->start;
	st->spawn.outer_id = slot_outer_id(s);
	st->spawn.id_base = slot_id_base(s);
	st->spawn.cpu_first = s->number % inst->b->cpus;
	int r = cgroup_limit(inst->b->cgroups, s->number, &st->limits);
	if (r < 0) {
		struct dsec_error e = { 0 };
		dsec_error_errno(&e, r, "setting the limits of the sandbox");
		start_fail(inst, &e);
		return;
	}
	ask_prepare(inst);
}

void instance_refuse(struct backend_instance *inst, int err, enum dsec_code code, const char *words)
{
	struct dsec_error e = { 0 };
	dsec_error_set(&e, err, code, "%s", words);
	inst->start->cb(NULL, NULL, &e, inst->user);
	instance_free(inst);
}

static void fill_start(struct start *st, struct backend *b, const struct sandbox_spec *spec)
{
	struct mounter_request *m = &st->prepare;
	m->version = MOUNTER_IPC_VERSION;
	m->op = MOUNTER_PREPARE;
	m->n_layers = spec->n_layers;
	m->disk_bytes = spec->disk_bytes;
	snprintf(m->id, sizeof(m->id), "%s", spec->id);
	for (uint32_t i = 0; i < spec->n_layers; i++)
		snprintf(m->layers[i], sizeof(m->layers[i]), "%s", spec->layers[i]);

	struct spawner_request *q = &st->spawn;
	uint32_t cpus = (spec->cpu_millis + 999) / 1000;
	q->version = SPAWNER_IPC_VERSION;
	q->op = SPAWNER_SPAWN;
	q->cpus = !cpus || cpus > b->cpus ? b->cpus : cpus;
	q->no_new_privs = spec->no_new_privs;
	q->memory_bytes = spec->memory_bytes;
	q->disk_bytes = spec->disk_bytes;
	snprintf(q->sandbox_id, sizeof(q->sandbox_id), "%s", spec->id);
	const char *random = strrchr(spec->id, '-');
	if (spec->hostname && *spec->hostname)
		snprintf(q->hostname, sizeof(q->hostname), "%s", spec->hostname);
	else
		snprintf(q->hostname, sizeof(q->hostname), "sb-%.*s", HOSTNAME_OF_ID, random ? random + 1 : spec->id);
	st->limits = (struct cgroup_limits){ spec->cpu_millis, spec->memory_bytes, spec->pids };
}

static int check_spec(const struct sandbox_spec *spec, struct dsec_error *e)
{
	if (!spec->n_layers || spec->n_layers > BACKEND_LAYERS_MAX)
		return dsec_error_set(e, -EINVAL, DSEC_E_UNSUPPORTED, "a container takes 1 to %d layers, not %u",
				      BACKEND_LAYERS_MAX, spec->n_layers);
	for (uint32_t i = 0; i < spec->n_layers; i++)
		if (strlen(spec->layers[i]) > DIGEST_MAX)
			return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "a layer's digest is too long");
	if (strlen(spec->id) > SANDBOX_ID_MAX || (spec->hostname && strlen(spec->hostname) > SPAWNER_HOSTNAME_MAX))
		return dsec_error_set(e, -EINVAL, DSEC_E_NAME_TOO_LONG, "the host name is longer than %d bytes",
				      SPAWNER_HOSTNAME_MAX);
	if (!spec->memory_bytes || !spec->pids)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "a container needs a memory and a pids limit");
	return 0;
}

void container_start(struct backend *b, const struct sandbox_spec *spec,
		     void (*cb)(struct backend_instance *, const struct backend_record *, const struct dsec_error *, void *),
		     void (*on_exit)(struct backend_instance *, void *), void *user)
{
	struct dsec_error e = { 0 };
	if (check_spec(spec, &e) < 0) {
		cb(NULL, NULL, &e, user);
		return;
	}
	struct slot *s = slot_take(b);
	if (!s && (b->closing || slots_coming(b) <= b->n_waiting || b->n_waiting >= CONTAINER_WAITING_MAX)) {
		dsec_error_set(&e, -EAGAIN, DSEC_E_CAPACITY, "all %u sandboxes of this edge are in use", b->max_slots);
		cb(NULL, NULL, &e, user);
		return;
	}
	struct backend_instance *inst = instance_new(b, spec->id, on_exit, user);
	struct start *st = inst ? calloc(1, sizeof(*st)) : NULL;
	if (!st) {
		if (s)
			slot_give_back(s);
		if (inst)
			instance_free(inst);
		dsec_error_errno(&e, -ENOMEM, "starting the sandbox");
		cb(NULL, NULL, &e, user);
		return;
	}
	st->cb = cb;
	inst->start = st;
	fill_start(st, b, spec);
	if (s) {
		instance_slot_ready(inst, s);
	} else {
		TAILQ_INSERT_TAIL(&b->waiting, inst, link);
		b->n_waiting++;
	}
	slots_fill(b);
}

/* ---- a live one ---- */

int container_adopt(struct backend *b, const struct sandbox_spec *spec, const struct backend_record *rec,
		    void (*on_exit)(struct backend_instance *, void *), void *user, struct backend_instance **ret)
{
	if (rec->slot >= b->max_slots)
		return -ESRCH;
	struct slot *s = &b->slots[rec->slot];
	slot_reserve(s);
	if (s->state != SLOT_RESERVED)
		return -EBUSY;
	struct backend_instance *inst = instance_new(b, spec->id, on_exit, user);
	_cleanup_close_ int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!inst || proc < 0) { /* out of memory or descriptors: it lives on, reserved, for another try */
		if (inst)
			instance_free(inst);
		return inst ? -EMFILE : -ENOMEM;
	}
	inst->slot = s;
	inst->rec = *rec;
	/* The pidfd first, then the check: so the number cannot be another's by now. */
	inst->pidfd = pidfd_of(rec->pid);
	int r = inst->pidfd;
	if (r >= 0)
		r = process_is(proc, rec->pid, rec->start_ticks) ? watch_pidfd(inst) : -ESRCH;
	if (r < 0) {
		/* Dead: whatever it left goes in the background. */
		inst->destroying = true;
		end_parts(inst);
		return r;
	}
	s->state = SLOT_LIVE;
	*ret = inst;
	return 0;
}

int container_connect(struct backend_instance *inst)
{
	char path[PATH_MAX];
	slot_path(inst->slot, path, sizeof(path));
	return unix_connect(path, SOCK_STREAM | SOCK_NONBLOCK);
}

int container_stats(struct backend_instance *inst, struct backend_stats *ret)
{
	struct cgroup_usage u;
	int r = cgroup_usage(inst->b->cgroups, inst->slot->number, &u);
	if (r < 0)
		return r;
	*ret = (struct backend_stats){
		.memory_bytes = u.memory_bytes,
		.memory_peak_bytes = u.memory_peak_bytes,
		.cpu_usec = u.cpu_usec,
		.oom_kills = u.oom_kills,
		.pids = u.pids,
		.pids_limit_hit = u.pids_refused > 0,
	};
	return 0;
}

struct usage_call {
	void (*cb)(int, uint64_t, uint64_t, void *);
	void *user;
};

static void on_usage(int err, const void *p, const int *fds, size_t n, void *user)
{
	struct usage_call *k = user;
	const struct mounter_reply *reply = p;
	if (!err)
		err = reply->err;
	k->cb(err, err ? 0 : reply->limit, err ? 0 : reply->used, k->user);
	free(k);
}

void container_disk_usage(struct backend_instance *inst, void (*cb)(int, uint64_t, uint64_t, void *), void *user)
{
	struct usage_call *k = malloc(sizeof(*k));
	struct mounter_request q = { .version = MOUNTER_IPC_VERSION, .op = MOUNTER_USAGE };
	int r = -ENOMEM;
	if (k) {
		*k = (struct usage_call){ cb, user };
		snprintf(q.id, sizeof(q.id), "%s", inst->id);
		r = ipc_client_call(inst->b->mounter, &q, NULL, 0, on_usage, k);
	}
	if (r < 0) {
		free(k);
		cb(r, 0, 0, user);
	}
}
