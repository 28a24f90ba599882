/* dsecd.c: main of dsecd: one executable, the role is its first argument.
 *
 * Started by people (`dsecd up`, through `dsec up`) and by the supervisor and the
 * apiserver for the other roles. Owns nothing; each role is a main function of its
 * own folder and returns the exit status: 0, 1 failure, 2 usage.
 */
#include <stdio.h>
#include <string.h>
#include "base/cleanup.h"
#include "control/apiserver_main.h"
#include "edge/edge_main.h"
#include "layer/import_main.h"
#include "dsecd/supervisor.h"

static int version_main(int argc, char **argv)
{
	printf("dsecd %s\n", DSEC_VERSION);
	return 0;
}

static int help_main(int argc, char **argv);

static const struct role {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
} roles[] = {
	{ "up", supervisor_main, "start the platform on this machine and keep it running" },
	{ "down", down_main, "end it, with every sandbox" },
	{ "cleanup", cleanup_main, "remove what a dead platform left in the kernel" },
	{ "apiserver", apiserver_main, "serve the HTTP API (started by up)" },
	{ "edge", edge_main, "own this machine's sandboxes (started by up)" },
	{ "layer-import", layer_import_main, "tar stream on standard input to a layer (started by apiserver)" },
	{ "version", version_main, "print the version" },
	{ "help", help_main, "this" },
};

static int help_main(int argc, char **argv)
{
	printf("usage: dsecd ROLE [OPTIONS]\n\n");
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		printf("  %-13s %s\n", roles[i].name, roles[i].what);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		help_main(argc, argv);
		return 2;
	}
	const char *name = argv[1];
	if (!strcmp(name, "--help") || !strcmp(name, "-h"))
		name = "help";
	if (!strcmp(name, "--version"))
		name = "version";
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (!strcmp(roles[i].name, name))
			return roles[i].run(argc - 1, argv + 1);
	fprintf(stderr, "dsecd: there is no role \"%s\"; `dsecd help` lists them\n", name);
	return 2;
}
