/* layers.c: GET and DELETE of layers: the store's catalogue, and the files behind. */
#include "control/layers.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/calls.h"
#include "control/gather.h"
#include "control/layer_jobs.h"
#include "control/render.h"
#include "control/resources.h"

bool layer_ref_of(struct request *r, struct layer_ref *ret)
{
	const char *text = request_var(r, 0), *at = strchr(text, '@');
	size_t n = at ? (size_t)(at - text) : 0;
	if (!at || !n || !at[1]) {
		request_failf(r, DSEC_E_BAD_FIELD, "name a layer as name@version");
		return false;
	}
	if (n > NAME_MAX_LEN || strlen(at + 1) > NAME_MAX_LEN) {
		request_failf(r, DSEC_E_NAME_TOO_LONG, "a layer's name and version have at most %d letters each",
			      NAME_MAX_LEN);
		return false;
	}
	snprintf(ret->name, sizeof(ret->name), "%.*s", (int)n, text);
	snprintf(ret->version, sizeof(ret->version), "%s", at + 1);
	if (!id_name_valid(ret->name) || !id_name_valid(ret->version)) {
		request_failf(r, DSEC_E_BAD_FIELD,
			      "a layer's name and version are small letters, digits, \".\", \"_\" and \"-\"");
		return false;
	}
	return true;
}

/* ---- get ---- */

static void take_json(const struct store_layer *l, void *user)
{
	*(json_t **)user = render_layer(l);
}

static void fail_store(struct request *r, int err, const struct layer_ref *ref)
{
	struct dsec_error e;
	if (err == -ENOENT)
		dsec_error_set(&e, err, DSEC_E_LAYER_NOT_FOUND, "there is no layer %s@%s", ref->name, ref->version);
	else
		dsec_error_errno(&e, err, "the store did not answer");
	request_fail(r, &e, 0);
}

void handle_layer_get(struct request *r)
{
	struct layer_ref ref;
	json_t *layer = NULL;
	if (!layer_ref_of(r, &ref))
		return;
	int err = store_layer_get(request_control(r)->store, ref.name, ref.version, take_json, &layer);
	if (err)
		fail_store(r, err, &ref);
	else
		request_json(r, 200, layer);
}

static void append_json(const struct store_layer *l, void *user)
{
	json_array_append_new(user, render_layer(l));
}

void handle_layer_list(struct request *r)
{
	json_t *all = json_array();
	int err = store_layer_each(request_control(r)->store, append_json, all);
	if (err) {
		struct dsec_error e;
		json_decref(all);
		dsec_error_errno(&e, err, "the store did not answer");
		request_fail(r, &e, 0);
	} else {
		request_json(r, 200, json_pack("{s:o}", "layers", all));
	}
}

/* ---- files ---- */

