/* spawner_root.c: the spawner's mount namespace. See spawner-internal.h.
 *
 * Cloning a mount namespace costs by its mounts (5 us each), so ours holds a handful:
 * a tmpfs as root, /dev (a read-only copy of a directory of it) and /sys with its
 * masks (one read-only sysfs of an empty network namespace, shared by every sandbox:
 * each has only lo too, and a superblock less a sandbox is a superblock less in
 * every memory cgroup). A child
 * gets copies of them with its namespace and only moves them into place.
 */
#include "backend/container/spawner-internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "kernel/cpuinfo.h"
#include "kernel/mounts.h"
#include "kernel/namespaces.h"

#define ATTR_LOCKED (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

/* Read-only: what the kernel lets be tuned there is the host's; a trigger written
 * to pressure is the host's memory and work, and nobody's limit counts it. */
static const char *const proc_ro[] = { "sys", "irq", "bus", "fs", "pressure" };
/* Files only the host's root may read are covered as well: two locks are better. */
static const char *const proc_file[] = { "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug",
					 "kpagecount", "kpageflags", "kpagecgroup", "sysrq-trigger" };
static const char *const proc_dir[] = { "acpi", "scsi" };
/* Loop devices name their files: host paths, other sandboxes' layers among them;
 * fs lists the host's filesystems. */
static const char *const sys_dir[] = { "firmware", "fs", "devices/virtual/block", "devices/virtual/powercap" };

