/* debug_host.c: what this host tells for a bundle: kernel, cgroups, mounts, store, logs. */
#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/debug.h"

#define SMALL_FILE_MAX 65536
#define CGROUP_DEPTH_MAX 12
#define WAL_FRAMES_MAX 65536

/* No /proc/cmdline: boot loaders are given passwords there. */
static const char *const kernel_files[] = {
	"/proc/version", "/etc/os-release", "/proc/filesystems", "/proc/cgroups", "/proc/self/cgroup", "/proc/meminfo",
	"/proc/loadavg", "/proc/self/limits", "/proc/pressure/memory", "/proc/pressure/cpu", "/proc/pressure/io",
	"/sys/kernel/security/lsm", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
	"/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
	"/proc/sys/user/max_user_namespaces", "/proc/sys/user/max_mnt_namespaces", "/proc/sys/user/max_pid_namespaces",
	"/proc/sys/fs/mount-max", "/proc/sys/fs/file-max", "/proc/sys/fs/file-nr", "/proc/sys/fs/inotify/max_user_instances",
	"/proc/sys/vm/overcommit_memory", "/proc/sys/vm/swappiness",
};
static const char *const cgroup_files[] = {
	"cgroup.type", "cgroup.controllers", "cgroup.subtree_control", "cgroup.events", "cgroup.freeze", "pids.max",
	"pids.current", "memory.max", "memory.current", "memory.events", "memory.limit_in_bytes",
	"memory.usage_in_bytes", "cpu.max", "cpu.cfs_quota_us",
};
/* What sandboxes are made of. Others (network shares) may name more than we want to know. */
static const char *const mount_types[] = { "overlay", "erofs", "btrfs", "ext4", "xfs", "tmpfs", "ramfs", "rootfs", "proc",
					   "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "mqueue", "securityfs", "bpf" };

static void file_out(FILE *f, const char *path)
{
	_cleanup_free_ char *text = NULL;
	size_t n = 0;
	int r = read_file_at(AT_FDCWD, path, SMALL_FILE_MAX, &text, &n);
	if (r < 0)
		fprintf(f, "%s: %s\n", path, strerror(-r));
	else if (n && memchr(text, '\n', n) != text + n - 1)
		fprintf(f, "%s:\n%s\n", path, text);
	else
		fprintf(f, "%s: %s", path, n ? text : "\n");
}

void bundle_kernel(struct bundle *b)
{
	struct part p;
	struct utsname u;
	if (!part_open(&p))
		return;
	if (!uname(&u))
		fprintf(p.f, "uname: %s %s %s %s\n", u.sysname, u.release, u.version, u.machine);
	fprintf(p.f, "cores: %ld of %ld\n", sysconf(_SC_NPROCESSORS_ONLN), sysconf(_SC_NPROCESSORS_CONF));
	for (size_t i = 0; i < ARRAY_SIZE(kernel_files); i++)
		file_out(p.f, kernel_files[i]);
	bundle_add(b, "kernel.txt", &p, false);
}

/* dsec-HASH, as src/kernel/cgroup.h names it. */
static bool is_ours(const char *name)
{
	return !strncmp(name, "dsec-", 5) && strlen(name) == 13 && strspn(name + 5, "0123456789abcdef") == 8;
}

static void cgroup_out(FILE *f, const char *path)
{
	char file[4096];
	fprintf(f, "%s\n", path);
	for (size_t i = 0; i < ARRAY_SIZE(cgroup_files); i++) {
		_cleanup_free_ char *text = NULL;
		size_t n = 0;
		if (snprintf(file, sizeof(file), "%s/%s", path, cgroup_files[i]) >= (int)sizeof(file) ||
		    read_file_at(AT_FDCWD, file, SMALL_FILE_MAX, &text, &n) < 0)
			continue;
		for (size_t k = 0; k + 1 < n; k++)
			if (text[k] == '\n')
				text[k] = ' ';
		fprintf(f, "  %s: %s%s", cgroup_files[i], text, n && text[n - 1] == '\n' ? "" : "\n");
	}
}

static void cgroup_walk(FILE *f, const char *path, bool inside, unsigned depth, unsigned *left)
{
	char below[4096];
	_cleanup_closedir_ DIR *d = opendir(path);
	if (!d || depth == CGROUP_DEPTH_MAX)
		return;
	for (struct dirent *e; *left && (e = readdir(d));) {
		if (e->d_type != DT_DIR || *e->d_name == '.')
			continue;
		if (snprintf(below, sizeof(below), "%s/%s", path, e->d_name) >= (int)sizeof(below))
			continue;
		bool ours = inside || is_ours(e->d_name);
		if (ours) {
			cgroup_out(f, below);
			(*left)--;
		}
		cgroup_walk(f, below, ours, depth + 1, left);
	}
}

struct mount_line {
	const char *point, *type;
	char *copy; /* owned */
};

/* Fields 5 and the one behind " - ". */
static bool mount_parse(const char *line, struct mount_line *ret)
{
	char *save = NULL, *copy = strdup(line), *type = copy ? strstr(copy, " - ") : NULL;
	ret->copy = copy;
	if (!type)
		return false;
	*type = 0;
	type += 3;
	type[strcspn(type, " \n")] = 0;
	ret->type = type;
	ret->point = strtok_r(copy, " ", &save);
	for (int i = 0; i < 4 && ret->point; i++)
		ret->point = strtok_r(NULL, " ", &save);
	return ret->point;
}

void bundle_cgroups(struct bundle *b)
{
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;
	unsigned left = BUNDLE_CGROUPS_MAX;
	struct part p;
	if (!part_open(&p))
		return;
	while (mounts && getline(&line, &cap, mounts) > 0) {
		struct mount_line m = { 0 };
		if (mount_parse(line, &m) && (!strcmp(m.type, "cgroup") || !strcmp(m.type, "cgroup2"))) {
			fprintf(p.f, "%s at %s\n", m.type, m.point);
			cgroup_walk(p.f, m.point, false, 0, &left);
		}
		free(m.copy);
	}
	if (!left)
		bundle_note(b, "cgroups.txt: more than %d cgroups", BUNDLE_CGROUPS_MAX);
	bundle_add(b, "cgroups.txt", &p, false);
}

void bundle_mounts(struct bundle *b)
{
	_cleanup_fclose_ FILE *mounts = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	size_t cap = 0;
	unsigned others = 0;
	struct part p;
	if (!part_open(&p))
		return;
	while (mounts && getline(&line, &cap, mounts) > 0) {
		struct mount_line m = { 0 };
		bool known = false;
		if (mount_parse(line, &m))
			for (size_t i = 0; i < ARRAY_SIZE(mount_types) && !known; i++)
				known = !strcmp(m.type, mount_types[i]);
		if (known)
			fputs(line, p.f);
		else
			others++;
		free(m.copy);
	}
	fprintf(p.f, "and %u of other types\n", others);
	bundle_add(b, "mounts.txt", &p, false);
}

static uint32_t be32_at(const uint8_t *p)
{
	uint32_t v;
	memcpy(&v, p, 4);
	return be32toh(v);
}

/* The newest committed first page in the write-ahead log replaces the file's header
 * (https://sqlite.org/fileformat2.html#walformat). */
static void wal_header(int fd, uint8_t header[100])
{
	uint8_t wal[32], frame[24 + 100], found[100];
	bool have = false;
	if (pread(fd, wal, sizeof(wal), 0) != sizeof(wal))
		return;
	off_t step = 24 + (off_t)be32_at(wal + 8), at = sizeof(wal);
	for (unsigned i = 0; i < WAL_FRAMES_MAX && step > 24 + 100; i++, at += step) {
		if (pread(fd, frame, sizeof(frame), at) != sizeof(frame) || memcmp(frame + 8, wal + 16, 8))
			return;
		if (be32_at(frame) == 1) {
			memcpy(found, frame + 24, sizeof(found));
			have = true;
		}
		if (have && be32_at(frame + 4)) /* the last of a transaction */
			memcpy(header, found, sizeof(found));
	}
}

/* The header of the SQLite file holds it; we link no SQLite. */
void bundle_store(struct bundle *b)
{
	char path[4096];
	uint8_t header[100];
	struct stat st, wal = { 0 };
	struct part p;
	snprintf(path, sizeof(path), "%s/store.db", b->state_dir);
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || fstat(fd, &st) < 0 || read_all(fd, header, sizeof(header)) != sizeof(header) ||
	    memcmp(header, "SQLite format 3", 16)) {
		bundle_note(b, "store.json: %s: %s", path, fd < 0 ? strerror(errno) : "no SQLite file");
		return;
	}
	snprintf(path, sizeof(path), "%s/store.db-wal", b->state_dir);
	_cleanup_close_ int log = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (log >= 0 && !fstat(log, &wal))
		wal_header(log, header);
	if (!part_open(&p))
		return;
	fprintf(p.f, "{\"schema_version\": %u, \"application_id\": %u, \"bytes\": %lld, \"wal_bytes\": %lld}\n",
		be32_at(header + 60), be32_at(header + 68), (long long)st.st_size, (long long)wal.st_size);
	bundle_add(b, "store.json", &p, false);
}

