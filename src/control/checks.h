/* checks.h: checks of field groups that several bodies share. Loop thread. */
#pragma once
#include "control/json_in.h"
#include "edge.pb-c.h"

/* {"K": "V", ...} as key-value messages: one block of memory, freed with free();
 * strings stay borrowed from the object. Bounds: limits.h (ENV_*). NULL object: 0. */
int check_env(struct json_in *in, const char *field, Dsec__Edge__KeyValue ***ret, size_t *ret_n);
/* Same for labels: keys as id_name_valid. */
int check_labels(struct json_in *in, const char *field, Dsec__Edge__KeyValue ***ret, size_t *ret_n);
/* "ls", "KILL", "SIGKILL" or a number, 1..LIMIT_SIGNAL_MAX. */
void check_signal(struct json_in *in, const char *field, uint32_t *ret);
/* "user", "user:group", "uid", "uid:gid": shape only, existence is the edge's. */
void check_user(struct json_in *in, const char *field, const char **ret);
/* "0644": octal text, at most 07777. */
bool mode_parse(const char *text, uint32_t *ret);
/* "k=v" of a list's label parameter. The parts point into text, which is cut. */
bool label_split(char *text, char **ret_key, char **ret_value);
