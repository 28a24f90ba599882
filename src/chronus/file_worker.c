/* file_worker.c: see file_worker.h. Entering, packets, and the short operations. */
#include "chronus/file_worker.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif
#define LIST_BYTES (24 * 1024)          /* of entries in one message */
#define LIST_NAMES_MAX (64 * 1024 * 1024) /* bytes of names of one directory */
#define TICK_ENTRIES 1000
#define TMP_PREFIX ".dsec-tmp-"

/* ---- Errors ---- */

static enum dsec_code code_of(int err)
{
	switch (err) {
	case ENOENT: return DSEC_E_FILE_NOT_FOUND;
	case ENOTDIR: return DSEC_E_NOT_A_DIRECTORY;
	case EISDIR: return DSEC_E_IS_A_DIRECTORY;
	case ENOTEMPTY: return DSEC_E_DIRECTORY_NOT_EMPTY;
	case EEXIST: return DSEC_E_FILE_EXISTS;
	case EACCES:
	case EPERM:
	case EROFS:
	case EBUSY:
	case EAGAIN: /* somebody holds a lease */
	case ETXTBSY: return DSEC_E_EXEC_PERMISSION;
	case EXDEV:
	case ENXIO: /* a socket */
	case ELOOP: return DSEC_E_PATH_UNSAFE;
	case ENOSPC:
	case EDQUOT: return DSEC_E_DISK_FULL;
	case ENAMETOOLONG: return DSEC_E_NAME_TOO_LONG;
	case EINVAL: return DSEC_E_BAD_FIELD;
	case EMFILE:
	case ENFILE:
	case ENOMEM: return DSEC_E_CAPACITY;
	default: return DSEC_E_INTERNAL;
	}
}

int file_error(struct dsec_error *e, int err, const char *what, const char *path)
{
	return dsec_error_set(e, -err, code_of(err), "cannot %s %.200s: %s", what, path, strerror(err));
}

/* ---- Paths ---- */

