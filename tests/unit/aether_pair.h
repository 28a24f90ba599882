/* aether_pair.h: two aether cores joined by memory, with a transcript.
 *
 * pump() moves bytes both ways in chunks of `chunk` bytes until nothing moves,
 * and records every event as text, so that a test can ask that the transcript
 * does not depend on the chunk size. DATA of one stream and channel is recorded
 * as a running total, since frames may be cut differently.
 */
#pragma once
#include "unit.h"
#include "aether/aether.h"

void *__real_malloc(size_t n);

struct side {
	struct aether *a;
	bool consume; /* give credit back at once */
	unsigned events, writables;
	uint32_t last_stream, last_code;
	size_t data_bytes; /* all DATA so far */
	uint32_t data_sum; /* order-sensitive checksum of it */
	char log[16384];
	size_t log_len;
};

struct pair {
	struct side client, server;
	size_t chunk;
};

static inline void side_record(struct side *s, const struct aether_event *ev)
{
	static const char *const names[] = { "?", "READY", "OPEN", "MSG", "DATA", "CLOSE",
					     "RESET", "WRITABLE", "PONG", "GOAWAY" };
	s->events++;
	s->last_stream = ev->stream;
	s->last_code = ev->code;
	if (ev->type == AETHER_EV_WRITABLE)
		s->writables++;
	if (ev->type == AETHER_EV_DATA) {
		for (size_t i = 0; i < ev->n; i++)
			s->data_sum = s->data_sum * 31 + ev->payload[i];
		s->data_bytes += ev->n;
	}
	if (ev->type == AETHER_EV_DATA || ev->type == AETHER_EV_WRITABLE)
		return;
	int n = snprintf(s->log + s->log_len, sizeof(s->log) - s->log_len, "%s %u %u %.*s\n", names[ev->type],
			 ev->stream, ev->code, (int)(ev->n < 40 ? ev->n : 40), ev->n ? (const char *)ev->payload : "");
	if (n > 0 && s->log_len + (size_t)n < sizeof(s->log))
		s->log_len += (size_t)n;
}

static inline void side_drain(struct side *s)
{
	struct aether_event ev;
	while (aether_next(s->a, &ev) > 0) {
		side_record(s, &ev);
		if (s->consume && (ev.type == AETHER_EV_DATA || ev.type == AETHER_EV_MSG))
			aether_consume(s->a, ev.stream, ev.n);
	}
}

/* Moves at most `chunk` bytes; what was moved, or the error of aether_recv. */
static inline long side_move(struct side *from, struct side *to, size_t chunk)
{
	const uint8_t *p;
	size_t n = aether_output(from->a, &p);
	if (!n)
		return 0;
	if (n > chunk)
		n = chunk;
	/* An exact copy on the heap, so that ASan sees any read past the chunk; never
	 * the allocation that fault.h fails. */
	uint8_t *copy = __real_malloc(n);
	assert_non_null(copy);
	memcpy(copy, p, n);
	aether_output_done(from->a, n);
	int r = aether_recv(to->a, copy, n);
	free(copy);
	side_drain(to);
	side_drain(from); /* draining may have made its streams writable */
	return r < 0 ? r : (long)n;
}

static inline int pair_pump(struct pair *p)
{
	for (;;) {
		long a = side_move(&p->client, &p->server, p->chunk);
		long b = side_move(&p->server, &p->client, p->chunk);
		if (a < 0 || b < 0)
			return (int)(a < 0 ? a : b);
		if (!a && !b)
			return 0;
	}
}

static inline void pair_init_with(struct pair *p, size_t chunk, struct aether_config client,
				  struct aether_config server)
{
	memset(p, 0, sizeof(*p));
	p->chunk = chunk;
	p->client.consume = p->server.consume = true;
	client.client = true;
	assert_int_equal(aether_new(&client, &p->client.a), 0);
	assert_int_equal(aether_new(&server, &p->server.a), 0);
}

static inline void pair_init(struct pair *p, size_t chunk)
{
	pair_init_with(p, chunk, (struct aether_config){ 0 }, (struct aether_config){ 0 });
}

static inline void pair_done(struct pair *p)
{
	aether_free(p->client.a);
	aether_free(p->server.a);
}

static const size_t odd_chunks[] = { 1, 2, 3, 7, 11, 12, 13, 4096, 65536, 65548, 1 << 20 };
