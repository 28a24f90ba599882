/* untar.c: see untar.h.
 *
 * Confinement, the invariants:
 *  1. No path of the stream reaches a system call but through resolve(): openat2
 *     beneath the staging directory, no symbolic links, no magic links, no other
 *     file system; or as the single last component of a directory so opened.
 *  2. A last component is never followed (O_NOFOLLOW, O_EXCL, AT_SYMLINK_NOFOLLOW).
 *  3. What stands in the way of an entry is unlinked, never written through; a
 *     directory in the way of something else must be empty.
 *  4. Modes and times of directories are applied when all is made (dirmeta.c),
 *     resolved again by rule 1.
 *
 * Time: an mtime is kept as the stream has it; a directory that the stream does
 * not name gets 0, so that the result does not depend on when it was unpacked.
 */
#include "layer/untar.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "layer/dirmeta.h"

#define READ_BLOCK (256u << 10)
#define TAR_BLOCK 512

struct untar {
	int in_fd, stage_fd;
	const volatile sig_atomic_t *stop;
	struct archive *archive;
	struct untar_counts counts;
	struct dirmeta dirs;
	uint64_t bytes;
	/* the directory of the last entry: tar streams are in tree order */
	char parent_path[PATH_MAX];
	int parent_fd;
	struct dsec_error *e;
	uint8_t block[READ_BLOCK];
};

int untar_normalise(char *path)
{
	char *out = path;
	for (const char *p = path; *p;) {
		while (*p == '/')
			p++;
		size_t n = strcspn(p, "/");
		if (n == 2 && !memcmp(p, "..", 2))
			return -EINVAL;
		if (n && !(n == 1 && *p == '.')) {
			if (out != path)
				*out++ = '/';
			memmove(out, p, n);
			out += n;
		}
		p += n;
	}
	*out = 0;
	return 0;
}

static int resolve(int stage_fd, const char *path, uint64_t flags)
{
	struct open_how how = {
		.flags = flags | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
	};
	int fd = (int)syscall(SYS_openat2, stage_fd, *path ? path : ".", &how, sizeof(how));
	return fd < 0 ? -errno : fd;
}

static int refuse(struct untar *u, int err, const char *path)
{
	if (err == -ENOSPC || err == -EDQUOT)
		return dsec_error_set(u->e, err, DSEC_E_CAPACITY, "the layer store's disk is full");
	if (err == -ENAMETOOLONG)
		return dsec_error_set(u->e, err, DSEC_E_NAME_TOO_LONG, "a path in the tar stream is too long: %.200s", path);
	if (err == -ELOOP || err == -EXDEV)
		return dsec_error_set(u->e, err, DSEC_E_PATH_UNSAFE,
				      "the path leads through a symbolic link of the tar stream itself: %.200s", path);
	if (err == -ENOTDIR || err == -ENOTEMPTY || err == -EEXIST)
		return dsec_error_set(u->e, err, DSEC_E_PATH_UNSAFE,
				      "the tar stream names this path once as a directory and once as something else: %.200s",
				      path);
	return dsec_error_errno(u->e, err, "unpacking %.200s", path);
}

/* The directory of `path`, made with its own missing parents (root 0755, time 0).
 * Borrowed until the next call. *ret_name: the last component. */
static int open_parent(struct untar *u, char *path, const char **ret_name)
{
	char *slash = strrchr(path, '/');
	*ret_name = slash ? slash + 1 : path;
	if (!slash)
		return u->stage_fd;
	*slash = 0;
	int fd = -1;
	if (u->parent_fd >= 0 && !strcmp(u->parent_path, path)) {
		fd = u->parent_fd;
	} else {
		fd = resolve(u->stage_fd, path, O_PATH | O_DIRECTORY);
		if (fd == -ENOENT) {
			const char *name;
			int up = open_parent(u, path, &name);
			fd = up;
			if (up >= 0 && mkdirat(up, name, 0755) < 0 && errno != EEXIST)
				fd = -errno;
			if (fd >= 0)
				fd = dirmeta_implicit(&u->dirs, path);
			if (fd >= 0)
				fd = resolve(u->stage_fd, path, O_PATH | O_DIRECTORY);
		}
		if (fd >= 0) {
			base_close(u->parent_fd);
			u->parent_fd = fd;
			memcpy(u->parent_path, path, strlen(path) + 1);
		}
	}
	*slash = '/';
	return fd;
}

