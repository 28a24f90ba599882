/* chronus_host.c: one sandbox for chronus without spawner, mounter and edge.
 *
 * A test helper (tests/integration/chronus_client.py runs it, as root): real user,
 * mount, pid, ipc, uts, network and cgroup namespaces, cgroup2 leaves, and a tmpfs
 * root with the host's /usr in it, mapped to the sandbox's ids. It binds the socket, starts
 * chronus as the spawner would, prints "ready PID", and takes everything down when
 * its standard input ends or a SIGTERM comes.
 *
 *   chronus_host CHRONUS SOCKET DIR [memory_bytes [disk_bytes [cpus]]]
 *
 * DIR is an empty directory for its mounts. Limits are only told to chronus here;
 * nothing enforces them (the real backend's tests do that). */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/chronus_boot.h"
#include "base/cleanup.h"
#include "base/fdio.h"

#define ID_BASE 0x70000000u
#define OUTER_ID 0xf0000000u
#define CHECK(what, call)                                                     \
	({                                                                    \
		long r_ = (long)(call);                                       \
		if (r_ < 0) {                                                 \
			fprintf(stderr, "chronus_host: %s: %m\n", what);     \
			_exit(1);                                             \
		}                                                             \
		(int)r_;                                                      \
	})

static struct chronus_boot boot = { .size = sizeof(boot), .version = CHRONUS_BOOT_VERSION };

/* ---- Cgroups ---- */
static char cg[256];

static void cg_path(char *out, size_t n, const char *sub)
{
	snprintf(out, n, "%s%s", cg, sub);
}

static void make_cgroups(void)
{
	char p[300];
	const char *root = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 ? "/sys/fs/cgroup/unified" :
										     "/sys/fs/cgroup";
	snprintf(cg, sizeof(cg), "%s/chronus-host-%d", root, (int)getpid());
	CHECK("mkdir cgroup", mkdir(cg, 0755));
	static const char *const own[] = { "", "/cgroup.procs", "/work", "/work/cgroup.procs" };
	cg_path(p, sizeof(p), "/chronus");
	CHECK("mkdir cgroup", mkdir(p, 0755));
	cg_path(p, sizeof(p), "/work");
	CHECK("mkdir cgroup", mkdir(p, 0755));
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		cg_path(p, sizeof(p), own[i]);
		CHECK("chown cgroup", chown(p, OUTER_ID, OUTER_ID));
	}
	cg_path(p, sizeof(p), "/work");
	boot.work_fd = CHECK("open cgroup", open(p, O_RDONLY | O_DIRECTORY));
}

static void remove_cgroups(void)
{
	char p[300];
	for (int tries = 0; tries < 200; tries++) {
		cg_path(p, sizeof(p), "/work");
		DIR *d = opendir(p);
		struct dirent *e;
		while (d && (e = readdir(d)))
			if (!strncmp(e->d_name, "e-", 2) || !strncmp(e->d_name, "f-", 2))
				unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
		if (d)
			closedir(d);
		rmdir(p);
		cg_path(p, sizeof(p), "/chronus");
		rmdir(p);
		if (rmdir(cg) == 0)
			return;
		usleep(10000);
	}
	fprintf(stderr, "chronus_host: cgroup %s stays\n", cg);
}

/* ---- User namespace ---- */
static void put(const char *path, const char *text)
{
	int fd = CHECK(path, open(path, O_WRONLY | O_CLOEXEC));
	CHECK(path, write(fd, text, strlen(text)));
	close(fd);
}

