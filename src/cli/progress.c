/* progress.c: see progress.h. */
#include "cli/progress.h"
#include <stdio.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/json_out.h"

#define SHOW_EVERY_MS 200
#define WORDS_MAX 48 /* the whole fits a line of 80 */

void progress_start(struct progress *p, const char *what, bool json)
{
	*p = (struct progress){ .what = what, .start_ms = now_mono_ms(), .on = !json && isatty(STDERR_FILENO) };
	progress_add(p, 0);
}

void progress_add(struct progress *p, uint64_t bytes)
{
	char size[32], words[WORDS_MAX] = "";
	p->bytes += bytes;
	uint64_t now = now_mono_ms();
	if (!p->on || now - p->shown_ms < SHOW_EVERY_MS)
		return;
	p->shown_ms = now;
	if (p->say)
		p->say(words, sizeof(words), p->user);
	fprintf(stderr, "\r\033[K%s: %s, %llu s%s%s", p->what, format_bytes(size, p->bytes),
		(unsigned long long)((now - p->start_ms) / 1000), *words ? ", " : "", words);
	fflush(stderr);
}

void progress_end(struct progress *p)
{
	if (p->on)
		fputs("\r\033[K", stderr);
	p->on = false;
}
