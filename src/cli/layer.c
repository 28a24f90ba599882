/* layer.c: `dsec layer` and its small verbs: ls, inspect, rm. */
#include <stdlib.h>
#include "base/cleanup.h"
#include "cli/json_out.h"
#include "cli/verbs.h"

static const char *item_json(size_t i, void *user)
{
	return ((struct dsec_layer_list *)user)->items[i].json;
}

static const struct option options[] = { COMMON_LONG, { 0 } };

/* The options of verbs that have none of their own. */
static int common_only(struct common *c, int argc, char **argv)
{
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		int r = common_option(c, o);
		if (r >= 0)
			return r;
	}
	return -1;
}

static int ls_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_layer_ls };
	struct dsec_layer_list *l = NULL;
	struct dsec_error e;
	int status = common_only(&c, argc, argv);
	if (status >= 0)
		return status;
	if (optind < argc)
		return usage_error(c.verb, "\"%s\" is not understood", argv[optind]);
	struct dsec_client *client = open_client(&c);
	if (!client)
		return EXIT_FAILED;
	status = dsec_layer_list(client, &l, &e) < 0 ? cli_fail(&c, &e, EXIT_FAILED) : 0;
	if (!status && c.json)
		json_list_out(stdout, "layers", item_json, l->n, l);
	else if (!status) {
		printf("%-28s  %-19s  %9s  %8s  %4s  %s\n", "NAME", "DIGEST", "SIZE", "FILES", "AGE", "SOURCE");
		for (size_t i = 0; i < l->n; i++) {
			const struct dsec_layer *x = &l->items[i];
			char name[256], size[32], age[32];
			snprintf(name, sizeof(name), "%s@%s", x->name, x->version);
			printf("%-28s  %.19s  %9s  %8llu  %4s  %s\n", name, x->digest, format_bytes(size, x->size_bytes),
			       (unsigned long long)x->files, format_age(age, x->created_at), x->source);
		}
	}
	dsec_layer_list_free(l);
	dsec_client_free(client);
	return status;
}

static int inspect_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_layer_inspect };
	struct dsec_layer *l = NULL;
	struct dsec_error e;
	int status = common_only(&c, argc, argv);
	if (status >= 0)
		return status;
	if (argc - optind != 1)
		return usage_error(c.verb, "wants one NAME or NAME@VERSION");
	struct dsec_client *client = open_client(&c);
	if (!client)
		return EXIT_FAILED;
	if (dsec_layer_get(client, argv[optind], &l, &e) < 0)
		status = cli_fail(&c, &e, EXIT_FAILED);
	else {
		if (c.json)
			puts(l->json);
		else
			json_pretty_out(stdout, l->json);
		status = 0;
	}
	dsec_layer_free(l);
	dsec_client_free(client);
	return status;
}

static int rm_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_layer_rm };
	struct dsec_error e;
	int status = common_only(&c, argc, argv);
	if (status >= 0)
		return status;
	if (optind == argc)
		return usage_error(c.verb, "wants NAME@VERSION, one or more");
	struct dsec_client *client = open_client(&c);
	if (!client)
		return EXIT_FAILED;
	status = 0;
	for (int i = optind; i < argc; i++) {
		if (dsec_layer_remove(client, argv[i], &e) < 0)
			status = cli_fail(&c, &e, EXIT_FAILED);
		else if (!c.json)
			puts(argv[i]);
		else {
			fputs("{\"removed\":", stdout);
			json_string_out(stdout, argv[i]);
			puts("}");
		}
	}
	dsec_client_free(client);
	return status;
}

static const struct verb *const verbs[] = { &verb_layer_ls, &verb_layer_build, &verb_layer_import,
					    &verb_layer_inspect, &verb_layer_rm, NULL };

static int layer_run(int argc, char **argv)
{
	return run_verb(verbs, ARRAY_SIZE(verbs) - 1, "layer", argc, argv);
}

const struct verb verb_layer = { "layer", layer_run, "the file trees that environments are made of",
				 "usage: dsec layer ls|build|import|inspect|rm [OPTIONS]\n\n`dsec layer help` lists what each does.\n",
	.below = verbs
};
const struct verb verb_layer_ls = { "layer ls", ls_run, "list layers", "usage: dsec layer ls [--json]\n",
	.options = options
};
const struct verb verb_layer_inspect = { "layer inspect", inspect_run, "show a layer whole",
					 "usage: dsec layer inspect NAME[@VERSION] [--json]\n\nWithout VERSION: the newest.\n",
	.options = options, .completes = COMPLETES_LAYER
};
const struct verb verb_layer_rm = { "layer rm", rm_run, "remove layers",
				    "usage: dsec layer rm NAME@VERSION... [--json]\n\nRefused while a live sandbox uses it.\n",
	.options = options, .completes = COMPLETES_LAYER
};
