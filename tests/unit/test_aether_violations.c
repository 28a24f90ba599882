/* A hostile or broken peer: bytes are written by hand. Each violation must be
 * -EPROTO in every chunk size, and what was valid before it must be handed out. */
#include "aether_pair.h"
#include "aether/aether-internal.h"
#include "base/cleanup.h"

#define GOOD_GREETING "DSaE\0\x14\0\1\0\1\0\0\0\4\0\0\0\0\0\x10" /* window 256 KiB, 16 streams */

struct bytes {
	uint8_t data[4096];
	size_t n;
};

static void add(struct bytes *b, const void *p, size_t n)
{
	memcpy(b->data + b->n, p, n);
	b->n += n;
}

static void add_frame(struct bytes *b, uint8_t type, uint8_t channel, uint32_t stream, const void *p, uint32_t n)
{
	uint8_t h[WIRE_HEADER_SIZE] = { type, channel };
	put32(h + 4, stream);
	put32(h + 8, n);
	add(b, h, sizeof(h));
	if (p)
		add(b, p, n);
}

static void add_u32(struct bytes *b, uint8_t type, uint32_t stream, uint32_t v)
{
	uint8_t p[4];
	put32(p, v);
	add_frame(b, type, 0, stream, p, 4);
}

/* Feeds a server core; the first error, and how many events came out. */
static int feed(const struct bytes *b, size_t chunk, unsigned *ret_events)
{
	struct aether_config c = { .max_streams = 4 };
	struct side s = { .consume = false };
	assert_int_equal(aether_new(&c, &s.a), 0);
	int r = 0;
	for (size_t at = 0; at < b->n && !r; at += chunk) {
		size_t n = MIN(chunk, b->n - at);
		uint8_t *copy = malloc(n);
		assert_non_null(copy);
		memcpy(copy, b->data + at, n);
		r = aether_recv(s.a, copy, n);
		free(copy);
		side_drain(&s);
	}
	if (r < 0) { /* dead: every call says so, nothing is offered */
		uint32_t id;
		assert_int_equal(aether_recv(s.a, "x", 1), r);
		assert_int_equal(aether_error(s.a), r);
		assert_int_equal(aether_open(s.a, "x", 1, &id), r);
		assert_int_equal(aether_ping(s.a, 1), r);
		assert_false(aether_ready(s.a));
	}
	*ret_events = s.events;
	aether_free(s.a);
	return r;
}

static void expect(const struct bytes *b, int want, unsigned events)
{
	for (size_t i = 0; i < ARRAY_SIZE(odd_chunks); i++) {
		unsigned got = 0;
		int r = feed(b, odd_chunks[i], &got);
		if (r != want || got != events)
			fail_msg("chunk %zu: %d with %u events, want %d with %u", odd_chunks[i], r, got, want, events);
	}
}

static struct bytes greeted(void)
{
	struct bytes b = { .n = 0 };
	add(&b, GOOD_GREETING, WIRE_GREETING_SIZE);
	return b;
}

