/* tail N: the last N lines of standard input, as far as 64 KiB hold them. */
#include "ring.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	static char buffer[65536], line[4096];
	struct ring r;
	if (argc != 2)
		return 2;
	size_t want = strtoul(argv[1], NULL, 10);
	ring_init(&r, buffer, sizeof(buffer));
	while (fgets(line, sizeof(line), stdin))
		ring_write(&r, line, strlen(line));
	size_t pos = 0, n, i = 0;
	while ((n = ring_next(&r, &pos, line, sizeof(line))) > 0)
		if (i++ > ring_count(&r) - want)
			fwrite(line, 1, n, stdout);
	return 0;
}
