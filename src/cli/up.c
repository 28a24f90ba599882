/* up.c: `dsec up` and `dsec down`: they become dsecd, which does the work. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "cli/verbs.h"

/* Where dsecd lies, seen from this program: build tree, installed, then PATH. */
static const char *const places[] = { "../dsecd/dsecd", "../sbin/dsecd", "dsecd" };

static int become_dsecd(const struct verb *v, const char *role, int argc, char **argv)
{
	char own[PATH_MAX], path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", own, sizeof(own) - 1);
	_cleanup_free_ char **words = calloc((size_t)argc + 2, sizeof(char *));
	if (n < 0 || !words)
		return cli_fail_with(NULL, EXIT_FAILED, "internal", "cannot find this program's own place");
	own[n] = 0;
	*strrchr(own, '/') = 0;
	words[1] = (char *)role;
	for (int i = 1; i < argc; i++)
		words[i + 1] = argv[i];
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (snprintf(path, sizeof(path), "%s/%s", own, places[i]) >= (int)sizeof(path) || access(path, X_OK) < 0)
			continue;
		char *real = realpath(path, NULL); /* leaves with the process */
		words[0] = real ? real : path;
		execv(words[0], words);
	}
	words[0] = "dsecd";
	execvp("dsecd", words);
	return cli_fail_with(NULL, EXIT_FAILED, "host_lacks", "dsecd, the daemon, is not installed beside %s: %s", v->name,
			 strerror(errno));
}

/* The daemon parses the rest; only the help is ours. */
static bool wants_help(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			return true;
	return false;
}

static int up_run(int argc, char **argv)
{
	if (wants_help(argc, argv)) {
		fputs(verb_up.usage, stdout);
		return 0;
	}
	return become_dsecd(&verb_up, "up", argc, argv);
}

static int down_run(int argc, char **argv)
{
	if (wants_help(argc, argv)) {
		fputs(verb_down.usage, stdout);
		return 0;
	}
	return become_dsecd(&verb_down, "down", argc, argv);
}

/* dsecd takes them (src/dsecd/options.c); here for completion. */
static const struct option up_options[] = { { "detach", no_argument, NULL, 'd' },
					    { "state-dir", required_argument, NULL, OPT_STATE_DIR },
					    { "listen", required_argument, NULL, 'l' },
					    { "max-sandboxes", required_argument, NULL, 'm' },
					    { "pool", required_argument, NULL, 'p' },
					    { "json", no_argument, NULL, OPT_JSON },
					    { "help", no_argument, NULL, OPT_HELP }, { 0 } };
static const struct option down_options[] = { { "state-dir", required_argument, NULL, OPT_STATE_DIR },
					      { "json", no_argument, NULL, OPT_JSON },
					      { "help", no_argument, NULL, OPT_HELP }, { 0 } };

const struct verb verb_up = {
	"up", up_run, "start the platform on this machine",
	"usage: dsec up [--detach] [--state-dir DIR] [--listen HOST:PORT] [--max-sandboxes N] [--pool N]\n"
	"               [--json]\n"
	"\n"
	"Starts the platform and keeps it running until Ctrl-C or `dsec down`. Needs root.\n"
	"  --detach            return when it is ready and leave it running\n"
	"  --state-dir DIR     where everything is kept (default: DSEC_STATE_DIR or /var/lib/dsec)\n"
	"  --listen HOST:PORT  address of the HTTP API (default 127.0.0.1:7600)\n"
	"  --max-sandboxes N   live sandboxes at most (default 1000, up to 16384)\n"
	"  --pool N            sandbox slots kept ready (default 16)\n"
	"  --json              when it is ready, say where it is as one object\n"
	"The address is left in DIR/run/url, the API key in DIR/api-key, logs in DIR/log.\n",
	.options = up_options
};

const struct verb verb_down = {
	"down", down_run, "end the platform with every sandbox",
	"usage: dsec down [--state-dir DIR] [--json]\n"
	"\n"
	"Ends the platform on this machine, every sandbox with it, and leaves nothing running. Also works when\n"
	"its supervisor is dead. Layers stay. Needs root.\n",
	.options = down_options
};
