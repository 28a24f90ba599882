/* debug_redact.h: what must not be in a bundle for a bug report, and taking it out.
 *
 * Two lines of defence. What the server tells of sandboxes and execs is copied field
 * by field from a list of those that are known to be harmless (redact_sandbox,
 * redact_exec): a field that is new is left out. All text is searched for keys and what
 * looks like one, logs and messages also for every value that was learned: of variables
 * and labels, words of commands; what is found is overwritten with '*'.
 *
 * One bundle, one thread. Limits: REDACT_VALUES_MAX values; past it `overflow` is set
 * and logs must be left out. Values shorter than REDACT_VALUE_MIN are not searched for
 * (they would take every other word along), nor is what a log never had to quote.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define REDACT_VALUES_MAX 8192
#define REDACT_VALUE_MIN 4
#define REDACT_PIECE_MIN 8 /* of a word of a command: "--token=..." */

struct redact {
	char **values;
	size_t n, n_keys; /* the first n_keys are keys of the API */
	bool overflow; /* also: out of memory */
};

void redact_learn(struct redact *r, const char *value);
void redact_learn_key(struct redact *r, const char *key); /* before any other value */
void redact_learn_object(struct redact *r, const json_t *sandbox_or_exec);
/* In place. keys_only: what the platform itself writes by its own rules (numbers, names of states), where
 * somebody's "true" or "1000" is not a secret; what looks like a key is always taken out. */
void redact_text(const struct redact *r, char *text, size_t n, bool keys_only);
void redact_done(struct redact *r);

/* New objects; NULL: no memory. Texts in them have been through redact_text. */
json_t *redact_sandbox(const struct redact *r, const json_t *sandbox);
json_t *redact_exec(const struct redact *r, const json_t *exec);
