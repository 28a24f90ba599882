/* Streams between two cores: every test runs in odd-sized chunks, and what the
 * ends see must not depend on the size. */
#include "aether_pair.h"
#include "base/cleanup.h"

static uint8_t *pattern(size_t n)
{
	uint8_t *p = malloc(n ? n : 1);
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i * 7 + i / 251);
	return p;
}

static void conversation(struct pair *p)
{
	uint32_t s1, s2, s3;
	pair_init(p, p->chunk);
	assert_false(aether_ready(p->client.a));
	/* Opened before the greeting is seen: allowed, the window opens with it. */
	assert_int_equal(aether_open(p->client.a, "one", 3, &s1), 0);
	assert_int_equal(aether_send_msg(p->client.a, s1, "early", 5), -EAGAIN);
	assert_int_equal(pair_pump(p), 0);
	assert_true(aether_ready(p->client.a));
	assert_int_equal(p->client.writables, 1);
	assert_int_equal(p->client.last_stream, s1);
	assert_int_equal(aether_send_msg(p->client.a, s1, "hello", 5), 0);
	assert_int_equal(aether_open(p->server.a, NULL, 0, &s2), 0);
	assert_int_equal(aether_send_msg(p->server.a, s2, NULL, 0), 0);
	assert_int_equal(pair_pump(p), 0);
	assert_int_equal(s1, 1);
	assert_int_equal(s2, 2);
	assert_int_equal(aether_send_msg(p->server.a, s1, "answer", 6), 0);
	assert_int_equal(aether_close(p->server.a, s1), 0);
	assert_int_equal(aether_send_msg(p->server.a, s1, "late", 4), -EPIPE);
	assert_int_equal(pair_pump(p), 0);
	/* Half-closed: the other direction still works. */
	assert_int_equal(aether_send_data(p->client.a, s1, 3, "abc", 3), 3);
	assert_int_equal(aether_close(p->client.a, s1), 0);
	assert_int_equal(aether_close(p->client.a, s1), -ENOENT);
	assert_int_equal(pair_pump(p), 0);
	assert_int_equal(aether_send_msg(p->server.a, s1, "x", 1), -ENOENT);
	assert_int_equal(aether_reset(p->client.a, s2, AETHER_RESET_CANCELLED), 0);
	assert_int_equal(aether_reset(p->client.a, s2, AETHER_RESET_CANCELLED), -ENOENT);
	assert_int_equal(pair_pump(p), 0);
	assert_int_equal(aether_send_data(p->server.a, s2, 0, "y", 1), -ENOENT);
	assert_int_equal(aether_ping(p->client.a, 77), 0);
	assert_int_equal(aether_goaway(p->server.a, 5), 0);
	assert_int_equal(aether_open(p->server.a, "no", 2, &s3), -ESHUTDOWN);
	assert_int_equal(pair_pump(p), 0);
	assert_int_equal(aether_open(p->client.a, "no", 2, &s3), -ESHUTDOWN);
	assert_int_equal(aether_send_msg(p->client.a, 99, "n", 1), -ENOENT);
}

static void test_conversation_in_odd_chunks(void **state)
{
	struct pair reference = { .chunk = 1 << 20 };
	conversation(&reference);
	assert_string_equal(reference.server.log, "READY 0 1 \nOPEN 1 0 one\nMSG 1 0 hello\nCLOSE 1 0 \nRESET 2 1 \n");
	assert_string_equal(reference.client.log,
			    "READY 0 1 \nOPEN 2 0 \nMSG 2 0 \nMSG 1 0 answer\nCLOSE 1 0 \nGOAWAY 0 5 \nPONG 0 77 \n");
	for (size_t i = 0; i < ARRAY_SIZE(odd_chunks); i++) {
		struct pair p = { .chunk = odd_chunks[i] };
		conversation(&p);
		assert_string_equal(p.client.log, reference.client.log);
		assert_string_equal(p.server.log, reference.server.log);
		assert_int_equal(p.server.data_bytes, 3);
		pair_done(&p);
	}
	pair_done(&reference);
}

/* Sends all of p with back-pressure: as much as is taken, then pump. */
static void send_all(struct pair *pr, struct side *from, uint32_t stream, const uint8_t *p, size_t n)
{
	size_t done = 0;
	while (done < n) {
		size_t could = aether_sendable(from->a, stream);
		long k = aether_send_data(from->a, stream, 1, p + done, n - done);
		assert_true(k >= 0);
		assert_int_equal(k, MIN(could, n - done));
		done += (size_t)k;
		if (done < n) {
			unsigned before = from->writables;
			assert_int_equal(pair_pump(pr), 0);
			assert_true(from->writables > before); /* the promise of a short send */
		}
	}
	assert_int_equal(pair_pump(pr), 0);
}

static void test_bulk_in_odd_chunks(void **state)
{
	const size_t n = 3 * 1024 * 1024 + 17;
	_cleanup_free_ uint8_t *data = pattern(n);
	uint32_t sum = 0;
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + data[i];
	for (size_t i = 0; i < ARRAY_SIZE(odd_chunks); i++) {
		struct pair p;
		uint32_t s;
		size_t len = odd_chunks[i] < 7 ? 300 * 1024 : n;
		pair_init(&p, odd_chunks[i]);
		assert_int_equal(pair_pump(&p), 0);
		assert_int_equal(aether_open(p.client.a, "bulk", 4, &s), 0);
		assert_int_equal(pair_pump(&p), 0);
		send_all(&p, &p.client, s, data, len);
		assert_int_equal(p.server.data_bytes, len);
		if (len == n)
			assert_int_equal(p.server.data_sum, sum);
		send_all(&p, &p.server, s, data, len); /* and back on the same stream */
		assert_int_equal(p.client.data_bytes, len);
		pair_done(&p);
	}
}

