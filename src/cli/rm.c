/* rm.c: `dsec rm`: stop and remove sandboxes. */
#include <string.h>
#include "cli/json_out.h"
#include "cli/verbs.h"

static int remove_one(const struct common *c, struct dsec_client *client, const char *id, bool wait)
{
	struct dsec_error e;
	struct dsec_sandbox *s = NULL;
	if (dsec_sandbox_delete(client, id, wait, &s, &e) < 0)
		return cli_fail(c, &e, EXIT_FAILED);
	puts(c->json ? s->json : id);
	dsec_sandbox_free(s);
	return 0;
}

/* All are asked to stop first, then waited for: they end side by side. */
static int remove_listed(const struct common *c, struct dsec_client *client, const struct dsec_pair *labels,
			 size_t n_labels)
{
	struct dsec_sandbox_list *l = NULL;
	struct dsec_error e;
	int status = 0;
	if (dsec_sandbox_list(client, labels, n_labels, false, &l, &e) < 0)
		return cli_fail(c, &e, EXIT_FAILED);
	for (size_t i = 0; i < l->n; i++)
		dsec_sandbox_delete(client, l->items[i].id, false, NULL, NULL);
	for (size_t i = 0; i < l->n; i++)
		status |= remove_one(c, client, l->items[i].id, true);
	dsec_sandbox_list_free(l);
	return status;
}

static const struct option options[] = { COMMON_LONG, { "label", required_argument, NULL, 'l' },
					{ "all", no_argument, NULL, 'a' }, { 0 } };

static int rm_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_rm };
	struct dsec_pair labels[CLI_LABELS_MAX];
	size_t n_labels = 0;
	bool all = false;
	for (int o; (o = getopt_long(argc, argv, "hl:", options, NULL)) >= 0;) {
		int r;
		if (o == 'l') {
			if (n_labels == CLI_LABELS_MAX || !parse_pair(optarg, false, &labels[n_labels]))
				return usage_error(c.verb, "--label wants K=V, not \"%s\"", optarg);
			n_labels++;
		} else if (o == 'a')
			all = true;
		else if ((r = common_option(&c, o)) >= 0)
			return r;
	}
	if ((optind < argc) + (n_labels > 0 || all) != 1)
		return usage_error(c.verb, "wants ids, or --label K=V, or --all");
	struct dsec_client *client = open_client(&c);
	if (!client)
		return EXIT_FAILED;
	int status = 0;
	if (optind == argc)
		status = remove_listed(&c, client, labels, n_labels);
	for (int i = optind; i < argc; i++)
		status |= remove_one(&c, client, argv[i], true);
	dsec_client_free(client);
	return status;
}

const struct verb verb_rm = { "rm", rm_run, "stop and remove sandboxes",
			      "usage: dsec rm ID... [--json]\n"
			      "       dsec rm --label K=V [--label K=V]...\n"
			      "       dsec rm --all\n\n"
			      "Stops sandboxes with everything in them and waits until they are gone.\n",
	.options = options, .completes = COMPLETES_SANDBOX
};
