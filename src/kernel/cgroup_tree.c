/* cgroup_tree.c: finding our place in the host's cgroup hierarchies. See cgroup.h.
 *
 * A hierarchy is a mount (found in mountinfo); our own cgroup in it comes from
 * /proc/self/cgroup. On a host whose controllers are cgroup2's the base lies at
 * the root of the mount, since a cgroup with processes in it may not hand out
 * controllers; v1 hierarchies have no such rule, so there, and for a cgroup2
 * without controllers beside them, it lies below the cgroup we were started in.
 */
#include "kernel/cgroup-internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "kernel/cpuinfo.h"

const char *const cgroup_v1_names[CGROUP_V1_MAX] = { "cpu", "memory", "pids" };

struct hierarchy {
	char mount[PATH_MAX], root[PATH_MAX]; /* where, and what of the hierarchy it shows */
	char own[PATH_MAX];                   /* our cgroup, as /proc/self/cgroup names it */
};

static bool word_in(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = list; p && *p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
		if (!strncmp(p, word, n) && (!p[n] || p[n] == ',' || p[n] == '\n'))
			return true;
	return false;
}

/* controller NULL: the cgroup2 mount. mountinfo: "ID PARENT DEV ROOT MOUNT ... - TYPE SRC OPTS". */
static int find_mount(const char *mountinfo, const char *controller, struct hierarchy *h)
{
	for (const char *line = mountinfo; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		char root[PATH_MAX], mount[PATH_MAX], type[32], opts[512];
		const char *dash = strstr(line, " - ");
		const char *eol = strchr(line, '\n');
		if (!dash || (eol && dash > eol))
			continue;
		if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
		    sscanf(dash, " - %31s %*s %511s", type, opts) != 2)
			continue;
		bool hit = controller ? !strcmp(type, "cgroup") && word_in(opts, controller)
				      : !strcmp(type, "cgroup2");
		if (!hit)
			continue;
		snprintf(h->mount, sizeof(h->mount), "%s", mount);
		snprintf(h->root, sizeof(h->root), "%s", !strcmp(root, "/") ? "" : root);
		return 0;
	}
	return -ENOENT;
}

/* /proc/self/cgroup: "ID:CONTROLLERS:PATH"; cgroup2's line is "0::PATH". */
static int find_own(const char *table, const char *controller, struct hierarchy *h)
{
	for (const char *line = table; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		const char *list = strchr(line, ':');
		const char *path = list ? strchr(list + 1, ':') : NULL;
		if (!path)
			continue;
		char controllers[256];
		snprintf(controllers, sizeof(controllers), "%.*s", (int)(path - list - 1), list + 1);
		if (controller ? !word_in(controllers, controller) : (*controllers || strncmp(line, "0:", 2)))
			continue;
		size_t n = strcspn(path + 1, "\n");
		snprintf(h->own, sizeof(h->own), "%.*s", (int)n, path + 1);
		if (!strcmp(h->own, "/"))
			h->own[0] = 0;
		return 0;
	}
	return -ENOENT;
}

/* Path of our cgroup below the mount point. A mount may show a part only. */
static const char *below_mount(const struct hierarchy *h)
{
	size_t n = strlen(h->root);
	if (!n)
		return h->own;
	return !strncmp(h->own, h->root, n) && (h->own[n] == '/' || !h->own[n]) ? h->own + n : "";
}

