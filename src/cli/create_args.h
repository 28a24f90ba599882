/* create_args.h: the options that describe a sandbox, shared by create and run. */
#pragma once
#include "cli/cli.h"

enum { OPT_ENV = OPT_FIRST_FREE, OPT_CPU, OPT_MEMORY, OPT_DISK, OPT_PIDS, OPT_TTL, OPT_IDLE_TTL, OPT_LABEL,
       OPT_HOSTNAME, OPT_BACKEND, OPT_NO_NEW_PRIVS, OPT_CREATE_END };

#define CREATE_LONG                                                                                      \
	{ "env", required_argument, NULL, OPT_ENV }, { "cpu", required_argument, NULL, OPT_CPU },        \
	{ "memory", required_argument, NULL, OPT_MEMORY }, { "disk", required_argument, NULL, OPT_DISK }, \
	{ "pids", required_argument, NULL, OPT_PIDS }, { "ttl", required_argument, NULL, OPT_TTL },      \
	{ "idle-ttl", required_argument, NULL, OPT_IDLE_TTL },                                           \
	{ "label", required_argument, NULL, OPT_LABEL },                                                 \
	{ "hostname", required_argument, NULL, OPT_HOSTNAME },                                           \
	{ "backend", required_argument, NULL, OPT_BACKEND },                                             \
	{ "no-new-privileges", no_argument, NULL, OPT_NO_NEW_PRIVS }

#define CREATE_HELP                                                                              \
	"  --env E             environment: NAME, NAME@VERSION or NAME:TAG (needed)\n"           \
	"  --cpu N             cores, e.g. 0.5 (default: the server's, as for all limits)\n"     \
	"  --memory SIZE       e.g. 512m, 2g (a bare number is MiB)\n"                           \
	"  --disk SIZE         what it may write, likewise\n"                                    \
	"  --pids N            processes and threads at most\n"                                  \
	"  --ttl TIME          lifetime: 90, 30s, 10m, 2h, 1d\n"                                 \
	"  --idle-ttl TIME     lifetime without use\n"                                           \
	"  --label K=V         may repeat\n"                                                     \
	"  --hostname NAME     its host name\n"                                                  \
	"  --backend NAME      what runs it (default: container)\n"                              \
	"  --no-new-privileges set-user-id programs gain nothing\n"

struct create_args {
	struct dsec_create_options o; /* labels are set by create_args_done */
	struct dsec_pair labels[CLI_LABELS_MAX];
	size_t n_labels;
};

/* Takes one option: 0; 1 when it is none of ours; EXIT_USAGE after a complaint. */
int create_args_take(struct create_args *a, const struct verb *v, int option);
/* After the last: EXIT_USAGE when something is missing. */
int create_args_done(struct create_args *a, const struct verb *v);
