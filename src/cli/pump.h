/* pump.h: joins a producer or consumer that works on a descriptor (tar_io.h, a
 * child's output) with a call of libdsec that works by callbacks.
 *
 * The worker runs on a thread of its own at the other end of a pipe. The call's
 * callback is pump_read or pump_write with the pump as its user pointer. The end:
 * pump_finish closes our end, joins the thread and tells its result. An upload
 * whose worker failed ends with an error, never with a clean end of stream.
 */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "cli/progress.h"

struct pump {
	int (*work)(int fd, void *user); /* 0 or negative errno; fd is its end */
	void *user;
	struct progress *progress; /* may be NULL */
	void (*say)(char *ret, size_t size, void *user); /* for progress; may be NULL */
	/* private */
	int fd, worker_fd, result;
	bool writes, joined;
	pthread_t thread;
};

/* worker_writes: an upload, the worker produces. */
int pump_start(struct pump *p, bool worker_writes);
ssize_t pump_read(void *buf, size_t n, void *pump);
int pump_write(const void *data, size_t n, void *pump);
int pump_finish(struct pump *p);
