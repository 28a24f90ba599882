/* Limits at, under and over: windows, payloads, streams, output bound, ids. */
#include "aether_pair.h"
#include "aether/aether-internal.h"
#include "base/cleanup.h"

static uint8_t block[AETHER_PAYLOAD_MAX + 1];

static void test_config_bounds(void **state)
{
	const struct {
		struct aether_config c;
		int want;
	} cases[] = {
		{ { .window = AETHER_WINDOW_MIN - 1 }, -EINVAL },
		{ { .window = AETHER_WINDOW_MIN }, 0 },
		{ { .window = AETHER_WINDOW_MAX }, 0 },
		{ { .window = AETHER_WINDOW_MAX + 1 }, -EINVAL },
		{ { .max_streams = AETHER_STREAMS_MAX }, 0 },
		{ { .max_streams = AETHER_STREAMS_MAX + 1 }, -EINVAL },
		{ { .output_max = AETHER_OUTPUT_MIN - 1 }, -EINVAL },
		{ { .output_max = AETHER_OUTPUT_MIN }, 0 },
	};
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct aether *a = NULL;
		assert_int_equal(aether_new(&cases[i].c, &a), cases[i].want);
		aether_free(a);
	}
	aether_free(NULL);
}

static void test_payload_max(void **state)
{
	struct pair p;
	uint32_t s;
	pair_init(&p, 1 << 20);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, block, AETHER_PAYLOAD_MAX + 1, &s), -EMSGSIZE);
	assert_int_equal(aether_open(p.client.a, block, AETHER_PAYLOAD_MAX, &s), 0);
	assert_int_equal(aether_send_msg(p.client.a, s, block, AETHER_PAYLOAD_MAX + 1), -EMSGSIZE);
	assert_int_equal(aether_send_msg(p.client.a, s, block, AETHER_PAYLOAD_MAX), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.server.events, 3);
	pair_done(&p);
}

static void test_window_stops_and_credit_resumes(void **state)
{
	struct pair p;
	uint32_t s;
	const uint32_t window = AETHER_WINDOW_MIN + 1000;
	pair_init_with(&p, 1 << 20, (struct aether_config){ 0 }, (struct aether_config){ .window = window });
	p.server.consume = false;
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, "w", 1, &s), 0);
	assert_int_equal(aether_sendable(p.client.a, s), window);
	assert_int_equal(aether_send_msg(p.client.a, s, block, 1000), 0); /* MSG counts too */
	assert_int_equal(aether_send_data(p.client.a, s, 0, block, AETHER_PAYLOAD_MAX), AETHER_PAYLOAD_MAX);
	assert_int_equal(aether_sendable(p.client.a, s), 0);
	assert_int_equal(aether_send_data(p.client.a, s, 0, block, 1), 0);
	assert_int_equal(aether_send_msg(p.client.a, s, block, 1), -EAGAIN);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.client.writables, 0);
	/* One stream's full window does not stop another. */
	uint32_t t;
	assert_int_equal(aether_open(p.client.a, "t", 1, &t), 0);
	assert_int_equal(aether_send_data(p.client.a, t, 0, "x", 1), 1);
	/* Credit comes once credit_step (here 1000) bytes are given back. */
	aether_consume(p.server.a, s, 999);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.client.writables, 0);
	aether_consume(p.server.a, s, 1);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.client.writables, 1);
	assert_int_equal(aether_sendable(p.client.a, s), 1000);
	/* Giving back more than came grants nothing beyond the window. */
	aether_consume(p.server.a, s, 10 * window);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_sendable(p.client.a, s), window);
	pair_done(&p);
}

static void test_any_message_fits_once_all_is_consumed(void **state)
{
	/* I3: for windows from the smallest up, after odd sizes went through. */
	for (uint32_t window = AETHER_WINDOW_MIN; window < 4 * AETHER_WINDOW_MIN; window += 4099) {
		struct pair p;
		uint32_t s;
		pair_init_with(&p, 1 << 20, (struct aether_config){ 0 }, (struct aether_config){ .window = window });
		assert_int_equal(pair_pump(&p), 0);
		assert_int_equal(aether_open(p.client.a, "m", 1, &s), 0);
		for (size_t n = 1; n < AETHER_PAYLOAD_MAX; n = n * 3 + 1) {
			assert_int_equal(aether_send_msg(p.client.a, s, block, n), 0);
			assert_int_equal(pair_pump(&p), 0);
			assert_int_equal(aether_send_msg(p.client.a, s, block, AETHER_PAYLOAD_MAX), 0);
			assert_int_equal(pair_pump(&p), 0);
		}
		pair_done(&p);
	}
}

