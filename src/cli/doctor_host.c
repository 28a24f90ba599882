/* doctor_host.c: limits, space, programs, devices. See doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/doctor.h"
#include "cli/json_out.h"

#define OPEN_FILES_GOOD 65536   /* at about two descriptors a live sandbox */
#define PID_MAX_GOOD 131072
#define INOTIFY_GOOD 8192
#define DISK_GOOD_BYTES (20ull << 30)
#define DISK_NEEDED_BYTES (2ull << 30)
#define MEMORY_GOOD_BYTES (4ull << 30)

static long long read_number(const char *path)
{
	_cleanup_free_ char *text = NULL;
	return read_file_at(AT_FDCWD, path, 4096, &text, NULL) < 0 ? -1 : atoll(text);
}

static void limits(struct doctor *d)
{
	struct rlimit l = { 0 };
	getrlimit(RLIMIT_NOFILE, &l);
	doctor_add(d, "open_files", l.rlim_max >= OPEN_FILES_GOOD ? LEVEL_OK : LEVEL_WARN,
		   "fewer sandboxes can live at once; raise it (LimitNOFILE= in the unit, or ulimit -Hn)", "at most %llu a process",
		   (unsigned long long)l.rlim_max);
	long long n = read_number("/proc/sys/kernel/pid_max");
	doctor_add(d, "pid_max", n >= PID_MAX_GOOD ? LEVEL_OK : LEVEL_WARN,
		   "it caps processes of all sandboxes together: sysctl kernel.pid_max=4194304", "%lld", n);
	n = read_number("/proc/sys/fs/inotify/max_user_instances");
	doctor_add(d, "inotify", n >= INOTIFY_GOOD || n < 0 ? LEVEL_OK : LEVEL_WARN,
		   "file watchers in one sandbox are limited to it; each sandbox has ids of its own, so it is enough for most",
		   "%lld instances a user", n);
}

/* Of the nearest directory that exists. */
static void disk(struct doctor *d)
{
	char path[4096], size[32];
	struct statvfs v;
	snprintf(path, sizeof(path), "%s", d->state_dir);
	while (statvfs(path, &v) < 0) {
		char *slash = strrchr(path, '/');
		if (!slash || slash == path) {
			strcpy(path, "/");
			if (statvfs(path, &v) < 0)
				return;
			break;
		}
		*slash = 0;
	}
	unsigned long long free_bytes = (unsigned long long)v.f_bavail * v.f_frsize;
	doctor_add(d, "disk_space",
		   free_bytes >= DISK_GOOD_BYTES ? LEVEL_OK : free_bytes >= DISK_NEEDED_BYTES ? LEVEL_WARN : LEVEL_FAIL,
		   "layers and what sandboxes write need room; choose another place with --state-dir", "%s free at %s",
		   format_bytes(size, free_bytes), path);
}

static void memory(struct doctor *d)
{
	char size[32];
	struct sysinfo s = { 0 };
	sysinfo(&s);
	unsigned long long total = (unsigned long long)s.totalram * s.mem_unit;
	doctor_add(d, "memory", total >= MEMORY_GOOD_BYTES ? LEVEL_OK : LEVEL_WARN, "only a few sandboxes fit", "%s, %ld CPUs",
		   format_bytes(size, total), sysconf(_SC_NPROCESSORS_ONLN));
}

static bool find_program(const char *name)
{
	static const char *const dirs[] = { "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin" };
	char path[256];
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
		if (!access(path, X_OK))
			return true;
	}
	return false;
}

static void programs(struct doctor *d)
{
	static const struct {
		const char *name, *package, *without;
		enum level level;
	} wanted[] = {
		{ "mkfs.erofs", "erofs-utils", "no layer can be made", LEVEL_FAIL },
		{ "mkfs.btrfs", "btrfs-progs", "no disk limit can be kept", LEVEL_FAIL },
		{ "mmdebstrap", "mmdebstrap", "`dsec layer build` is not to be had", LEVEL_WARN },
	};
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		bool there = find_program(wanted[i].name);
		char follows[200];
		snprintf(follows, sizeof(follows), "%s: apt-get install %s", wanted[i].without, wanted[i].package);
		doctor_add(d, wanted[i].name, there ? LEVEL_OK : wanted[i].level, follows, there ? "installed" : "not installed");
	}
}

static void device(struct doctor *d, const char *name, const char *path, const char *follows)
{
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	doctor_add(d, name, fd < 0 ? LEVEL_WARN : LEVEL_OK, follows, fd < 0 ? "%s cannot be opened: %s" : "%s opens", path,
		   strerror(errno));
}

/* A /dev/kvm without hardware behind it (nested, or emulated) is told as that. */
static void kvm(struct doctor *d)
{
	_cleanup_free_ char *cpu = NULL;
	_cleanup_close_ int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	bool hardware = read_file_at(AT_FDCWD, "/proc/cpuinfo", 16 << 20, &cpu, NULL) >= 0 &&
			(strstr(cpu, " vmx") || strstr(cpu, " svm"));
	int version = fd < 0 ? -1 : ioctl(fd, KVM_GET_API_VERSION, 0);
	const char *found = version < 0		? hardware ? "the CPU has vmx or svm, but /dev/kvm cannot be opened"
							   : "no vmx or svm, no /dev/kvm"
			    : hardware ? "/dev/kvm, and vmx or svm in the CPU"
				       : "/dev/kvm opens, but the CPU shows neither vmx nor svm: not hardware virtualisation as guests expect it";
	doctor_add(d, "kvm", version >= 0 && hardware ? LEVEL_OK : LEVEL_WARN,
		   "containers do not need it; virtual machines would be emulated, many times slower", "%s", found);
}

void doctor_host(struct doctor *d)
{
	limits(d);
	disk(d);
	memory(d);
	programs(d);
	device(d, "fuse", "/dev/fuse", "layers cannot be loaded on demand later; modprobe fuse");
	device(d, "tun", "/dev/net/tun", "no user-mode networks later; modprobe tun");
	kvm(d);
}
