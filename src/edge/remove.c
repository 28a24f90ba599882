/* remove.c: see remove.h. */
#include "edge/remove.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"

struct job {
	uv_work_t work;
	int parent_fd; /* owned */
	char name[SANDBOX_ID_MAX + 1];
};

/* One level: a sandbox's directory holds files only. */
static void run(uv_work_t *w)
{
	struct job *j = w->data;
	int fd = openat(j->parent_fd, j->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	_cleanup_closedir_ DIR *d = fdopendir(fd);
	if (!d) {
		close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			unlinkat(fd, e->d_name, 0);
	unlinkat(j->parent_fd, j->name, AT_REMOVEDIR);
}

static void done(uv_work_t *w, int status)
{
	struct job *j = w->data;
	base_close(j->parent_fd);
	free(j);
}

void remove_output(struct node *n, const char *id)
{
	if (!unlinkat(n->spool_fd, id, AT_REMOVEDIR) || errno == ENOENT)
		return;
	struct job *j = calloc(1, sizeof(*j));
	if (!j)
		return; /* remove_strays finds it at the next start */
	snprintf(j->name, sizeof(j->name), "%s", id);
	j->parent_fd = fcntl(n->spool_fd, F_DUPFD_CLOEXEC, 0);
	j->work.data = j;
	if (uv_queue_work(n->loop, &j->work, run, done) < 0)
		done(&j->work, 0);
}

void remove_strays(struct node *n)
{
	int fd = openat(n->spool_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		base_close(fd);
		log_warn("spool directory cannot be listed: %s", strerror(errno));
		return;
	}
	for (struct dirent *e; (e = readdir(d));)
		if (e->d_name[0] != '.' && strlen(e->d_name) <= SANDBOX_ID_MAX && !node_find(n, e->d_name))
			remove_output(n, e->d_name);
}
