/* cgroup.c: the cgroups of one slot. See cgroup.h for the picture and the rules. */
#include "kernel/cgroup-internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"

#define SLOT_NAME_MAX 24
#define REMOVE_DEPTH_MAX 16
#define CONTROL_FILE_MAX 65536
/* Page cache left in a v1 memory cgroup by its last sandbox beyond this is dropped. */
#define RECYCLE_USAGE_MAX (8u << 20)
/* v1: what sockets may hold beside the memory limit, a part of it. */
#define SOCKET_SHARE 8
#define SOCKET_MIN_BYTES (4u << 20)

static void slot_name(uint32_t slot, char ret[SLOT_NAME_MAX])
{
	snprintf(ret, SLOT_NAME_MAX, "sb-%u", slot);
}

static int open_dir(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

static int open_slot(int base, uint32_t slot)
{
	char name[SLOT_NAME_MAX];
	slot_name(slot, name);
	return open_dir(base, name);
}

static int read_u64(int dirfd, const char *file, uint64_t *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(dirfd, file, CONTROL_FILE_MAX, &text, NULL);
	if (r < 0)
		return r;
	*ret = strtoull(text, NULL, 10);
	return 0;
}

/* "KEY NUMBER" lines, as memory.events and cpu.stat have them. */
static int read_keyed(int dirfd, const char *file, const char *key, uint64_t *ret)
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(dirfd, file, CONTROL_FILE_MAX, &text, NULL);
	if (r < 0)
		return r;
	size_t n = strlen(key);
	for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (!strncmp(p, key, n) && p[n] == ' ') {
			*ret = strtoull(p + n, NULL, 10);
			return 0;
		}
	return -ENODATA;
}

static int write_u64(int dirfd, const char *file, uint64_t v)
{
	char text[24];
	snprintf(text, sizeof(text), "%" PRIu64, v);
	return write_file_at(dirfd, file, text);
}

/* ---- making ---- */

/* The outer id may make leaves and move processes between them, and nothing else:
 * the limit files stay root's. */
static int give(int dirfd, uint32_t id)
{
	if (fchown(dirfd, id, id) < 0 || fchownat(dirfd, "cgroup.procs", id, id, 0) < 0)
		return -errno;
	return 0;
}

static int make_dir(int dirfd, const char *name)
{
	if (mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST)
		return -errno;
	return open_dir(dirfd, name);
}

int cgroup_make(struct cgroup_tree *t, uint32_t slot, uint32_t outer_id)
{
	char name[SLOT_NAME_MAX];
	slot_name(slot, name);
	_cleanup_close_ int sb = make_dir(t->unified_fd, name);
	if (sb < 0)
		return sb;
	int r = give(sb, outer_id);
	if (r < 0)
		return r;
	static const char *const leaves[] = { "chronus", "work" };
	for (size_t i = 0; i < ARRAY_SIZE(leaves); i++) {
		_cleanup_close_ int leaf = make_dir(sb, leaves[i]);
		if (leaf < 0)
			return leaf;
		r = give(leaf, outer_id);
		if (r < 0)
			return r;
	}
	for (int i = 0; !t->unified && i < CGROUP_V1_MAX; i++)
		if (mkdirat(t->v1_fd[i], name, 0755) < 0 && errno != EEXIST)
			return -errno;
	return 0;
}

int cgroup_enable(struct cgroup_tree *t, uint32_t slot)
{
	if (!t->unified)
		return 0;
	_cleanup_close_ int sb = open_slot(t->unified_fd, slot);
	return sb < 0 ? sb : write_file_at(sb, "cgroup.subtree_control", "+cpu +memory +pids");
}

