/* spawner_spawn.c: SPAWN, the child that becomes PID 1 of a sandbox.
 *
 * The child runs on the spawner's memory while the spawner sleeps
 * (process.h, clone_shared). It is real root until its last steps and touches a
 * tree that strangers wrote, so every name in it is resolved beneath its root and
 * never through a link. Invariants at its execveat:
 *   1. Root and working directory are the overlay. Below the overlay lies only the
 *      spawner's template tmpfs; the host's mounts are in no namespace it can reach.
 *   2. Every mount was made in a namespace that the initial user namespace owns:
 *      whoever enters the sandbox's user namespace can neither undo nor add one.
 *   3. It is the outer id, without groups, capabilities or a bounding set.
 *   4. Open: 0, 1, 2 on /dev/null, CHRONUS_BOOT_FD, and what the boot block names.
 * Any failure before that ends the child, and with it everything it made.
 */
#include "backend/container/spawner-internal.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/chronus_boot.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "kernel/mounts.h"
#include "kernel/namespaces.h"
#include "kernel/process.h"

#define ATTR_LOCKED (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define FD_HIGH 64     /* descriptors are parked above here while the low ones are set */
#define FD_NAMED_MAX 16
#define TTY_GID 5
/* Terminals of one sandbox. The kernel counts those of all instances of devpts
 * together (kernel.pty.max, 4096 less 1024 kept for the host's own): without a bound
 * one sandbox could leave none to the others. */
#define PTYS_MAX "64"

struct spawn {
	struct spawner *s;
	const struct spawner_request *q;
	const struct spawner_fds *f;
	struct spawn_result *out;
	char shm_size[24], tty_gid[16], cpu_dir[32];
	bool few_cpus;
	int overlay, proc, dev, pts, tmp, meminfo; /* the child's own */
};

#define STEP(c, name, call)                       \
	do {                                      \
		(c)->out->step = (name);          \
		int step_r_ = (call);             \
		if (step_r_ < 0)                  \
			return step_r_;           \
	} while (0)

static int enter(int ns_fd, int type)
{
	return setns(ns_fd, type) < 0 ? -errno : 0;
}

static int attach_root(struct spawn *c)
{
	c->overlay = c->f->fd[SPAWNER_FD_OVERLAY];
	return mount_attach(c->overlay, AT_FDCWD, "/");
}

/* The mount points belong to the image; what it lacks is made as its own root,
 * since an unmapped id cannot be stored in an id-mapped upper. */
static int open_targets(struct spawn *c, int ret[3])
{
	static const char *const names[3] = { "proc", "sys", "dev" };
	int r = 0;
	setfsgid(c->q->id_base);
	setfsuid(c->q->id_base);
	for (int i = 0; i < 3 && r >= 0; i++)
		r = ret[i] = mount_dir_beneath(c->overlay, names[i], 0755);
	setfsuid(0);
	setfsgid(0);
	return r < 0 ? r : 0;
}

static int lock_proc(struct spawn *c)
{
	for (const char *const *p = c->s->proc_ro; *p; p++)
		STEP(c, *p, mount_over(c->proc, *p, c->proc, *p, ATTR_LOCKED));
	for (const char *const *p = c->s->proc_file; *p; p++)
		STEP(c, *p, mount_over(AT_FDCWD, ROOT_MASK_FILE, c->proc, *p, ATTR_LOCKED));
	for (const char *const *p = c->s->proc_dir; *p; p++)
		STEP(c, *p, mount_over(AT_FDCWD, ROOT_MASK_DIR, c->proc, *p, ATTR_LOCKED));
	return 0;
}

static int mount_proc(struct spawn *c, int target)
{
	c->proc = mount_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (c->proc < 0)
		return c->proc;
	int r = mount_attach(c->proc, target, "");
	return r < 0 ? r : lock_proc(c);
}

