/* verbs.h: every verb of `dsec`, one file each. The table in main.c is made of it. */
#pragma once
#include "cli/cli.h"

extern const struct verb verb_up, verb_down, verb_doctor, verb_run, verb_create, verb_exec, verb_ps, verb_inspect,
	verb_logs, verb_cp, verb_rm, verb_layer, verb_version, verb_completion, verb_debug;
/* Below `dsec layer`. */
extern const struct verb verb_layer_ls, verb_layer_build, verb_layer_import, verb_layer_inspect, verb_layer_rm;

/* Below `dsec debug`. */
extern const struct verb verb_debug_bundle;
extern const struct verb *const all_verbs[]; /* main.c; NULL at the end */

/* Runs argv[1] out of a table; `whole` is the name before it, "" or "layer". */
int run_verb(const struct verb *const *table, size_t n, const char *whole, int argc, char **argv);