/* Rule 3. */
static int clear_way(struct untar *u, int dirfd, const char *name, bool want_dir)
{
	struct stat st;
	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode) && want_dir)
		return 0;
	if (unlinkat(dirfd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0)
		return -errno;
	/* The parent at hand may be what was removed; it is never dirfd then. */
	if (S_ISDIR(st.st_mode) && u->parent_fd != dirfd)
		u->parent_fd = base_close(u->parent_fd);
	return 0;
}

/* What lies outside of a sandbox's range would show as the overflow id there and
 * could not be copied up. */
static uint32_t clamp_id(struct untar *u, int64_t id)
{
	if (id >= 0 && id <= UNTAR_ID_MAX)
		return (uint32_t)id;
	u->counts.clamped_owners++;
	return UNTAR_ID_NOBODY;
}

static uid_t entry_uid(struct untar *u, struct archive_entry *entry)
{
	return clamp_id(u, archive_entry_uid(entry));
}

static gid_t entry_gid(struct untar *u, struct archive_entry *entry)
{
	return clamp_id(u, archive_entry_gid(entry));
}

static bool xattr_kept(const char *name)
{
	return !strcmp(name, "security.capability") || !strncmp(name, "user.", 5);
}

struct xattr {
	const char *name;
	const void *value;
	size_t n;
};

static int xattr_compare(const void *a, const void *b)
{
	return strcmp(((const struct xattr *)a)->name, ((const struct xattr *)b)->name);
}

/* In name order: mkfs.erofs stores them as the file system lists them, which is
 * mostly the order in which they were set. */
static int set_xattrs(struct untar *u, struct archive_entry *entry, int fd)
{
	struct xattr list[UNTAR_XATTRS_MAX], x;
	size_t n = 0;
	archive_entry_xattr_reset(entry);
	while (archive_entry_xattr_next(entry, &x.name, &x.value, &x.n) == ARCHIVE_OK) {
		if (x.name && xattr_kept(x.name) && x.n <= UNTAR_XATTR_MAX && n < UNTAR_XATTRS_MAX)
			list[n++] = x;
		else
			u->counts.skipped_xattrs++;
	}
	qsort(list, n, sizeof(list[0]), xattr_compare);
	for (size_t i = 0; i < n; i++)
		if (fsetxattr(fd, list[i].name, list[i].value, list[i].n, 0) < 0)
			return -errno;
	return 0;
}

/* Owner before mode (chown drops setuid) before attributes (chown drops
 * capabilities) before time. */
static int set_meta(struct untar *u, struct archive_entry *entry, int fd)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	times[1].tv_sec = archive_entry_mtime(entry);
	times[1].tv_nsec = archive_entry_mtime_nsec(entry);
	if (fchown(fd, entry_uid(u, entry), entry_gid(u, entry)) < 0 ||
	    fchmod(fd, archive_entry_perm(entry)) < 0)
		return -errno;
	int r = set_xattrs(u, entry, fd);
	return r < 0 ? r : futimens(fd, times) < 0 ? -errno : 0;
}

static int copy_content(struct untar *u, int fd, int64_t size)
{
	const void *block;
	size_t n;
	la_int64_t at;
	int r;
	if (size < 0 || (uint64_t)size > UNTAR_BYTES_MAX - u->bytes)
		return -EFBIG;
	u->bytes += (uint64_t)size;
	while ((r = archive_read_data_block(u->archive, &block, &n, &at)) == ARCHIVE_OK) {
		if (at < 0 || at + (int64_t)n > size)
			return -EBADMSG;
		for (size_t done = 0; done < n;) {
			ssize_t k = pwrite(fd, (const char *)block + done, n - done, at + (off_t)done);
			if (k < 0)
				return -errno;
			done += (size_t)k;
		}
	}
	if (r != ARCHIVE_EOF)
		return *u->stop ? -EINTR : -EBADMSG;
	return ftruncate(fd, size) < 0 ? -errno : 0; /* a hole at the end */
}

static int make_file(struct untar *u, struct archive_entry *entry, int dirfd, const char *name)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	int r = copy_content(u, fd, archive_entry_size(entry));
	return r < 0 ? r : set_meta(u, entry, fd);
}

