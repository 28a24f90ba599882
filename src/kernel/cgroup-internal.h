/* cgroup-internal.h: what cgroup.c (slots), cgroup_tree.c (finding the
 * hierarchies) share. Not for other users. */
#pragma once
#include "kernel/cgroup.h"
#include <limits.h>

enum cgroup_v1_kind { CGROUP_V1_CPU, CGROUP_V1_MEMORY, CGROUP_V1_PIDS };

struct cgroup_tree {
	bool unified;                 /* the controllers are cgroup2's */
	int unified_fd;               /* BASE in cgroup2 */
	int v1_fd[CGROUP_V1_MAX];     /* BASE in each v1 hierarchy; -1 when unified */
	char unified_path[PATH_MAX];  /* "" when the mount is our own, detached one */
	char v1_path[CGROUP_V1_MAX][PATH_MAX];
	char record[PATH_MAX];
	uint32_t cpus;                /* of the host */
};

extern const char *const cgroup_v1_names[CGROUP_V1_MAX];
