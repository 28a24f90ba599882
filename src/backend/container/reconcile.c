/* reconcile.c: after a restart, everything that no journal record owns goes.
 *
 * What a former edge can have left: cgroup directories with processes in them,
 * channel sockets, subvolumes. Directories are found by name (slot numbers), so a
 * record lost or never written is no obstacle; namespaces and mounts end with
 * their processes. Slots that a record names are reserved until adopt. Safe to
 * repeat. Runs before the pool is filled: container_start waits for it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "backend/container/container-internal.h"
#include "base/cleanup.h"
#include "base/fdio.h"

struct reconcile {
	struct backend *b;
	uint32_t left;
	struct dsec_error error;
	bool failed;
	void (*cb)(struct dsec_error *, void *);
	void *user;
};

static void part_done(struct reconcile *r)
{
	struct backend *b = r->b;
	if (--r->left)
		return;
	b->usable = true;
	r->cb(r->failed ? &r->error : NULL, r->user);
	free(r);
	slots_fill(b);
	backend_unref(b);
}

static void on_slot_ended(struct slot *s, int err, void *user)
{
	struct reconcile *r = user;
	if (err && !r->failed) {
		r->failed = true;
		dsec_error_errno(&r->error, err, "the sandbox of slot %u, owned by no record, cannot be removed", s->number);
	}
	part_done(r);
}

static void on_found(uint32_t number, void *user)
{
	struct reconcile *r = user;
	if (number >= r->b->max_slots)
		return;
	struct slot *s = &r->b->slots[number];
	if (s->state != SLOT_EMPTY)
		return;
	slot_reserve(s);
	r->left++;
	slot_end(s, on_slot_ended, r);
}

static void on_mounter(int err, const void *p, const int *fds, size_t n, void *user)
{
	struct reconcile *r = user;
	const struct mounter_reply *reply = p;
	if ((err < 0 || reply->err < 0) && !r->failed) {
		r->failed = true;
		if (err < 0)
			dsec_error_errno(&r->error, err, "the mounter");
		else
			r->error = reply->error;
	}
	part_done(r);
}

static int ask_mounter(struct reconcile *r, const char *const *ids, uint32_t n)
{
	_cleanup_close_ int fd = memfd_create("live-sandboxes", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (uint32_t i = 0; i < n; i++) {
		int w = write_all(fd, ids[i], strlen(ids[i]));
		if (!w)
			w = write_all(fd, "\n", 1);
		if (w < 0)
			return w;
	}
	struct mounter_request q = { .version = MOUNTER_IPC_VERSION, .op = MOUNTER_RECONCILE };
	return ipc_client_call(r->b->mounter, &q, &fd, 1, on_mounter, r);
}

void container_reconcile(struct backend *b, const struct backend_record *records, const char *const *ids, uint32_t n,
			 void (*cb)(struct dsec_error *, void *), void *user)
{
	struct reconcile *r = calloc(1, sizeof(*r));
	if (!r) {
		struct dsec_error e = { 0 };
		dsec_error_errno(&e, -ENOMEM, "reconcile");
		cb(&e, user);
		return;
	}
	*r = (struct reconcile){ .b = b, .left = 2, .cb = cb, .user = user };
	backend_ref(b);
	for (uint32_t i = 0; i < n; i++)
		if (records[i].slot < b->max_slots)
			slot_reserve(&b->slots[records[i].slot]);
	int err = cgroup_each_slot(b->cgroups, on_found, r);
	if (err < 0) {
		r->failed = true;
		dsec_error_errno(&r->error, err, "listing our cgroups");
	}
	err = ask_mounter(r, ids, n);
	if (err < 0) {
		if (!r->failed)
			dsec_error_errno(&r->error, err, "the mounter");
		r->failed = true;
		part_done(r);
	}
	part_done(r);
}
