/* create.c: `dsec create`: a sandbox that stays; prints its id. */
#include "cli/create_args.h"
#include "cli/verbs.h"

enum { OPT_IDEMPOTENCY_KEY = OPT_CREATE_END };

static const struct option options[] = { COMMON_LONG, CREATE_LONG, { "user", required_argument, NULL, 'u' },
					{ "cwd", required_argument, NULL, 'w' },
					{ "idempotency-key", required_argument, NULL, OPT_IDEMPOTENCY_KEY }, { 0 } };

static int create_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_create };
	struct create_args a = { 0 };
	struct pairs env = { 0 };
	for (int o; (o = getopt_long(argc, argv, "he:u:w:", options, NULL)) >= 0;) {
		int r = create_args_take(&a, c.verb, o);
		if (r == 1 && o == 'e') {
			if (env.n == CLI_ENV_MAX || !parse_pair(optarg, true, &env.items[env.n]))
				return usage_error(c.verb, "-e wants K=V, or the name of a variable that is set, not \"%s\"", optarg);
			env.n++;
		} else if (r == 1 && o == 'u')
			a.o.user = optarg;
		else if (r == 1 && o == 'w')
			a.o.cwd = optarg;
		else if (r == 1 && o == OPT_IDEMPOTENCY_KEY)
			a.o.idempotency_key = optarg;
		else if (r == 1 && (r = common_option(&c, o)) >= 0)
			return r;
		else if (r == EXIT_USAGE)
			return r;
	}
	if (optind < argc)
		return usage_error(c.verb, "\"%s\" is not understood", argv[optind]);
	if (create_args_done(&a, c.verb))
		return EXIT_USAGE;
	a.o.env = env.items;
	a.o.n_env = env.n;
	struct dsec_client *client = open_client(&c);
	struct dsec_sandbox *s = NULL;
	struct dsec_error e;
	if (!client)
		return EXIT_FAILED;
	int status = 0;
	if (dsec_sandbox_create(client, &a.o, &s, &e) < 0)
		status = cli_fail(&c, &e, EXIT_FAILED);
	else
		puts(c.json ? s->json : s->id);
	dsec_sandbox_free(s);
	dsec_client_free(client);
	return status;
}

const struct verb verb_create = {
	"create", create_run, "make a sandbox that stays, print its id",
	"usage: dsec create --env E [OPTIONS]\n\n" CREATE_HELP
	"  -u, --user U        who commands run as by default: NAME, NAME:GROUP, UID or UID:GID\n"
	"  -w, --cwd DIR       where they run by default\n"
	"  -e K=V              variable of every command; K alone passes this shell's value\n"
	"  --idempotency-key K the same key again: the same sandbox, none made twice\n"
	"  --json              print the sandbox as the server tells it\n",
	.options = options
};
