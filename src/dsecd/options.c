/* options.c: see options.h. */
#include "dsecd/options.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include "dsecd/readiness.h"
#include "dsecd/state.h"

void up_options_help(void)
{
	printf("usage: dsecd up [--state-dir DIR] [--listen HOST:PORT] [--max-sandboxes N] [--pool N] [--detach] [--json]\n"
	       "\n"
	       "Starts the platform on this machine and keeps it running until SIGTERM or Ctrl-C.\n"
	       "  --state-dir DIR     where everything is kept (default %s)\n"
	       "  --listen HOST:PORT  address of the HTTP API (default %s)\n"
	       "  --max-sandboxes N   live sandboxes at most, 1 to %d\n"
	       "  --pool N            sandbox slots kept ready\n"
	       "  --detach            return when the platform is ready, leave it running\n"
	       "  --json              say where it is as one object\n",
	       STATE_DIR_DEFAULT, UP_LISTEN_DEFAULT, UP_SANDBOXES_MAX);
}

static int number(const char *option, const char *text, long min, long max, long *ret)
{
	char *end;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < min || n > max) {
		fprintf(stderr, "dsecd up: %s wants a number from %ld to %ld, not \"%s\"\n", option, min, max, text);
		return -EINVAL;
	}
	*ret = n;
	return 0;
}

int up_options_parse(int argc, char **argv, struct up_options *ret)
{
	static const struct option table[] = {
		{ "state-dir", required_argument, NULL, 's' }, { "listen", required_argument, NULL, 'l' },
		{ "max-sandboxes", required_argument, NULL, 'm' }, { "pool", required_argument, NULL, 'p' },
		{ "detach", no_argument, NULL, 'd' }, { "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' }, { 0 },
	};
	struct up_options o = { .listen = UP_LISTEN_DEFAULT, .pool = -1 };
	const char *env = getenv("DSEC_STATE_DIR");
	o.state_dir = env && *env ? env : STATE_DIR_DEFAULT;
	char host[LISTEN_HOST_MAX], port[6];
	long n;
	optind = 0; /* argv was parsed before */
	for (int c; (c = getopt_long(argc, argv, "+h", table, NULL)) >= 0;) {
		switch (c) {
		case 's':
			o.state_dir = optarg;
			break;
		case 'l':
			if (listen_split(optarg, host, port) < 0) {
				fprintf(stderr, "dsecd up: --listen wants HOST:PORT with a port from 1 to 65535, not \"%s\"\n", optarg);
				return -EINVAL;
			}
			o.listen = optarg;
			break;
		case 'm':
			if (number("--max-sandboxes", optarg, 1, UP_SANDBOXES_MAX, &n) < 0)
				return -EINVAL;
			o.max_sandboxes = (uint32_t)n;
			break;
		case 'p':
			if (number("--pool", optarg, 0, UP_SANDBOXES_MAX, &n) < 0)
				return -EINVAL;
			o.pool = (int32_t)n;
			break;
		case 'd':
			o.detach = true;
			break;
		case 'j':
			o.json = true;
			break;
		case 'h':
			o.help = true;
			break;
		default:
			return -EINVAL; /* getopt has said why */
		}
	}
	if (optind < argc) {
		fprintf(stderr, "dsecd up: \"%s\" is not understood\n", argv[optind]);
		return -EINVAL;
	}
	*ret = o;
	return 0;
}
