/* file.c: see dsec/file.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sdk/sdk-internal.h"

#define STREAM_SILENCE_S 120 /* of a download: nothing keeps it alive but its bytes */

static int fill(struct dsec_file *f, json_t *o)
{
	struct sdk_holder *h = sdk_holder_new(o);
	if (!h)
		return -ENOMEM;
	*f = (struct dsec_file){
		.name = sdk_str(o, "name"), .type = sdk_str(o, "type"),
		.link = json_string_value(json_object_get(o, "link")),
		.mode = (unsigned)strtoul(sdk_str(o, "mode"), NULL, 8), .size = sdk_u64(o, "size"),
		.inode = sdk_u64(o, "inode"), .mtime = sdk_num(o, "mtime"), .uid = (unsigned)sdk_u64(o, "uid"),
		.gid = (unsigned)sdk_u64(o, "gid"), .nlink = (unsigned)sdk_u64(o, "nlink"), .json = h->text,
		.internal = h,
	};
	/* Names are bytes: the ones that are no text come as base64. */
	const char *b64 = json_string_value(json_object_get(o, "name_b64"));
	if (b64 && (h->extra[0] = sdk_unb64(b64)))
		f->name = h->extra[0];
	b64 = json_string_value(json_object_get(o, "link_b64"));
	if (b64 && (h->extra[1] = sdk_unb64(b64)))
		f->link = h->extra[1];
	return 0;
}

/* "/v1/sandboxes/ID/WHAT?path=P[&user=U]REST" */
static int file_path(char ret[SDK_PATH_MAX], const char *sandbox_id, const char *what, const char *path,
		     const char *user, const char *rest, struct dsec_error *e)
{
	char *sb = sdk_encode(sandbox_id), *p = sdk_encode(path), *u = sdk_encode(user ? user : "");
	int r = sb && p && u ? sdk_path(ret, e, "/v1/sandboxes/%s/%s?path=%s%s%s%s", sb, what, p, *u ? "&user=" : "", u, rest)
			     : sdk_no_memory(e);
	free(sb);
	free(p);
	free(u);
	return r;
}

int dsec_file_stat(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user, bool follow,
		   struct dsec_file **ret, struct dsec_error *e)
{
	char url[SDK_PATH_MAX];
	json_t *reply = NULL;
	int r = file_path(url, sandbox_id, "files/stat", path, user, follow ? "&follow=true" : "", e);
	r = r < 0 ? r : sdk_json_call(c, "GET", url, NULL, 0, &reply, e);
	if (r < 0)
		return r;
	struct dsec_file *f = calloc(1, sizeof(*f));
	if (!f || fill(f, reply) < 0) {
		free(f);
		r = sdk_no_memory(e);
	} else
		*ret = f;
	json_decref(reply);
	return r;
}

int dsec_file_list(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		   struct dsec_file_list **ret, struct dsec_error *e)
{
	char url[SDK_PATH_MAX];
	json_t *reply = NULL, *item;
	size_t i;
	int r = file_path(url, sandbox_id, "files/list", path, user, "", e);
	r = r < 0 ? r : sdk_json_call(c, "GET", url, NULL, 0, &reply, e);
	if (r < 0)
		return r;
	json_t *items = json_object_get(reply, "entries");
	struct dsec_file_list *l = calloc(1, sizeof(*l));
	if (l)
		l->items = calloc(json_array_size(items) + 1, sizeof(*l->items));
	if (!l || !l->items)
		r = sdk_no_memory(e);
	json_array_foreach(items, i, item) {
		if (r < 0)
			break;
		if (fill(&l->items[l->n], item) < 0)
			r = sdk_no_memory(e);
		else
			l->n++;
	}
	json_decref(reply);
	if (r < 0)
		dsec_file_list_free(l);
	else
		*ret = l;
	return r;
}

static int download(struct dsec_client *c, const char *url, dsec_write_fn sink, void *sink_user,
		    struct dsec_error *e)
{
	struct sdk_call call = { .method = "GET",
				 .path = url,
				 .accept = "*/*",
				 .sink = sink,
				 .sink_user = sink_user,
				 .silence_s = STREAM_SILENCE_S };
	int r = sdk_perform(c, &call, e);
	sdk_call_done(&call);
	return r;
}

