/* hashmap against a plain array as its model, with growth and tombstones. */
#include "unit.h"
#include "base/hashmap.h"
#include "fault.h"

#define KEYS 700

static void test_against_a_model(void **state)
{
	struct hashmap m = { 0 };
	static void *model[KEYS];
	static int values[KEYS];
	size_t live = 0;
	uint32_t rng = 1;
	for (int i = 0; i < 200000; i++) {
		rng = rng * 1664525u + 1013904223u;
		uint32_t k = (rng >> 8) % KEYS;
		/* Keys a power of two apart, as stream ids and pointers are. */
		uint64_t key = (uint64_t)k << (k % 3 ? 4 : 33);
		if (rng & 0x80) {
			int r = hashmap_put_u64(&m, key, &values[k]);
			bool taken = model[k] != NULL;
			assert_int_equal(r, taken ? -EEXIST : 0);
			live += !taken;
			model[k] = &values[k];
		} else {
			assert_ptr_equal(hashmap_remove_u64(&m, key), model[k]);
			live -= model[k] != NULL;
			model[k] = NULL;
		}
		assert_ptr_equal(hashmap_get_u64(&m, key), model[k]);
		assert_int_equal(hashmap_len(&m), live);
	}
	size_t it = 0, seen = 0;
	void *v;
	while ((v = hashmap_next(&m, &it))) {
		assert_ptr_equal(model[(int *)v - values], v);
		seen++;
	}
	assert_int_equal(seen, live);
	assert_true(m.cap < 16 * KEYS); /* tombstones do not make it grow for ever */
	hashmap_done(&m);
}

static void test_string_keys(void **state)
{
	struct hashmap m = { 0 };
	static char keys[300][16];
	assert_null(hashmap_get(&m, "none"));
	assert_null(hashmap_remove(&m, "none"));
	for (int i = 0; i < 300; i++) {
		snprintf(keys[i], sizeof(keys[i]), "sb-e0-%d", i);
		assert_int_equal(hashmap_put(&m, keys[i], keys[i]), 0);
	}
	assert_int_equal(hashmap_put(&m, "sb-e0-7", "other"), -EEXIST);
	assert_ptr_equal(hashmap_get(&m, "sb-e0-299"), keys[299]); /* by content, not by pointer */
	assert_null(hashmap_get(&m, "sb-e0-300"));
	assert_null(hashmap_get(&m, ""));
	/* Removing the current entry while iterating is allowed. */
	size_t it = 0;
	char *v;
	while ((v = hashmap_next(&m, &it)))
		if (atoi(v + 6) % 2)
			assert_ptr_equal(hashmap_remove(&m, v), v);
	assert_int_equal(hashmap_len(&m), 150);
	for (int i = 0; i < 300; i++)
		assert_ptr_equal(hashmap_get(&m, keys[i]), i % 2 ? NULL : keys[i]);
	hashmap_done(&m);
	assert_int_equal(hashmap_len(&m), 0);
}

static void test_without_memory(void **state)
{
	struct hashmap m = { 0 };
	int value = 0, failures = 0;
	for (uint64_t i = 0; i < 1000; i++) {
		fault_alloc_arm(0);
		int r = hashmap_put_u64(&m, i, &value);
		if (fault_alloc_disarm()) {
			failures++;
			assert_int_equal(r, -ENOMEM);
			assert_int_equal(hashmap_len(&m), i);
			r = hashmap_put_u64(&m, i, &value);
		}
		assert_int_equal(r, 0);
	}
	assert_true(failures > 3);
	for (uint64_t i = 0; i < 1000; i++)
		assert_ptr_equal(hashmap_get_u64(&m, i), &value);
	hashmap_done(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_a_model),
		cmocka_unit_test(test_string_keys),
		cmocka_unit_test(test_without_memory),
	};
	return cmocka_run_group_tests_name("base_hashmap", tests, NULL, NULL);
}