static void find_present(int dirfd, const char *const *names, size_t n, const char **ret)
{
	struct stat st;
	size_t k = 0;
	for (size_t i = 0; i < n && k + 1 < SPAWNER_MASKS_MAX; i++)
		if (fstatat(dirfd, names[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
			ret[k++] = names[i];
	ret[k] = NULL;
}

static int make_devices(int root)
{
	static const struct {
		const char *path;
		unsigned major, minor;
	} nodes[] = { { "dev/null", 1, 3 }, { "dev/zero", 1, 5 },    { "dev/full", 1, 7 },
		      { "dev/random", 1, 8 }, { "dev/urandom", 1, 9 }, { "dev/tty", 5, 0 } };
	static const char *const links[][2] = { { "pts/ptmx", "dev/ptmx" },
						{ "/proc/self/fd", "dev/fd" },
						{ "/proc/self/fd/0", "dev/stdin" },
						{ "/proc/self/fd/1", "dev/stdout" },
						{ "/proc/self/fd/2", "dev/stderr" } };
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		if (mknodat(root, nodes[i].path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) < 0)
			return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlinkat(links[i][0], root, links[i][1]) < 0)
			return -errno;
	return 0;
}

static int make_tree(int root)
{
	static const char *const dirs[] = { "dev", "dev/shm", "dev/pts", "sys", "t", "mask", "cpu" };
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdirat(root, dirs[i], 0755) < 0)
			return -errno;
	if (mkdirat(root, "mask/dir", 0555) < 0)
		return -errno;
	_cleanup_close_ int file = openat(root, "mask/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0444);
	_cleanup_close_ int netns = openat(root, "netns", O_CREAT | O_WRONLY | O_CLOEXEC, 0400);
	return file < 0 || netns < 0 ? -errno : make_devices(root);
}

/* Which network namespace a sysfs shows is fixed when it is made. The sysfs alone
 * does not keep that namespace alive, a mount of its file does, also in the copies
 * that outlive the spawner: *ret_netns. */
static int sysfs_of_empty_netns(int proc_fd, int *ret_netns)
{
	_cleanup_close_ int own = openat(proc_fd, "self/ns/net", O_RDONLY | O_CLOEXEC);
	if (own < 0 || unshare(CLONE_NEWNET) < 0)
		return -errno;
	_cleanup_close_ int fd = mount_new("sysfs", NULL, ATTR_LOCKED);
	_cleanup_close_ int netns = open_tree(proc_fd, "self/ns/net", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (netns < 0)
		return -errno;
	int r = netns_loopback_up();
	if (setns(own, CLONE_NEWNET) < 0)
		return -errno;
	if (r < 0)
		return r;
	*ret_netns = TAKE_FD(netns);
	return TAKE_FD(fd);
}

static int mask_sysfs(void)
{
	_cleanup_close_ int sys = open(ROOT_SYS, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (sys < 0)
		return -errno;
	const char *present[SPAWNER_MASKS_MAX];
	find_present(sys, sys_dir, ARRAY_SIZE(sys_dir), present);
	for (size_t i = 0; present[i]; i++) {
		int r = mount_over(AT_FDCWD, ROOT_MASK_DIR, sys, present[i], ATTR_LOCKED);
		if (r < 0)
			return r;
	}
	return 0;
}

static int enter_root(int root_mount, const char *run_dir)
{
	int r = mount_attach(root_mount, AT_FDCWD, run_dir);
	if (r < 0)
		return r;
	if (fchdir(root_mount) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 ||
	    chdir("/") < 0)
		return -errno;
	return 0;
}

int spawner_root_setup(struct spawner *s, const char *run_dir, const char **ret_step)
{
	*ret_step = "unshare the mount namespace";
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	*ret_step = "mount a /proc of our own";
	s->proc_fd = mount_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (s->proc_fd < 0)
		return s->proc_fd;
	int r = read_file_at(s->proc_fd, "cpuinfo", 16 << 20, &s->cpuinfo, NULL);
	if (r < 0)
		return r;
	find_present(s->proc_fd, proc_ro, ARRAY_SIZE(proc_ro), s->proc_ro);
	find_present(s->proc_fd, proc_file, ARRAY_SIZE(proc_file), s->proc_file);
	find_present(s->proc_fd, proc_dir, ARRAY_SIZE(proc_dir), s->proc_dir);

	*ret_step = "make the template tree";
	static const struct mount_option options[] = { { "size", "64m" }, { "mode", "0755" }, { NULL, NULL } };
	_cleanup_close_ int root = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (root < 0)
		return root;
	if ((r = make_tree(root)) < 0)
		return r;
	*ret_step = "mount the sysfs template";
	_cleanup_close_ int netns = -1;
	_cleanup_close_ int sys = sysfs_of_empty_netns(s->proc_fd, &netns);
	if (sys < 0)
		return sys;
	*ret_step = "enter the empty root";
	if ((r = enter_root(root, run_dir)) < 0)
		return r;
	*ret_step = "attach the templates";
	r = mount_over(AT_FDCWD, ROOT_DEV, AT_FDCWD, ROOT_DEV,
		       MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (!r)
		r = mount_attach(sys, AT_FDCWD, ROOT_SYS);
	if (!r)
		r = mount_attach(netns, AT_FDCWD, ROOT_NETNS);
	if (!r)
		r = mask_sysfs();
	if (r < 0)
		return r;
	s->null_fd = open(ROOT_DEV "/null", O_RDWR | O_CLOEXEC);
	return s->null_fd < 0 ? -errno : 0;
}

static int put_file(const char *dir, const char *name, const char *text)
{
	char path[64];
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	_cleanup_close_ int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0444);
	return fd < 0 ? -errno : write_all(fd, text, strlen(text));
}

int spawner_root_cpus(struct spawner *s, uint32_t cpus)
{
	if (s->cpu_made[cpus])
		return 0;
	char dir[32], list[24];
	snprintf(dir, sizeof(dir), ROOT_CPU "/%u", cpus);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_free_ char *text = NULL;
	int r = cpuinfo_first(s->cpuinfo, cpus, &text);
	if (!r)
		r = put_file(dir, "cpuinfo", text);
	cpu_list_first(cpus, list);
	if (!r)
		r = put_file(dir, "list", list);
	s->cpu_made[cpus] = !r;
	return r;
}
