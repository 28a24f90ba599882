/* buf.h: a growable byte buffer and a bounded byte ring.
 *
 * struct buf appends at the tail and consumes at the head; it grows on demand
 * up to `max` (0 = no bound) and answers -ENOBUFS beyond it, -ENOMEM when the
 * allocator refuses. struct ring has one fixed capacity, allocated on the first
 * write and freed by ring_done, so an idle owner costs nothing. Neither is
 * thread-safe: the owner's loop is the only user.
 */
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
	uint8_t *data; /* owned */
	size_t head;   /* first unread byte */
	size_t tail;   /* one past the last byte */
	size_t cap;
	size_t max;    /* bound on tail - head; 0 = none */
};

#define BUF_INIT(bound) ((struct buf){ .max = (bound) })

static inline size_t buf_len(const struct buf *b) { return b->tail - b->head; }
static inline uint8_t *buf_ptr(const struct buf *b) { return b->data + b->head; }

int buf_reserve(struct buf *b, size_t n, uint8_t **ret); /* room for n more at the tail */
static inline void buf_commit(struct buf *b, size_t n) { b->tail += n; }
int buf_append(struct buf *b, const void *p, size_t n);
int buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_consume(struct buf *b, size_t n); /* n <= buf_len */
void buf_reset(struct buf *b);             /* empty, memory kept */
void buf_done(struct buf *b);              /* empty, memory freed */
char *buf_cstr(struct buf *b);             /* NUL-terminated view, NULL if out of memory */
static inline void buf_donep(struct buf *b) { buf_done(b); }
#define _cleanup_buf_ __attribute__((cleanup(buf_donep)))

/* A ring addressed by absolute stream offsets: bytes [start, end) are held. */
struct ring {
	uint8_t *data; /* owned; NULL until the first write */
	size_t cap;    /* power of two */
	uint64_t start, end;
};

void ring_init(struct ring *r, size_t cap_pow2);
void ring_done(struct ring *r);
static inline size_t ring_len(const struct ring *r) { return (size_t)(r->end - r->start); }
static inline size_t ring_room(const struct ring *r) { return r->cap - ring_len(r); }
/* Contiguous room at the tail, for a direct read(2). *ret_n may be less than
 * ring_room because of the wrap. -ENOMEM when the ring cannot be allocated. */
int ring_tail(struct ring *r, uint8_t **ret_p, size_t *ret_n);
void ring_commit(struct ring *r, size_t n);
size_t ring_write(struct ring *r, const void *p, size_t n); /* bytes taken; 0 when full or no memory */
/* Contiguous bytes from absolute offset `at` (start <= at <= end). */
size_t ring_peek(const struct ring *r, uint64_t at, const uint8_t **ret_p);
void ring_release(struct ring *r, uint64_t upto); /* forget bytes before `upto` */
