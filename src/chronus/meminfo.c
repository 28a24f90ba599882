/* meminfo.c: the text behind the sandbox's /proc/meminfo.
 *
 * The spawner mounts a small file over /proc/meminfo; chronus fills it from the
 * sandbox's memory cgroup, so that `free` and runtimes that size their heaps see
 * the limit. The text has a constant length and goes out in one pwrite, so a
 * reader never sees half of two. Refreshed before a command starts and, while
 * commands run, every second; the pace halves down to MEMINFO_SLOW_MS while
 * usage stands still, so that thousands of idle sandboxes do not wake the node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "chronus/chronus-internal.h"

#define MEMINFO_FAST_MS 1000
#define MEMINFO_SLOW_MS 8000
#define MEMINFO_FRESH_MS 200         /* a burst of starts reads the cgroup once */
#define MEMINFO_STILL (1024 * 1024)  /* usage that moved less stands still */

static size_t read_control(int fd, char *text, size_t cap)
{
	ssize_t n = fd < 0 ? -1 : pread(fd, text, cap - 1, 0);
	text[MAX(n, 0)] = 0;
	return (size_t)MAX(n, 0);
}

/* v1 says cache, total_active_file, total_rss, ...; v2 file, active_file, anon, ...
 * Of v1 only the total_ (hierarchical) ones count. */
void meminfo_parse_stat(char *text, struct meminfo_view *m)
{
	const struct {
		const char *key;
		uint64_t *to;
	} keys[] = {
		{ "total_cache", &m->cache },
		{ "total_rss", &m->anon },
		{ "total_shmem", &m->shmem },
		{ "total_mapped_file", &m->mapped },
		{ "total_dirty", &m->dirty },
		{ "total_active_file", &m->active_file },
		{ "total_inactive_file", &m->inactive_file },
		{ "file", &m->cache },
		{ "anon", &m->anon },
		{ "shmem", &m->shmem },
		{ "file_mapped", &m->mapped },
		{ "file_dirty", &m->dirty },
		{ "active_file", &m->active_file },
		{ "inactive_file", &m->inactive_file },
		{ "slab_reclaimable", &m->slab_reclaimable },
		{ "slab", &m->slab },
	};
	bool v1 = strstr(text, "total_cache ") != NULL;
	char *save = NULL;
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *space = strchr(line, ' ');
		if (!space || (v1 && strncmp(line, "total_", 6)))
			continue;
		*space = 0;
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
			if (!strcmp(line, keys[i].key))
				*keys[i].to = strtoull(space + 1, NULL, 10);
	}
}

size_t meminfo_format(const struct meminfo_view *m, char *p, size_t cap)
{
	uint64_t used = MIN(m->usage, m->limit), free_ = m->limit - used;
	uint64_t easy = MIN(m->active_file + m->inactive_file + m->slab_reclaimable, used);
	uint64_t file = m->cache > m->shmem ? m->cache - m->shmem : 0;
	const struct {
		const char *key;
		uint64_t bytes;
	} rows[] = {
		{ "MemTotal:", m->limit },
		{ "MemFree:", free_ },
		{ "MemAvailable:", free_ + easy },
		{ "Buffers:", 0 },
		{ "Cached:", m->cache },
		{ "SwapCached:", 0 },
		{ "Active:", m->active_file + m->anon },
		{ "Inactive:", m->inactive_file },
		{ "Active(anon):", m->anon },
		{ "Inactive(anon):", 0 },
		{ "Active(file):", m->active_file },
		{ "Inactive(file):", m->inactive_file },
		{ "SwapTotal:", 0 },
		{ "SwapFree:", 0 },
		{ "Dirty:", MIN(m->dirty, file) },
		{ "Writeback:", 0 },
		{ "AnonPages:", m->anon },
		{ "Mapped:", m->mapped },
		{ "Shmem:", m->shmem },
		{ "Slab:", m->slab },
		{ "SReclaimable:", m->slab_reclaimable },
		{ "SUnreclaim:", m->slab > m->slab_reclaimable ? m->slab - m->slab_reclaimable : 0 },
		{ "CommitLimit:", m->limit },
		{ "Committed_AS:", m->anon + m->shmem },
	};
	size_t n = 0;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int k = snprintf(p + n, cap - n, "%-16s%12llu kB\n", rows[i].key,
				 (unsigned long long)(rows[i].bytes / 1024));
		if (k < 0 || (size_t)k >= cap - n)
			break;
		n += (size_t)k;
	}
	return n;
}

void meminfo_refresh(struct chronus *c, uint64_t now)
{
	char text[8192];
	if (c->boot.meminfo_fd < 0) {
		c->meminfo_next = now + MEMINFO_SLOW_MS; /* still the pace of exec_tidy */
		return;
	}
	if (c->meminfo_at && now - c->meminfo_at < MEMINFO_FRESH_MS)
		return;
	struct meminfo_view m = { .limit = c->boot.memory_bytes };
	if (read_control(c->boot.memory_usage_fd, text, sizeof(text)))
		m.usage = strtoull(text, NULL, 10);
	uint64_t moved = m.usage > c->meminfo_usage ? m.usage - c->meminfo_usage : c->meminfo_usage - m.usage;
	bool still = c->meminfo_at && moved < MEMINFO_STILL;
	c->meminfo_step_ms = still ? MIN(c->meminfo_step_ms * 2, (uint64_t)MEMINFO_SLOW_MS) : MEMINFO_FAST_MS;
	c->meminfo_at = now;
	c->meminfo_next = now + c->meminfo_step_ms;
	if (still && c->meminfo_step_ms == MEMINFO_SLOW_MS)
		return;
	c->meminfo_usage = m.usage;
	read_control(c->boot.memory_stat_fd, text, sizeof(text));
	meminfo_parse_stat(text, &m);
	size_t n = meminfo_format(&m, text, sizeof(text));
	if (pwrite(c->boot.meminfo_fd, text, n, 0) < 0)
		c->boot.meminfo_fd = -1; /* the file is gone or full: nothing more to keep fresh */
}
