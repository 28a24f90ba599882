/* Every allocation of a whole conversation fails once: the failing call says
 * -ENOMEM, the other end's memory is not touched, nothing leaks (ASan build). */
#include "aether_pair.h"
#include "fault.h"

static const uint8_t block[100000];

/* 0 when the whole conversation went through, else the error that came out. */
static int converse(struct pair *p)
{
	uint32_t s, t;
	struct aether_config c = { .client = true }, none = { 0 };
	int r;
	memset(p, 0, sizeof(*p));
	p->chunk = 5000;
	p->client.consume = p->server.consume = true;
	if ((r = aether_new(&c, &p->client.a)) < 0 || (r = aether_new(&none, &p->server.a)) < 0)
		return r;
	if ((r = pair_pump(p)) < 0)
		return r;
	if ((r = aether_open(p->client.a, "fault", 5, &s)) < 0 || (r = pair_pump(p)) < 0)
		return r;
	for (int i = 0; i < 5; i++) {
		long k = aether_send_data(p->client.a, s, 0, block, sizeof(block));
		if (k < 0)
			return (int)k;
		if ((r = pair_pump(p)) < 0)
			return r;
	}
	for (int i = 0; i < 20; i++)
		if ((r = aether_open(p->server.a, "x", 1, &t)) < 0 || (r = pair_pump(p)) < 0)
			return r;
	if ((r = aether_send_msg(p->server.a, s, block, 60000)) < 0 || (r = aether_ping(p->server.a, 1)) < 0 ||
	    (r = aether_close(p->server.a, s)) < 0 || (r = aether_reset(p->server.a, t, 1)) < 0 ||
	    (r = aether_goaway(p->client.a, 1)) < 0)
		return r;
	return pair_pump(p);
}

static void test_each_allocation_fails_once(void **state)
{
	unsigned n = 0;
	for (;; n++) {
		struct pair p;
		fault_alloc_arm(n);
		int r = converse(&p);
		bool reached = fault_alloc_disarm();
		/* A failed consume has no result: the error sticks to its core. */
		if (!r && p.client.a && p.server.a)
			r = aether_error(p.client.a) ? aether_error(p.client.a) : aether_error(p.server.a);
		pair_done(&p);
		if (!reached) {
			assert_int_equal(r, 0);
			break;
		}
		if (r != -ENOMEM)
			fail_msg("allocation %u failed and the result was %d", n, r);
		assert_true(n < 10000);
	}
	assert_true(n > 20); /* it did get through the interesting ones */
}

static void test_failed_open_leaves_the_connection_usable(void **state)
{
	struct pair p;
	uint32_t s = 0, before = 7;
	pair_init(&p, 4096);
	assert_int_equal(pair_pump(&p), 0);
	fault_alloc_arm(0); /* the stream itself: nothing was queued yet */
	assert_int_equal(aether_open(p.client.a, "x", 1, &before), -ENOMEM);
	assert_true(fault_alloc_disarm());
	assert_int_equal(before, 7); /* outputs are not touched on failure */
	assert_int_equal(aether_error(p.client.a), 0);
	assert_int_equal(aether_open(p.client.a, "x", 1, &s), 0);
	assert_int_equal(pair_pump(&p), 0);
	assert_int_equal(s, 1);
	pair_done(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_allocation_fails_once),
		cmocka_unit_test(test_failed_open_leaves_the_connection_usable),
	};
	return cmocka_run_group_tests_name("aether_fault", tests, NULL, NULL);
}
