/* cli.h: what the verbs of `dsec` share.
 *
 * `dsec` is one process for one command: single-threaded but for the helper
 * threads that session.h and pump.h start. A verb is a main function of its own in
 * a file of its own; verbs.h lists them. Results go to standard output, words
 * about them to standard error, errors as "dsec: CODE: sentence".
 *
 * Exit status: 0; 1 a call failed; 2 wrong usage; run and exec: the command's own
 * status, 128 + N when signal N ended it, 125 when it could not be run at all.
 */
#pragma once
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "dsec/dsec.h"

#define EXIT_FAILED 1
#define EXIT_USAGE 2
#define EXIT_NOT_RUN 125
#define CLI_LABELS_MAX 64
#define CLI_ENV_MAX 1024

/* What the words of a verb are, for completion. */
enum completes { COMPLETES_NOTHING, COMPLETES_SANDBOX, COMPLETES_LAYER, COMPLETES_COPY, COMPLETES_FILE, COMPLETES_SHELL };

struct verb {
	const char *name;
	int (*run)(int argc, char **argv); /* argv[0] is the verb's full name */
	const char *what;                  /* one line */
	const char *usage;                 /* the whole help text */
	const struct option *options;      /* those that getopt takes */
	enum completes completes;
	const struct verb *const *below;   /* its verbs, NULL at the end */
};

/* Options that every verb takes. */
struct common {
	const char *state_dir; /* NULL: environment or default */
	bool json;
	const struct verb *verb;
};

/* Option values below 256 are letters; these are long only. */
enum { OPT_JSON = 256, OPT_STATE_DIR, OPT_HELP, OPT_FIRST_FREE };
#define COMMON_LONG                                             \
	{ "json", no_argument, NULL, OPT_JSON },                \
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR }, \
	{ "help", no_argument, NULL, OPT_HELP }

/* For an option that is none of the verb's own: takes a common one (-1: go on),
 * prints the help (0: exit with it) or complains (EXIT_USAGE: exit with it). */
int common_option(struct common *c, int option);
int usage_error(const struct verb *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* "dsec: CODE: sentence"; with json the error object instead. Returns `status`. */
int cli_fail(const struct common *c, const struct dsec_error *e, int status);
int cli_fail_with(const struct common *c, int status, const char *code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The client for a verb; says what is wrong and returns NULL otherwise. */
struct dsec_client *open_client(const struct common *c);

/* Values of options. false: not one; nothing is printed. */
bool parse_number(const char *text, double min, double max, double *ret);
bool parse_count(const char *text, uint64_t max, uint64_t *ret);
/* "30", "30s", "5m", "2h", "1d" in seconds. */
bool parse_duration(const char *text, double *ret_seconds);
/* "512", "512m", "2g", "1t" in MiB (a bare number is MiB). */
bool parse_mebibytes(const char *text, uint64_t *ret_mb);
/* "K=V"; cuts the text in two. With bare_env "K" takes the environment's value. */
bool parse_pair(char *text, bool bare_env, struct dsec_pair *ret);

/* Growing list of pairs, bounded. */
struct pairs {
	struct dsec_pair items[CLI_ENV_MAX];
	size_t n;
};
