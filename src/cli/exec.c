/* exec.c: `dsec exec`: a command in a sandbox that is there. */
#include <signal.h>
#include "cli/exec_args.h"
#include "cli/json_out.h"
#include "cli/session.h"
#include "cli/verbs.h"

/* One object: the exec as the server tells it, and what it wrote. */
static void print_result_json(const struct session *s, const struct dsec_exec *x)
{
	printf("{\"exec\":%s,\"stdout_b64\":\"", x->json);
	base64_out(stdout, buf_ptr(&s->out), buf_len(&s->out));
	printf("\",\"stderr_b64\":\"");
	base64_out(stdout, buf_ptr(&s->err), buf_len(&s->err));
	printf("\"}\n");
}

static int run_in(const struct common *c, const char *sandbox_id, struct exec_args *a)
{
	struct dsec_error e;
	struct dsec_exec *x = NULL;
	struct session s = { .client = open_client(c),
			     .sandbox_id = sandbox_id,
			     .interactive = a->interactive,
			     .terminal = a->tty,
			     .keep = c->json };
	if (!s.client)
		return EXIT_NOT_RUN;
	session_block_signals();
	int status;
	if (session_run(&s, &a->o, &x, &e) < 0) {
		if (s.stopped_by)
			status = 128 + s.stopped_by;
		else
			status = s.output_broken ? 128 + SIGPIPE : cli_fail(c, &e, EXIT_NOT_RUN);
	} else {
		if (c->json)
			print_result_json(&s, x);
		status = session_status(x, c->json);
	}
	dsec_exec_free(x);
	session_done(&s);
	dsec_client_free(s.client);
	return status;
}

static const struct option options[] = { COMMON_LONG, EXEC_LONG, { 0 } };

static int exec_run(int argc, char **argv)
{
	struct common c = { .verb = &verb_exec };
	struct exec_args a = { 0 };
	for (int o; (o = getopt_long(argc, argv, EXEC_SHORT, options, NULL)) >= 0;) {
		int r = exec_args_take(&a, c.verb, o);
		if (r == EXIT_USAGE || (r == 1 && (r = common_option(&c, o)) >= 0))
			return r;
	}
	if (optind == argc)
		return usage_error(c.verb, "the sandbox's id is missing; `dsec ps` lists them");
	const char *id = argv[optind++];
	if (exec_args_done(&a, c.verb, argc - optind, argv + optind))
		return EXIT_USAGE;
	return run_in(&c, id, &a);
}

const struct verb verb_exec = {
	"exec", exec_run, "run a command in a sandbox",
	"usage: dsec exec ID [OPTIONS] -- CMD [ARG...]\n\n" EXEC_HELP
	"  --json              print the result and the output (base64) as one object at the end\n"
	"\nCtrl-C is passed on to the command; a second one leaves it.\n" EXEC_STATUS_HELP,
	.options = options, .completes = COMPLETES_SANDBOX
};