static int open_beneath(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = { .flags = (uint64_t)(flags | O_CLOEXEC), .mode = mode, .resolve = resolve };
	int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

int file_open(const struct worker *k, const char *path, int flags)
{
	return open_beneath(k->root, path, flags, 0, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
}

int file_parent(const struct worker *k, char *path, const char **ret_name)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	if (!*name)
		return -EISDIR;
	if (!strcmp(name, ".") || !strcmp(name, ".."))
		return -EINVAL;
	int fd = -1;
	if (slash) {
		*slash = 0;
		fd = file_open(k, *path ? path : "/", O_PATH | O_DIRECTORY);
	}
	*ret_name = name;
	return fd;
}

int file_make_dirs(const struct worker *k, const char *path, mode_t mode)
{
	char prefix[2 * FILE_PATH_MAX];
	for (size_t i = 1;; i++) {
		if (path[i] && path[i] != '/')
			continue;
		if (path[i - 1] != '/') {
			const char *name;
			memcpy(prefix, path, i);
			prefix[i] = 0;
			_cleanup_close_ int have = file_open(k, prefix, O_PATH | O_DIRECTORY);
			if (have < 0 && have != -ENOENT)
				return have;
			_cleanup_close_ int parent = have >= 0 ? -1 : file_parent(k, prefix, &name);
			if (have < 0 && parent < 0)
				return parent;
			if (have < 0 && mkdirat(parent, name, mode) < 0 && errno != EEXIST)
				return -errno;
		}
		if (!path[i])
			return 0;
	}
}

/* ---- Packets ---- */

int worker_send(struct worker *k, enum file_packet kind, const void *p, size_t n)
{
	uint8_t type = (uint8_t)kind;
	struct iovec iov[2] = { { &type, 1 }, { (void *)p, n } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
	ssize_t r;
	do
		r = sendmsg(k->sock, &m, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

int worker_data(struct worker *k, const void *p, size_t n)
{
	while (n) {
		size_t part = MIN(n, (size_t)FILE_CHUNK);
		int r = worker_send(k, FILE_PACKET_DATA, p, part);
		if (r < 0)
			return r;
		k->bytes += part;
		p = (const char *)p + part;
		n -= part;
	}
	return 0;
}

int worker_tick(struct worker *k)
{
	k->entries++;
	if (k->entries - k->ticked < TICK_ENTRIES)
		return 0;
	k->ticked = k->entries;
	return worker_send(k, FILE_PACKET_TICK, NULL, 0);
}

ssize_t worker_read(struct worker *k, void *p, size_t n)
{
	while (k->in_at == k->in_n) {
		if (k->in_ended || k->committed)
			return 0;
		ssize_t r = recv(k->sock, k->in, FILE_PACKET_MAX, 0);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -EPIPE; /* no end, no commit: the edge went away */
		if (k->in[0] == FILE_PACKET_END)
			k->in_ended = true;
		else if (k->in[0] == FILE_PACKET_COMMIT && r == 9) {
			memcpy(&k->commit_bytes, k->in + 1, sizeof(k->commit_bytes));
			k->committed = true;
		} else if (k->in[0] == FILE_PACKET_DATA) {
			k->in_at = 1;
			k->in_n = (size_t)r;
		}
	}
	size_t part = MIN(n, k->in_n - k->in_at);
	memcpy(p, k->in + k->in_at, part);
	k->in_at += part;
	k->bytes += part;
	return (ssize_t)part;
}

/* ---- Stat and list ---- */

static void fill_entry(struct wire_entry *w, const char *name, const struct stat *st, const char *link, ssize_t link_n)
{
	*w = (struct wire_entry){
		.name = { (const uint8_t *)name, strlen(name) },
		.link = { (const uint8_t *)link, link_n > 0 ? (size_t)link_n : 0 },
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.nlink = (uint32_t)st->st_nlink,
		.size = (uint64_t)st->st_size,
		.mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec,
		.inode = st->st_ino,
	};
}

static int send_stat(struct worker *k, const char *name, const struct stat *st, const char *link, ssize_t link_n)
{
	uint8_t p[2 * FILE_PATH_MAX + 256];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	struct wire_entry w;
	fill_entry(&w, name, st, link, link_n);
	wire_file_stat(&o, &w);
	return worker_send(k, FILE_PACKET_MESSAGE, p, o.n);
}

static const char *last_component(char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = 0;
	const char *slash = strrchr(path, '/');
	return slash && slash[1] ? slash + 1 : path;
}

static int op_stat(struct worker *k, struct dsec_error *e)
{
	char link[FILE_PATH_MAX];
	struct stat st;
	_cleanup_close_ int fd = file_open(k, k->path, O_PATH | (k->w->follow ? 0 : O_NOFOLLOW));
	if (fd < 0 || fstat(fd, &st) < 0)
		return file_error(e, fd < 0 ? -fd : errno, "stat", k->path);
	ssize_t n = S_ISLNK(st.st_mode) ? readlinkat(fd, "", link, sizeof(link)) : 0;
	return send_stat(k, last_component(k->path), &st, link, n);
}

/* The names of a directory, NUL-separated in *names. */
static int read_names(DIR *d, struct buf *names, size_t *ret_n)
{
	struct dirent *de;
	*ret_n = 0;
	while ((errno = 0, de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		int r = buf_append(names, de->d_name, strlen(de->d_name) + 1);
		if (r < 0)
			return r == -ENOBUFS ? -ENOMEM : r;
		++*ret_n;
	}
	return -errno;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int send_entries(struct worker *k, int dir, char **names, size_t n)
{
	uint8_t p[LIST_BYTES + 2 * FILE_PATH_MAX];
	char link[FILE_PATH_MAX];
	for (size_t i = 0; i < n;) {
		struct pb_out o = { .p = p, .cap = sizeof(p) };
		size_t mark = pb_open(&o, WIRE_FILE_ENTRIES);
		for (; i < n && o.n < LIST_BYTES; i++) {
			struct stat st;
			struct wire_entry w;
			if (fstatat(dir, names[i], &st, AT_SYMLINK_NOFOLLOW) < 0)
				continue; /* gone since */
			ssize_t l = S_ISLNK(st.st_mode) ? readlinkat(dir, names[i], link, sizeof(link)) : 0;
			fill_entry(&w, names[i], &st, link, l);
			wire_file_entry(&o, &w);
			k->entries++;
		}
		pb_close(&o, mark);
		int r = worker_send(k, FILE_PACKET_MESSAGE, p, o.n);
		if (r < 0)
			return r;
	}
	return 0;
}

static int op_list(struct worker *k, struct dsec_error *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(LIST_NAMES_MAX);
	_cleanup_free_ char **names = NULL;
	size_t n = 0;
	int fd = file_open(k, k->path, O_RDONLY | O_DIRECTORY);
	_cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d)
		return file_error(e, fd < 0 ? -fd : errno, "list", k->path);
	int r = read_names(d, &text, &n);
	if (r < 0 || !(names = malloc((n + 1) * sizeof(char *))))
		return file_error(e, r < 0 ? -r : ENOMEM, "list", k->path);
	const char *at = (const char *)buf_ptr(&text);
	for (size_t i = 0; i < n; i++, at += strlen(at) + 1)
		names[i] = (char *)at;
	qsort(names, n, sizeof(char *), by_name);
	return send_entries(k, fd, names, n);
}

/* ---- Read and write ---- */

static int op_read(struct worker *k, struct dsec_error *e)
{
	struct stat st;
	uint8_t chunk[FILE_CHUNK];
	_cleanup_close_ int fd = file_open(k, k->path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return file_error(e, fd < 0 ? -fd : errno, "read", k->path);
	if (S_ISDIR(st.st_mode))
		return file_error(e, EISDIR, "read", k->path);
	if (!S_ISREG(st.st_mode)) /* a FIFO or device may never end */
		return dsec_error_set(e, -EINVAL, DSEC_E_PATH_UNSAFE, "%.200s is not a regular file", k->path);
	/* The kernel refuses (EINVAL, EOVERFLOW) to stand or read where no file can reach:
	 * that is behind the end as any other offset there is. After the stat, errors cut
	 * the answer, so what can fail comes before. */
	bool behind = k->w->offset > (uint64_t)INT64_MAX - FILE_CHUNK;
	if (k->w->offset && !behind && lseek(fd, (off_t)k->w->offset, SEEK_SET) < 0) {
		if (errno != EINVAL)
			return file_error(e, errno, "seek in", k->path);
		behind = true;
	}
	uint64_t left = behind ? 0 : k->w->length ? k->w->length : UINT64_MAX;
	int r = send_stat(k, last_component(k->path), &st, NULL, 0);
	while (r == 0 && left) {
		ssize_t n = read(fd, chunk, (size_t)MIN(left, (uint64_t)sizeof(chunk)));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return file_error(e, errno, "read", k->path);
		if (!n)
			break;
		r = worker_data(k, chunk, (size_t)n);
		left -= (uint64_t)n;
	}
	return r;
}

struct target {
	int parent, fd;       /* fd: the new content */
	const char *name;
	char temporary[40];   /* "": nameless so far (O_TMPFILE) */
	mode_t mode;
};

/* A link is written through: the name becomes that of the file it leads to. */
static void follow_target(struct worker *k)
{
	char self[40];
	struct stat st;
	_cleanup_close_ int link = file_open(k, k->path, O_PATH | O_NOFOLLOW);
	if (link < 0 || fstat(link, &st) < 0 || !S_ISLNK(st.st_mode))
		return;
	_cleanup_close_ int fd = file_open(k, k->path, O_PATH);
	if (fd < 0)
		return; /* dangling: the link itself is replaced */
	char to[FILE_PATH_MAX];
	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(self, to, sizeof(to));
	if (n > 0 && (size_t)n < sizeof(to) && to[0] == '/') {
		memcpy(k->path, to, (size_t)n);
		k->path[n] = 0;
	}
}

static void temporary_name(char *out, size_t n)
{
	uint64_t r[2] = { 0 };
	getrandom(r, sizeof(r), 0);
	snprintf(out, n, TMP_PREFIX "%08llx%08llx", (unsigned long long)(r[0] & 0xffffffff),
		 (unsigned long long)(r[1] & 0xffffffff));
}

/* Nameless where the filesystem can: then nothing stays even if we are killed. */
static int open_target(struct worker *k, struct target *t)
{
	struct stat st;
	t->parent = file_parent(k, k->path, &t->name);
	if (t->parent < 0)
		return t->parent;
	t->mode = k->w->mode ? (k->w->mode & 07777) : 0644;
	if (fstatat(t->parent, t->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		if (S_ISDIR(st.st_mode))
			return -EISDIR;
		if (!k->w->mode && S_ISREG(st.st_mode))
			t->mode = st.st_mode & 07777; /* a rewritten script stays executable */
	}
	t->fd = openat(t->parent, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	if (t->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL))
		return t->fd < 0 ? -errno : 0;
	temporary_name(t->temporary, sizeof(t->temporary));
	t->fd = openat(t->parent, t->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return t->fd < 0 ? -errno : 0;
}

static int receive_file(struct worker *k, struct target *t)
{
	uint8_t chunk[FILE_CHUNK];
	ssize_t n;
	while ((n = worker_read(k, chunk, sizeof(chunk))) > 0) {
		int r = write_all(t->fd, chunk, (size_t)n);
		if (r < 0)
			return r;
	}
	return (int)n;
}

static int place_file(struct target *t)
{
	char self[40];
	if (fchmod(t->fd, t->mode) < 0)
		return -errno;
	if (!t->temporary[0]) {
		temporary_name(t->temporary, sizeof(t->temporary));
		snprintf(self, sizeof(self), "/proc/self/fd/%d", t->fd);
		if (linkat(AT_FDCWD, self, t->parent, t->temporary, AT_SYMLINK_FOLLOW) < 0) {
			t->temporary[0] = 0;
			return -errno;
		}
	}
	if (renameat(t->parent, t->temporary, t->parent, t->name) < 0)
		return -errno;
	t->temporary[0] = 0;
	return 0;
}

static int write_target(struct worker *k, struct target *t, struct dsec_error *e)
{
	int r = open_target(k, t);
	if (r == 0)
		r = receive_file(k, t);
	if (r == -EPIPE)
		return r; /* nobody is there to hear of it */
	if (r == 0 && !k->committed)
		return dsec_error_set(e, -ECANCELED, DSEC_E_BAD_REQUEST,
				      "the upload of %.200s ended without a commit; the old file stays", t->name);
	if (r == 0 && k->commit_bytes != k->bytes)
		return dsec_error_set(e, -EIO, DSEC_E_BAD_REQUEST, "%llu bytes of %.200s came, %llu were announced",
				      (unsigned long long)k->bytes, t->name, (unsigned long long)k->commit_bytes);
	if (r == 0)
		r = place_file(t);
	return r < 0 ? file_error(e, -r, "write", t->name ? t->name : k->path) : 0;
}

static int op_write(struct worker *k, struct dsec_error *e)
{
	struct target t = { .parent = -1, .fd = -1 };
	follow_target(k);
	if (k->w->parents) {
		char dir[sizeof(k->path)];
		strcpy(dir, k->path);
		char *slash = strrchr(dir, '/');
		*slash = 0;
		int r = slash > dir ? file_make_dirs(k, dir, 0755) : 0;
		if (r < 0)
			return file_error(e, -r, "make", dir);
	}
	int r = write_target(k, &t, e);
	if (r < 0 && t.temporary[0])
		unlinkat(t.parent, t.temporary, 0);
	base_close(t.fd);
	base_close(t.parent);
	k->entries = r == 0;
	return r;
}

/* ---- Mkdir and move ---- */

static int op_mkdir(struct worker *k, struct dsec_error *e)
{
	char whole[sizeof(k->path)];
	const char *name;
	mode_t mode = k->w->mode ? (k->w->mode & 07777) : 0755;
	strcpy(whole, k->path);
	if (k->w->parents) {
		int r = file_make_dirs(k, k->path, 0755);
		_cleanup_close_ int fd = r < 0 ? r : file_open(k, k->path, O_PATH | O_DIRECTORY);
		if (fd < 0)
			return file_error(e, -fd, "make", whole);
		return 0;
	}
	_cleanup_close_ int parent = file_parent(k, k->path, &name);
	if (parent < 0 || mkdirat(parent, name, 0700) < 0)
		return file_error(e, parent == -EISDIR ? EEXIST : parent < 0 ? -parent : errno, "make", whole);
	_cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, mode) < 0) /* so that the umask takes nothing */
		return file_error(e, errno, "make", whole);
	k->entries = 1;
	return 0;
}

static int op_move(struct worker *k, struct dsec_error *e)
{
	char whole[sizeof(k->path)];
	const char *from_name, *to_name;
	strcpy(whole, k->path);
	_cleanup_close_ int from = file_parent(k, k->path, &from_name);
	if (from < 0)
		return file_error(e, -from, "move", whole);
	strcpy(whole, k->to);
	_cleanup_close_ int to = file_parent(k, k->to, &to_name);
	if (to < 0)
		return file_error(e, -to, "move to", whole);
	unsigned flags = k->w->overwrite ? 0 : RENAME_NOREPLACE;
	if (syscall(SYS_renameat2, from, from_name, to, to_name, flags) < 0) {
		if (errno == EXDEV)
			return dsec_error_set(e, -EXDEV, DSEC_E_UNSUPPORTED,
					      "%.200s is on another filesystem, or a directory of a read-only layer: copy it instead",
					      whole);
		return file_error(e, errno, "move to", whole);
	}
	k->entries = 1;
	return 0;
}

/* ---- The process ---- */

static int set_path(char *to, size_t cap, const char *home, const char *path)
{
	int n = snprintf(to, cap, "%s%s%s", *path == '/' ? "" : home, *path == '/' ? "" : "/", path);
	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

static int enter(const struct file_plan *p, struct worker *k, struct dsec_error *e)
{
	struct sandbox_user u;
	int r = enter_sandbox(p->c, &p->sock, 1, e);
	if (r < 0 || (r = user_resolve(p->user, &u, e)) < 0 || (r = enter_become(&u, e)) < 0 ||
	    (r = enter_lock_down(p->c, &u, true, NULL, e)) < 0)
		return r;
	k->root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (k->root < 0)
		return dsec_error_errno(e, -errno, "cannot open /");
	if (!(k->in = malloc(FILE_PACKET_MAX)))
		return dsec_error_set(e, -ENOMEM, DSEC_E_CAPACITY, "no memory");
	if (set_path(k->path, sizeof(k->path), u.home, p->path) < 0 || set_path(k->to, sizeof(k->to), u.home, p->to) < 0)
		return dsec_error_set(e, -ENAMETOOLONG, DSEC_E_NAME_TOO_LONG, "the path is too long");
	return 0;
}

static int run(struct worker *k, struct dsec_error *e)
{
	static int (*const ops[FILE_OP_COUNT_])(struct worker *, struct dsec_error *) = {
		[FILE_STAT] = op_stat,	   [FILE_LIST] = op_list,	[FILE_READ] = op_read,
		[FILE_WRITE] = op_write,   [FILE_MKDIR] = op_mkdir,	[FILE_MOVE] = op_move,
		[FILE_REMOVE] = file_remove, [FILE_TAR_OUT] = file_tar_out, [FILE_TAR_IN] = file_tar_in,
	};
	return ops[k->w->op](k, e);
}

_Noreturn void file_worker(const struct file_plan *p)
{
	static struct worker k;
	struct dsec_error e = { .code = DSEC_E_INTERNAL, .message = "the file operation failed" };
	uint8_t out[DSEC_ERROR_MESSAGE_MAX + 128];
	struct pb_out o = { .p = out, .cap = sizeof(out) };
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	k.w = p->w;
	k.sock = p->sock;
	int r = enter(p, &k, &e);
	if (r == 0)
		r = run(&k, &e);
	if (r < 0)
		wire_file_failed(&o, dsec_code_name(e.code), e.message, (uint32_t)-r);
	else
		wire_file_done(&o, k.bytes, k.entries);
	worker_send(&k, FILE_PACKET_FINAL, out, o.n);
	_exit(0);
}
