/* spool.c: see spool.h.
 *
 * The file: 16 bytes of header, `head` bytes, then a ring of tail + SPOOL_SLACK
 * bytes. Position p below head is at p; above it at head + (p - head) mod ring.
 *
 * S1 Until the ring has wrapped, the file's size says how much is stored; after
 *    that the header does. It is written after the bytes.
 * S2 A piece is at most SPOOL_SLACK and the ring is that much longer than the
 *    promised tail: a piece whose header was never written (kill -9) overwrote
 *    nothing of the tail that the old header promises, and is fetched again.
 * S3 end < total only after a failed write; then nothing more is stored.
 */
#include "edge/spool.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fdio.h"

#define HEADER_SIZE 16 /* total, then zeros */

void spool_file_name(const char *sandbox, const char *exec, const char *suffix, char ret[SPOOL_NAME_MAX])
{
	snprintf(ret, SPOOL_NAME_MAX, "%s.%s.%s", sandbox, exec, suffix);
}

void spool_set_init(struct spool_set *set, int dirfd, unsigned max_open)
{
	*set = (struct spool_set){ .dirfd = dirfd, .max_open = max_open };
	list_init(&set->open);
}

void spool_init(struct spool *s, struct spool_set *set, const char *sandbox, const char *exec,
		const char *suffix, uint64_t limit)
{
	*s = (struct spool){ .set = set, .sandbox = sandbox, .exec = exec, .suffix = suffix, .fd = -1 };
	s->head = limit / 2;
	s->tail = limit - s->head;
	list_init(&s->link);
}

static void file_name(const struct spool *s, char ret[SPOOL_NAME_MAX])
{
	spool_file_name(s->sandbox, s->exec, s->suffix, ret);
}

void spool_close(struct spool *s)
{
	if (s->fd < 0)
		return;
	s->fd = base_close(s->fd);
	list_drop(&s->link);
	s->set->n_open--;
}

void spool_remove(struct spool *s)
{
	char name[SPOOL_NAME_MAX];
	spool_close(s);
	file_name(s, name);
	if (s->total)
		unlinkat(s->set->dirfd, name, 0);
}

static int open_file(struct spool *s, int flags)
{
	char name[SPOOL_NAME_MAX];
	file_name(s, name);
	int fd = openat(s->set->dirfd, name, O_RDWR | O_CLOEXEC | flags, 0600);
	return fd < 0 ? -errno : fd;
}

static int need_fd(struct spool *s, int flags)
{
	if (s->fd >= 0) {
		list_drop(&s->link);
		list_append(&s->set->open, &s->link);
		return 0;
	}
	if (s->set->n_open >= s->set->max_open)
		spool_close(list_first(&s->set->open, struct spool, link));
	int fd = open_file(s, flags);
	if (fd < 0)
		return fd;
	s->fd = fd;
	s->set->n_open++;
	list_append(&s->set->open, &s->link);
	return 0;
}

static uint64_t ring_size(const struct spool *s)
{
	return s->tail + SPOOL_SLACK;
}

/* Where position `at` is in the file; *run: how many bytes follow contiguously. */
static off_t place(const struct spool *s, uint64_t at, uint64_t *run)
{
	if (at < s->head) {
		*run = s->head - at;
		return (off_t)(HEADER_SIZE + at);
	}
	uint64_t in_ring = (at - s->head) % ring_size(s);
	*run = ring_size(s) - in_ring;
	return (off_t)(HEADER_SIZE + s->head + in_ring);
}

static int store_piece(struct spool *s, const uint8_t *p, size_t n)
{
	int r = need_fd(s, O_CREAT);
	for (size_t done = 0; !r && done < n;) {
		uint64_t run;
		off_t at = place(s, s->end + done, &run);
		size_t k = MIN(n - done, (size_t)run);
		r = pwrite_all(s->fd, p + done, k, at);
		done += k;
	}
	if (r < 0)
		return r;
	uint64_t end = s->end + n;
	if (end > s->head + ring_size(s)) /* S1 */
		r = pwrite_all(s->fd, &end, sizeof(end), 0);
	if (!r)
		s->end = end;
	return r;
}

int spool_append(struct spool *s, const void *p, size_t n)
{
	const uint8_t *b = p;
	int r = 0;
	bool storing = s->end == s->total; /* S3 */
	s->total += n;
	while (storing && n && !r) {
		size_t k = MIN(n, (size_t)SPOOL_SLACK);
		r = store_piece(s, b, k);
		b += k;
		n -= k;
	}
	return r;
}

void spool_skip(struct spool *s, uint64_t at)
{
	if (at > s->total)
		s->total = at;
}

int spool_recover(struct spool *s)
{
	struct stat st;
	uint64_t total = 0;
	int r = need_fd(s, 0);
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	if (fstat(s->fd, &st) < 0)
		return -errno;
	if (st.st_size >= (off_t)sizeof(total) && pread(s->fd, &total, sizeof(total), 0) != sizeof(total))
		return -EIO;
	uint64_t size = st.st_size > HEADER_SIZE ? (uint64_t)st.st_size - HEADER_SIZE : 0;
	s->end = s->total = MAX(size, total);
	spool_close(s);
	return 0;
}

bool spool_truncated(const struct spool *s)
{
	return s->end < s->total || s->end > s->head + s->tail;
}

uint64_t spool_stored(const struct spool *s)
{
	return MIN(s->end, s->head + ring_size(s));
}

/* Moves *pos out of a gap; returns how many kept bytes follow it. */
static uint64_t kept_from(const struct spool *s, uint64_t *pos)
{
	uint64_t head_end = MIN(s->head, s->end);
	uint64_t tail_start = s->end > s->head + s->tail ? s->end - s->tail : head_end;
	if (*pos < head_end)
		return head_end - *pos;
	if (*pos < tail_start)
		*pos = tail_start;
	if (*pos < s->end)
		return s->end - *pos;
	*pos = MAX(*pos, s->total);
	return 0;
}

long spool_read(struct spool *s, uint64_t *pos, void *p, size_t n)
{
	uint64_t run, kept = kept_from(s, pos);
	if (!kept || !n)
		return 0;
	int r = need_fd(s, 0);
	if (r < 0)
		return r;
	off_t at = place(s, *pos, &run);
	size_t k = (size_t)MIN(MIN(kept, run), (uint64_t)n);
	ssize_t got = pread(s->fd, p, k, at);
	if (got < 0)
		return -errno;
	if (!got)
		return -EIO; /* the file is shorter than we wrote it */
	return got;
}
