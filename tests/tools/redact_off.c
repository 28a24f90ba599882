/* redact_off.c: debug_redact.h without redaction. Linked before the library into
 * build/src/cli/dsec_unredacted, which shows that the test of bundles can fail. */
#include "cli/debug_redact.h"

void redact_learn(struct redact *r, const char *value) {}
void redact_learn_key(struct redact *r, const char *key) {}
void redact_learn_object(struct redact *r, const json_t *o) {}
void redact_text(const struct redact *r, char *text, size_t n, bool keys_only) {}
void redact_done(struct redact *r) {}
json_t *redact_sandbox(const struct redact *r, const json_t *sandbox) { return json_deep_copy(sandbox); }
json_t *redact_exec(const struct redact *r, const json_t *exec) { return json_deep_copy(exec); }