static int upload(struct dsec_client *c, const char *url, const char *type, dsec_read_fn source,
		  void *source_user, struct dsec_error *e)
{
	struct sdk_call call = {
		.method = "PUT", .path = url, .content_type = type, .read = source, .read_user = source_user
	};
	int r = sdk_perform(c, &call, e);
	sdk_call_done(&call);
	return r;
}

int dsec_file_read(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		   uint64_t offset, uint64_t length, dsec_write_fn sink, void *sink_user, struct dsec_error *e)
{
	char url[SDK_PATH_MAX], rest[80];
	snprintf(rest, sizeof(rest), "&offset=%llu&length=%llu", (unsigned long long)offset, (unsigned long long)length);
	int r = file_path(url, sandbox_id, "files", path, user, rest, e);
	return r < 0 ? r : download(c, url, sink, sink_user, e);
}

int dsec_file_write(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		    unsigned mode, bool parents, dsec_read_fn source, void *source_user, struct dsec_error *e)
{
	char url[SDK_PATH_MAX], rest[64];
	snprintf(rest, sizeof(rest), "&mode=%04o&parents=%s", mode ? mode & 07777 : 0644, parents ? "true" : "false");
	int r = file_path(url, sandbox_id, "files", path, user, rest, e);
	return r < 0 ? r : upload(c, url, "application/octet-stream", source, source_user, e);
}

/* POST .../files/WHAT with a body whose strings are paths. */
static int post(struct dsec_client *c, const char *sandbox_id, const char *what, json_t *body, const char *user,
		struct dsec_error *e)
{
	char url[SDK_PATH_MAX], *sb = sdk_encode(sandbox_id);
	int r = sb && body ? sdk_path(url, e, "/v1/sandboxes/%s/files/%s", sb, what)
			   : sdk_fail(e, -EINVAL, "bad_field", DSEC_FAULT_CALLER, false, "paths must be UTF-8 here");
	free(sb);
	if (!r && user && json_object_set_new(body, "user", json_string(user)) < 0)
		r = sdk_no_memory(e);
	if (r < 0) {
		json_decref(body);
		return r;
	}
	return sdk_json_call(c, "POST", url, body, 0, NULL, e);
}

int dsec_file_mkdir(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		    unsigned mode, bool parents, struct dsec_error *e)
{
	char text[8];
	snprintf(text, sizeof(text), "%04o", mode ? mode & 07777 : 0755);
	return post(c, sandbox_id, "mkdir",
		    json_pack("{s:s,s:s,s:b}", "path", path, "mode", text, "parents", parents), user, e);
}

int dsec_file_move(struct dsec_client *c, const char *sandbox_id, const char *from, const char *to,
		   const char *user, bool overwrite, struct dsec_error *e)
{
	return post(c, sandbox_id, "move",
		    json_pack("{s:s,s:s,s:b}", "from", from, "to", to, "overwrite", overwrite), user, e);
}

int dsec_file_remove(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		     bool recursive, struct dsec_error *e)
{
	char url[SDK_PATH_MAX];
	int r = file_path(url, sandbox_id, "files", path, user, recursive ? "&recursive=true" : "", e);
	return r < 0 ? r : sdk_json_call(c, "DELETE", url, NULL, 0, NULL, e);
}

int dsec_archive_get(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		     dsec_write_fn sink, void *sink_user, struct dsec_error *e)
{
	char url[SDK_PATH_MAX];
	int r = file_path(url, sandbox_id, "archive", path, user, "", e);
	return r < 0 ? r : download(c, url, sink, sink_user, e);
}

int dsec_archive_put(struct dsec_client *c, const char *sandbox_id, const char *path, const char *user,
		     dsec_read_fn source, void *source_user, struct dsec_error *e)
{
	char url[SDK_PATH_MAX];
	int r = file_path(url, sandbox_id, "archive", path, user, "", e);
	return r < 0 ? r : upload(c, url, "application/x-tar", source, source_user, e);
}

void dsec_file_free(struct dsec_file *f)
{
	if (!f)
		return;
	sdk_holder_free(f->internal);
	free(f);
}

void dsec_file_list_free(struct dsec_file_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		sdk_holder_free(l->items[i].internal);
	free(l->items);
	free(l);
}