static void test_output_bound(void **state)
{
	struct pair p;
	uint32_t s[4];
	pair_init_with(&p, 1 << 20, (struct aether_config){ .output_max = AETHER_OUTPUT_MIN },
		       (struct aether_config){ 0 });
	assert_int_equal(pair_pump(&p), 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(aether_open(p.client.a, "o", 1, &s[i]), 0);
	assert_int_equal(pair_pump(&p), 0);
	long total = 0;
	for (int i = 0; i < 4; i++) {
		size_t could = aether_sendable(p.client.a, s[i]);
		long k = aether_send_data(p.client.a, s[i], 0, block, AETHER_PAYLOAD_MAX);
		assert_int_equal(k, MIN((size_t)AETHER_PAYLOAD_MAX, could));
		total += k;
	}
	assert_int_equal(total, AETHER_OUTPUT_MIN - 2 * WIRE_HEADER_SIZE);
	assert_int_equal(p.client.a->out.len, AETHER_OUTPUT_MIN);
	assert_int_equal(aether_send_msg(p.client.a, s[0], "m", 1), -EAGAIN);
	uint32_t t;
	assert_int_equal(aether_open(p.client.a, "full", 4, &t), -EAGAIN);
	assert_int_equal(aether_ping(p.client.a, 1), -EAGAIN);
	/* Ending something is never refused. */
	assert_int_equal(aether_close(p.client.a, s[1]), 0);
	/* One event each for the three that wait (s0, s2, s3) and one for open. */
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.client.writables, 4);
	assert_int_equal(aether_send_msg(p.client.a, s[0], block, AETHER_PAYLOAD_MAX), 0);
	assert_int_equal(aether_open(p.client.a, "room", 4, &t), 0);
	pair_done(&p);
}

static void test_sendable_is_what_is_taken(void **state)
{
	/* Long data costs a header a frame; sendable must account for each. */
	static uint8_t big[1024 * 1024];
	for (size_t max = AETHER_OUTPUT_MIN; max < AETHER_OUTPUT_MIN + 200000; max += 7919) {
		struct pair p;
		uint32_t s;
		pair_init_with(&p, 1 << 20, (struct aether_config){ .output_max = max },
			       (struct aether_config){ .window = AETHER_WINDOW_MAX });
		assert_int_equal(pair_pump(&p), 0);
		assert_int_equal(aether_open(p.client.a, "o", 1, &s), 0);
		size_t could = aether_sendable(p.client.a, s);
		assert_int_equal(aether_send_data(p.client.a, s, 0, big, sizeof(big)), could);
		assert_int_equal(aether_sendable(p.client.a, s), 0);
		assert_true(p.client.a->out.len <= max);
		pair_done(&p);
	}
}

static void test_stream_limit_of_the_peer(void **state)
{
	struct pair p;
	uint32_t s[4], t;
	pair_init_with(&p, 1 << 20, (struct aether_config){ 0 }, (struct aether_config){ .max_streams = 3 });
	/* Before the greeting the limit is unknown: the fourth is refused by reset. */
	for (int i = 0; i < 4; i++)
		assert_int_equal(aether_open(p.client.a, "s", 1, &s[i]), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.client.last_stream, s[3]);
	assert_int_equal(p.client.last_code, AETHER_RESET_REFUSED);
	/* After it the core holds back by itself. */
	assert_int_equal(aether_open(p.client.a, "s", 1, &t), -EAGAIN);
	assert_int_equal(pair_pump(&p), 0);
	unsigned before = p.client.writables;
	assert_int_equal(aether_reset(p.client.a, s[0], AETHER_RESET_CANCELLED), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.client.writables, before + 1);
	assert_int_equal(p.client.last_stream, 0);
	assert_int_equal(aether_open(p.client.a, "s", 1, &t), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_send_data(p.client.a, t, 0, "x", 1), 1);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.server.data_bytes, 1);
	pair_done(&p);
}

/* Found by fuzz_aether: a peer that ends a stream may open the next at once, also
 * when both arrive in one read and our owner has not yet been told of the end. */
