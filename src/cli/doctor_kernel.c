/* doctor_kernel.c: namespaces, cgroups, system calls and security modules. See doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/doctor.h"

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

static int make_userns(void *arg)
{
	return unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
}

static int make_others(void *arg)
{
	return unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | CLONE_NEWCGROUP) < 0
		       ? -errno
		       : 0;
}

static void namespaces(struct doctor *d)
{
	int r = doctor_in_child(make_userns, NULL);
	doctor_add(d, "user_namespaces", r < 0 ? LEVEL_FAIL : LEVEL_OK,
		   "allow them: sysctl user.max_user_namespaces=65536 (and kernel.unprivileged_userns_clone=1 where it exists)",
		   r < 0 ? "cannot be made: %s" : "can be made", strerror(-r));
	if (!d->root)
		return;
	r = doctor_in_child(make_others, NULL);
	doctor_add(d, "namespaces", r < 0 ? LEVEL_FAIL : LEVEL_OK,
		   "mount, pid, ipc, uts, net and cgroup namespaces are needed: a kernel that has them, and no outer container that forbids them",
		   r < 0 ? "cannot be made: %s" : "mount, pid, ipc, uts, net, cgroup can be made", strerror(-r));
}

/* Mount point of cgroup2, and which v1 controllers are mounted. */
static void read_cgroup_mounts(char cgroup2[256], char v1[256])
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mounts", "re");
	char line[4096], point[256], type[64], opts[1024];
	*cgroup2 = *v1 = 0;
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %255s %63s %1023s", point, type, opts) != 3)
			continue;
		if (!strcmp(type, "cgroup2") && !*cgroup2)
			strcpy(cgroup2, point);
		static const char *const wanted[] = { "cpu", "memory", "pids" };
		for (size_t i = 0; !strcmp(type, "cgroup") && i < ARRAY_SIZE(wanted); i++) {
			char word[1100], key[16];
			snprintf(word, sizeof(word), ",%s,", opts);
			snprintf(key, sizeof(key), ",%s,", wanted[i]);
			if (strstr(word, key) && strlen(v1) + 16 < 256)
				strcat(strcat(v1, *v1 ? " " : ""), wanted[i]);
		}
	}
}

static bool has_words(const char *text, const char *const *words, size_t n)
{
	char padded[1024];
	snprintf(padded, sizeof(padded), " %.*s ", (int)strcspn(text, "\n"), text);
	for (size_t i = 0; i < n; i++) {
		char key[32];
		snprintf(key, sizeof(key), " %s ", words[i]);
		if (!strstr(padded, key))
			return false;
	}
	return true;
}

/* A cgroup2 directory that takes a child by clone3. Leaves nothing. */
static int clone_into(const char *parent, bool *ret_kill)
{
	char path[600], file[700];
	snprintf(path, sizeof(path), "%s/dsec-doctor-%d", parent, (int)getpid());
	if (mkdir(path, 0755) < 0)
		return -errno;
	snprintf(file, sizeof(file), "%s/cgroup.kill", path);
	*ret_kill = !access(file, W_OK);
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = fd < 0 ? -errno : 0;
	struct clone_args a = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)fd };
	if (!r) {
		long pid = syscall(SYS_clone3, &a, sizeof(a));
		if (!pid)
			_exit(0);
		r = pid < 0 ? -errno : 0;
		if (pid > 0)
			waitpid((pid_t)pid, NULL, 0);
	}
	base_close(fd);
	for (int i = 0; rmdir(path) < 0 && errno == EBUSY && i < 100; i++)
		usleep(1000);
	return r;
}

static void own_cgroup2(const char *mount, char ret[512])
{
	_cleanup_free_ char *text = NULL;
	const char *at = NULL;
	if (!read_file_at(AT_FDCWD, "/proc/self/cgroup", 65536, &text, NULL))
		at = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
	if (at && *at == '\n')
		at++;
	int n = at ? (int)strcspn(at + 3, "\n") : 0;
	snprintf(ret, 512, "%.200s%.*s", mount, n > 250 || n == 1 ? 0 : n, at ? at + 3 : "");
}

