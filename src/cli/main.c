/* main.c: the table of `dsec`'s verbs and its help. */
#include <signal.h>
#include <string.h>
#include "base/cleanup.h"
#include "cli/verbs.h"

const struct verb *const all_verbs[] = {
	&verb_up, &verb_down, &verb_doctor, &verb_run, &verb_create, &verb_exec, &verb_ps,
	&verb_inspect, &verb_logs, &verb_cp, &verb_rm, &verb_layer, &verb_debug, &verb_completion,
	&verb_version, NULL,
};

static void help(const struct verb *const *table, size_t n, const char *whole)
{
	printf("usage: dsec %s%sVERB [OPTIONS]\n\n", whole, *whole ? " " : "");
	for (size_t i = 0; i < n; i++) {
		const char *name = strrchr(table[i]->name, ' ');
		printf("  %-10s %s\n", name ? name + 1 : table[i]->name, table[i]->what);
	}
	printf("\n`dsec %s%sVERB --help` tells more; all take --json. The server is the one of --state-dir DIR (default:\n"
	       "DSEC_STATE_DIR or /var/lib/dsec) on this machine, unless DSEC_URL and DSEC_API_KEY name another.\n",
	       whole, *whole ? " " : "");
}

int run_verb(const struct verb *const *table, size_t n, const char *whole, int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";
	bool asked = !strcmp(name, "help") || !strcmp(name, "--help") || !strcmp(name, "-h");
	if (asked && argc == 2) {
		help(table, n, whole);
		return 0;
	}
	const char *wanted = asked ? argv[2] : name;
	for (size_t i = 0; i < n && *wanted; i++) {
		const char *last = strrchr(table[i]->name, ' ');
		if (strcmp(last ? last + 1 : table[i]->name, wanted))
			continue;
		if (asked) {
			fputs(table[i]->usage, stdout);
			return 0;
		}
		optind = 0;
		argv[1] = (char *)table[i]->name; /* what getopt calls us */
		return table[i]->run(argc - 1, argv + 1);
	}
	if (*wanted)
		fprintf(stderr, "dsec: there is no verb \"%s%s%s\"\n", whole, *whole ? " " : "", wanted);
	fprintf(stderr, "`dsec %s%shelp` lists what there is\n", whole, *whole ? " " : "");
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	/* A reader that went away (head, less) ends us by an error, not silently half-way. */
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && !strcmp(argv[1], "--version"))
		argv[1] = "version";
	int status = run_verb(all_verbs, ARRAY_SIZE(all_verbs) - 1, "", argc, argv);
	if (fflush(stdout) == EOF && !status)
		status = EXIT_FAILED;
	return status;
}
