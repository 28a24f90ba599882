/* version.c: `dsec version`: of this program, and of the server if one answers. */
#include <stdlib.h>
#include <string.h>
#include "cli/json_out.h"
#include "cli/verbs.h"

static const struct option options[] = { COMMON_LONG, { 0 } };

static int version_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_version };
	struct dsec_client *client = NULL;
	struct dsec_error e;
	char *server = NULL;
	for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) >= 0;) {
		int r = common_option(&c, o);
		if (r >= 0)
			return r;
	}
	struct dsec_client_options options = { .state_dir = c.state_dir, .connect_timeout_ms = 2000 };
	if (!dsec_client_new(&options, &client, &e))
		dsec_client_call(client, "GET", "/v1/version", NULL, &server, &e);
	if (server)
		server[strcspn(server, "\n")] = 0;
	if (c.json)
		printf("{\"client\":\"%s\",\"server\":%s}\n", dsec_version(), server ? server : "null");
	else {
		printf("dsec %s\n", dsec_version());
		if (server)
		{
			printf("server at %s: ", dsec_client_url(client));
			json_pretty_out(stdout, server);
		}
	}
	free(server);
	dsec_client_free(client);
	return 0;
}

const struct verb verb_version = { "version", version_run, "print the version",
				   "usage: dsec version [--json]\n\nOf this program, and of the server if one answers.\n",
	.options = options
};
