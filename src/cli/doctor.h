/* doctor.h: what this host can and cannot do for DSec, and what follows.
 *
 * Every check probes the thing itself (a mount, a clone, a file), never a kernel
 * version, undoes what it made, and adds one finding. FAIL: containers cannot work
 * here; WARN: something is slower, smaller or missing. Single-threaded; probes that
 * change a process's namespaces run in a child.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define DOCTOR_FINDINGS_MAX 64

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_FAIL };

struct finding {
	const char *name;  /* stable, for programs */
	enum level level;
	char found[256];   /* what is there */
	char follows[256]; /* what follows, and the remedy; "" when all is well */
};

struct doctor {
	struct finding items[DOCTOR_FINDINGS_MAX];
	size_t n;
	bool root;
	const char *state_dir; /* where the platform's files would be */
};

void doctor_add(struct doctor *d, const char *name, enum level level, const char *follows, const char *found, ...)
	__attribute__((format(printf, 5, 6)));
/* Runs fn in a child; 0, or the negative errno that it returned. */
int doctor_in_child(int (*fn)(void *), void *arg);

/* All checks, into a struct that is zero; state_dir NULL: environment or default. */
void doctor_examine(struct doctor *d, const char *state_dir);
bool doctor_works(const struct doctor *d); /* none failed */
void doctor_json_out(const struct doctor *d, FILE *f);

void doctor_kernel(struct doctor *d);  /* namespaces, cgroups, system calls, LSMs */
void doctor_mounts(struct doctor *d);  /* overlay, EROFS, btrfs, loop devices */
void doctor_host(struct doctor *d);    /* limits, space, programs, devices */
