/* tar_pack.c: see tar_io.h. */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/hashmap.h"
#include "cli/tar_io.h"

#define XATTR_NAMES_MAX 65536
#define XATTR_VALUE_MAX 65536
#define COPY_CHUNK (256 * 1024)

struct packer {
	struct archive *a;
	struct hashmap links; /* inode -> first path, owned strings */
	dev_t dev;
	bool keep_owners;
	struct tar_count *count;
	char *why, *chunk;
};

static int fail_at(struct packer *p, int r, const char *path)
{
	if (!*p->why)
		snprintf(p->why, TAR_WHY_MAX, "%s: %s", path, strerror(-r));
	return r;
}

static int fail_archive(struct packer *p, const char *path)
{
	int err = archive_errno(p->a);
	/* EPIPE: the receiver gave up and knows better why. */
	snprintf(p->why, TAR_WHY_MAX, "%s: %s", path, archive_error_string(p->a) ? archive_error_string(p->a) : "cannot be packed");
	return err > 0 ? -err : -EIO;
}

/* What belongs to the file's content: capabilities and user attributes. */
static void add_xattrs(struct archive_entry *e, int fd)
{
	char *names = malloc(XATTR_NAMES_MAX), *value = malloc(XATTR_VALUE_MAX);
	ssize_t n = names && value ? flistxattr(fd, names, XATTR_NAMES_MAX) : 0;
	for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1) {
		const char *name = names + i;
		if (strcmp(name, "security.capability") && strncmp(name, "user.", 5))
			continue;
		ssize_t k = fgetxattr(fd, name, value, XATTR_VALUE_MAX);
		if (k >= 0)
			archive_entry_xattr_add_entry(e, name, value, (size_t)k);
	}
	free(names);
	free(value);
}

static int copy_content(struct packer *p, int fd, const char *path, uint64_t size)
{
	while (size) {
		ssize_t k = read(fd, p->chunk, MIN(size, COPY_CHUNK));
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return fail_at(p, -errno, path);
		if (!k) {
			snprintf(p->why, TAR_WHY_MAX, "%s: became shorter while it was read", path);
			return -EIO;
		}
		if (archive_write_data(p->a, p->chunk, (size_t)k) != k)
			return fail_archive(p, path);
		size -= (uint64_t)k;
		p->count->bytes += (uint64_t)k;
	}
	return 0;
}

/* true when an earlier name of the same file was written: e becomes a link to it. */
static int note_link(struct packer *p, const struct stat *st, const char *path, struct archive_entry *e, bool *ret)
{
	*ret = false;
	if (st->st_nlink < 2 || S_ISDIR(st->st_mode))
		return 0;
	const char *first = hashmap_get_u64(&p->links, st->st_ino);
	if (first) {
		archive_entry_set_hardlink(e, first);
		archive_entry_set_size(e, 0);
		*ret = true;
		return 0;
	}
	char *copy = strdup(path);
	int r = copy ? hashmap_put_u64(&p->links, st->st_ino, copy) : -ENOMEM;
	if (r < 0)
		free(copy);
	return r;
}

static void set_stat(const struct packer *p, struct archive_entry *e, const struct stat *st)
{
	archive_entry_set_filetype(e, st->st_mode & S_IFMT);
	archive_entry_set_perm(e, st->st_mode & 07777);
	archive_entry_set_mtime(e, st->st_mtime, 0);
	archive_entry_set_uid(e, p->keep_owners ? st->st_uid : 0);
	archive_entry_set_gid(e, p->keep_owners ? st->st_gid : 0);
	archive_entry_set_size(e, S_ISREG(st->st_mode) ? st->st_size : 0);
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode))
		archive_entry_set_rdev(e, st->st_rdev);
}

/* fd: open for regular files and directories, else -1. */
static int write_entry(struct packer *p, int dirfd, const char *name, int fd, const struct stat *st, const char *path)
{
	struct archive_entry *e = archive_entry_new();
	char target[PATH_MAX];
	bool linked = false;
	if (!e)
		return -ENOMEM;
	archive_entry_set_pathname(e, path);
	set_stat(p, e, st);
	int r = note_link(p, st, path, e, &linked);
	if (!r && S_ISLNK(st->st_mode)) {
		ssize_t n = readlinkat(dirfd, name, target, sizeof(target) - 1);
		r = n < 0 ? fail_at(p, -errno, path) : 0;
		target[MAX(n, 0)] = 0;
		archive_entry_set_symlink(e, target);
	}
	if (!r && p->keep_owners && fd >= 0)
		add_xattrs(e, fd);
	if (!r && archive_write_header(p->a, e) < ARCHIVE_WARN)
		r = fail_archive(p, path);
	if (!r && S_ISREG(st->st_mode) && !linked)
		r = copy_content(p, fd, path, (uint64_t)st->st_size);
	archive_entry_free(e);
	p->count->entries += !r;
	return r;
}

