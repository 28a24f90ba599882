/* tar_unpack.c: see tar_io.h. Written for a stream whose author is hostile. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/tar_io.h"

#define READ_BLOCK (256 * 1024)
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* Opens the directory that holds the last name of `path` below dirfd, making
 * what is missing, and leaves that name in *ret_name (inside path, cut in place).
 * *ret_name is "" when the path is the target itself. */
static int open_parent(int dirfd, char *path, int *ret_fd, char **ret_name)
{
	if (*path == '/')
		return -EXDEV;
	int depth = 0;
	_cleanup_close_ int at = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
	if (at < 0)
		return -errno;
	char *name = NULL;
	for (char *p = path; *p;) {
		size_t n = strcspn(p, "/");
		bool more = p[n];
		p[n] = 0;
		if (n && strcmp(p, ".")) {
			if (!strcmp(p, ".."))
				return -EXDEV;
			if (name) {
				if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
					return -errno;
				int next = openat(at, name, DIR_FLAGS);
				if (next < 0)
					return -errno;
				base_close(at);
				at = next;
				if (++depth > TAR_DEPTH_MAX)
					return -ENAMETOOLONG;
			}
			name = p;
		}
		p += n + more;
	}
	*ret_fd = TAKE_FD(at);
	*ret_name = name ? name : path + strlen(path);
	return 0;
}

static int write_content(struct archive *a, int fd, struct tar_count *count)
{
	const void *block;
	size_t n;
	la_int64_t at;
	int r;
	off_t end = 0;
	while ((r = archive_read_data_block(a, &block, &n, &at)) == ARCHIVE_OK) {
		int w = pwrite_all(fd, block, n, at);
		if (w < 0)
			return w;
		count->bytes += n;
		end = MAX(end, (off_t)(at + (la_int64_t)n));
	}
	if (r != ARCHIVE_EOF)
		return -EIO;
	return ftruncate(fd, end) < 0 ? -errno : 0;
}

/* What is in the way of a new file or link goes; a directory stays (-EISDIR). */
static int clear_way(int at, const char *name)
{
	return unlinkat(at, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

static int make_file(struct archive *a, struct archive_entry *e, int at, const char *name, struct tar_count *count)
{
	int r = clear_way(at, name);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_content(a, fd, count);
	if (!r && fchmod(fd, archive_entry_perm(e) & 0777) < 0)
		r = -errno;
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = archive_entry_mtime(e) } };
	if (!r && archive_entry_mtime_is_set(e))
		futimens(fd, times);
	return r;
}

static int make_dir(struct archive_entry *e, int at, const char *name)
{
	if (!*name)
		return 0; /* the target itself: it is the caller's */
	if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	_cleanup_close_ int fd = openat(at, name, DIR_FLAGS);
	/* Always ours to enter and fill, whatever the stream says. */
	return fd < 0 || fchmod(fd, (archive_entry_perm(e) & 0777) | 0700) < 0 ? -errno : 0;
}

static int make_symlink(struct archive_entry *e, int at, const char *name)
{
	const char *target = archive_entry_symlink(e);
	int r = target && *target ? clear_way(at, name) : -EINVAL;
	return r < 0 ? r : symlinkat(target, at, name) < 0 ? -errno : 0;
}

/* The other name must lie below the target as well, and be a plain file: a link to
 * a symbolic link would be followed by nobody here, but there is no use for it. */
static int make_hardlink(struct archive_entry *e, int dirfd, int at, const char *name)
{
	_cleanup_free_ char *target = strdup(archive_entry_hardlink(e));
	_cleanup_close_ int from = -1;
	char *from_name;
	struct stat st;
	int r = target ? open_parent(dirfd, target, &from, &from_name) : -ENOMEM;
	if (r < 0)
		return r;
	if (fstatat(from, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EXDEV;
	r = clear_way(at, name);
	return r < 0 ? r : linkat(from, from_name, at, name, 0) < 0 ? -errno : 0;
}

static int unpack_one(struct archive *a, struct archive_entry *e, int dirfd, struct tar_count *count)
{
	const char *given = archive_entry_pathname(e);
	_cleanup_free_ char *path = given ? strdup(given) : NULL;
	_cleanup_close_ int at = -1;
	char *name;
	mode_t type = archive_entry_filetype(e);
	int r = path ? open_parent(dirfd, path, &at, &name) : given ? -ENOMEM : -EINVAL;
	if (r < 0)
		return r;
	count->entries++;
	if (!*name && type != AE_IFDIR)
		return -EINVAL;
	if (archive_entry_hardlink(e))
		return make_hardlink(e, dirfd, at, name);
	switch (type) {
	case AE_IFREG:
		return make_file(a, e, at, name, count);
	case AE_IFDIR:
		return make_dir(e, at, name);
	case AE_IFLNK:
		return make_symlink(e, at, name);
	default:
		count->skipped++;
		return 0;
	}
}

static void explain(char *why, const char *path, int r)
{
	const char *what = r == -EXDEV ? "leaves the target directory: refused"
			   : r == -ELOOP || r == -ENOTDIR ? "goes through a symbolic link: refused" : strerror(-r);
	snprintf(why, TAR_WHY_MAX, "%s: %s", path ? path : "(no name)", what);
}

int tar_unpack(int in_fd, int dirfd, struct tar_count *ret, char ret_why[TAR_WHY_MAX])
{
	struct archive *a = archive_read_new();
	struct archive_entry *e;
	int r = 0, k;
	*ret = (struct tar_count){ 0 };
	*ret_why = 0;
	if (!a)
		return -ENOMEM;
	archive_read_support_format_tar(a);
	archive_read_support_format_empty(a);
	archive_read_set_options(a, "hdrcharset=BINARY");
	k = archive_read_open_fd(a, in_fd, READ_BLOCK);
	while (k == ARCHIVE_OK && !r && (k = archive_read_next_header(a, &e)) >= ARCHIVE_WARN && k != ARCHIVE_EOF) {
		k = ARCHIVE_OK;
		r = unpack_one(a, e, dirfd, ret);
		if (r < 0)
			explain(ret_why, archive_entry_pathname(e), r);
	}
	if (!r && k != ARCHIVE_EOF) {
		snprintf(ret_why, TAR_WHY_MAX, "the tar stream is damaged: %s", archive_error_string(a) ? archive_error_string(a) : "?");
		r = -EBADMSG;
	}
	archive_read_free(a);
	return r;
}
