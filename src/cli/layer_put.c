/* layer_put.c: see layer_put.h. */
#include "cli/layer_put.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cli/json_out.h"

static uint64_t next_version(const struct dsec_layer_list *l, const char *name)
{
	uint64_t highest = 0, v;
	for (size_t i = 0; i < l->n; i++)
		if (!strcmp(l->items[i].name, name) && parse_count(l->items[i].version, UINT32_MAX, &v) && v > highest)
			highest = v;
	return highest + 1;
}

int layer_full_name(const struct common *c, struct dsec_client *client, const char *word, char ret[LAYER_NAME_MAX])
{
	struct dsec_layer_list *l = NULL;
	struct dsec_error e;
	const char *at = strchr(word, '@');
	if (strlen(word) > LAYER_NAME_MAX - 16 || at == word || (at && !at[1]))
		return usage_error(c->verb, "wants a layer's name: NAME or NAME@VERSION, not \"%.100s\"", word);
	if (at) {
		strcpy(ret, word);
		return 0;
	}
	if (dsec_layer_list(client, &l, &e) < 0)
		return cli_fail(c, &e, EXIT_FAILED);
	snprintf(ret, LAYER_NAME_MAX, "%s@%llu", word, (unsigned long long)next_version(l, word));
	dsec_layer_list_free(l);
	return 0;
}

int layer_put(const struct common *c, struct dsec_client *client, const char *full_name, const char *source,
	      struct pump *pump, const char *why)
{
	struct progress progress;
	struct dsec_layer *layer = NULL;
	struct dsec_error e;
	char size[32];
	progress_start(&progress, full_name, c->json);
	progress.say = pump->say;
	progress.user = pump->user;
	pump->progress = &progress;
	int r = pump_start(pump, true);
	if (r < 0) {
		progress_end(&progress);
		return cli_fail_with(c, EXIT_FAILED, "internal", "cannot start: %s", strerror(-r));
	}
	r = dsec_layer_put(client, full_name, source, pump_read, pump, &layer, &e);
	int local = pump_finish(pump);
	progress_end(&progress);
	/* -EPIPE of the worker only says that the server gave up first. */
	bool ours = local < 0 && (r >= 0 || local != -EPIPE) && (r >= 0 || !strcmp(e.code, "interrupted"));
	int status = 0;
	if (ours)
		status = cli_fail_with(c, EXIT_FAILED, "local_file", "%s", *why ? why : strerror(-local));
	else if (r < 0)
		status = cli_fail(c, &e, EXIT_FAILED);
	else if (c->json)
		puts(layer->json);
	else
		printf("%s@%s %s (%s, %llu files)\n", layer->name, layer->version, layer->digest,
		       format_bytes(size, layer->size_bytes), (unsigned long long)layer->files);
	dsec_layer_free(layer);
	return status;
}
