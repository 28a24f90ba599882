/* mounter.h: the operations of dsec-mounter, apart from its socket.
 *
 * One struct mounter a process, used on its only thread. It owns the private
 * mount namespace it made, the layer mounts and the volume. A sandbox's subvolume
 * is the only thing of a sandbox it knows; the overlay belongs to whoever got it.
 */
#pragma once
#include "layer/mounter_ipc.h"

struct mounter;

struct mounter_options { /* borrowed */
	const char *run_dir, *state_dir, *layer_dir;
	uint64_t volume_bytes;  /* 0: volume.h decides */
	uint64_t reserve_bytes; /* see volume.h */
};

/* Makes the namespace, the volume and the place for mounts. */
int mounter_open(const struct mounter_options *o, struct mounter **ret, struct dsec_error *e);
void mounter_close(struct mounter *m); /* unmounts everything of ours */

/* Housekeeping, every MOUNTER_TICK_MS. */
#define MOUNTER_TICK_MS 30000
void mounter_tick(struct mounter *m);

/* Answers one request. fd: the request's descriptor or -1, borrowed. *ret_fd: the
 * reply's descriptor or -1, the caller's. `reply` is always complete. */
void mounter_handle(struct mounter *m, const struct mounter_request *q, int fd, struct mounter_reply *reply,
		    int *ret_fd);
/* What is left of a request is done, once its answer was sent. */
void mounter_settle(struct mounter *m);
