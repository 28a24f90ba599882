/* ps.c: `dsec ps`: the sandboxes there are. */
#include <stdlib.h>
#include <string.h>
#include "base/buf.h"
#include "cli/json_out.h"
#include "cli/verbs.h"

static const char *item_json(size_t i, void *user)
{
	return ((struct dsec_sandbox_list *)user)->items[i].json;
}

/* The oldest first; the server lists by id, which tells nothing. */
static int by_age(const void *a, const void *b)
{
	double x = ((const struct dsec_sandbox *)a)->created_at, y = ((const struct dsec_sandbox *)b)->created_at;
	return (x > y) - (x < y);
}

static void print_row(const struct dsec_sandbox *s)
{
	char age[32], used[32], state[64];
	_cleanup_buf_ struct buf labels = BUF_INIT(0);
	for (size_t i = 0; i < s->n_labels; i++)
		buf_printf(&labels, "%s%s=%s", i ? "," : "", s->labels[i].name, s->labels[i].value);
	snprintf(state, sizeof(state), *s->reason ? "%s(%s)" : "%s", s->state, s->reason);
	const char *text = buf_cstr(&labels);
	printf("%-32s  %-18s  %-16s  %4.4g  %6llu MiB  %9s  %4u  %4s  %s\n", s->id, state, s->environment, s->cpu,
	       (unsigned long long)s->memory_mb, format_bytes(used, s->memory_bytes), s->execs_running,
	       format_age(age, s->created_at), text ? text : "");
}

static const struct option options[] = { COMMON_LONG, { "label", required_argument, NULL, 'l' },
					{ "all", no_argument, NULL, 'a' }, { "quiet", no_argument, NULL, 'q' }, { 0 } };

static int ps_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_ps };
	struct dsec_pair labels[CLI_LABELS_MAX];
	size_t n_labels = 0;
	bool all = false, quiet = false;
	for (int o; (o = getopt_long(argc, argv, "haql:", options, NULL)) >= 0;) {
		int r;
		if (o == 'l') {
			if (n_labels == CLI_LABELS_MAX || !parse_pair(optarg, false, &labels[n_labels]))
				return usage_error(c.verb, "--label wants K=V, not \"%s\"", optarg);
			n_labels++;
		} else if (o == 'a')
			all = true;
		else if (o == 'q')
			quiet = true;
		else if ((r = common_option(&c, o)) >= 0)
			return r;
	}
	if (optind < argc)
		return usage_error(c.verb, "\"%s\" is not understood", argv[optind]);
	struct dsec_client *client = open_client(&c);
	struct dsec_sandbox_list *l = NULL;
	struct dsec_error e;
	if (!client)
		return EXIT_FAILED;
	int status = dsec_sandbox_list(client, labels, n_labels, all, &l, &e) < 0 ? cli_fail(&c, &e, EXIT_FAILED) : 0;
	if (!status)
		qsort(l->items, l->n, sizeof(*l->items), by_age);
	if (!status && c.json)
		json_list_out(stdout, "sandboxes", item_json, l->n, l);
	else if (!status) {
		if (!quiet)
			printf("%-32s  %-18s  %-16s  %4s  %10s  %9s  %4s  %4s  %s\n", "ID", "STATE", "ENVIRONMENT", "CPU",
			       "MEMORY", "USED", "CMDS", "AGE", "LABELS");
		for (size_t i = 0; i < l->n; i++) {
			if (quiet)
				puts(l->items[i].id);
			else
				print_row(&l->items[i]);
		}
	}
	dsec_sandbox_list_free(l);
	dsec_client_free(client);
	return status;
}

const struct verb verb_ps = {
	"ps", ps_run, "list sandboxes",
	"usage: dsec ps [--label K=V]... [-a] [-q] [--json]\n\n"
	"  --label K=V  those that carry it; may repeat\n"
	"  -a, --all    also those that have stopped\n"
	"  -q, --quiet  ids only\n",
	.options = options
};