static void test_greetings(void **state)
{
	struct bytes b = greeted();
	expect(&b, 0, 1);
	for (size_t i = 0; i < 4; i++) { /* any wrong byte of the magic, at once */
		b = greeted();
		b.data[i] ^= 0x20;
		b.n = i + 1;
		expect(&b, -EPROTO, 0);
	}
	const struct {
		size_t at;
		uint8_t v[4];
		size_t n;
		int want;
	} cases[] = {
		{ 4, { 0, 19 }, 2, -EPROTO },             /* shorter than its fields */
		{ 4, { 1, 1 }, 2, -EPROTO },              /* 257: longer than allowed */
		{ 6, { 0, 0 }, 2, -EPROTO },              /* newest below oldest */
		{ 6, { 0, 9, 0, 2 }, 4, -EPROTONOSUPPORT }, /* speaks 2 to 9 only */
		{ 6, { 0, 0, 0, 0 }, 4, -EPROTONOSUPPORT }, /* speaks 0 only */
		{ 6, { 0, 9, 0, 1 }, 4, 0 },              /* 1 to 9: 1 is agreed */
		{ 12, { 0, 0, 255, 255 }, 4, -EPROTO },   /* window below the smallest */
		{ 12, { 0, 1, 0, 0 }, 4, 0 },             /* the smallest */
		{ 12, { 1, 0, 0, 0 }, 4, 0 },             /* the largest */
		{ 12, { 1, 0, 0, 1 }, 4, -EPROTO },
		{ 16, { 0, 0, 0, 0 }, 4, -EPROTO },       /* no streams */
		{ 16, { 0, 1, 0, 0 }, 4, 0 },
		{ 16, { 0, 1, 0, 1 }, 4, -EPROTO },
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		b = greeted();
		memcpy(b.data + cases[i].at, cases[i].v, cases[i].n);
		expect(&b, cases[i].want, cases[i].want ? 0 : 1);
	}
	/* A later version may append fields: they are skipped. */
	b = greeted();
	b.data[5] = 30;
	add(&b, "0123456789", 10);
	add_frame(&b, WIRE_OPEN, 0, 1, "p", 1);
	expect(&b, 0, 2);
}

static void test_bad_headers(void **state)
{
	const struct {
		uint8_t type, channel;
		uint32_t stream, length;
	} bad[] = {
		{ 0, 0, 1, 0 },
		{ WIRE_GOAWAY + 1, 0, 0, 4 },
		{ 255, 0, 1, 0 },
		{ WIRE_OPEN, 0, 0, 0 },                         /* needs a stream */
		{ WIRE_DATA, 0, 0, 1 },
		{ WIRE_PING, 0, 1, 4 },                         /* has none */
		{ WIRE_GOAWAY, 0, 1, 4 },
		{ WIRE_OPEN, 0, 1, AETHER_PAYLOAD_MAX + 1 },    /* before any payload comes */
		{ WIRE_OPEN, 0, 1, UINT32_MAX },
		{ WIRE_MSG, 0, 1, AETHER_PAYLOAD_MAX + 1 },
		{ WIRE_DATA, 0, 1, AETHER_PAYLOAD_MAX + 1 },
		{ WIRE_DATA, 0, 1, 0 },                         /* empty data says nothing */
		{ WIRE_CLOSE, 0, 1, 1 },
		{ WIRE_RESET, 0, 1, 3 },
		{ WIRE_CREDIT, 0, 1, 5 },
		{ WIRE_PING, 0, 0, 0 },
		{ WIRE_MSG, 1, 1, 1 },                          /* channels are of DATA */
		{ WIRE_OPEN, 1, 1, 1 },
	};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct bytes b = greeted();
		add_frame(&b, WIRE_OPEN, 0, 1, "ok", 2);
		add_frame(&b, bad[i].type, bad[i].channel, bad[i].stream, NULL, bad[i].length);
		expect(&b, -EPROTO, 2);
	}
	struct bytes b = greeted(); /* reserved bits */
	add_frame(&b, WIRE_OPEN, 0, 1, "ok", 2);
	b.data[WIRE_GREETING_SIZE + 3] = 1;
	expect(&b, -EPROTO, 1);
}

