/* journal.c: see journal.h.
 *
 * Theory of operation. A record is a 16-byte header (magic, length, hash) and
 * its bytes, written by one writev(2). The hash covers the position in the file,
 * the length and the bytes, so a record that was moved, or an old one that shows
 * through, is not taken for a whole one.
 *
 * Reading goes record by record. Where none is whole, the next position that
 * holds a whole one is searched: if there is one, what lies between was damaged
 * (skipped, reported); if there is none, it is the torn end of the last write,
 * and cut off.
 *
 * Invariants
 *  J1 Appending happens at j->size, which is the end of the last whole record; a
 *     failed append truncates back to it or marks the journal broken.
 *  J2 While a rewrite is under way every append goes to both files, so the new
 *     one never lacks what was acknowledged. It takes the old one's name only
 *     after its bytes are on the disk.
 *  J3 A sync covers what was appended before its fdatasync began: waiters that
 *     come later wait for the next one. A sync during which the file was replaced
 *     is done again, and the first one after it also syncs the directory.
 */
#include "edge/journal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fdio.h"
#include "edge/list.h"

#define RECORD_MAGIC 0x4c4e524au /* "JRNL" in a little-endian file */
#define REWRITE_MIN_BYTES (8u * 1024 * 1024)
#define REWRITE_GROWTH 4 /* times the size after the last compaction */
#define REWRITE_CHUNK (256 * 1024) /* records put are gathered up to here */
#define FILE_NAME_MAX 64
#define TAKE_FLAG(f)         \
	({                   \
		bool t_ = f; \
		(f) = false; \
		t_;          \
	})

struct record_header {
	uint32_t magic, length;
	uint64_t hash;
};

struct file {
	int fd;        /* owned; -1: none */
	uint64_t size; /* J1 */
};

struct sync_wait {
	struct link link;
	void (*cb)(int err, void *user);
	void *user;
};

struct journal {
	int dirfd; /* borrowed */
	char name[FILE_NAME_MAX], next_name[FILE_NAME_MAX + 4];
	struct file now, next; /* next: being rewritten */
	struct buf gathered;   /* for next, at its end; not in next.size */
	bool broken, next_ending;
	uint64_t compacted_size;
	struct link waiting, syncing; /* of struct sync_wait */
	bool sync_runs, sync_dir;
	bool dir_dirty;       /* a rename is not on the disk yet */
	uint32_t generation, sync_generation; /* counts files under our name */
	int sync_fd, sync_err, next_err; /* used by the worker while it runs */
	uv_work_t sync_work, next_work;
};

static uint64_t record_hash(uint64_t at, const void *p, size_t n)
{
	uint64_t seed = at ^ ((uint64_t)n << 40);
	return XXH3_64bits_withSeed(p, n, seed);
}

/* Length of the whole record at `at`, 0 if there is none. */
static size_t record_at(const uint8_t *base, uint64_t size, uint64_t at)
{
	struct record_header h;
	if (size - at < sizeof(h))
		return 0;
	memcpy(&h, base + at, sizeof(h));
	if (h.magic != RECORD_MAGIC || h.length > JOURNAL_RECORD_MAX || h.length > size - at - sizeof(h))
		return 0;
	if (h.hash != record_hash(at, base + at + sizeof(h), h.length))
		return 0;
	return sizeof(h) + h.length;
}

/* The next position from `at` on with a whole record; `size` if there is none. */
static uint64_t find_record(const uint8_t *base, uint64_t size, uint64_t at)
{
	const uint32_t magic = RECORD_MAGIC;
	while (at < size) {
		const uint8_t *p = memmem(base + at, size - at, &magic, sizeof(magic));
		if (!p)
			return size;
		at = (uint64_t)(p - base);
		if (record_at(base, size, at))
			return at;
		at++;
	}
	return size;
}

static int replay_bytes(const uint8_t *base, uint64_t size, uint64_t *ret_end, struct journal_damage *damage,
			int (*replay)(const void *, size_t, void *), void *user)
{
	uint64_t at = 0;
	while (at < size) {
		size_t n = record_at(base, size, at);
		if (!n) {
			uint64_t next = find_record(base, size, at);
			if (next == size) {
				damage->torn_bytes = size - at;
				break;
			}
			damage->skipped_bytes += next - at;
			at = next;
			continue;
		}
		int r = replay(base + at + sizeof(struct record_header), n - sizeof(struct record_header), user);
		if (r < 0)
			return r;
		at += n;
	}
	*ret_end = at;
	return 0;
}