int layer_files_remove(const char *layer_dir, const char *digest)
{
	char name[STORE_DIGEST_LEN + 1], temp[32 + ID_RANDOM_LEN], random[ID_RANDOM_LEN + 1];
	_cleanup_close_ int store_fd = open(layer_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (store_fd < 0)
		return -errno;
	if (strlen(digest) != STORE_DIGEST_LEN)
		return -EINVAL;
	snprintf(name, sizeof(name), "%s", digest);
	name[6] = '-'; /* sha256:... -> sha256-... (src/layer/store.h) */
	id_random(random);
	snprintf(temp, sizeof(temp), ".tmp-%.20s", random);
	if (renameat(store_fd, name, store_fd, temp) < 0)
		return errno == ENOENT ? 0 : -errno;
	int fd = openat(store_fd, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	_cleanup_closedir_ DIR *d = fdopendir(fd);
	if (!d) {
		close(fd);
		return -ENOMEM;
	}
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.')
			unlinkat(dirfd(d), e->d_name, 0);
	return unlinkat(store_fd, temp, AT_REMOVEDIR) < 0 ? -errno : 0;
}

/* ---- delete: no sandbox of any project may use it ---- */

struct projects {
	char (*names)[NAME_MAX_LEN + 1];
	size_t n;
	bool failed;
};

struct removal {
	struct request *r;
	struct control *ctl;
	struct layer_ref ref;
	char digest[STORE_DIGEST_LEN + 1];
	struct projects projects; /* edges list one project at a time */
	size_t next;
	struct gather *gather;
	char user_id[SANDBOX_ID_MAX + 1]; /* a sandbox that uses it */
	bool begun;
};

static void take_project(const char *name, void *user)
{
	struct projects *p = user;
	void *more = realloc(p->names, (p->n + 1) * sizeof(p->names[0]));
	if (!more) {
		p->failed = true;
		return;
	}
	p->names = more;
	snprintf(p->names[p->n++], sizeof(p->names[0]), "%s", name);
}

static void take_digest(const struct store_layer *l, void *user)
{
	snprintf(((struct removal *)user)->digest, STORE_DIGEST_LEN + 1, "%s", l->digest);
}

static void on_sandbox(const Dsec__Edge__Sandbox *s, void *user)
{
	struct removal *m = user;
	for (size_t i = 0; i < s->n_layers; i++)
		if (!strcmp(s->layers[i], m->digest) && strcmp(s->state, "stopped"))
			snprintf(m->user_id, sizeof(m->user_id), "%s", s->id);
}

static void remove_now(struct removal *m)
{
	uint64_t refs = 0;
	int err = store_layer_remove(m->ctl->store, m->ref.name, m->ref.version, &refs);
	if (!err && !refs)
		err = layer_files_remove(m->ctl->layer_dir, m->digest);
	if (err)
		fail_store(m->r, err, &m->ref);
	else
		request_json(m->r, 200, json_object());
}

static void ask_next(struct removal *m);

static void on_listed(const struct dsec_error *e, uint32_t retry_after_ms, void *user)
{
	struct removal *m = user;
	m->gather = NULL;
	if (e)
		request_fail(m->r, e, retry_after_ms);
	else if (*m->user_id)
		request_failf(m->r, DSEC_E_LAYER_IN_USE, "sandbox %s uses this layer; delete it first", m->user_id);
	else
		ask_next(m);
}

static void ask_next(struct removal *m)
{
	static const struct gather_ops ops = { on_sandbox, on_listed };
	Dsec__Edge__EdgeRequest rq;
	Dsec__Edge__List list = DSEC__EDGE__LIST__INIT;
	struct dsec_error e;
	if (m->next == m->projects.n) {
		remove_now(m);
		return;
	}
	edge_request_init(&rq, m->r);
	rq.project = m->projects.names[m->next++];
	rq.what_case = DSEC__EDGE__EDGE_REQUEST__WHAT_LIST;
	rq.list = &list;
	if (gather_start(m->ctl->edges, &rq, &ops, m, &m->gather, &e) < 0)
		request_fail(m->r, &e, 0);
}

static void on_release(struct request *r)
{
	struct removal *m = request_state(r);
	gather_cancel(m->gather);
	if (m->begun)
		layer_removal_end(m->ctl, m->digest);
	free(m->projects.names);
	free(m);
}

void handle_layer_delete(struct request *r)
{
	static const struct request_ops ops = { .release = on_release };
	struct removal *m = calloc(1, sizeof(*m));
	if (!m) {
		request_failf(r, DSEC_E_CAPACITY, "out of memory");
		return;
	}
	m->r = r;
	m->ctl = request_control(r);
	request_set(r, &ops, m);
	if (!layer_ref_of(r, &m->ref))
		return;
	int err = store_layer_get(m->ctl->store, m->ref.name, m->ref.version, take_digest, m);
	if (!err)
		err = store_project_each(m->ctl->store, take_project, &m->projects);
	if (!err && m->projects.failed)
		err = -ENOMEM;
	if (err) {
		fail_store(r, err, &m->ref);
	} else if (layer_removal_begin(m->ctl, m->digest) < 0) {
		request_failf(r, DSEC_E_LAYER_IN_USE, "a sandbox is being created from this layer");
	} else {
		m->begun = true;
		ask_next(m);
	}
}
