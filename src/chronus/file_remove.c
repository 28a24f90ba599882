/* file_remove.c: removing a tree that others may change meanwhile.
 *
 * One descriptor, however deep the tree: going down opens the child without
 * following links, going up opens ".." and checks that it is the directory we
 * came from (device and inode), so a directory moved elsewhere under our feet
 * ends the walk instead of leading it astray. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "chronus/file_worker.h"

#define DEPTH_MAX 16384

struct level {
	dev_t dev;
	ino_t ino;
	char *name; /* of the child below this level that is being emptied; owned */
};

struct walk {
	struct level *levels;
	size_t depth, cap;
};

static int push(struct walk *w, int dir, const char *name)
{
	struct stat st;
	if (w->depth == DEPTH_MAX)
		return -ENAMETOOLONG;
	if (w->depth == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 32;
		struct level *l = realloc(w->levels, cap * sizeof(*l));
		if (!l)
			return -ENOMEM;
		w->levels = l;
		w->cap = cap;
	}
	char *copy = strdup(name);
	if (!copy || fstat(dir, &st) < 0) {
		free(copy);
		return copy ? -errno : -ENOMEM;
	}
	w->levels[w->depth++] = (struct level){ st.st_dev, st.st_ino, copy };
	return 0;
}

static int open_dir(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Unlinks entries of *dir until a directory with something in it is met: 1 and
 * its name. 0: the directory is empty now. */
static int empty_some(struct worker *k, int dirfd, char name[256])
{
	int dup_fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
	_cleanup_closedir_ DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
	struct dirent *de;
	if (!d)
		return -errno;
	rewinddir(d);
	while ((errno = 0, de = readdir(d))) {
		if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
			continue;
		int r = worker_tick(k);
		if (r < 0)
			return r;
		if (unlinkat(dirfd, de->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno != EISDIR && errno != EPERM)
			return -errno;
		if (unlinkat(dirfd, de->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
			continue;
		if (errno == ENOTDIR)
			return -EPERM;
		if (errno != ENOTEMPTY && errno != EEXIST)
			return -errno;
		strcpy(name, de->d_name); /* NAME_MAX is 255 */
		return 1;
	}
	return -errno;
}

/* From an emptied directory to the one above, which removes it. */
static int ascend(struct walk *w, int *dir)
{
	struct stat st;
	struct level *l = &w->levels[w->depth - 1];
	_cleanup_close_ int up = open_dir(*dir, "..");
	if (up < 0)
		return up;
	if (fstat(up, &st) < 0)
		return -errno;
	if (st.st_dev != l->dev || st.st_ino != l->ino)
		return -EXDEV;
	if (unlinkat(up, l->name, AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
		return -errno;
	free(l->name);
	w->depth--;
	close(*dir);
	*dir = TAKE_FD(up);
	return 0;
}

static int empty_tree(struct worker *k, struct walk *w, int *dir)
{
	char name[256];
	for (;;) {
		int r = empty_some(k, *dir, name);
		if (r < 0)
			return r;
		if (r == 0) {
			if (!w->depth)
				return 0;
			if ((r = ascend(w, dir)) < 0)
				return r;
			continue;
		}
		if ((r = push(w, *dir, name)) < 0)
			return r;
		int child = open_dir(*dir, name);
		if (child < 0) {
			free(w->levels[--w->depth].name);
			if (child == -ENOENT || child == -ENOTDIR || child == -ELOOP)
				continue; /* changed since: seen afresh in the next round */
			return child;
		}
		close(*dir);
		*dir = child;
	}
}

int file_remove(struct worker *k, struct dsec_error *e)
{
	char whole[sizeof(k->path)];
	const char *name;
	struct stat st;
	struct walk w = { 0 };
	strcpy(whole, k->path);
	_cleanup_close_ int parent = file_parent(k, k->path, &name);
	if (parent == -EISDIR)
		return dsec_error_set(e, -EBUSY, DSEC_E_EXEC_PERMISSION, "the root directory cannot be removed");
	if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return file_error(e, parent < 0 ? -parent : errno, "remove", whole);
	bool is_dir = S_ISDIR(st.st_mode);
	if (is_dir && k->w->recursive) {
		int dir = open_dir(parent, name);
		int r = dir < 0 ? dir : empty_tree(k, &w, &dir);
		base_close(dir);
		while (w.depth)
			free(w.levels[--w.depth].name);
		free(w.levels);
		if (r < 0)
			return file_error(e, -r, "remove what is in", whole);
	}
	if (unlinkat(parent, name, is_dir ? AT_REMOVEDIR : 0) < 0)
		return file_error(e, errno, "remove", whole);
	k->entries++;
	return 0;
}