/* The copies of the spawner's /sys and /dev move from our root to the sandbox's. */
static int move_template(const char *from, int target)
{
	return move_mount(AT_FDCWD, from, target, "", MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno : 0;
}

static int mount_dev(struct spawn *c, int target)
{
	c->dev = open(ROOT_DEV, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (c->dev < 0)
		return -errno;
	int r = move_template(ROOT_DEV, target);
	if (r < 0)
		return r;
	/* devpts reads ids as int: beyond that a terminal belongs to its opener's
	 * group instead of tty, which still works. */
	const struct mount_option options[] = {
		{ "ptmxmode", "0666" },
		{ "mode", "0620" },
		{ "max", PTYS_MAX },
		{ c->tty_gid[0] ? "gid" : NULL, c->tty_gid },
		{ NULL, NULL },
	};
	c->pts = mount_new("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	return c->pts < 0 ? c->pts : mount_attach(c->pts, c->dev, "pts");
}

/* One tmpfs holds both /dev/shm and the file that is shown as /proc/meminfo. */
static int mount_tmp(struct spawn *c)
{
	const struct mount_option options[] = { { "size", c->shm_size }, { "mode", "0755" }, { NULL, NULL } };
	c->tmp = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (c->tmp < 0)
		return c->tmp;
	int r = mount_attach(c->tmp, AT_FDCWD, ROOT_TMP);
	if (r < 0)
		return r;
	if (mkdirat(c->tmp, "shm", 01777) < 0 || fchownat(c->tmp, "shm", c->q->id_base, c->q->id_base, 0) < 0)
		return -errno;
	c->meminfo = openat(c->tmp, "meminfo", O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
	if (c->meminfo < 0)
		return -errno;
	r = mount_over(c->tmp, "shm", c->dev, "shm", 0);
	return r < 0 ? r : mount_over(c->tmp, "meminfo", c->proc, "meminfo", ATTR_LOCKED);
}

static int show_cpus(struct spawn *c, int sys)
{
	static const char *const lists[] = { "devices/system/cpu/online", "devices/system/cpu/present",
					     "devices/system/cpu/possible" };
	if (!c->few_cpus)
		return 0;
	_cleanup_close_ int dir = open(c->cpu_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	int r = mount_over(dir, "cpuinfo", c->proc, "cpuinfo", ATTR_LOCKED);
	for (size_t i = 0; !r && i < ARRAY_SIZE(lists); i++)
		r = mount_over(dir, "list", sys, lists[i], ATTR_LOCKED);
	return r;
}

static int build_mounts(struct spawn *c)
{
	int target[3];
	STEP(c, "attach the overlay", attach_root(c));
	STEP(c, "find /proc, /sys and /dev in the layer (links are refused)", open_targets(c, target));
	STEP(c, "mount /proc", mount_proc(c, target[0]));
	c->out->step = "find /sys";
	int sys = open(ROOT_SYS, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (sys < 0)
		return -errno;
	STEP(c, "mount /sys", move_template(ROOT_SYS, target[1]));
	STEP(c, "mount /dev", mount_dev(c, target[2]));
	STEP(c, "mount /dev/shm", mount_tmp(c));
	STEP(c, "show the CPUs", show_cpus(c, sys));
	return 0;
}

/* ---- descriptors ---- */

static int park(int fd)
{
	if (fd < 0)
		return -1;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, FD_HIGH);
	return high < 0 ? -errno : high;
}

/* Gives *slot the next low number, inheritable. -1 stays -1. */
static int name_fd(int32_t *slot, int fd, int *next)
{
	*slot = -1;
	if (fd < 0)
		return 0;
	if (dup2(fd, *next) < 0)
		return -errno;
	*slot = (*next)++;
	return 0;
}

static void fill_boot(const struct spawn *c, struct chronus_boot *b)
{
	*b = (struct chronus_boot){
		.size = sizeof(*b),
		.version = CHRONUS_BOOT_VERSION,
		.cpus = c->q->cpus,
		.cpu_first = c->q->cpu_first,
		.memory_bytes = c->q->memory_bytes,
		.disk_bytes = c->q->disk_bytes,
		.no_new_privs = c->q->no_new_privs,
	};
	memcpy(b->sandbox_id, c->q->sandbox_id, sizeof(b->sandbox_id));
	for (int i = 0; i < CHRONUS_V1_MAX; i++)
		b->v1_tasks_fd[i] = -1;
}

static int arrange_fds(struct spawn *c, int *ret_chronus)
{
	struct chronus_boot b;
	fill_boot(c, &b);
	const int *in = c->f->fd;
	struct { int32_t *slot; int fd; } named[FD_NAMED_MAX] = {
		{ &b.listen_fd, in[SPAWNER_FD_LISTEN] },
		{ &b.userns_fd, in[SPAWNER_FD_USERNS] },
		{ &b.work_fd, in[SPAWNER_FD_CG_WORK] },
		{ &b.devpts_fd, c->pts },
		{ &b.meminfo_fd, c->meminfo },
		{ &b.memory_usage_fd, in[SPAWNER_FD_MEMORY_USAGE] },
		{ &b.memory_stat_fd, in[SPAWNER_FD_MEMORY_STAT] },
	};
	size_t n = 7;
	for (int i = 0; i < SPAWNER_V1_COUNT; i++)
		named[n++] = (typeof(named[0])){ &b.v1_tasks_fd[i], in[SPAWNER_FD_V1_0 + i] };
	int boot[2], null = park(c->s->null_fd), chronus = park(c->s->chronus_fd);
	if (null < 0 || chronus < 0 || pipe2(boot, O_CLOEXEC) < 0)
		return -errno;
	int from = park(boot[0]), to = park(boot[1]);
	if (from < 0 || to < 0)
		return -EMFILE;
	for (size_t i = 0; i < n; i++)
		if ((named[i].fd = park(named[i].fd)) < -1)
			return named[i].fd;
	for (int i = 0; i < 3; i++)
		if (dup2(null, i) < 0)
			return -errno;
	if (dup2(from, CHRONUS_BOOT_FD) < 0)
		return -errno;
	int next = CHRONUS_BOOT_FD + 1;
	for (size_t i = 0; i < n; i++) {
		int r = name_fd(named[i].slot, named[i].fd, &next);
		if (r < 0)
			return r;
	}
	int r = write_all(to, &b, sizeof(b));
	*ret_chronus = chronus;
	return r;
}

static int child_steps(struct spawn *c)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	sched_setaffinity(0, sizeof(c->s->cpus_set), &c->s->cpus_set);
	STEP(c, "enter the network namespace", enter(c->f->fd[SPAWNER_FD_NETNS], CLONE_NEWNET));
	STEP(c, "enter the cgroup namespace", enter(c->f->fd[SPAWNER_FD_CGROUPNS], CLONE_NEWCGROUP));
	int r = build_mounts(c);
	if (r < 0)
		return r;
	c->out->step = "set the host name";
	if (sethostname(c->q->hostname, strlen(c->q->hostname)) < 0)
		return -errno;
	c->out->step = "enter the root";
	if (fchdir(c->overlay) < 0 || chroot(".") < 0)
		return -errno;
	int chronus = -1;
	STEP(c, "arrange the descriptors", arrange_fds(c, &chronus));
	setsid();
	umask(022);
	STEP(c, "drop the credentials", credentials_become(c->q->outer_id));
	c->out->step = "execute chronus";
	static char *const argv[] = { (char *)"chronus", NULL };
	static char *const envp[] = { NULL };
	syscall(SYS_execveat, chronus, "", argv, envp, AT_EMPTY_PATH);
	return -errno;
}

static int child_main(void *arg)
{
	struct spawn *c = arg;
	c->out->err = child_steps(c);
	return 1;
}

static void prepare(struct spawn *c)
{
	const struct spawner_request *q = c->q;
	/* As much as a machine of that size would have: half its memory. */
	snprintf(c->shm_size, sizeof(c->shm_size), "%llu", (unsigned long long)(q->memory_bytes / 2));
	if (q->id_base + TTY_GID <= INT_MAX)
		snprintf(c->tty_gid, sizeof(c->tty_gid), "%u", q->id_base + TTY_GID);
	c->few_cpus = q->cpus && q->cpus < c->s->cpus;
	snprintf(c->cpu_dir, sizeof(c->cpu_dir), ROOT_CPU "/%u", q->cpus);
}

static int failed(struct spawner_reply *reply, int err, const char *step)
{
	reply->err = err;
	/* A layer whose /proc or /dev is a link or a file is the layer's fault. */
	bool layer = err == -ELOOP || err == -ENOTDIR;
	reply->code = layer ? DSEC_E_IMAGE_BROKEN : DSEC_E_INTERNAL;
	snprintf(reply->message, sizeof(reply->message), "starting the sandbox: %s: %s", step, strerror(-err));
	return err;
}

int spawner_spawn(struct spawner *s, const struct spawner_request *q, const struct spawner_fds *f,
		  struct spawner_reply *reply, int *ret_pidfd)
{
	struct spawn c = { .s = s, .q = q, .f = f, .out = s->result };
	prepare(&c);
	if (c.few_cpus) {
		int r = spawner_root_cpus(s, q->cpus);
		if (r < 0)
			return failed(reply, r, "make the CPU template");
	}
	*s->result = (struct spawn_result){ .step = "clone" };
	struct clone_request req = {
		.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS,
		.cgroup_fd = f->fd[SPAWNER_FD_CG_CHRONUS],
		.stack = s->stack,
		.stack_size = SPAWNER_STACK_BYTES,
	};
	int pidfd = -1;
	pid_t pid = clone_shared(&req, child_main, &c, &pidfd);
	if (pid < 0)
		return failed(reply, pid, s->result->step);
	int r = s->result->err;
	if (!r)
		r = process_start_ticks(s->proc_fd, pid, &reply->start_ticks);
	if (r < 0) {
		pidfd_kill(pidfd, SIGKILL);
		base_close(pidfd);
		return failed(reply, r, s->result->step);
	}
	reply->pid = pid;
	*ret_pidfd = pidfd;
	return 0;
}