static int open_control(int dirfd, const char *file, int flags)
{
	int fd = openat(dirfd, file, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int fill_helper(struct cgroup_tree *t, uint32_t slot, struct cgroup_fds *f)
{
	if ((f->sandbox = open_slot(t->unified_fd, slot)) < 0)
		return f->sandbox;
	for (int i = 0; !t->unified && i < CGROUP_V1_MAX; i++) {
		_cleanup_close_ int d = open_slot(t->v1_fd[i], slot);
		if (d < 0)
			return d;
		if ((f->v1_tasks[i] = open_control(d, "tasks", O_WRONLY)) < 0)
			return f->v1_tasks[i];
	}
	return 0;
}

static int fill_rest(struct cgroup_tree *t, uint32_t slot, struct cgroup_fds *f)
{
	if ((f->chronus = open_dir(f->sandbox, "chronus")) < 0)
		return f->chronus;
	if ((f->work = open_dir(f->sandbox, "work")) < 0)
		return f->work;
	_cleanup_close_ int memory = t->unified ? -1 : open_slot(t->v1_fd[CGROUP_V1_MEMORY], slot);
	int dir = t->unified ? f->work : memory;
	f->memory_usage = open_control(dir, t->unified ? "memory.current" : "memory.usage_in_bytes", O_RDONLY);
	if (f->memory_usage < 0)
		return f->memory_usage;
	f->memory_stat = open_control(dir, "memory.stat", O_RDONLY);
	return f->memory_stat < 0 ? f->memory_stat : 0;
}

int cgroup_open_helper(struct cgroup_tree *t, uint32_t slot, struct cgroup_fds *f)
{
	*f = (struct cgroup_fds)CGROUP_FDS_INIT;
	int r = fill_helper(t, slot, f);
	if (r < 0)
		cgroup_close_fds(f);
	return r;
}

int cgroup_open_fds(struct cgroup_tree *t, uint32_t slot, struct cgroup_fds *f)
{
	int r = fill_rest(t, slot, f);
	if (r < 0)
		cgroup_close_fds(f);
	return r;
}

void cgroup_close_fds(struct cgroup_fds *f)
{
	base_closep(&f->sandbox);
	base_closep(&f->chronus);
	base_closep(&f->work);
	for (int i = 0; i < CGROUP_V1_MAX; i++)
		base_closep(&f->v1_tasks[i]);
	base_closep(&f->memory_usage);
	base_closep(&f->memory_stat);
}

/* ---- limits ---- */

static int limit_unified(struct cgroup_tree *t, int work, const struct cgroup_limits *l)
{
	char cpu[48];
	if (l->cpu_millis && l->cpu_millis < t->cpus * 1000)
		snprintf(cpu, sizeof(cpu), "%u %u", l->cpu_millis * (CGROUP_CPU_PERIOD_US / 1000), CGROUP_CPU_PERIOD_US);
	else
		snprintf(cpu, sizeof(cpu), "max %u", CGROUP_CPU_PERIOD_US);
	int r = write_file_at(work, "cpu.max", cpu);
	if (!r)
		r = write_u64(work, "memory.max", l->memory_bytes);
	if (!r) {
		r = write_file_at(work, "memory.swap.max", "0");
		if (r == -ENOENT) /* no swap accounting: then no swap either, or none of it ours to limit */
			r = 0;
	}
	return r < 0 ? r : write_u64(work, "pids.max", l->pids);
}

static int limit_v1_memory(int dir, uint64_t bytes)
{
	/* memory+swap must never be below memory, whichever way memory moves. */
	int r = write_file_at(dir, "memory.memsw.limit_in_bytes", "-1");
	if (r < 0 && r != -ENOENT)
		return r;
	r = write_u64(dir, "memory.limit_in_bytes", bytes);
	if (r == -EBUSY && !write_file_at(dir, "memory.force_empty", "0"))
		r = write_u64(dir, "memory.limit_in_bytes", bytes);
	if (r < 0)
		return r;
	r = write_u64(dir, "memory.memsw.limit_in_bytes", bytes);
	if (r < 0 && r != -ENOENT)
		return r;
	/* Unlike v2, v1 counts what waits in sockets apart, and only once it has a limit. */
	r = write_u64(dir, "memory.kmem.tcp.limit_in_bytes", MAX(bytes / SOCKET_SHARE, (uint64_t)SOCKET_MIN_BYTES));
	return r == -ENOENT ? 0 : r; /* cgroup.memory=nosocket */
}

static int limit_v1_cpu(struct cgroup_tree *t, int dir, uint32_t millis)
{
	char quota[24] = "-1";
	if (millis && millis < t->cpus * 1000)
		snprintf(quota, sizeof(quota), "%u", millis * (CGROUP_CPU_PERIOD_US / 1000));
	int r = write_u64(dir, "cpu.cfs_period_us", CGROUP_CPU_PERIOD_US);
	return r < 0 ? r : write_file_at(dir, "cpu.cfs_quota_us", quota);
}

int cgroup_limit(struct cgroup_tree *t, uint32_t slot, const struct cgroup_limits *l)
{
	if (t->unified) {
		_cleanup_close_ int sb = open_slot(t->unified_fd, slot);
		_cleanup_close_ int work = sb < 0 ? sb : open_dir(sb, "work");
		return work < 0 ? work : limit_unified(t, work, l);
	}
	for (int i = 0; i < CGROUP_V1_MAX; i++) {
		_cleanup_close_ int dir = open_slot(t->v1_fd[i], slot);
		if (dir < 0)
			return dir;
		int r = i == CGROUP_V1_CPU      ? limit_v1_cpu(t, dir, l->cpu_millis)
			: i == CGROUP_V1_MEMORY ? limit_v1_memory(dir, l->memory_bytes)
						: write_u64(dir, "pids.max", l->pids);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- numbers ---- */

int cgroup_usage(struct cgroup_tree *t, uint32_t slot, struct cgroup_usage *ret)
{
	struct cgroup_usage u = { 0 };
	_cleanup_close_ int sb = open_slot(t->unified_fd, slot);
	if (sb < 0)
		return sb;
	/* cpu.stat's usage is there in cgroup2 without the controller as well. */
	int r = read_keyed(sb, "cpu.stat", "usage_usec", &u.cpu_usec);
	if (r < 0)
		return r;
	_cleanup_close_ int memory = t->unified ? open_dir(sb, "work") : open_slot(t->v1_fd[CGROUP_V1_MEMORY], slot);
	_cleanup_close_ int pids = t->unified ? open_dir(sb, "work") : open_slot(t->v1_fd[CGROUP_V1_PIDS], slot);
	if (memory < 0 || pids < 0)
		return memory < 0 ? memory : pids;
	uint64_t n = 0;
	r = read_u64(memory, t->unified ? "memory.current" : "memory.usage_in_bytes", &u.memory_bytes);
	if (!r)
		r = read_keyed(memory, t->unified ? "memory.events" : "memory.oom_control", "oom_kill", &u.oom_kills);
	if (!r)
		r = read_u64(pids, "pids.current", &n);
	if (!r)
		r = read_keyed(pids, "pids.events", "max", &u.pids_refused);
	if (r < 0)
		return r;
	/* memory.peak came with 5.19; without it the best answer is what is used now. */
	if (read_u64(memory, t->unified ? "memory.peak" : "memory.max_usage_in_bytes", &u.memory_peak_bytes) < 0)
		u.memory_peak_bytes = u.memory_bytes;
	u.pids = (uint32_t)n;
	*ret = u;
	return 0;
}

/* ---- ending ---- */

static int kill_listed(int dir)
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(dir, "cgroup.procs", 1 << 20, &text, NULL);
	for (char *p = text; !r && *p; p = strchr(p, '\n') + 1) {
		pid_t pid = (pid_t)strtol(p, NULL, 10);
		if (pid > 0)
			kill(pid, SIGKILL);
		if (!strchr(p, '\n'))
			break;
	}
	return r;
}

int cgroup_kill(struct cgroup_tree *t, uint32_t slot)
{
	_cleanup_close_ int sb = open_slot(t->unified_fd, slot);
	int r = sb < 0 ? sb : write_file_at(sb, "cgroup.kill", "1");
	for (int i = 0; !t->unified && i < CGROUP_V1_MAX; i++) {
		_cleanup_close_ int dir = open_slot(t->v1_fd[i], slot);
		if (dir >= 0)
			kill_listed(dir);
	}
	return r == -ENOENT ? 0 : r;
}

bool cgroup_populated(struct cgroup_tree *t, uint32_t slot)
{
	uint64_t n = 0;
	_cleanup_close_ int sb = open_slot(t->unified_fd, slot);
	return sb >= 0 && read_keyed(sb, "cgroup.events", "populated", &n) == 0 && n;
}

/* Depth first. A cgroup's rmdir takes its control files along. */
static int remove_tree(int parent, const char *name, int depth)
{
	if (depth > REMOVE_DEPTH_MAX)
		return -ELOOP;
	int fd = open_dir(parent, name);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	_cleanup_closedir_ DIR *d = fdopendir(fd);
	if (!d) {
		base_close(fd);
		return -ENOMEM;
	}
	struct dirent *de;
	while ((de = readdir(d))) {
		if (de->d_type != DT_DIR || !strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		int r = remove_tree(dirfd(d), de->d_name, depth + 1);
		if (r < 0)
			return r;
	}
	return unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

/* Resets a v1 directory; false when it holds a count that cannot be. */
static bool reset_v1(int kind, int dir)
{
	uint64_t n = 0;
	if (kind == CGROUP_V1_CPU)
		return write_file_at(dir, "cpu.cfs_quota_us", "-1") == 0;
	if (kind == CGROUP_V1_PIDS)
		return read_keyed(dir, "pids.events", "max", &n) == 0 && !n &&
		       write_file_at(dir, "pids.max", "max") == 0;
	if (read_keyed(dir, "memory.oom_control", "oom_kill", &n) < 0 || n)
		return false;
	if (read_u64(dir, "memory.usage_in_bytes", &n) < 0)
		return false;
	if (n > RECYCLE_USAGE_MAX && write_file_at(dir, "memory.force_empty", "0") < 0)
		return false;
	int r = write_file_at(dir, "memory.memsw.limit_in_bytes", "-1");
	if (r < 0 && r != -ENOENT)
		return false;
	return write_file_at(dir, "memory.limit_in_bytes", "-1") == 0 &&
	       write_file_at(dir, "memory.max_usage_in_bytes", "0") == 0;
}

static int end_slot(struct cgroup_tree *t, uint32_t slot, bool keep)
{
	char name[SLOT_NAME_MAX];
	slot_name(slot, name);
	int r = remove_tree(t->unified_fd, name, 0);
	for (int i = 0; !t->unified && i < CGROUP_V1_MAX; i++) {
		_cleanup_close_ int dir = open_slot(t->v1_fd[i], slot);
		if (dir < 0 || (keep && !r && reset_v1(i, dir)))
			continue;
		if (unlinkat(t->v1_fd[i], name, AT_REMOVEDIR) < 0 && errno != ENOENT && !r)
			r = -errno;
	}
	return r;
}

int cgroup_recycle(struct cgroup_tree *t, uint32_t slot)
{
	return end_slot(t, slot, true);
}

int cgroup_remove(struct cgroup_tree *t, uint32_t slot)
{
	return end_slot(t, slot, false);
}

static int each_in(int base, void (*cb)(uint32_t, void *), void *user)
{
	if (base < 0)
		return 0;
	int fd = open_dir(base, ".");
	if (fd < 0)
		return fd;
	_cleanup_closedir_ DIR *d = fdopendir(fd);
	if (!d) {
		base_close(fd);
		return -ENOMEM;
	}
	struct dirent *de;
	while ((de = readdir(d))) {
		unsigned slot;
		char rest;
		if (de->d_type == DT_DIR && sscanf(de->d_name, "sb-%u%c", &slot, &rest) == 1 && slot < CGROUP_SLOTS_MAX)
			cb(slot, user);
	}
	return 0;
}

int cgroup_each_slot(struct cgroup_tree *t, void (*cb)(uint32_t, void *), void *user)
{
	int r = each_in(t->unified_fd, cb, user);
	for (int i = 0; !r && i < CGROUP_V1_MAX; i++)
		r = each_in(t->v1_fd[i], cb, user);
	return r;
}
