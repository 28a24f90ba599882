/* options.h: the command line of `dsecd up`. Parsed once, borrowed from argv. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define UP_LISTEN_DEFAULT "127.0.0.1:7600"
#define UP_SANDBOXES_MAX 16384

struct up_options {
	const char *state_dir;
	const char *listen;
	uint32_t max_sandboxes; /* 0: the edge's own default */
	int32_t pool;           /* -1: the edge's own default */
	bool detach;
	bool json;
	bool help;
};

/* -EINVAL after a sentence on stderr. */
int up_options_parse(int argc, char **argv, struct up_options *ret);
void up_options_help(void);
