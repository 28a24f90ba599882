/* progress.h: how far long work is, on standard error, only when a terminal looks
 * and nobody asked for JSON. One line, rewritten a few times a second. One thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct progress {
	const char *what; /* borrowed */
	uint64_t bytes, shown_ms, start_ms;
	bool on;
	/* What goes on besides, in a few printable words or "". NULL: nothing. Set after the start. */
	void (*say)(char *ret, size_t size, void *user);
	void *user;
};

void progress_start(struct progress *p, const char *what, bool json);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p); /* takes the line away */
