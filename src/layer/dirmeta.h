/* dirmeta.h: modes and times of directories, kept until everything is unpacked.
 *
 * A directory's time changes with every entry made in it and its mode may forbid
 * making them, so untar.c applies both last. Also adds the mount points that
 * make a tree usable as a sandbox's root. Plain memory, one owner.
 */
#pragma once
#include <stdint.h>
#include <time.h>
#include "base/error.h"
#include "base/hashmap.h"

struct dirmeta {
	struct hashmap by_path; /* of struct dirmeta_entry */
};

int dirmeta_set(struct dirmeta *d, const char *path, uint32_t mode, int64_t mtime, uint32_t mtime_nsec);
int dirmeta_implicit(struct dirmeta *d, const char *path); /* 0755, time 0, unless known already */
/* Adds what every root needs (/proc /sys /dev /dev/shm /dev/pts /tmp /run), then
 * applies all. *files grows by the directories added. */
int dirmeta_finish(struct dirmeta *d, int stage_fd, uint64_t *files, struct dsec_error *e);
void dirmeta_done(struct dirmeta *d);
