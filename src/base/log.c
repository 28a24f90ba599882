/* log.c: see log.h. */
#include "base/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOG_LINE_MAX 2048 /* longer lines are cut */

static const char *const names[] = { "error", "warn", "info", "debug" };
static const char *program = "dsec";
static int threshold = LOG_LEVEL_INFO;

void log_init(const char *name)
{
	program = name;
	const char *want = getenv("DSEC_LOG");
	for (int i = 0; want && i < 4; i++)
		if (!strcmp(want, names[i]))
			threshold = i;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	if ((int)level > threshold)
		return;
	int saved = errno;
	char line[LOG_LINE_MAX];
	struct timespec ts;
	struct tm tm;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	size_t n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ %-5s %s: ", ts.tv_nsec / 1000000,
			      names[level], program);
	va_list ap;
	va_start(ap, fmt);
	errno = saved; /* for %m */
	int k = vsnprintf(line + n, sizeof(line) - n, fmt, ap);
	va_end(ap);
	n = k < 0 ? n : n + (size_t)k;
	if (n > sizeof(line) - 1)
		n = sizeof(line) - 1;
	line[n++] = '\n';
	ssize_t w = write(STDERR_FILENO, line, n);
	(void)w;
	errno = saved;
}
