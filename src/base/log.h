/* log.h: one line a message on stderr: "TIME LEVEL PROGRAM: words".
 *
 * Only the top of a program logs above debug, and an error once; libraries
 * return it instead. A line is one write(2), so lines of several processes that
 * share a file do not mix. Level from DSEC_LOG (error, warn, info, debug),
 * default info. Any thread.
 */
#pragma once

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_init(const char *program); /* borrowed, kept */
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...) log_line(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)
