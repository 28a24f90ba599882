/* file_tar.c: a directory as a tar stream, and a tar stream into a directory.
 *
 * Out: an archive of what is below the directory, names relative to it, hard
 * links kept as far as LINKS_MAX are remembered (beyond, they become copies).
 * In: everything is resolved beneath the directory; an entry that would leave it
 * (.., an absolute name's meaning, a link on the way) is path_unsafe. Devices are
 * refused. Files belong to the acting user; modes and times are the archive's.
 * A failure in the middle leaves what was unpacked so far. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/file_worker.h"
#include "chronus/tar.h"

#define DEPTH_MAX 256       /* of a tree that is read: a descriptor each */
#define LINKS_MAX 65536     /* hard-linked files remembered */
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
#define DIRS_MAX 65536      /* unpacked directories whose time and mode are set at the end */

/* ---- Out ---- */

struct link_seen {
	dev_t dev;
	ino_t ino;
	char *name; /* owned */
};
struct out {
	struct worker *k;
	struct dsec_error *e;
	struct buf path; /* of the entry, relative */
	struct tar_entry entry;
	struct link_seen *links; /* open addressing, LINKS_MAX * 2 slots; made on the first */
	size_t n_links;
	int depth;
};

static int out_failed(struct out *o, int err, const char *what)
{
	if (err == EPIPE)
		return -EPIPE;
	return file_error(o->e, err, what, o->entry.name[0] ? o->entry.name : o->k->path);
}

/* The name under which this inode is in the archive already, or NULL after
 * remembering it. */
static const char *seen_before(struct out *o, const struct stat *st, const char *name)
{
	if (!o->links && !(o->links = calloc(LINKS_MAX * 2, sizeof(*o->links))))
		return NULL;
	size_t at = (size_t)((st->st_ino * 0x9e3779b97f4a7c15u) >> 47) % (LINKS_MAX * 2);
	for (; o->links[at].name; at = (at + 1) % (LINKS_MAX * 2))
		if (o->links[at].ino == st->st_ino && o->links[at].dev == st->st_dev)
			return o->links[at].name;
	if (o->n_links < LINKS_MAX) {
		o->links[at] = (struct link_seen){ st->st_dev, st->st_ino, strdup(name) };
		o->n_links += o->links[at].name != NULL;
	}
	return NULL;
}

static int send_header(struct out *o)
{
	uint8_t h[TAR_HEADER_MAX];
	size_t n = tar_write_header(&o->entry, h);
	int r = worker_data(o->k, h, n);
	return r < 0 ? r : worker_tick(o->k);
}

/* Exactly entry.size bytes: a file that shrank is padded, one that grew is cut. */
static int send_content(struct out *o, int fd)
{
	uint8_t chunk[FILE_CHUNK];
	uint64_t left = o->entry.size;
	int r = 0;
	while (left && r == 0) {
		size_t want = (size_t)MIN(left, (uint64_t)sizeof(chunk));
		ssize_t n = read(fd, chunk, want);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return out_failed(o, errno, "read");
		if (!n)
			memset(chunk, 0, (size_t)(n = (ssize_t)want));
		r = worker_data(o->k, chunk, (size_t)n);
		left -= (uint64_t)n;
	}
	memset(chunk, 0, TAR_BLOCK);
	return r < 0 ? r : worker_data(o->k, chunk, tar_padding(o->entry.size));
}

static int send_file(struct out *o, int dir, const char *name)
{
	struct stat st;
	_cleanup_close_ int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return out_failed(o, errno, "read");
	if (!S_ISREG(st.st_mode)) /* replaced since it was looked at */
		return out_failed(o, ELOOP, "read");
	o->entry.size = (uint64_t)st.st_size;
	int r = send_header(o);
	return r < 0 ? r : send_content(o, fd);
}

static int send_tree(struct out *o, int fd_take);

static int send_dir(struct out *o, int dir, const char *name)
{
	size_t n = buf_len(&o->path);
	int r = buf_append(&o->path, "/", 1);
	if (r == 0 && n + 1 < sizeof(o->entry.name)) {
		strcat(o->entry.name, "/");
		r = send_header(o);
	}
	if (r < 0)
		return r;
	int fd = openat(dir, name, DIR_FLAGS);
	if (fd < 0)
		return out_failed(o, errno, "open");
	if (o->depth == DEPTH_MAX) {
		close(fd);
		return dsec_error_set(o->e, -ENAMETOOLONG, DSEC_E_NAME_TOO_LONG, "the tree is deeper than %d directories",
				      DEPTH_MAX);
	}
	o->depth++;
	r = send_tree(o, fd);
	o->depth--;
	o->path.tail = o->path.head + n;
	return r;
}

