/* mounter_ipc.h: what the edge's container backend asks of dsec-mounter.
 *
 * SOCK_SEQPACKET on RUN_DIR/mounter.sock: one packet a request, one a reply,
 * matched by token; replies may come out of order. Fixed C structs, not
 * protobuf: both ends are one build on one host and descriptors travel along
 * (docs/decisions). The mounter owns the layer mounts, the writable volume and
 * nothing of a sandbox but its subvolume; it serves one connection per client
 * and any number of clients.
 */
#pragma once
#include <stdint.h>
#include "base/error.h"
#include "base/id.h"

#define MOUNTER_IPC_VERSION 1
#define MOUNTER_LAYERS_MAX 8
#define DIGEST_MAX 71 /* "sha256:" + 64 hex digits */

enum mounter_op {
	/* + descriptor: the user namespace. Mounts what is missing of the layers,
	 * makes the subvolume `id` with its quota, builds the id-mapped overlay.
	 * Reply + descriptor: a detached mount, ready for move_mount. */
	MOUNTER_PREPARE = 1,
	/* Deletes the subvolume. Absent is success. */
	MOUNTER_RELEASE,
	/* Reply: limit and used bytes of the subvolume. */
	MOUNTER_USAGE,
	/* + descriptor: a memfd with the live ids, one a line. Every other subvolume
	 * is deleted. Reply: `used` = how many were deleted. */
	MOUNTER_RECONCILE,
	/* Drops a layer's mount if no overlay was built from it lately. */
	MOUNTER_FORGET_LAYER,
	/* Reply: message = provider and how layers are mounted, for doctor. */
	MOUNTER_PROBE,
};

struct mounter_request {
	uint32_t version, op;
	uint64_t token;
	char id[SANDBOX_ID_MAX + 1];
	uint32_t n_layers;
	char layers[MOUNTER_LAYERS_MAX][DIGEST_MAX + 1]; /* bottom first */
	uint64_t disk_bytes;
	uint32_t root_uid, root_gid; /* ids that the user namespace maps 0 to */
};

struct mounter_reply {
	uint32_t version;
	int32_t err; /* 0 or negative errno */
	uint64_t token;
	uint64_t limit, used;
	struct dsec_error error; /* when err < 0 */
	char message[256];
};