/* From the start of a line: half a secret would not be found. */
static void add_log(struct bundle *b, int dirfd, const char *name)
{
	char file[300];
	struct stat st;
	struct part p;
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	size_t n = st.st_size < BUNDLE_LOG_BYTES ? (size_t)st.st_size : BUNDLE_LOG_BYTES;
	_cleanup_free_ char *text = malloc(n + 1);
	ssize_t k = text && lseek(fd, st.st_size - (off_t)n, SEEK_SET) >= 0 ? read_all(fd, text, n) : -1;
	if (k < 0 || !part_open(&p))
		return;
	text[k] = 0;
	const char *from = text;
	if ((off_t)n < st.st_size) {
		from = memchr(text, '\n', (size_t)k);
		from = from ? from + 1 : text + k;
	}
	fwrite(from, 1, (size_t)(text + k - from), p.f);
	snprintf(file, sizeof(file), "log/%s", name);
	bundle_add(b, file, &p, true);
}

void bundle_logs(struct bundle *b)
{
	char path[4096];
	unsigned n = 0;
	snprintf(path, sizeof(path), "%s/log", b->state_dir);
	if (b->redact.overflow) {
		bundle_note(b, "log/: left out, there are too many values to look for in it");
		return;
	}
	if (!b->learned)
		bundle_note(b, "log/: no server told what values to look for: searched for keys only");
	_cleanup_closedir_ DIR *d = opendir(path);
	if (!d) {
		bundle_note(b, "log/: %s: %s", path, strerror(errno));
		return;
	}
	for (struct dirent *e; (e = readdir(d));) {
		if (*e->d_name == '.' || strchr(e->d_name, '\n'))
			continue;
		if (n++ == BUNDLE_LOGS_MAX) {
			bundle_note(b, "log/: more than %d files", BUNDLE_LOGS_MAX);
			break;
		}
		add_log(b, dirfd(d), e->d_name);
	}
}
