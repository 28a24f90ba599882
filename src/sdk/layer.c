/* layer.c: see dsec/layer.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "sdk/sdk-internal.h"

static int fill(struct dsec_layer *l, json_t *o)
{
	struct sdk_holder *h = sdk_holder_new(o);
	if (!h)
		return -ENOMEM;
	*l = (struct dsec_layer){
		.name = sdk_str(o, "name"), .version = sdk_str(o, "version"), .digest = sdk_str(o, "digest"),
		.source = sdk_str(o, "source"), .size_bytes = sdk_u64(o, "size_bytes"), .files = sdk_u64(o, "files"),
		.created_at = sdk_num(o, "created_at"), .json = h->text, .internal = h,
	};
	return 0;
}

static int answer(const json_t *reply, struct dsec_layer **ret, struct dsec_error *e)
{
	if (!*sdk_str(reply, "digest"))
		return sdk_bad_reply(e, "a layer without a digest");
	if (!ret)
		return 0;
	struct dsec_layer *l = calloc(1, sizeof(*l));
	if (!l || fill(l, (json_t *)reply) < 0) {
		free(l);
		return sdk_no_memory(e);
	}
	*ret = l;
	return 0;
}

static int layer_path(char ret[SDK_PATH_MAX], const char *name, struct dsec_error *e)
{
	const char *at = strchr(name, '@');
	char *first = at ? strndup(name, (size_t)(at - name)) : strdup(name);
	char *n = first ? sdk_encode(first) : NULL, *v = at ? sdk_encode(at + 1) : NULL;
	int r = n && (v || !at) ? sdk_path(ret, e, "/v1/layers/%s%s%s", n, at ? "@" : "", v ? v : "") : sdk_no_memory(e);
	free(first);
	free(n);
	free(v);
	return r;
}

int dsec_layer_list(struct dsec_client *c, struct dsec_layer_list **ret, struct dsec_error *e)
{
	json_t *reply = NULL, *item;
	size_t i;
	int r = sdk_json_call(c, "GET", "/v1/layers", NULL, 0, &reply, e);
	if (r < 0)
		return r;
	json_t *items = json_object_get(reply, "layers");
	struct dsec_layer_list *l = calloc(1, sizeof(*l));
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
		dsec_layer_list_free(l);
	else
		*ret = l;
	return r;
}

/* The newest of a name: the API addresses name@version only. */
static int get_newest(struct dsec_client *c, const char *name, struct dsec_layer **ret, struct dsec_error *e)
{
	json_t *reply = NULL, *item, *best = NULL;
	size_t i;
	int r = sdk_json_call(c, "GET", "/v1/layers", NULL, 0, &reply, e);
	if (r < 0)
		return r;
	json_array_foreach(json_object_get(reply, "layers"), i, item)
		if (!strcmp(sdk_str(item, "name"), name) &&
		    (!best || sdk_num(item, "created_at") >= sdk_num(best, "created_at")))
			best = item;
	if (!best) {
		r = sdk_fail(e, -ENOENT, "layer_not_found", DSEC_FAULT_CALLER, false,
			     "there is no layer \"%.100s\"; `dsec layer ls` lists them", name);
		if (e)
			e->http_status = 404;
	} else
		r = answer(best, ret, e);
	json_decref(reply);
	return r;
}

int dsec_layer_get(struct dsec_client *c, const char *name, struct dsec_layer **ret, struct dsec_error *e)
{
	char path[SDK_PATH_MAX];
	json_t *reply = NULL;
	if (!strchr(name, '@'))
		return get_newest(c, name, ret, e);
	int r = layer_path(path, name, e);
	r = r < 0 ? r : sdk_json_call(c, "GET", path, NULL, 0, &reply, e);
	r = r < 0 ? r : answer(reply, ret, e);
	json_decref(reply);
	return r;
}

int dsec_layer_put(struct dsec_client *c, const char *name_at_version, const char *source, dsec_read_fn tar,
		   void *tar_user, struct dsec_layer **ret, struct dsec_error *e)
{
	char path[SDK_PATH_MAX], full[SDK_PATH_MAX], *from = sdk_encode(source ? source : "");
	int r = from ? layer_path(path, name_at_version, e) : sdk_no_memory(e);
	r = r < 0 ? r : sdk_path(full, e, "%s%s%s", path, *from ? "?source=" : "", from);
	free(from);
	if (r < 0)
		return r;
	struct sdk_call call = {
		.method = "PUT", .path = full, .content_type = "application/x-tar", .read = tar, .read_user = tar_user
	};
	r = sdk_perform(c, &call, e);
	json_t *reply = r < 0 ? NULL : json_loadb(call.text ? call.text : "", call.n_text, 0, NULL);
	r = r < 0 ? r : answer(reply, ret, e);
	json_decref(reply);
	sdk_call_done(&call);
	return r;
}

int dsec_layer_remove(struct dsec_client *c, const char *name_at_version, struct dsec_error *e)
{
	char path[SDK_PATH_MAX];
	int r = layer_path(path, name_at_version, e);
	return r < 0 ? r : sdk_json_call(c, "DELETE", path, NULL, 0, NULL, e);
}

void dsec_layer_free(struct dsec_layer *l)
{
	if (!l)
		return;
	sdk_holder_free(l->internal);
	free(l);
}

void dsec_layer_list_free(struct dsec_layer_list *l)
{
	if (!l)
		return;
	for (size_t i = 0; i < l->n; i++)
		sdk_holder_free(l->items[i].internal);
	free(l->items);
	free(l);
}