static int send_entry(struct out *o, int dir, const char *name)
{
	struct stat st;
	struct tar_entry *t = &o->entry;
	const char *path = buf_cstr(&o->path), *first;
	if (!path)
		return -ENOMEM;
	*t = (struct tar_entry){ 0 };
	if (strlen(path) >= TAR_NAME_MAX)
		return dsec_error_set(o->e, -ENAMETOOLONG, DSEC_E_NAME_TOO_LONG, "a path in the tree is longer than %d bytes",
				      TAR_NAME_MAX - 1);
	strcpy(t->name, path);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : out_failed(o, errno, "stat"); /* gone since */
	t->mode = st.st_mode & 07777;
	t->uid = st.st_uid;
	t->gid = st.st_gid;
	t->mtime = st.st_mtim.tv_sec < 0 ? 0 : (uint64_t)st.st_mtim.tv_sec;
	switch (st.st_mode & S_IFMT) {
	case S_IFDIR:
		t->type = TAR_DIRECTORY;
		return send_dir(o, dir, name);
	case S_IFREG:
		t->type = TAR_FILE;
		if (st.st_nlink < 2 || !(first = seen_before(o, &st, t->name)))
			return send_file(o, dir, name);
		t->type = TAR_HARDLINK;
		snprintf(t->link, sizeof(t->link), "%s", first);
		return send_header(o);
	case S_IFLNK: {
		t->type = TAR_SYMLINK;
		ssize_t n = readlinkat(dir, name, t->link, TAR_NAME_MAX);
		if (n < 0)
			return out_failed(o, errno, "read");
		t->link[n] = 0;
		return send_header(o);
	}
	case S_IFCHR:
	case S_IFBLK:
		t->type = S_ISCHR(st.st_mode) ? TAR_CHAR : TAR_BLOCK_DEVICE;
		t->major = major(st.st_rdev);
		t->minor = minor(st.st_rdev);
		return send_header(o);
	case S_IFIFO:
		t->type = TAR_FIFO;
		return send_header(o);
	default: /* a socket means nothing in an archive */
		return 0;
	}
}