static int replay_file(struct file *f, struct journal_damage *damage,
		       int (*replay)(const void *, size_t, void *), void *user)
{
	struct stat st;
	if (fstat(f->fd, &st) < 0)
		return -errno;
	if (!st.st_size)
		return 0;
	void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, f->fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	int r = replay_bytes(base, (uint64_t)st.st_size, &f->size, damage, replay, user);
	munmap(base, (size_t)st.st_size);
	if (!r && damage->torn_bytes && ftruncate(f->fd, (off_t)f->size) < 0)
		r = -errno;
	return r;
}

int journal_open(int dirfd, const char *name, int (*replay)(const void *, size_t, void *), void *user,
		 struct journal **ret, struct journal_damage *ret_damage)
{
	_cleanup_free_ struct journal *j = calloc(1, sizeof(*j));
	if (!j)
		return -ENOMEM;
	if (strlen(name) >= FILE_NAME_MAX)
		return -ENAMETOOLONG;
	strcpy(j->name, name);
	snprintf(j->next_name, sizeof(j->next_name), "%s.new", name);
	j->dirfd = dirfd;
	j->next.fd = -1;
	list_init(&j->waiting);
	list_init(&j->syncing);
	if (unlinkat(dirfd, j->next_name, 0) < 0 && errno != ENOENT)
		return -errno;
	j->now.fd = openat(dirfd, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (j->now.fd < 0)
		return -errno;
	*ret_damage = (struct journal_damage){ 0 };
	int r = replay_file(&j->now, ret_damage, replay, user);
	if (r < 0) {
		close(j->now.fd);
		return r;
	}
	*ret = TAKE_PTR(j);
	return 0;
}

void journal_close(struct journal *j)
{
	if (!j)
		return;
	base_close(j->now.fd);
	if (j->next.fd >= 0) {
		close(j->next.fd);
		unlinkat(j->dirfd, j->next_name, 0);
	}
	buf_done(&j->gathered);
	free(j);
}

static int file_append(struct file *f, const void *p, size_t n)
{
	struct record_header h = { RECORD_MAGIC, (uint32_t)n, record_hash(f->size, p, n) };
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)p, n } };
	size_t all = sizeof(h) + n;
	ssize_t k;
	do
		k = pwritev(f->fd, iov, 2, (off_t)f->size);
	while (k < 0 && errno == EINTR);
	if (k == (ssize_t)all) {
		f->size += all;
		return 0;
	}
	int err = k < 0 ? errno : ENOSPC; /* a short write on a regular file: no room */
	if (ftruncate(f->fd, (off_t)f->size) < 0)
		return -EIO; /* J1: a torn record would hide what follows */
	return -err;
}

static void rewrite_abandon(struct journal *j)
{
	if (j->next.fd < 0)
		return;
	close(j->next.fd);
	unlinkat(j->dirfd, j->next_name, 0);
	buf_done(&j->gathered);
	j->next = (struct file){ .fd = -1 };
	/* The next try comes after as much growth again, not at once. */
	j->compacted_size = j->now.size;
}

/* Writes what was gathered; the records in it were hashed for this place. */
static int gathered_flush(struct journal *j)
{
	int r = pwrite_all(j->next.fd, buf_ptr(&j->gathered), buf_len(&j->gathered), (off_t)j->next.size);
	if (r < 0)
		return r;
	j->next.size += buf_len(&j->gathered);
	buf_reset(&j->gathered);
	return 0;
}

int journal_append(struct journal *j, const void *p, size_t n)
{
	if (n > JOURNAL_RECORD_MAX)
		return -E2BIG;
	if (j->broken)
		return -EIO;
	int r = file_append(&j->now, p, n);
	if (r == -EIO)
		j->broken = true;
	if (r < 0)
		return r;
	/* J2. While the worker holds the new file its failure is noted, not acted on. */
	if (j->next.fd >= 0 && !j->next_err) {
		j->next_err = gathered_flush(j);
		if (!j->next_err)
			j->next_err = file_append(&j->next, p, n);
		if (j->next_err && !j->next_ending)
			rewrite_abandon(j);
	}
	return 0;
}

/* --- group commit --- */

static void sync_start(struct journal *j, uv_loop_t *loop);

static void sync_job(uv_work_t *w)
{
	struct journal *j = w->data;
	j->sync_err = fdatasync(j->sync_fd) < 0 ? -errno : 0;
	if (!j->sync_err && j->sync_dir && fsync(j->dirfd) < 0)
		j->sync_err = -errno;
}

static void sync_done(uv_work_t *w, int status)
{
	struct journal *j = w->data;
	int err = status < 0 ? status : j->sync_err;
	struct link done;
	list_init(&done);
	close(j->sync_fd);
	j->sync_runs = false;
	if (!err && j->sync_generation != j->generation)
		list_splice(&j->waiting, &j->syncing); /* the file was replaced: once more */
	else
		list_splice(&done, &j->syncing);
	if (!list_empty(&j->waiting))
		sync_start(j, w->loop);
	list_for_each(wait, &done, struct sync_wait, link) {
		list_drop(&wait->link);
		wait->cb(err, wait->user);
		free(wait);
	}
}

