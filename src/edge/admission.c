/* admission.c: see admission.h.
 *
 * By what is there, not by the sum of what was asked for: most sandboxes use a
 * small part of their limits. So the memory that counts is what the kernel calls
 * available now, less a reserve for the node itself.
 */
#include "edge/admission.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/fdio.h"

#define ADMISSION_SAMPLE_MS 500
#define MEMORY_RESERVE_BYTES (256ull << 20)
#define MEMORY_RESERVE_SHARE 32 /* a 32nd of all memory, if that is more */
#define RETRY_FULL_MS 2000
#define RETRY_PRESSURE_MS 1000
#define RETRY_START_MS 500

static uint64_t meminfo_kib(const char *text, const char *key)
{
	const char *p = strstr(text, key);
	return p ? strtoull(p + strlen(key), NULL, 10) : 0;
}

void admission_sample(struct node *n)
{
	uint64_t now = now_mono_ms();
	if (n->pressure_checked_ms && now < n->pressure_checked_ms + ADMISSION_SAMPLE_MS)
		return;
	_cleanup_free_ char *text = NULL;
	if (read_file_at(AT_FDCWD, "/proc/meminfo", 64 * 1024, &text, NULL) < 0)
		return;
	n->pressure_checked_ms = now;
	n->memory_total = meminfo_kib(text, "MemTotal:") * 1024;
	n->memory_available = meminfo_kib(text, "MemAvailable:") * 1024;
}

int admission_check(struct node *n, uint64_t memory_bytes, struct dsec_error *e, uint32_t *ret_retry_ms)
{
	*ret_retry_ms = RETRY_START_MS;
	if (n->shutting_down)
		return dsec_error_set(e, -ESHUTDOWN, DSEC_E_EDGE_UNAVAILABLE, "the edge is shutting down");
	if (!n->admitting)
		return dsec_error_set(e, -EAGAIN, DSEC_E_OVERLOADED, "the edge is still starting");
	*ret_retry_ms = RETRY_FULL_MS;
	if (n->n_live >= n->max_sandboxes)
		return dsec_error_set(e, -EBUSY, DSEC_E_CAPACITY,
				      "the edge has its %u sandboxes (creating and removing ones count)",
				      n->max_sandboxes);
	*ret_retry_ms = RETRY_PRESSURE_MS;
	if (n->n_pending >= EDGE_PENDING_MAX)
		return dsec_error_set(e, -EBUSY, DSEC_E_OVERLOADED, "%u creates wait already", n->n_pending);
	admission_sample(n);
	uint64_t reserve = MAX(MEMORY_RESERVE_BYTES, n->memory_total / MEMORY_RESERVE_SHARE);
	if (n->memory_total && n->memory_available < reserve)
		return dsec_error_set(e, -EBUSY, DSEC_E_OVERLOADED,
				      "the node is short of memory (%llu MiB available)",
				      (unsigned long long)(n->memory_available >> 20));
	return 0;
}