static int send_tree(struct out *o, int fd_take)
{
	_cleanup_closedir_ DIR *d = fdopendir(fd_take);
	struct dirent *de;
	int r = 0;
	if (!d) {
		base_close(fd_take);
		return -ENOMEM;
	}
	while (r == 0 && (errno = 0, de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		size_t n = buf_len(&o->path);
		r = buf_append(&o->path, de->d_name, strlen(de->d_name));
		if (r == 0)
			r = send_entry(o, dirfd(d), de->d_name);
		o->path.tail = o->path.head + n;
	}
	return r == 0 && errno ? out_failed(o, errno, "read") : r;
}

static int send_stat_first(struct worker *k, const struct stat *st)
{
	uint8_t p[256];
	struct pb_out o = { .p = p, .cap = sizeof(p) };
	struct wire_entry w = { .mode = st->st_mode, .size = (uint64_t)st->st_size, .uid = st->st_uid, .gid = st->st_gid,
				.inode = st->st_ino, .nlink = (uint32_t)st->st_nlink };
	wire_file_stat(&o, &w);
	return worker_send(k, FILE_PACKET_MESSAGE, p, o.n);
}

int file_tar_out(struct worker *k, struct dsec_error *e)
{
	static struct out o;
	static const uint8_t end[2 * TAR_BLOCK];
	struct stat st;
	o.k = k;
	o.e = e;
	int fd = file_open(k, k->path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0)
		return file_error(e, fd < 0 ? -fd : errno, "open", k->path);
	if (!S_ISDIR(st.st_mode))
		return file_error(e, ENOTDIR, "archive", k->path);
	int r = send_stat_first(k, &st);
	if (r == 0)
		r = send_tree(&o, fd);
	return r < 0 ? r : worker_data(k, end, sizeof(end));
}

/* ---- In ---- */

struct dir_later { /* set when nothing is unpacked into it any more */
	char *name;
	mode_t mode;
	uint64_t mtime;
};
struct in {
	struct worker *k;
	struct dsec_error *e;
	int base;
	uint64_t resolve;
	char parent_name[TAR_NAME_MAX + 1]; /* of parent; most entries share it with the one before */
	int parent;
	struct dir_later *later;
	size_t n_later, cap_later;
};

/* Without leading "/" and "./", double and trailing slashes. -EXDEV on "..". */
static int clean_name(char *name)
{
	char *from = name, *to = name;
	while (*from) {
		size_t n = (size_t)(strchrnul(from, '/') - from);
		if (n == 2 && from[0] == '.' && from[1] == '.')
			return -EXDEV;
		if (n && !(n == 1 && from[0] == '.')) {
			if (to != name)
				*to++ = '/';
			memmove(to, from, n);
			to += n;
		}
		from += n;
		from += *from == '/';
	}
	*to = 0;
	return 0;
}

static int open_in(const struct in *x, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = x->resolve };
	int fd = (int)syscall(SYS_openat2, x->base, *path ? path : ".", &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

/* Opens path's directory below the base and makes what is missing. */
static int open_parent(struct in *x, const char *path)
{
	char prefix[TAR_NAME_MAX + 1];
	int fd = open_in(x, path);
	if (fd != -ENOENT)
		return fd;
	_cleanup_close_ int at = open_in(x, "");
	for (const char *p = path; at >= 0 && *p;) {
		size_t n = (size_t)(strchrnul(p, '/') - p), upto = (size_t)(p - path) + n;
		char name[256];
		if (n >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, p, n);
		name[n] = 0;
		memcpy(prefix, path, upto);
		prefix[upto] = 0;
		if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
			return -errno;
		close(at);
		at = open_in(x, prefix);
		p += n + (p[n] == '/');
	}
	return at < 0 ? at : TAKE_FD(at);
}

/* The directory of an entry (kept open for the next) and its last component. */
static int parent_of(struct in *x, char *path, const char **ret_name)
{
	char *slash = strrchr(path, '/');
	*ret_name = slash ? slash + 1 : path;
	const char *dir = slash ? path : "";
	if (slash)
		*slash = 0;
	if (x->parent < 0 || strcmp(dir, x->parent_name)) {
		base_close(x->parent);
		x->parent = open_parent(x, dir);
		if (x->parent >= 0)
			strcpy(x->parent_name, dir);
	}
	return x->parent < 0 ? x->parent : 0;
}

/* name "": of dirfd itself. */
static int set_times(int dirfd, const char *name, uint64_t mtime)
{
	struct timespec ts[2] = { { .tv_nsec = UTIME_OMIT },
				  { .tv_sec = (time_t)MIN(mtime, (uint64_t)INT64_MAX) } };
	int r = *name ? utimensat(dirfd, name, ts, AT_SYMLINK_NOFOLLOW) : futimens(dirfd, ts);
	return r < 0 && errno != EINVAL ? -errno : 0; /* EINVAL: a time the filesystem cannot say */
}

static int unpack_file(struct in *x, struct tar_reader *r, const struct tar_entry *t, const char *name)
{
	uint8_t chunk[FILE_CHUNK];
	ssize_t n;
	_cleanup_close_ int fd = openat(x->parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	while ((n = tar_read_data(r, chunk, sizeof(chunk))) > 0) {
		int k = write_all(fd, chunk, (size_t)n);
		if (k < 0) {
			unlinkat(x->parent, name, 0); /* no cut file is left behind */
			return k;
		}
	}
	if (n < 0) {
		unlinkat(x->parent, name, 0);
		return (int)n;
	}
	if (fchmod(fd, t->mode) < 0)
		return -errno;
	return set_times(fd, "", t->mtime);
}

static int unpack_dir(struct in *x, const struct tar_entry *t, const char *whole, const char *name)
{
	struct stat st;
	if (mkdirat(x->parent, name, 0700) < 0) {
		if (errno != EEXIST || fstatat(x->parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		if (S_ISLNK(st.st_mode)) { /* a link to a directory beneath serves as one (/bin -> usr/bin) */
			_cleanup_close_ int fd = open_in(x, whole);
			return fd < 0 ? fd : 0;
		}
		if (!S_ISDIR(st.st_mode) && (unlinkat(x->parent, name, 0) < 0 || mkdirat(x->parent, name, 0700) < 0))
			return -errno;
	}
	if (x->n_later == x->cap_later && x->cap_later < DIRS_MAX) {
		size_t cap = x->cap_later ? x->cap_later * 2 : 64;
		struct dir_later *l = realloc(x->later, cap * sizeof(*l));
		if (!l)
			return -ENOMEM;
		x->later = l;
		x->cap_later = cap;
	}
	char *copy = x->n_later < x->cap_later ? strdup(whole) : NULL;
	if (copy)
		x->later[x->n_later++] = (struct dir_later){ copy, t->mode, t->mtime };
	return 0; /* beyond DIRS_MAX a directory stays 0700 */
}

static int unpack_link(struct in *x, struct tar_entry *t, const char *name)
{
	if (t->type == TAR_SYMLINK) {
		if (symlinkat(t->link, x->parent, name) < 0)
			return -errno;
		return set_times(x->parent, name, t->mtime);
	}
	int r = clean_name(t->link);
	if (r < 0)
		return r;
	char *slash = strrchr(t->link, '/');
	if (slash)
		*slash = 0;
	_cleanup_close_ int dir = open_in(x, slash ? t->link : "");
	if (dir < 0)
		return dir;
	return linkat(dir, slash ? slash + 1 : t->link, x->parent, name, 0) < 0 ? -errno : 0;
}

static int unpack_entry(struct in *x, struct tar_reader *r, struct tar_entry *t)
{
	char whole[TAR_NAME_MAX + 1];
	const char *name;
	int k = clean_name(t->name);
	if (k < 0 || !*t->name) /* "./" is the base itself */
		return k;
	strcpy(whole, t->name);
	if ((k = parent_of(x, t->name, &name)) < 0)
		return k;
	if (t->type == TAR_DIRECTORY)
		return unpack_dir(x, t, whole, name);
	if (t->type == TAR_CHAR || t->type == TAR_BLOCK_DEVICE)
		return -ENOTSUP;
	/* What is there is replaced, never written through. */
	if (unlinkat(x->parent, name, 0) < 0 && errno != ENOENT)
		return -errno;
	switch (t->type) {
	case TAR_FILE:
		return unpack_file(x, r, t, name);
	case TAR_FIFO:
		return mkfifoat(x->parent, name, t->mode) < 0 ? -errno : 0;
	default:
		return unpack_link(x, t, name);
	}
}

static int in_failed(struct in *x, int err, const char *name)
{
	switch (err) {
	case EPIPE:
		return -EPIPE;
	case EBADMSG:
		return dsec_error_set(x->e, -err, DSEC_E_BAD_REQUEST, "the upload is no whole tar archive (after %llu entries)",
				      (unsigned long long)x->k->entries);
	case ENOTSUP:
		return dsec_error_set(x->e, -err, DSEC_E_UNSUPPORTED, "%.200s: devices and sparse files are not unpacked", name);
	case EXDEV:
	case ELOOP:
		return dsec_error_set(x->e, -err, DSEC_E_PATH_UNSAFE, "%.200s would be outside of the target directory", name);
	default:
		return file_error(x->e, err, "unpack", name);
	}
}

static ssize_t read_upload(void *user, void *p, size_t n)
{
	return worker_read(user, p, n);
}

/* Deepest last made, so in reverse: a parent's time is not touched after it is set. */
static int finish_dirs(struct in *x)
{
	while (x->n_later) {
		struct dir_later *l = &x->later[--x->n_later];
		const char *name;
		char *path = l->name;
		/* By descriptor: it may be a link by now, and chmod would follow it. */
		_cleanup_close_ int fd = parent_of(x, path, &name) < 0 ? -1 : openat(x->parent, name, DIR_FLAGS);
		if (fd >= 0) {
			fchmod(fd, l->mode);
			set_times(fd, "", l->mtime);
		}
		free(l->name);
	}
	return 0;
}

int file_tar_in(struct worker *k, struct dsec_error *e)
{
	static struct in x;
	static struct tar_entry t;
	struct tar_reader r = { .read = read_upload, .user = k };
	char waste[4096];
	x.k = k;
	x.e = e;
	x.parent = -1;
	int err = file_make_dirs(k, k->path, 0755);
	x.base = err < 0 ? err : file_open(k, k->path, O_PATH | O_DIRECTORY);
	if (x.base < 0)
		return file_error(e, -x.base, "open", k->path);
	/* In / an absolute link means what it says; elsewhere it leads outside. */
	bool is_root = k->path[strspn(k->path, "/")] == 0;
	x.resolve = RESOLVE_NO_MAGICLINKS | (is_root ? RESOLVE_IN_ROOT : RESOLVE_BENEATH);
	while ((err = tar_next(&r, &t)) > 0) {
		char name[256];
		snprintf(name, sizeof(name), "%.255s", t.name); /* unpacking cuts it up */
		if ((err = unpack_entry(&x, &r, &t)) < 0)
			return in_failed(&x, -err, name);
		if ((err = worker_tick(k)) < 0)
			return err;
	}
	ssize_t n = 0;
	while (err == 0 && (n = worker_read(k, waste, sizeof(waste))) > 0)
		; /* padding after the end mark */
	if (err < 0 || n < 0)
		return in_failed(&x, err < 0 ? -err : (int)-n, k->path);
	return finish_dirs(&x);
}