static void sync_start(struct journal *j, uv_loop_t *loop)
{
	/* A descriptor of its own: compaction may replace j->now.fd meanwhile. */
	j->sync_fd = fcntl(j->now.fd, F_DUPFD_CLOEXEC, 0);
	list_splice(&j->syncing, &j->waiting);
	j->sync_generation = j->generation;
	j->sync_dir = TAKE_FLAG(j->dir_dirty);
	j->sync_runs = true;
	j->sync_work.data = j;
	uv_queue_work(loop, &j->sync_work, sync_job, sync_done);
}

int journal_sync(struct journal *j, uv_loop_t *loop, void (*cb)(int, void *), void *user)
{
	struct sync_wait *w = malloc(sizeof(*w));
	if (!w)
		return -ENOMEM;
	*w = (struct sync_wait){ .cb = cb, .user = user };
	list_init(&w->link);
	list_append(&j->waiting, &w->link);
	if (!j->sync_runs)
		sync_start(j, loop);
	return 0;
}

int journal_idle(const struct journal *j)
{
	return !j->sync_runs && !j->next_ending && list_empty(&j->waiting);
}

/* --- compaction --- */

int journal_rewrite_begin(struct journal *j)
{
	if (j->next.fd >= 0)
		return -EBUSY;
	int fd = openat(j->dirfd, j->next_name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	j->next = (struct file){ .fd = fd };
	j->next_err = 0;
	j->gathered = BUF_INIT(0);
	return 0;
}

static int gather(struct journal *j, const void *p, size_t n)
{
	uint64_t at = j->next.size + buf_len(&j->gathered);
	struct record_header h = { RECORD_MAGIC, (uint32_t)n, record_hash(at, p, n) };
	int r = buf_append(&j->gathered, &h, sizeof(h));
	if (!r)
		r = buf_append(&j->gathered, p, n);
	return r || buf_len(&j->gathered) < REWRITE_CHUNK ? r : gathered_flush(j);
}

int journal_rewrite_put(struct journal *j, const void *p, size_t n)
{
	if (j->next.fd < 0)
		return -ECANCELED; /* an append meanwhile could not reach it */
	int r = n > JOURNAL_RECORD_MAX ? -E2BIG : gather(j, p, n);
	if (r < 0)
		rewrite_abandon(j);
	return r;
}

static int rewrite_take(struct journal *j, int err)
{
	j->next_ending = false;
	if (!err)
		err = j->next_err; /* an append meanwhile did not reach the new file */
	if (!err && renameat(j->dirfd, j->next_name, j->dirfd, j->name) < 0)
		err = -errno;
	if (err) {
		rewrite_abandon(j);
		return err;
	}
	close(j->now.fd);
	j->now = j->next;
	j->next = (struct file){ .fd = -1 };
	j->compacted_size = j->now.size;
	j->generation++;
	j->dir_dirty = true;
	j->broken = false;
	return 0;
}

static void rewrite_job(uv_work_t *w)
{
	struct journal *j = w->data;
	w->data = fdatasync(j->next.fd) < 0 ? (void *)(intptr_t)errno : NULL;
}

static void rewrite_done(uv_work_t *w, int status)
{
	struct journal *j = container_of(w, struct journal, next_work);
	int err = status < 0 ? status : -(int)(intptr_t)w->data;
	rewrite_take(j, err);
	if (!list_empty(&j->waiting) && !j->sync_runs)
		sync_start(j, w->loop);
}

int journal_rewrite_end(struct journal *j, uv_loop_t *loop)
{
	if (j->next.fd < 0)
		return -ECANCELED;
	int err = gathered_flush(j);
	if (err < 0) {
		rewrite_abandon(j);
		return err;
	}
	buf_done(&j->gathered);
	if (!loop) {
		int r = rewrite_take(j, fdatasync(j->next.fd) < 0 ? -errno : 0);
		return r < 0 ? r : fsync(j->dirfd) < 0 ? -errno : 0;
	}
	j->next_ending = true;
	j->next_work.data = j;
	return uv_queue_work(loop, &j->next_work, rewrite_job, rewrite_done);
}

int journal_wants_rewrite(const struct journal *j)
{
	return j->next.fd < 0 && j->now.size > REWRITE_MIN_BYTES &&
	       j->now.size > j->compacted_size * REWRITE_GROWTH;
}

uint64_t journal_size(const struct journal *j)
{
	return j->now.size;
}
