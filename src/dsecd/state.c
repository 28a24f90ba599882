/* state.c: see state.h. */
#include "dsecd/state.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "base/id.h"

#define BOOT_ID_PATH "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_MAX 64

static int make_dir(const char *path, mode_t mode)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	struct stat st;
	if (stat(path, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

static int is_empty(const char *dir)
{
	_cleanup_closedir_ DIR *d = opendir(dir);
	if (!d)
		return -errno;
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			return 0;
	return 1;
}

/* Everything below S must be ours alone: its sockets and keys are the platform.
 * A directory that others use (/tmp, /home) is refused, not closed to them. */
static int close_to_others(const struct state *s)
{
	struct stat st;
	if (stat(s->dir, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid())
		return -EPERM;
	if (!(st.st_mode & 077))
		return 0;
	int empty = is_empty(s->dir);
	if (empty < 0)
		return empty;
	if (!empty && access(s->key_file, F_OK) < 0)
		return -EPERM;
	return chmod(s->dir, 0700) < 0 ? -errno : 0;
}

static int make_parents(const char *dir)
{
	_cleanup_free_ char *copy = strdup(dir);
	if (!copy)
		return -ENOMEM;
	for (char *p = strchr(copy + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		int r = make_dir(copy, 0755);
		if (r < 0)
			return r;
		*p = '/';
	}
	return 0;
}

static int join(const char *a, const char *b, char **ret)
{
	if (asprintf(ret, "%s/%s", a, b) < 0) {
		*ret = NULL;
		return -ENOMEM;
	}
	return 0;
}

static int name_parts(struct state *s)
{
	int r = join(s->dir, "run", &s->run_dir);
	r = r < 0 ? r : join(s->dir, "layers", &s->layer_dir);
	r = r < 0 ? r : join(s->dir, "edge", &s->edge_dir);
	r = r < 0 ? r : join(s->dir, "log", &s->log_dir);
	r = r < 0 ? r : join(s->dir, "api-key", &s->key_file);
	return r < 0 ? r : join(s->dir, "run/url", &s->url_file);
}

int state_open(const char *dir, bool make, struct state *s)
{
	if (!*dir || strlen(dir) > STATE_DIR_MAX)
		return *dir ? -ENAMETOOLONG : -EINVAL;
	int r = make ? make_parents(dir) : 0;
	if (!r && make)
		r = make_dir(dir, 0700);
	if (r < 0)
		return r;
	s->dir = realpath(dir, NULL);
	if (!s->dir)
		return -errno;
	if (!strcmp(s->dir, "/") || strlen(s->dir) > STATE_DIR_MAX)
		return -EINVAL;
	r = name_parts(s);
	if (r < 0 || !make)
		return r;
	r = close_to_others(s);
	const char *parts[] = { s->run_dir, s->layer_dir, s->edge_dir, s->log_dir };
	for (size_t i = 0; !r && i < ARRAY_SIZE(parts); i++)
		r = make_dir(parts[i], 0700);
	return r;
}

void state_done(struct state *s)
{
	free(s->dir);
	free(s->run_dir);
	free(s->layer_dir);
	free(s->edge_dir);
	free(s->log_dir);
	free(s->key_file);
	free(s->url_file);
	base_close(s->lock_fd);
	*s = STATE_INIT;
}

int state_lock(struct state *s, int *ret_holder)
{
	_cleanup_free_ char *path = NULL;
	int r = join(s->run_dir, "lock", &path);
	if (r < 0)
		return r;
	_cleanup_close_ int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		char text[32] = { 0 };
		ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
		*ret_holder = n > 0 ? atoi(text) : 0;
		return -EBUSY;
	}
	char text[32];
	int n = snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(fd, 0) < 0)
		return -errno;
	r = pwrite_all(fd, text, (size_t)n, 0);
	if (!r)
		s->lock_fd = TAKE_FD(fd);
	return r;
}

int state_make_key(const struct state *s)
{
	if (!access(s->key_file, F_OK))
		return 0;
	char a[ID_RANDOM_LEN + 1], b[ID_RANDOM_LEN + 1], text[2 * ID_RANDOM_LEN + 16];
	id_random(a);
	id_random(b);
	int n = snprintf(text, sizeof(text), "dsk-%s%s\n", a, b);
	return write_file_atomic(AT_FDCWD, s->key_file, text, (size_t)n, 0600);
}

static int boot_file(const struct state *s, char **ret)
{
	return join(s->run_dir, "boot-id", ret);
}

bool state_is_of_earlier_boot(const struct state *s)
{
	_cleanup_free_ char *path = NULL, *then = NULL, *now = NULL;
	if (boot_file(s, &path) < 0 || read_file_at(AT_FDCWD, path, BOOT_ID_MAX, &then, NULL) < 0 ||
	    read_file_at(AT_FDCWD, BOOT_ID_PATH, BOOT_ID_MAX, &now, NULL) < 0)
		return true;
	return strcmp(then, now) != 0;
}

int state_record_boot(const struct state *s)
{
	_cleanup_free_ char *path = NULL, *now = NULL;
	size_t n;
	int r = boot_file(s, &path);
	if (!r)
		r = read_file_at(AT_FDCWD, BOOT_ID_PATH, BOOT_ID_MAX, &now, &n);
	return r < 0 ? r : write_file_atomic(AT_FDCWD, path, now, n, 0600);
}

int state_own_path(char **ret)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	if (n < 0)
		return -errno;
	path[n] = 0;
	/* Replaced by an upgrade while running: the link still opens the old file. */
	if (access(path, X_OK) < 0)
		strcpy(path, "/proc/self/exe");
	*ret = strdup(path);
	return *ret ? 0 : -ENOMEM;
}

/* Where meson leaves each helper, from the directory that holds dsecd. */
static const struct {
	const char *name, *build_path;
} helpers[] = {
	{ "dsec-mounter", "../layer/dsec-mounter" },
	{ "dsec-spawner", "../backend/container/dsec-spawner" },
	{ "chronus", "../chronus/chronus" },
};

static char *runnable(const char *dir, const char *rest)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s/%s", dir, rest);
	if (n < 0 || (size_t)n >= sizeof(path) || access(path, X_OK) < 0)
		return NULL;
	return realpath(path, NULL);
}

int state_find_helper(const char *name, char **ret)
{
	const char *asked = getenv("DSEC_LIBEXEC");
	char *found = asked && *asked ? runnable(asked, name) : NULL;
	_cleanup_free_ char *own = NULL;
	int r = found ? 0 : state_own_path(&own);
	if (r < 0)
		return r;
	char *slash = own ? strrchr(own, '/') : NULL;
	if (slash) {
		*slash = 0;
		for (size_t i = 0; !found && i < ARRAY_SIZE(helpers); i++)
			if (!strcmp(helpers[i].name, name))
				found = runnable(own, helpers[i].build_path);
		char beside[64];
		snprintf(beside, sizeof(beside), "../libexec/dsec/%s", name);
		if (!found)
			found = runnable(own, beside);
	}
	if (!found)
		found = runnable(DSEC_LIBEXEC_DIR, name);
	if (!found)
		return -ENOENT;
	*ret = found;
	return 0;
}
