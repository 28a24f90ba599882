/* cpuinfo.c: see cpuinfo.h. */
#include "kernel/cpuinfo.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint32_t cpus_online(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	if (n < 1)
		return 1;
	return n > CPUS_MAX ? CPUS_MAX : (uint32_t)n;
}

/* Entries are blocks that end with an empty line. Some architectures add a block
 * without a "processor" line at the end; it describes the machine, not a CPU, and
 * is left out. */
int cpuinfo_first(const char *host_text, uint32_t n, char **ret)
{
	const char *p = host_text;
	for (uint32_t i = 0; i < n; i++) {
		const char *end = strstr(p, "\n\n");
		if (!end)
			break;
		p = end + 2;
	}
	if (p == host_text)
		return -EBADMSG;
	char *copy = strndup(host_text, (size_t)(p - host_text));
	if (!copy)
		return -ENOMEM;
	*ret = copy;
	return 0;
}

void cpu_list_first(uint32_t n, char ret[24])
{
	if (n <= 1)
		snprintf(ret, 24, "0\n");
	else
		snprintf(ret, 24, "0-%u\n", n - 1);
}
