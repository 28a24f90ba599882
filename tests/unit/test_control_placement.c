/* test_control_placement.c: filter, sample and score on snapshots, with seeds. */
#include "unit.h"
#include "control/placement.h"

#define GIB (1ull << 30)

static struct placement_edge edge(uint32_t live)
{
	return (struct placement_edge){ .connected = true, .known = true, .cpus = 4, .live = live, .max = 100,
					.memory_total = 16 * GIB, .memory_available = 8 * GIB };
}

static const struct placement_need small = { .cpu_millis = 1000, .memory_bytes = GIB };

static void filters(void **state)
{
	struct placement_edge e[6];
	struct placement_result r;
	size_t order[6];
	uint64_t seed = 1;
	for (int i = 0; i < 6; i++)
		e[i] = edge(10);
	e[0].connected = false;
	e[1].live = 100;                    /* full */
	e[2].live = 99, e[2].pending = 1;   /* full with what is on its way */
	e[3].cpus = 0;                      /* too small */
	e[4].live = 99;                     /* one is left */
	placement_order(e, 6, &small, &seed, order, &r);
	assert_int_equal(r.n, 2);
	assert_int_equal(order[0], 5);
	assert_int_equal(order[1], 4);
	assert_int_equal(r.connected, 5);
	assert_int_equal(r.too_small, 1);
	assert_int_equal(r.max_cpus, 4);
}

static void sizes_at_the_edge(void **state)
{
	struct placement_edge e = edge(0);
	struct placement_need need = { .cpu_millis = 4000, .memory_bytes = 16 * GIB };
	struct placement_result r;
	size_t order[1];
	uint64_t seed = 1;
	placement_order(&e, 1, &need, &seed, order, &r);
	assert_int_equal(r.n, 1);
	need.cpu_millis = 4001;
	placement_order(&e, 1, &need, &seed, order, &r);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.too_small, 1);
	need.cpu_millis = 4000;
	need.memory_bytes++;
	placement_order(&e, 1, &need, &seed, order, &r);
	assert_int_equal(r.n, 0);
	e.known = false; /* nothing heard yet: it may try */
	placement_order(&e, 1, &need, &seed, order, &r);
	assert_int_equal(r.n, 1);
}

static void best_of_the_sample_first(void **state)
{
	struct placement_edge e[PLACEMENT_SAMPLE];
	struct placement_result r;
	size_t order[PLACEMENT_SAMPLE];
	for (uint32_t i = 0; i < PLACEMENT_SAMPLE; i++)
		e[i] = edge(10 * i);
	for (uint64_t seed = 0; seed < 50; seed++) {
		uint64_t s = seed;
		placement_order(e, PLACEMENT_SAMPLE, &small, &s, order, &r);
		assert_int_equal(r.n, PLACEMENT_SAMPLE);
		for (size_t i = 0; i < PLACEMENT_SAMPLE; i++)
			assert_int_equal(order[i], i);
	}
}

static void same_seed_same_order(void **state)
{
	struct placement_edge e[64];
	struct placement_result r;
	size_t a[64], b[64], differ = 0;
	bool seen[64] = { false };
	for (int i = 0; i < 64; i++)
		e[i] = edge(5);
	for (uint64_t seed = 1; seed <= 20; seed++) {
		uint64_t s1 = seed, s2 = seed, s3 = seed + 1000;
		placement_order(e, 64, &small, &s1, a, &r);
		placement_order(e, 64, &small, &s2, b, &r);
		assert_memory_equal(a, b, sizeof(a));
		placement_order(e, 64, &small, &s3, b, &r);
		differ += memcmp(a, b, sizeof(a)) != 0;
	}
	assert_int_equal(differ, 20);
	for (int i = 0; i < 64; i++) { /* a permutation: nothing lost, nothing twice */
		assert_false(seen[a[i]]);
		seen[a[i]] = true;
	}
}

/* Equal edges get equal shares: no seed-independent favourite. */
static void spreads(void **state)
{
	struct placement_edge e[8];
	struct placement_result r;
	size_t order[8], first[8] = { 0 };
	uint64_t seed = 42;
	for (int i = 0; i < 8; i++)
		e[i] = edge(5);
	for (int i = 0; i < 8000; i++) {
		placement_order(e, 8, &small, &seed, order, &r);
		first[order[0]]++;
	}
	for (int i = 0; i < 8; i++) {
		assert_true(first[i] > 800);
		assert_true(first[i] < 1200);
	}
}

static void none(void **state)
{
	struct placement_result r;
	uint64_t seed = 1;
	placement_order(NULL, 0, &small, &seed, NULL, &r);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.connected, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(filters), cmocka_unit_test(sizes_at_the_edge),
		cmocka_unit_test(best_of_the_sample_first), cmocka_unit_test(same_seed_same_order),
		cmocka_unit_test(spreads), cmocka_unit_test(none),
	};
	return cmocka_run_group_tests_name("control placement", tests, NULL, NULL);
}