static int base_make(const char *path, int *ret_fd)
{
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return -errno;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int cut(char ret[PATH_MAX], const char *mount, const char *below, const char *tag)
{
	int n = snprintf(ret, PATH_MAX, "%s%s/dsec-%s", mount, below, tag);
	return n > 0 && n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* true when the cgroup2 mount's root offers cpu, memory and pids. */
static bool offers_controllers(const char *mount)
{
	_cleanup_free_ char *path = NULL, *text = NULL;
	if (asprintf(&path, "%s/cgroup.controllers", mount) < 0) {
		path = NULL;
		return false;
	}
	if (read_file_at(AT_FDCWD, path, 4096, &text, NULL) < 0)
		return false;
	for (char *p = text; *p; p++)
		if (*p == ' ')
			*p = ',';
	return word_in(text, "memory") && word_in(text, "pids") && word_in(text, "cpu");
}

static int open_unified(struct cgroup_tree *t, const struct hierarchy *h, const char *tag, struct dsec_error *e)
{
	int r = cut(t->unified_path, h->mount, t->unified ? "" : below_mount(h), tag);
	if (!r)
		r = base_make(t->unified_path, &t->unified_fd);
	if (r < 0)
		return dsec_error_errno(e, r, "cannot make the cgroup %s", t->unified_path);
	if (!t->unified)
		return 0;
	_cleanup_close_ int root = open(h->mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	static const char want[] = "+cpu +memory +pids";
	r = root < 0 ? -errno : write_file_at(root, "cgroup.subtree_control", want);
	if (!r)
		r = write_file_at(t->unified_fd, "cgroup.subtree_control", want);
	if (r < 0)
		return dsec_error_set(e, r, DSEC_E_HOST_LACKS,
				      "the cgroup2 controllers cpu, memory and pids cannot be enabled below %s (%s); "
				      "start the daemon where cgroup2 is writable and its root holds no processes",
				      h->mount, strerror(-r));
	return 0;
}

static int open_v1(struct cgroup_tree *t, const char *mountinfo, const char *table, const char *tag,
		   struct dsec_error *e)
{
	for (int i = 0; i < CGROUP_V1_MAX; i++) {
		struct hierarchy h = { 0 };
		if (find_mount(mountinfo, cgroup_v1_names[i], &h) < 0 || find_own(table, cgroup_v1_names[i], &h) < 0)
			return dsec_error_set(e, -ENOENT, DSEC_E_HOST_LACKS,
					      "no cgroup hierarchy has the controller %s; mount cgroup2 with it, or v1",
					      cgroup_v1_names[i]);
		int r = cut(t->v1_path[i], h.mount, below_mount(&h), tag);
		if (!r)
			r = base_make(t->v1_path[i], &t->v1_fd[i]);
		if (r < 0)
			return dsec_error_errno(e, r, "cannot make the cgroup %s", t->v1_path[i]);
	}
	return 0;
}

/* Record: one line a hierarchy, "unified PATH" first, then "v1 PATH" for each. */
static int record_write(const struct cgroup_tree *t)
{
	_cleanup_buf_ struct buf b = BUF_INIT(0);
	int r = buf_printf(&b, "%s %s\n", t->unified ? "v2" : "hybrid", t->unified_path);
	for (int i = 0; !r && !t->unified && i < CGROUP_V1_MAX; i++)
		r = buf_printf(&b, "v1 %s\n", t->v1_path[i]);
	return r < 0 ? r : write_file_atomic(AT_FDCWD, t->record, buf_ptr(&b), buf_len(&b), 0600);
}

static int record_open(struct cgroup_tree *t)
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(AT_FDCWD, t->record, 8 * PATH_MAX, &text, NULL);
	if (r < 0)
		return r;
	char kind[16];
	const char *line = text;
	if (sscanf(line, "%15s %4095s", kind, t->unified_path) != 2)
		return -EBADMSG;
	t->unified = !strcmp(kind, "v2");
	t->unified_fd = open(t->unified_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (t->unified_fd < 0)
		return -errno;
	for (int i = 0; !t->unified && i < CGROUP_V1_MAX; i++) {
		line = strchr(line, '\n');
		if (!line || sscanf(++line, "v1 %4095s", t->v1_path[i]) != 1)
			return -EBADMSG;
		t->v1_fd[i] = open(t->v1_path[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (t->v1_fd[i] < 0)
			return -errno;
	}
	return 0;
}

static void tree_reset(struct cgroup_tree *t)
{
	t->unified_fd = base_close(t->unified_fd);
	for (int i = 0; i < CGROUP_V1_MAX; i++)
		t->v1_fd[i] = base_close(t->v1_fd[i]);
}

static int tree_find(struct cgroup_tree *t, const char *tag, struct dsec_error *e)
{
	_cleanup_free_ char *mountinfo = NULL, *table = NULL;
	int r = read_file_at(AT_FDCWD, "/proc/self/mountinfo", 16 << 20, &mountinfo, NULL);
	if (!r)
		r = read_file_at(AT_FDCWD, "/proc/self/cgroup", 1 << 16, &table, NULL);
	if (r < 0)
		return dsec_error_errno(e, r, "cannot read /proc/self");
	struct hierarchy h = { 0 };
	if (find_mount(mountinfo, NULL, &h) < 0 || find_own(table, NULL, &h) < 0)
		return dsec_error_set(e, -ENOENT, DSEC_E_HOST_LACKS,
				      "no cgroup2 file system is mounted; mount one, even without controllers: "
				      "mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified");
	t->unified = offers_controllers(h.mount);
	r = open_unified(t, &h, tag, e);
	if (!r && !t->unified)
		r = open_v1(t, mountinfo, table, tag, e);
	if (!r && (r = record_write(t)) < 0)
		dsec_error_errno(e, r, "cannot write %s", t->record);
	return r;
}

int cgroup_tree_open(const char *tag, const char *record, struct cgroup_tree **ret, struct dsec_error *e)
{
	struct cgroup_tree *t = calloc(1, sizeof(*t));
	if (!t)
		return dsec_error_errno(e, -ENOMEM, "cgroups");
	t->unified_fd = -1;
	for (int i = 0; i < CGROUP_V1_MAX; i++)
		t->v1_fd[i] = -1;
	t->cpus = cpus_online();
	snprintf(t->record, sizeof(t->record), "%s", record);
	int r = record_open(t);
	if (r < 0) {
		tree_reset(t);
		r = tree_find(t, tag, e);
	}
	if (r < 0) {
		cgroup_tree_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

void cgroup_tree_close(struct cgroup_tree *t)
{
	if (!t)
		return;
	tree_reset(t);
	free(t);
}

int cgroup_tree_delete(struct cgroup_tree *t)
{
	int r = rmdir(t->unified_path) < 0 && errno != ENOENT ? -errno : 0;
	for (int i = 0; !t->unified && i < CGROUP_V1_MAX; i++)
		if (rmdir(t->v1_path[i]) < 0 && errno != ENOENT)
			r = -errno;
	if (!r)
		unlink(t->record);
	return r;
}

const char *cgroup_tree_layout(const struct cgroup_tree *t)
{
	return t->unified ? "v2" : "hybrid";
}