static void make_userns(void)
{
	int to[2], from[2];
	char b, path[64], map[64];
	CHECK("pipe", pipe(to) | pipe(from));
	pid_t pid = CHECK("fork", fork());
	if (!pid) {
		CHECK("setresgid", syscall(SYS_setresgid, OUTER_ID, OUTER_ID, OUTER_ID));
		CHECK("setresuid", syscall(SYS_setresuid, OUTER_ID, OUTER_ID, OUTER_ID));
		CHECK("unshare", unshare(CLONE_NEWUSER));
		prctl(PR_SET_DUMPABLE, 1);
		CHECK("write", write(from[1], "x", 1));
		CHECK("read", read(to[0], &b, 1));
		/* As the platform does it: no namespaces of the sandbox's own. */
		static const char *const kinds[] = { "user", "pid", "uts", "ipc", "net", "mnt", "cgroup", "time" };
		for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
			snprintf(path, sizeof(path), "/proc/sys/user/max_%s_namespaces", kinds[i]);
			put(path, "0");
		}
		CHECK("write", write(from[1], "x", 1));
		pause();
	}
	CHECK("read", read(from[0], &b, 1));
	snprintf(map, sizeof(map), "0 %u 65536", ID_BASE);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	put(path, map);
	snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
	put(path, map);
	CHECK("write", write(to[1], "x", 1));
	CHECK("read", read(from[0], &b, 1) == 1 ? 0 : -1);
	snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	boot.userns_fd = CHECK("open userns", open(path, O_RDONLY));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++)
		close(to[i]), close(from[i]);
}

/* ---- The sandbox's root, made inside its mount namespace ---- */
static void dir(const char *path, mode_t mode, unsigned id)
{
	CHECK(path, mkdir(path, mode));
	CHECK(path, chmod(path, mode));
	CHECK(path, lchown(path, ID_BASE + id, ID_BASE + id));
}

static void file(const char *path, const char *text)
{
	int fd = CHECK(path, open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	CHECK(path, write(fd, text, strlen(text)));
	CHECK(path, fchown(fd, ID_BASE, ID_BASE));
	close(fd);
}

/* The host's directory, read-only, its owners shifted into the sandbox's range. */
static void bring(const char *host, const char *to)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY,
				   .userns_fd = (uint64_t)boot.userns_fd };
	int fd = CHECK("open_tree", syscall(SYS_open_tree, AT_FDCWD, host, OPEN_TREE_CLONE | O_CLOEXEC));
	CHECK("mount_setattr", syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)));
	CHECK("move_mount", syscall(SYS_move_mount, fd, "", AT_FDCWD, to, 4 /* F_EMPTY_PATH */));
	close(fd);
}