static void test_close_leaves_after_queued_data(void **state)
{
	struct pair p;
	uint32_t s;
	static uint8_t data[200000];
	pair_init(&p, 4096);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, "q", 1, &s), 0);
	assert_int_equal(aether_send_data(p.client.a, s, 1, data, sizeof(data)), sizeof(data));
	assert_int_equal(aether_close(p.client.a, s), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.server.data_bytes, sizeof(data));
	assert_non_null(strstr(p.server.log, "CLOSE 1"));
	pair_done(&p);
}

static void test_user_pointer_lives_until_the_last_event(void **state)
{
	struct pair p;
	struct aether_event ev;
	uint32_t s, t;
	int mine = 0;
	pair_init(&p, 1 << 20);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, "u", 1, &s), 0);
	assert_int_equal(aether_open(p.client.a, "v", 1, &t), 0);
	assert_null(aether_user(p.client.a, s));
	aether_set_user(p.client.a, s, &mine);
	aether_set_user(p.client.a, t, &mine);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_close(p.client.a, s), 0);
	assert_int_equal(aether_close(p.server.a, s), 0);
	assert_int_equal(aether_reset(p.server.a, t, AETHER_RESET_INTERNAL), 0);
	const uint8_t *out;
	size_t n = aether_output(p.server.a, &out);
	assert_int_equal(aether_recv(p.client.a, out, n), 0);
	assert_int_equal(aether_next(p.client.a, &ev), 1);
	assert_int_equal(ev.type, AETHER_EV_CLOSE);
	assert_ptr_equal(aether_user(p.client.a, s), &mine);
	assert_int_equal(aether_next(p.client.a, &ev), 1);
	assert_null(aether_user(p.client.a, s));
	assert_int_equal(ev.type, AETHER_EV_RESET);
	assert_int_equal(ev.code, AETHER_RESET_INTERNAL);
	assert_ptr_equal(aether_user(p.client.a, t), &mine);
	assert_int_equal(aether_send_msg(p.client.a, t, "m", 1), -ENOENT);
	assert_int_equal(aether_next(p.client.a, &ev), 0);
	assert_null(aether_user(p.client.a, t));
	aether_consume(p.client.a, t, 10); /* harmless */
	pair_done(&p);
}

static void test_data_for_a_stream_just_reset_is_dropped(void **state)
{
	struct pair p;
	struct aether_event ev;
	uint32_t s;
	pair_init(&p, 1 << 20);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(aether_open(p.client.a, "d", 1, &s), 0);
	assert_int_equal(pair_pump(&p), 0);
	/* Two frames are in the receiver's hands when its owner loses interest. */
	assert_int_equal(aether_send_data(p.client.a, s, 1, "one", 3), 3);
	assert_int_equal(aether_send_msg(p.client.a, s, "two", 3), 0);
	const uint8_t *out;
	size_t n = aether_output(p.client.a, &out);
	assert_int_equal(aether_recv(p.server.a, out, n), 0);
	aether_output_done(p.client.a, n);
	assert_int_equal(aether_next(p.server.a, &ev), 1);
	assert_memory_equal(ev.payload, "one", 3);
	assert_int_equal(aether_reset(p.server.a, s, AETHER_RESET_CANCELLED), 0);
	assert_int_equal(aether_next(p.server.a, &ev), 0);
	/* What the sender adds before it hears of the reset is dropped as well. */
	assert_int_equal(aether_send_data(p.client.a, s, 1, "three", 5), 5);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.server.data_bytes, 0);
	assert_int_equal(p.client.last_code, AETHER_RESET_CANCELLED);
	pair_done(&p);
}

static void test_many_streams(void **state)
{
	struct pair p;
	static uint32_t ids[2000];
	pair_init(&p, 777);
	assert_int_equal(pair_pump(&p), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		assert_int_equal(aether_open(i & 1 ? p.server.a : p.client.a, &i, sizeof(i), &ids[i]), 0);
		assert_int_equal(aether_send_data(i & 1 ? p.server.a : p.client.a, ids[i], 0, &i, sizeof(i)),
				 sizeof(i));
	}
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(p.server.data_bytes + p.client.data_bytes, sizeof(size_t) * ARRAY_SIZE(ids));
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		assert_int_equal(aether_close(p.client.a, ids[i]), 0);
		assert_int_equal(aether_close(p.server.a, ids[i]), 0);
	}
	assert_int_equal(pair_pump(&p), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++)
		assert_int_equal(aether_close(p.client.a, ids[i]), -ENOENT);
	pair_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_conversation_in_odd_chunks),
		cmocka_unit_test(test_bulk_in_odd_chunks),
		cmocka_unit_test(test_close_leaves_after_queued_data),
		cmocka_unit_test(test_user_pointer_lives_until_the_last_event),
		cmocka_unit_test(test_data_for_a_stream_just_reset_is_dropped),
		cmocka_unit_test(test_many_streams),
	};
	return cmocka_run_group_tests_name("aether_stream", tests, NULL, NULL);
}
