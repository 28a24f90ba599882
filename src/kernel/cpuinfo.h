/* cpuinfo.h: /proc/cpuinfo and CPU lists as a sandbox with fewer CPUs sees them.
 *
 * Called by the spawner while it builds its templates. Results are malloc'd and
 * the caller's. Negative errno on failure.
 */
#pragma once
#include <stdint.h>

#define CPUS_MAX 1024

uint32_t cpus_online(void); /* at least 1, at most CPUS_MAX */
/* The first n processor entries of /proc/cpuinfo, renumbered as they are there. */
int cpuinfo_first(const char *host_text, uint32_t n, char **ret);
/* "0\n" or "0-3\n", as /sys/devices/system/cpu/online has it. */
void cpu_list_first(uint32_t n, char ret[24]);
