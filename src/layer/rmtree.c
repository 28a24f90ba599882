/* rmtree.c: see rmtree.h. */
#include "layer/rmtree.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"

#define RMTREE_DEPTH_MAX 2048 /* deeper than PATH_MAX allows to make by path */

static int rmtree_depth(int dirfd, const char *name, int depth);

static int empty_dir(int dirfd, const char *name, int depth)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int r = -errno;
		base_close(fd);
		return r;
	}
	struct dirent *ent;
	while ((ent = readdir(d))) {
		if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, ".."))
			continue;
		int r = rmtree_depth(fd, ent->d_name, depth + 1);
		if (r < 0)
			return r;
	}
	return 0;
}

static int rmtree_depth(int dirfd, const char *name, int depth)
{
	if (depth > RMTREE_DEPTH_MAX)
		return -ELOOP;
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	int r = empty_dir(dirfd, name, depth);
	if (r < 0)
		return r;
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int rmtree_at(int dirfd, const char *name)
{
	return rmtree_depth(dirfd, name, 0);
}