static void make_dev(void)
{
	static const struct {
		const char *path;
		int minor;
	} nodes[] = { { "dev/null", 3 }, { "dev/zero", 5 }, { "dev/full", 7 }, { "dev/random", 8 }, { "dev/urandom", 9 } };
	dir("dev", 0755, 0);
	CHECK("mount /dev", mount("tmpfs", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755"));
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++) {
		CHECK(nodes[i].path, mknod(nodes[i].path, S_IFCHR | 0666, makedev(1, nodes[i].minor)));
		CHECK(nodes[i].path, chmod(nodes[i].path, 0666));
	}
	CHECK("tty", mknod("dev/tty", S_IFCHR | 0666, makedev(5, 0)));
	CHECK("tty", chmod("dev/tty", 0666));
	dir("dev/pts", 0755, 0);
	dir("dev/shm", 01777, 0);
	CHECK("mount devpts", mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"));
	CHECK("link", symlink("pts/ptmx", "dev/ptmx"));
	CHECK("link", symlink("/proc/self/fd", "dev/fd"));
	CHECK("link", symlink("/proc/self/fd/0", "dev/stdin"));
	CHECK("link", symlink("/proc/self/fd/1", "dev/stdout"));
	CHECK("link", symlink("/proc/self/fd/2", "dev/stderr"));
	boot.devpts_fd = CHECK("open devpts", open("dev/pts", O_RDONLY | O_DIRECTORY));
}

static void make_root(const char *where)
{
	static const char *const links[] = { "bin", "sbin", "lib", "lib64" };
	CHECK("private", mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CHECK("mount tmpfs", mount("tmpfs", where, "tmpfs", 0, "mode=755,size=64m"));
	CHECK("chdir", chdir(where));
	CHECK("chown", chown(".", ID_BASE, ID_BASE));
	dir("usr", 0755, 0);
	bring("/usr", "usr");
	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		char to[32];
		snprintf(to, sizeof(to), "usr/%s", links[i]);
		CHECK("link", symlink(to, links[i]));
		CHECK("link", lchown(links[i], ID_BASE, ID_BASE));
	}
	dir("etc", 0755, 0);
	file("etc/passwd", "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n"
			   "nobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n");
	file("etc/group", "root:x:0:\nagent:x:1000:\nvideo:x:44:agent\nnogroup:x:65534:\n");
	dir("etc/ssl", 0755, 0);
	dir("root", 0700, 0);
	dir("home", 0755, 0);
	dir("home/agent", 0755, 1000);
	dir("tmp", 01777, 0);
	dir("proc", 0555, 0);
	CHECK("mount proc", mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
	make_dev();
	file(".meminfo", "");
	boot.meminfo_fd = CHECK("open meminfo", open(".meminfo", O_WRONLY));
	CHECK("bind meminfo", mount(".meminfo", "proc/meminfo", NULL, MS_BIND, NULL));
	CHECK("unlink", unlink(".meminfo"));
	CHECK("chroot", syscall(SYS_pivot_root, ".", "."));
	CHECK("umount", umount2(".", MNT_DETACH));
}

/* Every named descriptor becomes inheritable; the boot pipe is number 3. */
static void start_chronus(int chronus_fd)
{
	int boot_pipe[2];
	char *argv[] = { "chronus", NULL }, *env[] = { NULL };
	CHECK("pipe", pipe2(boot_pipe, O_CLOEXEC));
	CHECK("write boot", write_all(boot_pipe[1], &boot, sizeof(boot)));
	CHECK("dup2", dup2(boot_pipe[0], CHRONUS_BOOT_FD));
	CHECK("setgroups", syscall(SYS_setgroups, 0, NULL));
	for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	CHECK("setresgid", syscall(SYS_setresgid, OUTER_ID, OUTER_ID, OUTER_ID));
	CHECK("setresuid", syscall(SYS_setresuid, OUTER_ID, OUTER_ID, OUTER_ID));
	setsid();
	CHECK("execveat", syscall(SYS_execveat, chronus_fd, "", argv, env, AT_EMPTY_PATH));
}

static int high(int fd)
{
	int r = CHECK("dup", fcntl(fd, F_DUPFD, 10));
	close(fd);
	return r;
}

int main(int argc, char **argv)
{
	char p[300];
	sigset_t set;
	if (argc < 4) {
		fprintf(stderr, "usage: chronus_host CHRONUS SOCKET DIR [memory_bytes [disk_bytes [cpus]]]\n");
		return 2;
	}
	boot.memory_bytes = argc > 4 ? strtoull(argv[4], NULL, 10) : 256u << 20;
	boot.disk_bytes = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
	boot.cpus = argc > 6 ? (uint32_t)atoi(argv[6]) : 0;
	boot.memory_usage_fd = boot.memory_stat_fd = -1;
	for (int i = 0; i < CHRONUS_V1_MAX; i++)
		boot.v1_tasks_fd[i] = -1;
	strcpy(boot.sandbox_id, "sb-test-aaaaaaaaaaaaaaaaaaaaaaaaaa");
	int chronus_fd = high(CHECK("open chronus", open(argv[1], O_RDONLY | O_CLOEXEC)));
	boot.listen_fd = high(CHECK("listen", unix_listen(argv[2], SOCK_STREAM | SOCK_NONBLOCK, 8)));
	make_cgroups();
	boot.work_fd = high(boot.work_fd);
	make_userns();
	boot.userns_fd = high(boot.userns_fd);
	cg_path(p, sizeof(p), "/chronus");
	int leaf = CHECK("open cgroup", open(p, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct clone_args args = {
		.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_INTO_CGROUP,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)leaf,
	};
	pid_t pid = CHECK("clone3", syscall(SYS_clone3, &args, sizeof(args)));
	if (!pid) {
		make_root(argv[3]);
		boot.devpts_fd = high(boot.devpts_fd);
		boot.meminfo_fd = high(boot.meminfo_fd);
		close(0), close(1);
		start_chronus(chronus_fd);
	}
	printf("ready %d %s\n", pid, cg);
	fflush(stdout);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	struct pollfd pfd[2] = { { 0, POLLIN, 0 }, { signalfd(-1, &set, SFD_CLOEXEC), POLLIN, 0 } };
	poll(pfd, 2, -1);
	kill(pid, SIGKILL);
	int status;
	waitpid(pid, &status, 0);
	if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		fprintf(stderr, "chronus_host: chronus ended by itself, status %#x\n", status);
	remove_cgroups();
	unlink(argv[2]);
	return 0;
}
