/* chronus_boot.h: how the spawner starts chronus, PID 1 of a container.
 *
 * The spawner executes chronus with an empty environment, argv = {"chronus"},
 * and the descriptor CHRONUS_BOOT_FD: a pipe that holds one struct chronus_boot
 * and then EOF. Every other descriptor is named in it; -1 = not there. chronus
 * marks all of them close-on-exec at once. By then it runs under the outer id
 * that owns the user namespace, in the sandbox's mount, pid, ipc, uts, cgroup and
 * network namespaces (all owned by the initial user namespace), in its own
 * cgroup leaf, non-dumpable, with an empty capability set.
 */
#pragma once
#include <stdint.h>
#include "base/id.h"

#define CHRONUS_BOOT_FD 3
#define CHRONUS_BOOT_VERSION 1
#define CHRONUS_V1_MAX 4

struct chronus_boot {
	uint32_t size, version;
	char sandbox_id[SANDBOX_ID_MAX + 1];
	int32_t listen_fd;      /* unix stream socket, listening: the edge connects here */
	int32_t userns_fd;      /* the sandbox's user namespace; commands setns into it */
	int32_t work_fd;        /* cgroup2 directory "work": a leaf an exec is made in it */
	int32_t v1_tasks_fd[CHRONUS_V1_MAX]; /* opened by root for writing: a command writes "0" to each */
	int32_t devpts_fd;      /* directory of the sandbox's devpts (O_PATH or readable) */
	int32_t meminfo_fd;     /* file mounted over /proc/meminfo, for writing; chronus refreshes it */
	int32_t memory_usage_fd; /* memory.usage_in_bytes (v1) or memory.current (v2), for reading */
	int32_t memory_stat_fd; /* memory.stat, for reading (cache and so on) */
	uint32_t cpus;          /* what nproc shall say; affinity of every command */
	uint32_t cpu_first;     /* affinity = CPUs cpu_first .. cpu_first+cpus-1 modulo those online */
	uint64_t memory_bytes;  /* limit; meminfo's MemTotal */
	uint64_t disk_bytes;    /* limit; what statfs of the root answers; 0: as it is */
	uint32_t no_new_privs;  /* policy for every command */
};
