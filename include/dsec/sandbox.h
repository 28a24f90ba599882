/* dsec/sandbox.h: making, finding and removing sandboxes.
 *
 * Threads, blocking and errors as in dsec/client.h. Strings inside a struct
 * belong to it and live until its _free. Times are seconds since 1970, 0 = not
 * (yet) known.
 */
#ifndef DSEC_SANDBOX_H
#define DSEC_SANDBOX_H
#include "dsec/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Only environment is needed; 0, NULL and false mean the server's default. All
 * strings are borrowed for the call. */
struct dsec_create_options {
	const char *environment; /* "name", "name@version" or "name:tag" */
	const char *backend;     /* "container" */
	double cpu;              /* cores */
	uint64_t memory_mb, disk_mb;
	unsigned pids;
	double ttl_seconds;      /* lifetime from now */
	double idle_ttl_seconds; /* without use */
	const struct dsec_pair *labels;
	size_t n_labels;
	const struct dsec_pair *env; /* for every command */
	size_t n_env;
	const char *cwd, *user, *hostname; /* cwd and user: for every command */
	bool no_new_privileges;
	unsigned timeout_ms; /* of this call; 0: the client's */
	/* 1 to 64 letters, digits, '-', '_', '.', or NULL. The same key again gives the same
	 * sandbox, as it is by then, so a create with one may be repeated. */
	const char *idempotency_key;
};

struct dsec_sandbox {
	const char *id, *state, *reason, *message, *backend, *edge, *environment;
	const char *cwd, *user, *hostname;
	double cpu;
	uint64_t memory_mb, disk_mb;
	unsigned pids;
	double created_at, running_at, end_at, idle_ttl_seconds, idle_end_at, stopped_at;
	bool no_new_privileges;
	const struct dsec_pair *labels;
	size_t n_labels;
	uint64_t memory_bytes, memory_peak_bytes, disk_bytes, pids_used, oom_kills;
	double cpu_seconds;
	unsigned execs_running;
	const char *json; /* the server's whole answer about it */
	void *internal;
};

struct dsec_sandbox_list {
	struct dsec_sandbox *items; /* owned by the list */
	size_t n;
};

/* Returns when the sandbox runs. */
DSEC_API int dsec_sandbox_create(struct dsec_client *c, const struct dsec_create_options *o,
				 struct dsec_sandbox **ret, struct dsec_error *e);
DSEC_API int dsec_sandbox_get(struct dsec_client *c, const char *id, struct dsec_sandbox **ret,
			      struct dsec_error *e);
/* Those that carry all the labels (n_labels may be 0). */
DSEC_API int dsec_sandbox_list(struct dsec_client *c, const struct dsec_pair *labels, size_t n_labels,
			       bool include_stopped, struct dsec_sandbox_list **ret, struct dsec_error *e);
/* Stops and removes; success also when it has stopped before. wait: returns when
 * it is gone. ret may be NULL. */
DSEC_API int dsec_sandbox_delete(struct dsec_client *c, const char *id, bool wait, struct dsec_sandbox **ret,
				 struct dsec_error *e);
/* From now; a negative value leaves that one as it is. ret may be NULL. */
DSEC_API int dsec_sandbox_set_ttl(struct dsec_client *c, const char *id, double ttl_seconds,
				  double idle_ttl_seconds, struct dsec_sandbox **ret, struct dsec_error *e);

DSEC_API void dsec_sandbox_free(struct dsec_sandbox *s);
DSEC_API void dsec_sandbox_list_free(struct dsec_sandbox_list *l);

#ifdef __cplusplus
}
#endif
#endif
