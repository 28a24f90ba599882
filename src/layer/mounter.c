/* mounter.c: see mounter.h.
 *
 * The namespace: unshared from the host's and made a slave of it, so that what
 * the host unmounts goes away here too and nothing of ours shows there. A small
 * tmpfs over S/mnt carries the mount points; S itself is never written for them.
 *
 * Everything is done at once on one thread: an answer takes 0.1 to 0.3 ms
 * (docs/decisions/0203-mounter-one-thread.md), so requests are answered in
 * the order they came, a sandbox's ones too, and RECONCILE needs no barrier.
 */
#include "layer/mounter.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/hashmap.h"
#include "layer/layer_table.h"
#include "layer/overlay.h"
#include "layer/volume.h"

#define RECONCILE_IDS_MAX (4u << 20) /* bytes of live ids: 70,000 of them */

struct mounter {
	char *base, *scratch; /* S/mnt, S/mnt/scratch */
	struct volume *volume;
	struct layer_table *layers;
	struct overlay_clones clones; /* of the last PREPARE */
};

static int make_places(struct mounter *m, const struct mounter_options *o, struct dsec_error *e)
{
	if (asprintf(&m->base, "%s/mnt", o->state_dir) < 0 || asprintf(&m->scratch, "%s/mnt/scratch", o->state_dir) < 0) {
		return dsec_error_errno(e, -ENOMEM, "mounter");
	}
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return dsec_error_set(e, -errno, DSEC_E_HOST_LACKS, "a private mount namespace cannot be made (%s): "
				      "dsec-mounter needs root with CAP_SYS_ADMIN", strerror(errno));
	if (mkdir(m->base, 0700) < 0 && errno != EEXIST)
		return dsec_error_errno(e, -errno, "%s", m->base);
	if (mount("dsec", m->base, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0700,size=4m") < 0)
		return dsec_error_errno(e, -errno, "tmpfs on %s", m->base);
	char path[PATH_MAX];
	static const char *const names[] = { "scratch", "layers", "volume" };
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		int n = snprintf(path, sizeof(path), "%s/%s", m->base, names[i]);
		if (n < 0 || n >= (int)sizeof(path) || mkdir(path, 0700) < 0)
			return dsec_error_errno(e, -errno, "%s", path);
	}
	return 0;
}

int mounter_open(const struct mounter_options *o, struct mounter **ret, struct dsec_error *e)
{
	struct mounter *m = calloc(1, sizeof(*m));
	if (!m)
		return dsec_error_errno(e, -ENOMEM, "mounter");
	char layers[PATH_MAX], volume[PATH_MAX];
	int r = make_places(m, o, e);
	if (!r && (r = overlay_prepare_thread()) < 0)
		dsec_error_set(e, r, DSEC_E_HOST_LACKS, "securebits cannot be set (%s): CAP_SETPCAP is missing",
			       strerror(-r));
	if (!r) {
		snprintf(layers, sizeof(layers), "%s/layers", m->base);
		snprintf(volume, sizeof(volume), "%s/volume", m->base);
		r = layer_table_new(o->layer_dir, layers, &m->layers);
		if (r < 0)
			dsec_error_errno(e, r, "layer table");
	}
	if (!r) {
		struct volume_options vo = {
			.state_dir = o->state_dir,
			.mount_dir = volume,
			.size_bytes = o->volume_bytes,
			.reserve_bytes = o->reserve_bytes,
		};
		r = volume_open(&vo, &m->volume, e);
	}
	if (r < 0) {
		mounter_close(m);
		return r;
	}
	*ret = m;
	return 0;
}

void mounter_close(struct mounter *m)
{
	if (!m)
		return;
	layer_table_free(m->layers);
	volume_close(m->volume);
	if (m->base) {
		umount2(m->base, MNT_DETACH);
		rmdir(m->base);
	}
	free(m->base);
	free(m->scratch);
	free(m);
}

void mounter_tick(struct mounter *m)
{
	layer_table_sweep(m->layers);
}

static int prepare(struct mounter *m, const struct mounter_request *q, int userns, int *ret_fd, struct dsec_error *e)
{
	int layers[MOUNTER_LAYERS_MAX];
	if (userns < 0)
		return dsec_error_set(e, -EBADF, DSEC_E_BAD_REQUEST, "PREPARE comes with a user namespace's descriptor");
	for (uint32_t i = 0; i < q->n_layers; i++) {
		int r = layer_table_get(m->layers, q->layers[i], &layers[i], e);
		if (r < 0)
			return r;
	}
	_cleanup_close_ int share = -1;
	int r = volume_create(m->volume, q->id, q->disk_bytes, &share, e);
	if (r < 0)
		return r;
	struct overlay_spec spec = {
		.layers = layers,
		.n_layers = q->n_layers,
		.share = share,
		.userns = userns,
		.root_uid = q->root_uid,
		.root_gid = q->root_gid,
		.scratch = m->scratch,
	};
	r = overlay_make(&spec, ret_fd, &m->clones, e);
	if (r < 0)
		volume_delete(m->volume, q->id);
	return r;
}

static int release(struct mounter *m, const char *id, struct dsec_error *e)
{
	int r = volume_delete(m->volume, id);
	return r < 0 ? dsec_error_errno(e, r, "deleting the disk of %s", id) : 0;
}

static int usage(struct mounter *m, const char *id, struct mounter_reply *reply)
{
	int r = volume_usage(m->volume, id, &reply->limit, &reply->used);
	if (r == -ENOENT)
		return dsec_error_set(&reply->error, r, DSEC_E_SANDBOX_NOT_FOUND, "no disk named %s", id);
	return r < 0 ? dsec_error_errno(&reply->error, r, "usage of %s", id) : 0;
}

struct reconcile {
	struct mounter *m;
	struct hashmap live;
	uint64_t deleted;
};

static int reconcile_one(const char *id, void *user)
{
	struct reconcile *rc = user;
	if (hashmap_get(&rc->live, id))
		return 0;
	int r = volume_delete(rc->m->volume, id);
	rc->deleted += !r;
	return r;
}

static int reconcile(struct mounter *m, int list_fd, uint64_t *ret_deleted, struct dsec_error *e)
{
	_cleanup_free_ char *text = NULL;
	char path[32];
	if (list_fd < 0)
		return dsec_error_set(e, -EBADF, DSEC_E_BAD_REQUEST, "RECONCILE comes with a descriptor of the live ids");
	/* By name, for an offset of our own: the sender's is wherever it wrote last. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", list_fd);
	int r = read_file_at(AT_FDCWD, path, RECONCILE_IDS_MAX, &text, NULL);
	struct reconcile rc = { .m = m };
	char *save = NULL;
	for (char *id = r < 0 ? NULL : strtok_r(text, "\n", &save); id && r >= 0; id = strtok_r(NULL, "\n", &save)) {
		r = hashmap_put(&rc.live, id, id);
		if (r == -EEXIST)
			r = 0;
	}
	/* A list that was not read to its end must not delete anything. */
	if (r >= 0)
		r = volume_list(m->volume, reconcile_one, &rc);
	hashmap_done(&rc.live);
	*ret_deleted = rc.deleted;
	return r < 0 ? dsec_error_errno(e, r, "reconcile") : 0;
}

static int forget(struct mounter *m, const struct mounter_request *q, struct dsec_error *e)
{
	int r = layer_table_forget(m->layers, q->layers[0]);
	if (r == -EBUSY)
		return dsec_error_set(e, r, DSEC_E_LAYER_IN_USE, "the layer %s was used a moment ago", q->layers[0]);
	return r;
}

static int check(const struct mounter_request *q, struct dsec_error *e)
{
	char edge[EDGE_NAME_MAX + 1];
	bool needs_id = q->op == MOUNTER_PREPARE || q->op == MOUNTER_RELEASE || q->op == MOUNTER_USAGE;
	if (q->version != MOUNTER_IPC_VERSION)
		return dsec_error_set(e, -EPROTO, DSEC_E_BAD_REQUEST, "mounter protocol %u, this one speaks %u",
				      q->version, MOUNTER_IPC_VERSION);
	if (memchr(q->id, 0, sizeof(q->id)) == NULL || (needs_id && !id_sandbox_edge(q->id, edge)))
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "not a sandbox id");
	if (q->n_layers > MOUNTER_LAYERS_MAX)
		return dsec_error_set(e, -E2BIG, DSEC_E_BAD_FIELD, "at most %d layers", MOUNTER_LAYERS_MAX);
	uint32_t needed = q->op == MOUNTER_PREPARE || q->op == MOUNTER_FORGET_LAYER;
	if (q->n_layers < needed)
		return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "a layer is missing");
	for (uint32_t i = 0; i < q->n_layers; i++)
		if (!memchr(q->layers[i], 0, sizeof(q->layers[i])))
			return dsec_error_set(e, -EINVAL, DSEC_E_BAD_FIELD, "not a layer digest");
	return 0;
}