static int make_hardlink(struct untar *u, char *target, int dirfd, const char *name)
{
	if (untar_normalise(target) < 0 || !*target)
		return -ELOOP;
	_cleanup_close_ int fd = resolve(u->stage_fd, target, O_PATH);
	struct stat st;
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EEXIST;
	return linkat(fd, "", dirfd, name, AT_EMPTY_PATH) < 0 ? -errno : 0;
}

/* Symbolic links and FIFOs: no descriptor that could be written through. */
static int make_special(struct untar *u, struct archive_entry *entry, int dirfd, const char *name)
{
	const char *target = archive_entry_symlink(entry);
	bool link = archive_entry_filetype(entry) == AE_IFLNK;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	times[1].tv_sec = archive_entry_mtime(entry);
	times[1].tv_nsec = archive_entry_mtime_nsec(entry);
	if (link && (!target || !*target))
		return -EBADMSG;
	if ((link ? symlinkat(target, dirfd, name) : mkfifoat(dirfd, name, 0600)) < 0)
		return -errno;
	if (fchownat(dirfd, name, entry_uid(u, entry), entry_gid(u, entry),
		     AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!link && fchmodat(dirfd, name, archive_entry_perm(entry), 0) < 0) /* our own FIFO: nothing to follow */
		return -errno;
	return utimensat(dirfd, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int make_dir(struct untar *u, struct archive_entry *entry, const char *path, int dirfd, const char *name)
{
	if (*path && mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_close_ int fd = resolve(u->stage_fd, path, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return fd;
	if (fchown(fd, entry_uid(u, entry), entry_gid(u, entry)) < 0)
		return -errno;
	int r = set_xattrs(u, entry, fd);
	return r < 0 ? r : dirmeta_set(&u->dirs, path, archive_entry_perm(entry), archive_entry_mtime(entry),
				       (uint32_t)archive_entry_mtime_nsec(entry));
}

static bool below_dev(const char *path)
{
	return !strncmp(path, "dev/", 4);
}

static int archive_failed(struct untar *u)
{
	if (*u->stop)
		return dsec_error_set(u->e, -EINTR, DSEC_E_DEADLINE, "the import was stopped");
	const char *why = archive_error_string(u->archive);
	return dsec_error_set(u->e, -EBADMSG, DSEC_E_BAD_REQUEST,
			      "the body is not a whole tar stream (plain, gzip or zstd): %.200s", why ? why : "unknown");
}

static int make_entry(struct untar *u, struct archive_entry *entry, char *path)
{
	mode_t type = archive_entry_filetype(entry);
	const char *hardlink = archive_entry_hardlink(entry);
	const char *name;
	if ((type == AE_IFCHR || type == AE_IFBLK) && !hardlink) {
		if (!below_dev(path))
			return dsec_error_set(u->e, -EPERM, DSEC_E_PATH_UNSAFE,
					      "a layer carries no device nodes (only those below /dev are left out): %.200s",
					      path);
		u->counts.skipped_nodes++;
		return 0;
	}
	int dirfd = open_parent(u, path, &name);
	int r = dirfd < 0 ? dirfd : *path ? clear_way(u, dirfd, name, type == AE_IFDIR && !hardlink) : 0;
	if (!r && !*path && type != AE_IFDIR)
		r = -ENOTDIR;
	if (!r && hardlink) {
		char target[PATH_MAX];
		r = snprintf(target, sizeof(target), "%s", hardlink) >= (int)sizeof(target) ? -ENAMETOOLONG :
			make_hardlink(u, target, dirfd, name);
	} else if (!r) {
		switch (type) {
		case AE_IFREG: r = make_file(u, entry, dirfd, name); break;
		case AE_IFDIR: r = make_dir(u, entry, path, dirfd, name); break;
		case AE_IFLNK:
		case AE_IFIFO: r = make_special(u, entry, dirfd, name); break;
		default: r = -EBADMSG;
		}
	}
	if (r == -EINTR)
		return archive_failed(u);
	if (r == -EBADMSG)
		return dsec_error_set(u->e, r, DSEC_E_BAD_REQUEST, "the tar stream is broken at %.200s", path);
	if (r == -EFBIG)
		return dsec_error_set(u->e, r, DSEC_E_BODY_TOO_LARGE, "the tar stream unpacks to more than %llu GiB",
				      UNTAR_BYTES_MAX >> 30);
	if (r < 0)
		return refuse(u, r, path);
	u->counts.files++;
	return 0;
}

static la_ssize_t read_more(struct archive *a, void *user, const void **ret)
{
	struct untar *u = user;
	*ret = u->block;
	for (;;) {
		if (*u->stop) {
			archive_set_error(a, EINTR, "stopped");
			return ARCHIVE_FATAL;
		}
		ssize_t n = read(u->in_fd, u->block, sizeof(u->block));
		if (n >= 0)
			return n;
		if (errno != EINTR) {
			archive_set_error(a, errno, "read");
			return ARCHIVE_FATAL;
		}
	}
}

static int unpack_all(struct untar *u)
{
	uint64_t entries = 0;
	for (;;) {
		/* Whatever is not content of the last entry was skipped, but its padding. */
		la_int64_t before = archive_filter_bytes(u->archive, 0);
		struct archive_entry *entry;
		int r = archive_read_next_header(u->archive, &entry);
		if (r == ARCHIVE_EOF) {
			/* libarchive is content with a stream that just ends. */
			if (archive_filter_bytes(u->archive, 0) - before < TAR_BLOCK)
				return dsec_error_set(u->e, -EBADMSG, DSEC_E_BAD_REQUEST,
						      "the tar stream ends without its end-of-archive marker: "
						      "it was probably cut short");
			return 0;
		}
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN) /* a warning: a name that is not UTF-8 */
			return archive_failed(u);
		if (++entries > UNTAR_ENTRIES_MAX)
			return dsec_error_set(u->e, -E2BIG, DSEC_E_BODY_TOO_LARGE, "a layer has at most %d entries",
					      UNTAR_ENTRIES_MAX);
		char path[PATH_MAX];
		const char *given = archive_entry_pathname(entry);
		if (!given || strlen(given) >= sizeof(path))
			return refuse(u, -ENAMETOOLONG, given ? given : "");
		memcpy(path, given, strlen(given) + 1);
		if (untar_normalise(path) < 0)
			return dsec_error_set(u->e, -EINVAL, DSEC_E_PATH_UNSAFE, "a path with \"..\" in it: %.200s", given);
		r = make_entry(u, entry, path);
		if (r < 0)
			return r;
		if (archive_read_data_skip(u->archive) < ARCHIVE_WARN)
			return archive_failed(u);
	}
}

/* Reads on to the end of the stream: tar pads behind its end marker, and whoever
 * sends may still fail (then it cuts the connection) or clean up before it closes. */
static int read_to_end(struct untar *u)
{
	const void *block;
	la_ssize_t n;
	do {
		n = read_more(u->archive, u, &block);
	} while (n > 0);
	return n < 0 ? archive_failed(u) : 0;
}

static int open_archive(struct untar *u)
{
	u->archive = archive_read_new();
	if (!u->archive)
		return dsec_error_errno(u->e, -ENOMEM, "tar");
	archive_read_support_format_tar(u->archive);
	archive_read_support_filter_gzip(u->archive);
	archive_read_support_filter_zstd(u->archive);
	if (archive_read_open(u->archive, u, NULL, read_more, NULL) != ARCHIVE_OK)
		return archive_failed(u);
	return 0;
}

int untar(int in_fd, int stage_fd, const volatile sig_atomic_t *stop, struct untar_counts *ret,
	  struct dsec_error *e)
{
	struct untar *u = calloc(1, sizeof(*u));
	if (!u)
		return dsec_error_errno(e, -ENOMEM, "tar");
	u->in_fd = in_fd;
	u->stage_fd = stage_fd;
	u->stop = stop;
	u->parent_fd = -1;
	u->e = e;
	int r = open_archive(u);
	if (!r)
		r = unpack_all(u);
	if (!r)
		r = read_to_end(u);
	if (!r)
		r = dirmeta_finish(&u->dirs, stage_fd, &u->counts.files, e);
	*ret = u->counts;
	base_close(u->parent_fd);
	archive_read_free(u->archive);
	dirmeta_done(&u->dirs);
	free(u);
	return r;
}
