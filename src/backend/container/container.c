/* container.c: backend_container, sandboxes as Linux containers (backend.h).
 *
 * The backend itself makes nothing but cgroup directories and sockets. Mounts come
 * from dsec-mounter, namespaces and processes from dsec-spawner (one a core, the
 * least busy is asked); both are reached through ipc_client.h and may be killed and
 * replaced at any time. Nothing here blocks the loop: file work that may stall runs
 * on libuv's threads (slot.c), the rest are a few small writes.
 *
 * Descriptors: a pooled slot holds about a dozen, a live sandbox one (its pidfd), so
 * that ten thousand live ones fit into a process's limit.
 *
 * Life time: close() leaves live sandboxes alone. The backend is freed when the last
 * work or call in flight has come back (`refs`), which removes the pooled slots and,
 * if no sandbox lives, the cgroup base. The loop must run until then.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "backend/container/container-internal.h"
#include "base/cleanup.h"
#include "kernel/cpuinfo.h"

static void backend_free(struct backend *b)
{
	if (b->slots && b->cgroups) {
		slots_done(b);
		cgroup_tree_delete(b->cgroups); /* refused by the kernel while sandboxes live */
	}
	cgroup_tree_close(b->cgroups);
	if (b->channel_dir)
		rmdir(b->channel_dir);
	free(b->channel_dir);
	free(b->slots);
	free(b);
}

void backend_ref(struct backend *b)
{
	b->refs++;
}

static void on_refill_closed(uv_handle_t *h)
{
	backend_free(h->data);
}

void backend_unref(struct backend *b)
{
	if (--b->refs == 0)
		uv_close((uv_handle_t *)&b->refill, on_refill_closed);
}

/* The base's name: stable for a state directory, different for another one. */
static void tag_of(const char *state_dir, char ret[9])
{
	char real[PATH_MAX];
	const char *p = realpath(state_dir, real) ? real : state_dir;
	uint32_t h = 2166136261u; /* FNV-1a */
	for (; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	snprintf(ret, 9, "%08x", h);
}

static void note_slot(uint32_t slot, void *user)
{
	*(bool *)user = true;
}

static int open_cgroups(struct backend *b, const char *state_dir, struct dsec_error *e)
{
	char tag[9], record[PATH_MAX];
	tag_of(state_dir, tag);
	snprintf(record, sizeof(record), "%s/cgroups", state_dir);
	int r = cgroup_tree_open(tag, record, &b->cgroups, e);
	if (r < 0)
		return r;
	bool left = false;
	r = cgroup_each_slot(b->cgroups, note_slot, &left);
	if (r < 0)
		return dsec_error_errno(e, r, "listing our cgroups");
	b->usable = !left;
	return 0;
}

static int open_helpers(struct backend *b, const char *run_dir, struct dsec_error *e)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/mounter.sock", run_dir);
	int r = ipc_client_new(b->loop, path, sizeof(struct mounter_request), sizeof(struct mounter_reply), &b->mounter);
	b->n_spawners = MIN(b->cpus, (uint32_t)CONTAINER_SPAWNERS_MAX);
	for (uint32_t i = 0; !r && i < b->n_spawners; i++) {
		snprintf(path, sizeof(path), "%s/spawner-%u.sock", run_dir, i);
		r = ipc_client_new(b->loop, path, sizeof(struct spawner_request), sizeof(struct spawner_reply),
				   &b->spawners[i]);
	}
	return r < 0 ? dsec_error_errno(e, r, "connecting to mounter and spawners") : 0;
}

static void container_close(struct backend *b)
{
	b->closing = true;
	struct backend_instance *inst;
	while ((inst = TAILQ_FIRST(&b->waiting))) {
		TAILQ_REMOVE(&b->waiting, inst, link);
		b->n_waiting--;
		instance_refuse(inst, -ECANCELED, DSEC_E_EDGE_UNAVAILABLE, "the edge is stopping");
	}
	struct backend_instance *next;
	for (inst = TAILQ_FIRST(&b->live); inst; inst = next) {
		next = TAILQ_NEXT(inst, link);
		if (!inst->destroying) /* those finish what they began */
			instance_free(inst);
	}
	ipc_client_free(b->mounter);
	for (uint32_t i = 0; i < b->n_spawners; i++)
		ipc_client_free(b->spawners[i]);
	backend_unref(b);
}

static int open_parts(struct backend *b, const struct backend_env *env, struct dsec_error *e)
{
	if (asprintf(&b->channel_dir, "%s/ch", env->state_dir) < 0) {
		b->channel_dir = NULL;
		return dsec_error_errno(e, -ENOMEM, "container backend");
	}
	if (mkdir(b->channel_dir, 0700) < 0 && errno != EEXIST)
		return dsec_error_errno(e, -errno, "cannot make %s", b->channel_dir);
	int r = slots_init(b);
	if (r < 0)
		return dsec_error_errno(e, r, "container backend");
	r = open_cgroups(b, env->state_dir, e);
	return r < 0 ? r : open_helpers(b, env->run_dir, e);
}

static int container_open(const struct backend_env *env, struct backend **ret, struct dsec_error *e)
{
	if (!env->max_sandboxes || env->max_sandboxes > CONTAINER_SLOTS_MAX)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "max_sandboxes must be 1 to %d", CONTAINER_SLOTS_MAX);
	struct backend *b = calloc(1, sizeof(*b));
	if (!b)
		return dsec_error_errno(e, -ENOMEM, "container backend");
	b->loop = env->loop;
	b->max_slots = env->max_sandboxes;
	b->pool_size = MIN(env->pool_size, env->max_sandboxes);
	b->cpus = cpus_online();
	b->refs = 1;
	uv_timer_init(b->loop, &b->refill);
	b->refill.data = b;
	int r = open_parts(b, env, e);
	if (r < 0) {
		if (b->slots)
			container_close(b);
		else
			backend_unref(b);
		return r;
	}
	slots_fill(b);
	*ret = b;
	return 0;
}

const struct backend_ops backend_container = {
	.name = "container",
	.capabilities = BACKEND_CAP_EXEC | BACKEND_CAP_FILES | BACKEND_CAP_DISK_QUOTA | BACKEND_CAP_PTY,
	.open = container_open,
	.close = container_close,
	.reconcile = container_reconcile,
	.start = container_start,
	.adopt = container_adopt,
	.connect = container_connect,
	.destroy = container_destroy,
	.stats = container_stats,
	.disk_usage = container_disk_usage,
};
