/* exec_args.h: the options that describe a command, shared by exec and run. */
#pragma once
#include "cli/cli.h"

enum { OPT_EXEC_FIRST = 512, OPT_TIMEOUT, OPT_KILL_GRACE, OPT_OUTPUT_LIMIT };

#define EXEC_SHORT "hite:u:w:"
#define EXEC_LONG                                                                                         \
	{ "timeout", required_argument, NULL, OPT_TIMEOUT },                                              \
	{ "kill-grace", required_argument, NULL, OPT_KILL_GRACE },                                        \
	{ "output-limit", required_argument, NULL, OPT_OUTPUT_LIMIT },                                    \
	{ "user", required_argument, NULL, 'u' }, { "cwd", required_argument, NULL, 'w' },                \
	{ "interactive", no_argument, NULL, 'i' }, { "tty", no_argument, NULL, 't' }

#define EXEC_HELP                                                                                  \
	"  -i, --interactive   pass standard input on\n"                                           \
	"  -t, --tty           give the command a terminal\n"                                      \
	"  --timeout TIME      end the command after 90, 30s, 10m, 2h\n"                           \
	"  --kill-grace TIME   then SIGTERM first and SIGKILL this much later\n"                   \
	"  --output-limit SIZE output kept of each stream (default 10m)\n"                         \
	"  -u, --user U        who it runs as: NAME, NAME:GROUP, UID or UID:GID\n"                 \
	"  -w, --cwd DIR       where it runs\n"                                                    \
	"  -e K=V              variable; K alone passes this shell's value; may repeat\n"

#define EXEC_STATUS_HELP                                                                           \
	"Exit status: the command's; 128 + N when signal N ended it (said on standard error); 125\n" \
	"when it could not be run; 2 for wrong usage.\n"

struct exec_args {
	struct dsec_exec_options o; /* env is set by exec_args_done */
	struct pairs env;
	bool interactive, tty;
};

int exec_args_take(struct exec_args *a, const struct verb *v, int option); /* as create_args_take */
/* The command: what is left of argv. */
int exec_args_done(struct exec_args *a, const struct verb *v, int argc, char **argv);
