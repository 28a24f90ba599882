/* inspect.c: `dsec inspect`: all that the server knows of a sandbox or an exec. */
#include "cli/json_out.h"
#include "cli/verbs.h"

static const struct option options[] = { COMMON_LONG, { 0 } };

static int inspect_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_inspect };
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		int r = common_option(&c, o);
		if (r >= 0)
			return r;
	}
	if (argc - optind < 1 || argc - optind > 2)
		return usage_error(c.verb, "wants a sandbox's id, and perhaps an exec's");
	struct dsec_client *client = open_client(&c);
	struct dsec_sandbox *s = NULL;
	struct dsec_exec *x = NULL;
	struct dsec_error e;
	if (!client)
		return EXIT_FAILED;
	bool exec = argc - optind == 2;
	int r = exec ? dsec_exec_get(client, argv[optind], argv[optind + 1], &x, &e)
		     : dsec_sandbox_get(client, argv[optind], &s, &e);
	int status = r < 0 ? cli_fail(&c, &e, EXIT_FAILED) : 0;
	const char *json = status ? NULL : exec ? x->json : s->json;
	if (json && c.json)
		puts(json);
	else if (json)
		json_pretty_out(stdout, json);
	dsec_exec_free(x);
	dsec_sandbox_free(s);
	dsec_client_free(client);
	return status;
}

const struct verb verb_inspect = { "inspect", inspect_run, "show a sandbox or a command whole",
				   "usage: dsec inspect ID [EXEC] [--json]\n\n"
				   "All that the server tells of a sandbox, or of one command in it. --json: on one line.\n",
	.options = options, .completes = COMPLETES_SANDBOX
};