static void test_ended_stream_makes_room_in_the_same_read(void **state)
{
	for (int by_close = 0; by_close < 2; by_close++) {
		struct pair p;
		uint32_t s, t;
		pair_init_with(&p, 1 << 20, (struct aether_config){ 0 }, (struct aether_config){ .max_streams = 1 });
		assert_int_equal(pair_pump(&p), 0);
		assert_int_equal(aether_open(p.client.a, "s", 1, &s), 0);
		assert_int_equal(pair_pump(&p), 0);
		if (by_close) {
			assert_int_equal(aether_close(p.server.a, s), 0);
			assert_int_equal(pair_pump(&p), 0);
			assert_int_equal(aether_close(p.client.a, s), 0);
		} else {
			assert_int_equal(aether_reset(p.client.a, s, AETHER_RESET_CANCELLED), 0);
		}
		assert_int_equal(aether_open(p.client.a, "t", 1, &t), 0);
		assert_int_equal(pair_pump(&p), 0);
		assert_int_equal(p.server.last_stream, t);
		assert_non_null(strstr(p.server.log, "OPEN 3 0 t"));
		pair_done(&p);
	}
}

static void test_goaway_refuses_streams_under_way(void **state)
{
	struct pair p;
	uint32_t s;
	pair_init(&p, 1 << 20);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, "s", 1, &s), 0);
	assert_int_equal(aether_goaway(p.server.a, 9), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_non_null(strstr(p.client.log, "GOAWAY 0 9"));
	assert_int_equal(p.client.last_code, AETHER_RESET_REFUSED);
	assert_null(strstr(p.server.log, "OPEN"));
	pair_done(&p);
}

static void test_stream_ids_wrap(void **state)
{
	for (int server_opens = 0; server_opens < 2; server_opens++) {
		struct pair p;
		uint32_t first, s;
		pair_init(&p, 1 << 20);
		assert_int_equal(pair_pump(&p), 0);
		struct side *from = server_opens ? &p.server : &p.client;
		struct side *to = server_opens ? &p.client : &p.server;
		assert_int_equal(aether_open(from->a, "old", 3, &first), 0); /* stays open over the wrap */
		assert_int_equal(pair_pump(&p), 0);
		from->a->next_id = UINT32_MAX - 5;
		from->a->next_id -= (from->a->next_id & 1) != (first & 1);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(aether_open(from->a, "n", 1, &s), 0);
			assert_int_not_equal(s, first);
			assert_int_not_equal(s, 0);
			assert_int_equal(s & 1, first & 1);
			assert_int_equal(pair_pump(&p), 0);
			assert_int_equal(aether_send_data(from->a, s, 0, "x", 1), 1);
			assert_int_equal(aether_close(from->a, s), 0);
			assert_int_equal(aether_close(to->a, s), 0);
			assert_int_equal(pair_pump(&p), 0);
		}
		assert_true(s < 100); /* it did wrap */
		assert_int_equal(to->data_bytes, 8);
		assert_int_equal(aether_send_data(from->a, first, 0, "x", 1), 1);
		assert_int_equal(pair_pump(&p), 0);
		assert_int_equal(to->data_bytes, 9);
		pair_done(&p);
	}
}

static void test_idle_connection_holds_no_buffers(void **state)
{
	struct pair p;
	uint32_t s;
	pair_init(&p, 4096);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, "s", 1, &s), 0);
	for (int i = 0; i < 50; i++)
		assert_true(aether_send_data(p.client.a, s, 0, block, 5000) == 5000);
	assert_int_equal(pair_pump(&p), 0);
	assert_null(p.client.a->out.first);
	assert_null(p.server.a->in.data);
	assert_null(p.client.a->in.data);
	assert_int_equal(aether_reset(p.client.a, s, AETHER_RESET_CANCELLED), 0);
	assert_null(p.client.a->streams.slots);
	pair_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config_bounds),
		cmocka_unit_test(test_payload_max),
		cmocka_unit_test(test_window_stops_and_credit_resumes),
		cmocka_unit_test(test_any_message_fits_once_all_is_consumed),
		cmocka_unit_test(test_output_bound),
		cmocka_unit_test(test_sendable_is_what_is_taken),
		cmocka_unit_test(test_stream_limit_of_the_peer),
		cmocka_unit_test(test_ended_stream_makes_room_in_the_same_read),
		cmocka_unit_test(test_goaway_refuses_streams_under_way),
		cmocka_unit_test(test_stream_ids_wrap),
		cmocka_unit_test(test_idle_connection_holds_no_buffers),
	};
	return cmocka_run_group_tests_name("aether_limits", tests, NULL, NULL);
}