void mounter_settle(struct mounter *m)
{
	overlay_clones_close(&m->clones);
}

void mounter_handle(struct mounter *m, const struct mounter_request *q, int fd, struct mounter_reply *reply,
		    int *ret_fd)
{
	mounter_settle(m);
	struct dsec_error *e = &reply->error;
	*reply = (struct mounter_reply){ .version = MOUNTER_IPC_VERSION, .token = q->token };
	*ret_fd = -1;
	int r = check(q, e);
	if (r < 0) {
		reply->err = r;
		return;
	}
	switch (q->op) {
	case MOUNTER_PREPARE:
		r = prepare(m, q, fd, ret_fd, e);
		break;
	case MOUNTER_RELEASE:
		r = release(m, q->id, e);
		break;
	case MOUNTER_USAGE:
		r = usage(m, q->id, reply);
		break;
	case MOUNTER_RECONCILE:
		r = reconcile(m, fd, &reply->used, e);
		break;
	case MOUNTER_FORGET_LAYER:
		r = forget(m, q, e);
		break;
	case MOUNTER_PROBE:
		snprintf(reply->message, sizeof(reply->message), "volume: %s; layers: %s",
			 volume_describe(m->volume), layer_table_describe(m->layers));
		break;
	default:
		r = dsec_error_set(e, -EOPNOTSUPP, DSEC_E_BAD_REQUEST, "unknown mounter request %u", q->op);
	}
	reply->err = r;
}
