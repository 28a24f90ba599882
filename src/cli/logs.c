/* logs.c: `dsec logs`: the kept output of a command, and what comes yet. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "base/fdio.h"
#include "cli/json_out.h"
#include "cli/verbs.h"

static int on_output(enum dsec_stream stream, uint64_t offset, const void *p, size_t n, void *user)
{
	const struct common *c = user;
	if (!c->json)
		return write_all(stream == DSEC_STDERR ? STDERR_FILENO : STDOUT_FILENO, p, n);
	printf("{\"stream\":\"%s\",\"offset\":%llu,\"b64\":\"", stream == DSEC_STDERR ? "stderr" : "stdout",
	       (unsigned long long)offset);
	base64_out(stdout, p, n);
	printf("\"}\n");
	return fflush(stdout) == EOF ? -EPIPE : 0;
}

static int on_gap(enum dsec_stream stream, uint64_t from, uint64_t to, void *user)
{
	const struct common *c = user;
	const char *name = stream == DSEC_STDERR ? "stderr" : "stdout";
	if (c->json)
		printf("{\"event\":\"gap\",\"stream\":\"%s\",\"from\":%llu,\"to\":%llu}\n", name, (unsigned long long)from,
		       (unsigned long long)to);
	else
		fprintf(stderr, "dsec: %llu bytes of %s were dropped by the output limit\n",
			(unsigned long long)(to - from), name);
	return 0;
}

/* The command that was started last; one that never ran has written nothing. */
static int newest(struct dsec_client *client, const char *sandbox_id, char ret[65], struct dsec_error *e)
{
	struct dsec_exec_list *l = NULL;
	int r = dsec_exec_list(client, sandbox_id, &l, e);
	const struct dsec_exec *best = NULL;
	for (size_t i = 0; !r && i < l->n; i++)
		if (strcmp(l->items[i].state, "failed") && (!best || l->items[i].started_at >= best->started_at))
			best = &l->items[i];
	if (!r && best)
		snprintf(ret, 65, "%s", best->id);
	else if (!r) {
		*e = (struct dsec_error){ .code = "exec_not_found", .fault = DSEC_FAULT_CALLER };
		snprintf(e->message, sizeof(e->message), "no command was run in %s yet", sandbox_id);
		r = -ENOENT;
	}
	dsec_exec_list_free(l);
	return r;
}

static const struct option options[] = { COMMON_LONG, { "follow", no_argument, NULL, 'f' }, { 0 } };

static int logs_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_logs };
	bool follow = false;
	for (int o; (o = getopt_long(argc, argv, "hf", options, NULL)) >= 0;) {
		int r;
		if (o == 'f')
			follow = true;
		else if ((r = common_option(&c, o)) >= 0)
			return r;
	}
	if (argc - optind < 1 || argc - optind > 2)
		return usage_error(c.verb, "wants a sandbox's id, and perhaps an exec's");
	struct dsec_client *client = open_client(&c);
	struct dsec_output_callbacks cb = { NULL, on_output, on_gap, &c };
	struct dsec_exec *x = NULL;
	struct dsec_error e;
	char id[65];
	if (!client)
		return EXIT_FAILED;
	int r = 0;
	if (argc - optind == 2)
		snprintf(id, sizeof(id), "%s", argv[optind + 1]);
	else
		r = newest(client, argv[optind], id, &e);
	if (!r)
		r = dsec_exec_follow(client, argv[optind], id, 0, 0, follow, &cb, &x, &e);
	if (!r && c.json)
		printf("{\"event\":\"%s\",\"exec\":%s}\n", !strcmp(x->state, "finished") ? "exit" : "end", x->json);
	int status = r < 0 ? cli_fail(&c, &e, EXIT_FAILED) : 0;
	dsec_exec_free(x);
	dsec_client_free(client);
	return status;
}

const struct verb verb_logs = {
	"logs", logs_run, "show a command's output",
	"usage: dsec logs ID [EXEC] [-f] [--json]\n\n"
	"What a command wrote, its standard error on ours. Without EXEC: the one started last.\n"
	"  -f, --follow  go on until the command ends\n"
	"  --json        one object a line: {\"stream\",\"offset\",\"b64\"}, gaps, the exec at the end\n",
	.options = options, .completes = COMPLETES_SANDBOX
};