static int compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

static int list_names(int dirfd, char ***ret, size_t *ret_n)
{
	int own = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_closedir_ DIR *d = own < 0 ? NULL : fdopendir(own);
	char **names = NULL;
	size_t n = 0, cap = 0;
	if (!d) {
		int r = -errno;
		base_close(own);
		return r;
	}
	for (struct dirent *e; (e = readdir(d));) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (n == cap) {
			cap = cap ? 2 * cap : 64;
			char **more = realloc(names, cap * sizeof(*names));
			if (!more)
				goto no_memory;
			names = more;
		}
		if (!(names[n] = strdup(e->d_name)))
			goto no_memory;
		n++;
	}
	if (n)
		qsort(names, n, sizeof(*names), compare);
	*ret = names;
	*ret_n = n;
	return 0;
no_memory:
	free_names(names, n);
	return -ENOMEM;
}

static int pack_dir(struct packer *p, int dirfd, const char *path, int depth);

static int pack_one(struct packer *p, int dirfd, const char *name, const char *path, int depth)
{
	struct stat st;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail_at(p, -errno, path);
	if (S_ISSOCK(st.st_mode)) {
		p->count->skipped++;
		return 0;
	}
	_cleanup_close_ int fd = -1;
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
		fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) < 0)
			return fail_at(p, -errno, path);
	}
	int r = write_entry(p, dirfd, name, fd, &st, path);
	/* A mount point is kept as an empty directory: /proc of a live tree is no content. */
	if (!r && S_ISDIR(st.st_mode) && st.st_dev == p->dev)
		r = depth < TAR_DEPTH_MAX ? pack_dir(p, fd, path, depth + 1) : fail_at(p, -ENAMETOOLONG, path);
	return r;
}

static int pack_dir(struct packer *p, int dirfd, const char *path, int depth)
{
	char **names = NULL;
	size_t n = 0;
	int r = list_names(dirfd, &names, &n);
	if (r < 0)
		return fail_at(p, r, *path ? path : ".");
	for (size_t i = 0; !r && i < n; i++) {
		_cleanup_free_ char *below = NULL;
		if (asprintf(&below, "%s%s%s", path, *path ? "/" : "", names[i]) < 0) {
			below = NULL;
			r = -ENOMEM;
		} else
			r = pack_one(p, dirfd, names[i], below, depth);
	}
	free_names(names, n);
	return r;
}

static int open_archive(struct packer *p, int out_fd)
{
	p->a = archive_write_new();
	p->chunk = malloc(COPY_CHUNK);
	if (!p->a || !p->chunk)
		return -ENOMEM;
	archive_write_set_format_pax_restricted(p->a);
	/* No charset is assumed of names: they go in and out as bytes. */
	archive_write_set_options(p->a, "hdrcharset=BINARY");
	archive_write_set_bytes_per_block(p->a, COPY_CHUNK);
	archive_write_set_bytes_in_last_block(p->a, 1);
	return archive_write_open_fd(p->a, out_fd) < ARCHIVE_OK ? fail_archive(p, "the tar stream") : 0;
}

int tar_pack(int dirfd, int out_fd, bool keep_owners, struct tar_count *ret, char ret_why[TAR_WHY_MAX])
{
	struct packer p = { .keep_owners = keep_owners, .count = ret, .why = ret_why };
	struct stat st;
	*ret = (struct tar_count){ 0 };
	*ret_why = 0;
	if (fstat(dirfd, &st) < 0)
		return -errno;
	p.dev = st.st_dev;
	int r = open_archive(&p, out_fd);
	if (!r)
		r = write_entry(&p, dirfd, ".", dirfd, &st, "./");
	if (!r)
		r = pack_dir(&p, dirfd, "", 0);
	if (!r && archive_write_close(p.a) < ARCHIVE_OK)
		r = fail_archive(&p, "the tar stream");
	if (r < 0 && p.a)
		archive_write_fail(p.a); /* no end mark: a cut stream must not look whole */
	archive_write_free(p.a);
	free(p.chunk);
	size_t it = 0;
	for (char *path; (path = hashmap_next(&p.links, &it));)
		free(path);
	hashmap_done(&p.links);
	if (r < 0 && !*ret_why)
		snprintf(ret_why, TAR_WHY_MAX, "%s", strerror(-r));
	return r;
}
