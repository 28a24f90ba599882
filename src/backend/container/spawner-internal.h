/* spawner-internal.h: the parts of dsec-spawner. spawner.c is the loop,
 * spawner_root.c the empty namespace and its templates, spawner_slot.c the SLOT
 * request, spawner_spawn.c the SPAWN request. One thread; see spawner.c. */
#pragma once
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "backend/container/spawner_ipc.h"

#define SPAWNER_CLIENTS_MAX 16
#define SPAWNER_SLOTS_MAX 32 /* SLOT requests in flight; more wait in the socket */
#define SPAWNER_STACK_BYTES 65536
#define SPAWNER_MASKS_MAX 32

struct spawner {
	int epoll_fd, listen_fd, signal_fd;
	int proc_fd;    /* a detached /proc of our own: no mount in our namespace */
	int chronus_fd; /* the program, executed from here */
	int null_fd;
	uint32_t cpus;
	cpu_set_t cpus_set; /* what we were allowed before pinning: PID 1 gets it back */
	void *stack;        /* of a SPAWN child; we sleep while it is in use */
	struct spawn_result *result; /* in shared memory */
	char *cpuinfo;      /* the host's, text */
	bool cpu_made[1025]; /* template of n CPUs exists */
	/* what of the wanted over-mounts this kernel has, found once */
	const char *proc_ro[SPAWNER_MASKS_MAX], *proc_file[SPAWNER_MASKS_MAX], *proc_dir[SPAWNER_MASKS_MAX];
};

struct spawn_result {
	int err;
	const char *step; /* a literal */
};

/* Everything a child needs is at fixed places below our root. */
#define ROOT_DEV "/dev"
#define ROOT_SYS "/sys"
#define ROOT_TMP "/t"
#define ROOT_MASK_FILE "/mask/file"
#define ROOT_MASK_DIR "/mask/dir"
#define ROOT_CPU "/cpu"
#define ROOT_NETNS "/netns" /* pins the network namespace that ROOT_SYS shows */

int spawner_root_setup(struct spawner *s, const char *run_dir, const char **ret_step);
int spawner_root_cpus(struct spawner *s, uint32_t cpus); /* makes ROOT_CPU/N when absent */

struct spawner_fds { int fd[SPAWNER_FD_COUNT]; };

/* Starts a SLOT; answered later through spawner_reply_to. Takes nothing. */
int spawner_slot_begin(struct spawner *s, int client, const struct spawner_request *q, const struct spawner_fds *f);
/* epoll says that helper `index` wrote or ended. */
void spawner_slot_event(struct spawner *s, uint32_t index, bool ended);
void spawner_slot_client_gone(int client);
bool spawner_slot_full(void);

int spawner_spawn(struct spawner *s, const struct spawner_request *q, const struct spawner_fds *f,
		  struct spawner_reply *ret_reply, int *ret_pidfd);

void spawner_reply_to(struct spawner *s, int client, const struct spawner_reply *reply, const int *fds, size_t n);

/* epoll data: kind in the high half, fd or index in the low one. */
enum { EV_LISTEN = 1, EV_SIGNAL, EV_CLIENT, EV_HELPER_SAYS, EV_HELPER_ENDS };
#define EV(kind, low) (((uint64_t)(kind) << 32) | (uint32_t)(low))
