/* remove.c: see remove.h. */
#include "edge/remove.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "base/log.h"
#include "edge/exec.h"

struct job {
	uv_work_t work;
	int dir_fd;       /* owned */
	struct buf names; /* each with its NUL */
};

static void run(uv_work_t *w)
{
	struct job *j = w->data;
	const char *p = (const char *)buf_ptr(&j->names), *end = p + buf_len(&j->names);
	for (; p < end; p += strlen(p) + 1)
		unlinkat(j->dir_fd, p, 0);
}

static void done(uv_work_t *w, int status)
{
	struct job *j = w->data;
	base_close(j->dir_fd);
	buf_done(&j->names);
	free(j);
}

static void note(struct buf *names, const char *name)
{
	/* What memory is lacking for is a stray of the next start. */
	(void)buf_append(names, name, strlen(name) + 1);
}

static void remove_names(struct node *n, struct buf *names)
{
	struct job *j = buf_len(names) ? calloc(1, sizeof(*j)) : NULL;
	if (!j) {
		buf_done(names);
		return;
	}
	j->names = *names;
	j->dir_fd = fcntl(n->spool_fd, F_DUPFD_CLOEXEC, 0);
	j->work.data = j;
	if (uv_queue_work(n->loop, &j->work, run, done) < 0)
		done(&j->work, 0);
}

void remove_output(struct sandbox *sb)
{
	struct buf names = BUF_INIT(0);
	char name[SPOOL_NAME_MAX];
	list_for_each(x, &sb->exec_list, struct exec, link) {
		for (int i = 0; i < 2; i++) {
			if (!x->out[i].total)
				continue;
			spool_file_name(sb->id, x->id, x->out[i].suffix, name);
			note(&names, name);
		}
		if (x->in.file_bytes) {
			spool_file_name(sb->id, x->id, "in", name);
			note(&names, name);
		}
	}
	remove_names(sb->node, &names);
}

/* 0: its exec is known; 1: its sandbox is, but not the exec; 2: neither. */
static int stray(struct node *n, const char *file)
{
	char name[SPOOL_NAME_MAX];
	if (strlen(file) >= sizeof(name))
		return 2;
	strcpy(name, file);
	char *exec = strchr(name, '.'), *suffix = exec ? strrchr(exec + 1, '.') : NULL;
	if (!suffix)
		return 2;
	*exec++ = *suffix = 0;
	struct sandbox *sb = node_find(n, name);
	return !sb ? 2 : !exec_find(sb, exec);
}

void remove_strays(struct node *n)
{
	struct buf names = BUF_INIT(0);
	int fd = openat(n->spool_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_closedir_ DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		base_close(fd);
		log_warn("spool directory cannot be listed: %s", strerror(errno));
		return;
	}
	for (struct dirent *e; (e = readdir(d));) {
		int kind = e->d_name[0] == '.' ? 0 : stray(n, e->d_name);
		if (kind == 1) /* at once: the client may use the exec's id again */
			unlinkat(n->spool_fd, e->d_name, 0);
		else if (kind == 2)
			note(&names, e->d_name);
	}
	remove_names(n, &names);
}