static void test_stream_rules(void **state)
{
	struct bytes b = greeted(); /* ids of the wrong side, reused, going down */
	add_frame(&b, WIRE_OPEN, 0, 2, "x", 1);
	expect(&b, -EPROTO, 1);
	b = greeted();
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	expect(&b, -EPROTO, 2);
	b = greeted();
	add_frame(&b, WIRE_OPEN, 0, 5, "x", 1);
	add_frame(&b, WIRE_OPEN, 0, 3, "x", 1);
	expect(&b, -EPROTO, 2);
	b = greeted(); /* streams nobody opened, of either side */
	add_frame(&b, WIRE_DATA, 0, 3, "x", 1);
	expect(&b, -EPROTO, 1);
	b = greeted();
	add_frame(&b, WIRE_MSG, 0, 4, "x", 1);
	expect(&b, -EPROTO, 1);
	b = greeted();
	add_u32(&b, WIRE_CREDIT, 0xffffffff, 1);
	expect(&b, -EPROTO, 1);
	b = greeted(); /* after its own close */
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	add_frame(&b, WIRE_CLOSE, 0, 1, NULL, 0);
	add_frame(&b, WIRE_DATA, 0, 1, "x", 1);
	expect(&b, -EPROTO, 3);
	b = greeted(); /* closing twice */
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	add_frame(&b, WIRE_CLOSE, 0, 1, NULL, 0);
	add_frame(&b, WIRE_CLOSE, 0, 1, NULL, 0);
	expect(&b, -EPROTO, 3);
	b = greeted(); /* after its own reset: dropped, the stream is gone */
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	add_u32(&b, WIRE_RESET, 1, 7);
	add_frame(&b, WIRE_DATA, 0, 1, "x", 1);
	add_u32(&b, WIRE_PONG, 0, 3);
	expect(&b, 0, 4);
	b = greeted(); /* credit of nothing, and beyond our window */
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	add_u32(&b, WIRE_CREDIT, 1, 0);
	expect(&b, -EPROTO, 2);
	b = greeted();
	add_frame(&b, WIRE_OPEN, 0, 1, "x", 1);
	add_u32(&b, WIRE_CREDIT, 1, 1);
	expect(&b, -EPROTO, 2);
}

static void test_window_overrun(void **state)
{
	/* The window is 256 KiB: exactly that many bytes pass, one more kills. */
	struct aether_config c = { 0 };
	struct side s = { 0 };
	struct bytes head = greeted();
	static uint8_t frame[WIRE_HEADER_SIZE + AETHER_PAYLOAD_MAX];
	add_frame(&head, WIRE_OPEN, 0, 1, "x", 1);
	assert_int_equal(aether_new(&c, &s.a), 0);
	assert_int_equal(aether_recv(s.a, head.data, head.n), 0);
	frame[0] = WIRE_DATA;
	put32(frame + 4, 1);
	put32(frame + 8, AETHER_PAYLOAD_MAX);
	for (int i = 0; i < AETHER_WINDOW_DEFAULT / AETHER_PAYLOAD_MAX; i++)
		assert_int_equal(aether_recv(s.a, frame, sizeof(frame)), 0);
	put32(frame + 8, 1);
	assert_int_equal(aether_recv(s.a, frame, WIRE_HEADER_SIZE + 1), -EPROTO);
	side_drain(&s); /* all that was valid is still there */
	assert_int_equal(s.data_bytes, AETHER_WINDOW_DEFAULT);
	aether_free(s.a);
}

static void test_floods_that_provoke_answers_are_bounded(void **state)
{
	/* Pings, and opens beyond the limit, from a peer that reads nothing. */
	for (int opens = 0; opens < 2; opens++) {
		struct aether_config c = { .max_streams = 1, .output_max = AETHER_OUTPUT_MIN };
		struct side s = { 0 };
		struct bytes b = greeted();
		assert_int_equal(aether_new(&c, &s.a), 0);
		assert_int_equal(aether_recv(s.a, b.data, b.n), 0);
		int r = 0, i;
		for (i = 0; i < 100000 && !r; i++) {
			b.n = 0;
			if (opens)
				add_frame(&b, WIRE_OPEN, 0, (uint32_t)(2 * i + 1), "x", 1);
			else
				add_u32(&b, WIRE_PING, 0, (uint32_t)i);
			r = aether_recv(s.a, b.data, b.n);
			side_drain(&s);
		}
		assert_int_equal(r, -EPROTO);
		assert_true(s.a->out.len < AETHER_OUTPUT_MIN + 100000);
		assert_true(s.a->n_peers <= 1);
		aether_free(s.a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_greetings),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_stream_rules),
		cmocka_unit_test(test_window_overrun),
		cmocka_unit_test(test_floods_that_provoke_answers_are_bounded),
	};
	return cmocka_run_group_tests_name("aether_violations", tests, NULL, NULL);
}
