/* spool.h: the kept output of one stream of one exec, in a file.
 *
 * Called by exec code on the edge's loop; writes are buffered write(2)s. Bounded:
 * of a stream longer than its limit the first half and the last half are kept,
 * and the true total is known. The file is made by the first byte and its size
 * bounded by the limit plus SPOOL_SLACK. Descriptors are a budget of the set:
 * the least recently used are closed and opened again when needed.
 *
 * Offsets are absolute positions in the stream. What is kept is
 * [0, head) and [end - tail, end); [end, total) is what could not be stored
 * (disk full): from then on bytes are counted, not kept. After kill -9 the file
 * alone says how far it goes (spool_recover).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/id.h"
#include "edge/list.h"

#define SPOOL_LIMIT_DEFAULT (10ull * 1024 * 1024)
#define SPOOL_LIMIT_MAX (1024ull * 1024 * 1024)
/* Largest piece written at once; what it overwrites is never what is promised. */
#define SPOOL_SLACK (64 * 1024)

struct spool_set {
	int dirfd;        /* borrowed: all files are in it, by spool_file_name */
	struct link open; /* spools with a descriptor, least recently used first */
	unsigned n_open, max_open;
};

struct spool {
	struct spool_set *set;
	const char *sandbox, *exec, *suffix; /* borrowed; the file's name */
	struct link link;                    /* in set->open */
	int fd;                              /* -1: closed */
	uint64_t head, tail;                 /* sizes of the two halves */
	uint64_t total;                      /* bytes seen */
	uint64_t end;                        /* bytes stored before storing failed */
};

/* SANDBOX.EXEC.SUFFIX. One flat directory: an inode a stream, and none for each
 * sandbox, whose making would keep the first byte of output waiting. A sandbox's id
 * holds no '.', an exec's may. */
#define SPOOL_NAME_MAX (SANDBOX_ID_MAX + 1 + EXEC_ID_MAX + 8)
void spool_file_name(const char *sandbox, const char *exec, const char *suffix, char ret[SPOOL_NAME_MAX]);

void spool_set_init(struct spool_set *set, int dirfd, unsigned max_open);
void spool_init(struct spool *s, struct spool_set *set, const char *sandbox, const char *exec,
		const char *suffix, uint64_t limit);
void spool_close(struct spool *s); /* the descriptor only */
void spool_remove(struct spool *s); /* and the file */

/* Counts all n bytes and stores them if it can; negative errno the first time
 * storing fails, 0 otherwise (later bytes are counted only). */
int spool_append(struct spool *s, const void *p, size_t n);
/* The stream is known to go on at `at` (>= total): what is before is lost. */
void spool_skip(struct spool *s, uint64_t at);
/* Sets total and end from the file; 0 also when there is none. */
int spool_recover(struct spool *s);

/* From position *pos: if it lies in a gap, *pos moves to the gap's end. Then up
 * to n kept bytes. Returns their number (0: at the end) or a negative errno. */
long spool_read(struct spool *s, uint64_t *pos, void *p, size_t n);
bool spool_truncated(const struct spool *s);
uint64_t spool_stored(const struct spool *s); /* bytes of disk, roughly */
