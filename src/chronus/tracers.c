/* tracers.c: whoever keeps the death of a command to himself.
 *
 * The kernel tells a tracer of a death first, and the parent only when the tracer
 * has looked or is gone; one that asked for PTRACE_EVENT_EXIT even holds the dying
 * up. So root inside could keep a killed command from ever being reaped. Who does
 * that is killed too, and so is who traces him, since his own way out may be held.
 *
 * /proc is the sandbox's, but mounted by the spawner and locked: its entries are
 * the kernel's word. The numbers in it are of our pid namespace. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "chronus/chronus-internal.h"

#define CHAIN_MAX 64      /* tracers of tracers a call; the next call starts where that one ended */
#define THREADS_MAX 1024  /* looked at a call */
#define STATUS_BYTES 4096

/* The tracer of a thread, dead or alive; 0: none, or not one of this sandbox. */
static pid_t tracer_of(int tasks, const char *tid)
{
	char path[300], text[STATUS_BYTES + 1];
	snprintf(path, sizeof(path), "%.200s/status", tid);
	_cleanup_close_ int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read_all(fd, text, STATUS_BYTES);
	text[MAX(n, 0)] = 0;
	/* The name comes first and cannot hold a newline that is not escaped. */
	const char *line = strstr(text, "\nTracerPid:");
	return line ? (pid_t)strtol(line + strlen("\nTracerPid:"), NULL, 10) : 0;
}

/* Kills the tracers of a process's threads; the last of them, 0: none. */
static pid_t kill_tracers(pid_t pid, unsigned *threads)
{
	char path[40];
	pid_t last = 0;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	_cleanup_closedir_ DIR *d = opendir(path);
	struct dirent *de;
	while (d && (de = readdir(d)) && *threads < THREADS_MAX) {
		if (*de->d_name == '.')
			continue;
		++*threads;
		pid_t tracer = tracer_of(dirfd(d), de->d_name);
		if (tracer > 1 && tracer != last) {
			kill(tracer, SIGKILL);
			last = tracer;
		}
	}
	return last;
}

pid_t tracers_kill(pid_t pid, pid_t from)
{
	unsigned threads = 0;
	if (from <= 1)
		from = pid;
	for (int i = 0; i < CHAIN_MAX && from; i++)
		from = kill_tracers(from, &threads);
	return from;
}
