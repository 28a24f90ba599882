/* journal.h: an append-only file of checked records that outlives kill -9.
 *
 * Used by record.c on the edge's loop thread. A record is opaque bytes here.
 * journal_append returns after write(2): the record survives the death of any
 * process. journal_sync adds power loss: fdatasync in a worker thread, one at a
 * time, shared by all who asked before it began (group commit). Nothing here
 * blocks on the disk but buffered writes.
 *
 * A failed append leaves the file as it was, so the caller may refuse and go on;
 * if even that cannot be had the journal is broken and every later append says
 * so (-EIO). The directory is owned by the caller and must outlive the journal.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#define JOURNAL_RECORD_MAX (4u * 1024 * 1024)

struct journal;

struct journal_damage {
	uint64_t torn_bytes;    /* cut off the end: a write that did not finish */
	uint64_t skipped_bytes; /* unreadable in the middle; whole records follow them */
};

/* Opens or makes dirfd/name and replays every whole record in order; a negative
 * result of `replay` ends it with that error. The file is then ready to append. */
int journal_open(int dirfd, const char *name,
		 int (*replay)(const void *p, size_t n, void *user), void *user,
		 struct journal **ret, struct journal_damage *ret_damage);
void journal_close(struct journal *j); /* NULL accepted; no sync may be pending */

int journal_append(struct journal *j, const void *p, size_t n);
/* cb once, when all appended so far is on the disk (0) or could not be put there. */
int journal_sync(struct journal *j, uv_loop_t *loop, void (*cb)(int err, void *user), void *user);
/* No fdatasync runs and none is asked for. */
int journal_idle(const struct journal *j);

/* Compaction: begin, put every live record, end. Records appended before the end
 * has taken effect go to both files. With a loop the fdatasync before the rename
 * is done by a worker; without (start-up) here. A failure keeps the old file. */
int journal_rewrite_begin(struct journal *j);
int journal_rewrite_put(struct journal *j, const void *p, size_t n);
int journal_rewrite_end(struct journal *j, uv_loop_t *loop);
/* The file has grown enough since the last compaction to be worth another. */
int journal_wants_rewrite(const struct journal *j);
uint64_t journal_size(const struct journal *j);
