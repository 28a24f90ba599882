/* pidfile.h: finding a program of an earlier supervisor again, safely.
 *
 * RUN/NAME.pid holds "PID START_TICKS BOOT_ID". The three together name one
 * process for ever: a reused pid has other ticks, another boot another id. Used
 * by the supervisor, single-threaded. Nothing here is kept open but what is
 * returned.
 */
#pragma once
#include <sys/types.h>

#define PIDFILE_NAME_MAX 32
#define PIDFILE_COUNT_MAX 1024 /* programs of one state directory; more are an error */

int pidfile_write(const char *run_dir, const char *name, pid_t pid);
void pidfile_remove(const char *run_dir, const char *name);
/* A pidfd of exactly the process that was written down. -ESRCH: it is gone (or
 * the file is absent, damaged or of another boot). */
int pidfile_open(const char *run_dir, const char *name, pid_t *ret_pid);
/* Calls cb with each name that has a pid file in run_dir. */
int pidfile_each(const char *run_dir, int (*cb)(const char *name, void *user), void *user);
