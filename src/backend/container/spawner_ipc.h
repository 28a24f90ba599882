/* spawner_ipc.h: what the edge's container backend asks of dsec-spawner.
 *
 * SOCK_SEQPACKET on RUN_DIR/spawner-N.sock: one packet a request, one a reply,
 * matched by token; replies may come out of order. Fixed C structs with
 * descriptors beside them, as in mounter_ipc.h: both ends are one build. A
 * request says which descriptors came along in `fds` (bit 1 << enum spawner_fd),
 * and they lie in the packet in the order of their bits.
 */
#pragma once
#include <stdint.h>
#include "base/error.h"
#include "base/id.h"

#define SPAWNER_IPC_VERSION 1
#define SPAWNER_HOSTNAME_MAX 64
#define SPAWNER_MESSAGE_MAX 192
#define SPAWNER_ID_COUNT 65536u /* ids of one sandbox */

enum spawner_op {
	/* + CG_SANDBOX, V1_*: makes a slot's namespaces, off the request path.
	 * Reply + descriptors: user, network, cgroup namespace. */
	SPAWNER_SLOT = 1,
	/* + everything but CG_SANDBOX: starts PID 1. Reply + descriptor: its pidfd. */
	SPAWNER_SPAWN,
};

enum spawner_fd {
	SPAWNER_FD_OVERLAY, /* detached mount, the sandbox's root */
	SPAWNER_FD_USERNS,
	SPAWNER_FD_NETNS,
	SPAWNER_FD_CGROUPNS,
	SPAWNER_FD_CG_SANDBOX, /* cgroup2 directories */
	SPAWNER_FD_CG_CHRONUS,
	SPAWNER_FD_CG_WORK,
	SPAWNER_FD_V1_0, /* v1 tasks files */
	SPAWNER_FD_V1_1,
	SPAWNER_FD_V1_2,
	SPAWNER_FD_MEMORY_USAGE,
	SPAWNER_FD_MEMORY_STAT,
	SPAWNER_FD_LISTEN, /* bound, listening: chronus's channel */
	SPAWNER_FD_COUNT
};
#define SPAWNER_V1_COUNT 3

struct spawner_request {
	uint32_t version, op;
	uint64_t token;
	uint32_t fds;      /* bits of enum spawner_fd */
	uint32_t outer_id; /* owner of the user namespace, who PID 1 is */
	uint32_t id_base;  /* outside id of 0 inside; SPAWNER_ID_COUNT of them */
	/* SPAWN only */
	uint32_t cpus, cpu_first;
	uint32_t no_new_privs;
	uint64_t memory_bytes, disk_bytes;
	char sandbox_id[SANDBOX_ID_MAX + 1];
	char hostname[SPAWNER_HOSTNAME_MAX + 1];
};

struct spawner_reply {
	uint32_t version;
	int32_t err; /* 0 or negative errno */
	uint64_t token;
	int32_t pid;
	uint32_t code; /* enum dsec_code when err < 0 */
	uint64_t start_ticks;
	char message[SPAWNER_MESSAGE_MAX]; /* when err < 0: the step that failed */
};
