/* debug.h: the archive of `dsec debug bundle` and the parts that fill it.
 *
 * Parts make a text each and give it to bundle_add, the only way into the archive:
 * it goes through redact_text there. What cannot be had is a note, never an error.
 * One thread. debug_redact.h says what is taken out; the limits are here.
 */
#pragma once
#include <archive.h>
#include "cli/cli.h"
#include "cli/debug_redact.h"

#define BUNDLE_LOG_BYTES (256u << 10) /* of each log its tail */
#define BUNDLE_LOGS_MAX 64
#define BUNDLE_PART_BYTES (8u << 20)  /* any part is cut there */
#define BUNDLE_SANDBOXES_MAX 2048
#define BUNDLE_EXECS_OF_MAX 256       /* sandboxes whose commands are asked for */
#define BUNDLE_CGROUPS_MAX 4096

struct bundle {
	struct redact redact;
	struct archive *archive;
	char name[64];     /* the directory that everything is in */
	const char *state_dir;
	FILE *notes;
	char *notes_text;  /* owned */
	size_t n_notes;
	bool learned;      /* the server told of its sandboxes: their values are known */
	bool failed;       /* the archive could not be written */
};

/* A part is written to bundle_part's stream and ended by bundle_add, which frees it. */
struct part {
	FILE *f;
	char *text;
	size_t n;
};
bool part_open(struct part *p); /* false: no memory */
/* free_text: others than we may have put words into it (redact_text). */
void bundle_add(struct bundle *b, const char *name, struct part *p, bool free_text);
void bundle_note(struct bundle *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Asks the server; learns what must not be shown. Before the logs. client may be NULL. */
void bundle_server(struct bundle *b, struct dsec_client *client);
void bundle_kernel(struct bundle *b);
void bundle_cgroups(struct bundle *b);
void bundle_mounts(struct bundle *b);
void bundle_store(struct bundle *b);
void bundle_logs(struct bundle *b);