static void cgroups(struct doctor *d)
{
	static const char *const wanted[] = { "cpu", "memory", "pids" };
	char cgroup2[256], v1[256], path[512];
	_cleanup_free_ char *controllers = NULL;
	read_cgroup_mounts(cgroup2, v1);
	if (!*cgroup2) {
		doctor_add(d, "cgroup2", LEVEL_FAIL,
			   "mount it, even without controllers: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified", "is not mounted");
		return;
	}
	snprintf(path, sizeof(path), "%s/cgroup.controllers", cgroup2);
	if (read_file_at(AT_FDCWD, path, 4096, &controllers, NULL) < 0)
		controllers = NULL;
	bool unified = controllers && has_words(controllers, wanted, 3);
	bool hybrid = !unified && has_words(v1, wanted, 3);
	doctor_add(d, "cgroup_controllers", unified || hybrid ? LEVEL_OK : LEVEL_FAIL,
		   "cpu, memory and pids must all be on cgroup2, or all on version 1",
		   unified ? "cgroup2 has cpu, memory, pids%s" : "version 1 has: %s", unified ? "" : v1);
	if (!d->root)
		return;
	bool kill = false;
	own_cgroup2(cgroup2, path);
	int r = clone_into(path, &kill);
	if (r == -EROFS || r == -EACCES)
		doctor_add(d, "clone_into_cgroup", LEVEL_FAIL, "this program's cgroup must be writable: start outside of a container, or delegate it",
			   "%s cannot be written", path);
	else
		doctor_add(d, "clone_into_cgroup", r < 0 ? LEVEL_FAIL : LEVEL_OK, "a kernel with clone3 and cgroup2 is needed",
			   r < 0 ? "does not work: %s" : "works", strerror(-r));
	doctor_add(d, "cgroup_kill", kill ? LEVEL_OK : LEVEL_WARN, "trees of processes are killed one by one, slower",
		   kill ? "there" : "not there");
}

static void system_calls(struct doctor *d)
{
	long r = syscall(SYS_pidfd_open, getpid(), 0);
	doctor_add(d, "pidfd", r < 0 ? LEVEL_FAIL : LEVEL_OK, "a kernel with pidfd_open is needed", r < 0 ? "does not work" : "works");
	base_close((int)r);
	struct seccomp_notif_sizes sizes;
	r = syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes);
	doctor_add(d, "seccomp", r < 0 ? LEVEL_FAIL : LEVEL_OK, "a kernel with seccomp filters and user notification is needed",
		   r < 0 ? "user notification does not work: %s" : "filters with user notification", strerror(errno));
	r = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	doctor_add(d, "landlock", r < 0 ? LEVEL_WARN : LEVEL_OK,
		   "paths are protected by locked over-mounts only; boot with lsm=landlock,...", r < 0 ? "not there" : "version %ld", r);
	r = syscall(SYS_openat2, -1, NULL, NULL, 0);
	doctor_add(d, "openat2", errno == ENOSYS ? LEVEL_FAIL : LEVEL_OK, "a kernel with openat2 is needed",
		   errno == ENOSYS ? "not there" : "there");
}

/* securityfs tells; where it is not mounted, it is for this look. 0: bpf is there. */
static int look_for_bpf_lsm(void *arg)
{
	static const char path[] = "/sys/kernel/security/lsm";
	_cleanup_free_ char *lsms = NULL;
	int r = read_file_at(AT_FDCWD, path, 4096, &lsms, NULL);
	if (r < 0 && (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		      mount("securityfs", "/sys/kernel/security", "securityfs", 0, NULL) < 0))
		return -errno;
	if (r < 0)
		r = read_file_at(AT_FDCWD, path, 4096, &lsms, NULL);
	return r < 0 ? r : strstr(lsms, "bpf") ? 0 : -ENOENT;
}

static void bpf(struct doctor *d)
{
	union bpf_attr a = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
	long r = d->root ? syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof(a)) : -1;
	if (!d->root)
		errno = EPERM;
	doctor_add(d, "bpf", r < 0 ? LEVEL_WARN : LEVEL_OK, "network rules cannot be enforced; sandboxes stay without network",
		   r < 0 ? "does not work: %s" : "works", strerror(errno));
	base_close((int)r);
	int lsm = doctor_in_child(look_for_bpf_lsm, NULL);
	doctor_add(d, "bpf_lsm", !lsm ? LEVEL_OK : LEVEL_WARN, "some guard rails are left to Landlock; boot with lsm=...,bpf",
		   !lsm ? "there" : lsm == -ENOENT ? "not among the active modules" : "cannot be seen: %s", strerror(-lsm));
}

void doctor_kernel(struct doctor *d)
{
	struct utsname u;
	uname(&u);
	doctor_add(d, "kernel", LEVEL_OK, "", "%s %s on %s", u.sysname, u.release, u.machine);
	namespaces(d);
	cgroups(d);
	system_calls(d);
	bpf(d);
}
