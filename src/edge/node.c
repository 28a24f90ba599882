/* node.c: making and dropping what is in the tables. See node.h. */
#include "edge/node.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/clock.h"
#include "base/fdio.h"
#include "base/log.h"
#include "edge/exec.h"
#include "edge/record.h"

static int open_dir(int at, const char *path)
{
	if (mkdirat(at, path, 0700) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int read_boot_id(struct node *n)
{
	_cleanup_free_ char *text = NULL;
	int r = read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 128, &text, NULL);
	if (r < 0)
		return r;
	snprintf(n->boot_id, sizeof(n->boot_id), "%.36s", text);
	return 0;
}

int node_init(struct node *n, uv_loop_t *loop, struct dsec_error *e)
{
	n->loop = loop;
	n->state_fd = n->spool_fd = -1;
	list_init(&n->pending);
	list_init(&n->stopped);
	list_init(&n->starting);
	list_init(&n->watchers);
	list_init(&n->channels);
	n->started_at_ms = now_real_ms();
	n->state_fd = open_dir(AT_FDCWD, n->state_dir);
	if (n->state_fd < 0)
		return dsec_error_errno(e, n->state_fd, "state directory %s", n->state_dir);
	n->spool_fd = open_dir(n->state_fd, "sb");
	if (n->spool_fd < 0)
		return dsec_error_errno(e, n->spool_fd, "spool directory %s/sb", n->state_dir);
	spool_set_init(&n->spools, n->spool_fd, EDGE_SPOOL_FDS_MAX);
	int r = read_boot_id(n);
	if (r < 0)
		return dsec_error_errno(e, r, "boot id");
	r = record_open(n);
	if (r < 0)
		return dsec_error_errno(e, r, "journal in %s", n->state_dir);
	struct backend_env env = { loop, n->state_dir, n->run_dir, n->layer_dir, n->name,
				   n->max_sandboxes, n->pool_size };
	return n->ops->open(&env, &n->backend, e);
}

void node_done(struct node *n)
{
	struct sandbox *sb;
	for (size_t it = 0; (sb = hashmap_next(&n->sandboxes, &it));)
		sandbox_free(sb);
	hashmap_done(&n->sandboxes);
	free(TAKE_PTR(n->snapshot.ids));
	if (n->backend)
		n->ops->close(n->backend);
	journal_close(n->journal);
	base_close(n->spool_fd);
	base_close(n->state_fd);
}

struct sandbox *node_find(struct node *n, const char *id)
{
	return hashmap_get(&n->sandboxes, id);
}

struct sandbox *node_find_in(struct node *n, const char *project, const char *id)
{
	struct sandbox *sb = node_find(n, id);
	return sb && !strcmp(sb->project, project) ? sb : NULL;
}

static void init_lists(struct sandbox *sb)
{
	struct link *const all[] = { &sb->link,	       &sb->exec_list, &sb->files,	  &sb->create_calls,
				     &sb->delete_calls, &sb->get_calls, &sb->synced_calls };
	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		list_init(all[i]);
}

int sandbox_new(struct node *n, const char *id, const char *project, Dsec__Edge__Create *spec_take,
		struct sandbox **ret)
{
	struct sandbox *sb = calloc(1, sizeof(*sb));
	int r = sb && (sb->project = strdup(project)) ? 0 : -ENOMEM;
	if (!r) {
		snprintf(sb->id, sizeof(sb->id), "%s", id);
		r = hashmap_put(&n->sandboxes, sb->id, sb);
	}
	if (r < 0) {
		if (sb)
			free(sb->project);
		free(sb);
		dsec__edge__create__free_unpacked(spec_take, NULL);
		return r;
	}
	sb->node = n;
	sb->spec = spec_take;
	init_lists(sb);
	uv_timer_init(n->loop, &sb->timer);
	sb->timer.data = sb;
	*ret = sb;
	return 0;
}

static void on_timer_closed(uv_handle_t *h)
{
	struct sandbox *sb = h->data;
	free(sb->project);
	free(sb->message);
	dsec__edge__create__free_unpacked(sb->spec, NULL);
	free(sb);
}

void sandbox_free(struct sandbox *sb)
{
	struct exec *x;
	if (!sb)
		return;
	channel_free(sb->channel);
	sb->channel = NULL;
	while ((x = list_first(&sb->exec_list, struct exec, link)))
		exec_free(x);
	hashmap_done(&sb->execs);
	hashmap_remove(&sb->node->sandboxes, sb->id);
	list_drop(&sb->link);
	uv_close((uv_handle_t *)&sb->timer, on_timer_closed);
}
