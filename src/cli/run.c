/* run.c: `dsec run`: create, exec, remove. */
#include <signal.h>
#include "cli/create_args.h"
#include "cli/exec_args.h"
#include "cli/json_out.h"
#include "cli/session.h"
#include "cli/verbs.h"

enum { OPT_KEEP = 768 };

struct run_args {
	struct common c;
	struct create_args create;
	struct exec_args exec;
	bool keep;
};

static const struct option options[] = { COMMON_LONG, CREATE_LONG, EXEC_LONG,
					{ "keep", no_argument, NULL, OPT_KEEP }, { 0 } };

static int parse(struct run_args *a, int argc, char **argv)
{
	for (int o; (o = getopt_long(argc, argv, EXEC_SHORT, options, NULL)) >= 0;) {
		if (o == OPT_KEEP) {
			a->keep = true;
			continue;
		}
		int r = create_args_take(&a->create, a->c.verb, o);
		if (r == 1)
			r = exec_args_take(&a->exec, a->c.verb, o);
		if (r == 1 && (r = common_option(&a->c, o)) >= 0)
			return r;
		if (r == EXIT_USAGE)
			return r;
	}
	if (create_args_done(&a->create, a->c.verb))
		return EXIT_USAGE;
	return exec_args_done(&a->exec, a->c.verb, argc - optind, argv + optind) ? EXIT_USAGE : -1;
}

/* The command in the sandbox that was made for it; the exit status. */
static int run_command(struct run_args *a, struct dsec_client *client, const char *id)
{
	struct dsec_error e;
	struct dsec_exec *x = NULL;
	struct session s = { .client = client,
			     .sandbox_id = id,
			     .interactive = a->exec.interactive,
			     .terminal = a->exec.tty,
			     .stop_on_signal = true,
			     .keep = a->c.json };
	int status;
	if (session_run(&s, &a->exec.o, &x, &e) < 0) {
		if (s.stopped_by) {
			fprintf(stderr, "dsec: stopped by signal %d\n", s.stopped_by);
			status = 128 + s.stopped_by;
		} else
			status = s.output_broken ? 128 + SIGPIPE : cli_fail(&a->c, &e, EXIT_NOT_RUN);
	} else {
		if (a->c.json) {
			printf("{\"sandbox_id\":");
			json_string_out(stdout, id);
			printf(",\"exec\":%s,\"stdout_b64\":\"", x->json);
			base64_out(stdout, buf_ptr(&s.out), buf_len(&s.out));
			printf("\",\"stderr_b64\":\"");
			base64_out(stdout, buf_ptr(&s.err), buf_len(&s.err));
			printf("\"}\n");
		}
		status = session_status(x, a->c.json);
	}
	dsec_exec_free(x);
	session_done(&s);
	return status;
}

static int run_run(int argc, char **argv)
{
	struct run_args a = { .c.verb = &verb_run };
	struct dsec_sandbox *s = NULL;
	struct dsec_error e;
	int status = parse(&a, argc, argv);
	if (status >= 0)
		return status;
	struct dsec_client *client = open_client(&a.c);
	if (!client)
		return EXIT_NOT_RUN;
	/* A signal during the creation waits for its end, so that the sandbox's id is
	 * known and it can be removed. */
	session_block_signals();
	if (dsec_sandbox_create(client, &a.create.o, &s, &e) < 0) {
		status = cli_fail(&a.c, &e, EXIT_NOT_RUN);
		dsec_client_free(client);
		return status;
	}
	int sig = session_pending_signal();
	status = sig ? 128 + sig : run_command(&a, client, s->id);
	if (a.keep && !sig)
		fprintf(stderr, "dsec: kept as %s\n", s->id);
	else if (dsec_sandbox_delete(client, s->id, true, NULL, &e) < 0)
		fprintf(stderr, "dsec: the sandbox %s was not removed: %s: %s\n", s->id, e.code, e.message);
	dsec_sandbox_free(s);
	dsec_client_free(client);
	return status;
}

const struct verb verb_run = {
	"run", run_run, "run a command in a sandbox of its own",
	"usage: dsec run --env E [OPTIONS] -- CMD [ARG...]\n\n"
	"Makes a sandbox, runs the command in it and removes the sandbox.\n\n" CREATE_HELP EXEC_HELP
	"  --keep              leave the sandbox and say its id\n"
	"  --json              print the result and the output (base64) as one object at the end\n"
	"\nCtrl-C stops the command and removes the sandbox.\n" EXEC_STATUS_HELP,
	.options = options
};
