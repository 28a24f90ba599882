/* test_control_idempotency.c: keys at their bounds, hashes of bodies, ids and edges of keys. */
#include "unit.h"
#include "control/idempotency.h"
#include "control/limits.h"

static const uint8_t secret[STORE_SECRET_LEN] = { 1, 2, 3 };
static const uint8_t other_secret[STORE_SECRET_LEN] = { 1, 2, 4 };

static void keys_at_their_bounds(void **state)
{
	char longest[LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX + 2];
	const char *key = "kept";
	struct dsec_error e = { 0 };
	memset(longest, 'k', sizeof(longest));
	longest[LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX + 1] = 0;
	assert_int_equal(idempotency_choose(NULL, longest, &key, &e), -EINVAL);
	longest[LIMIT_IDEMPOTENCY_KEY_LENGTH_MAX] = 0;
	assert_string_equal(key, "kept");
	assert_int_equal(idempotency_choose(NULL, longest, &key, &e), 0);
	assert_ptr_equal(key, longest);
	assert_int_equal(idempotency_choose(NULL, NULL, &key, &e), 0);
	assert_null(key);
	assert_int_equal(idempotency_choose("a", "a", &key, &e), 0);
	assert_int_equal(idempotency_choose("a", "b", &key, &e), -EINVAL);
	static const char *const bad[] = { "", "a b", "a/b", "\xc3\xbc", "a\n", "a:b" };
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(idempotency_choose(bad[i], NULL, &key, &e), -EINVAL);
		assert_int_equal(e.code, DSEC_E_BAD_FIELD);
	}
	assert_int_equal(idempotency_choose("Az09._-", NULL, &key, &e), 0);
}

static void hash_of(const char *text, uint8_t ret[IDEMPOTENCY_HASH_LEN])
{
	json_t *v = json_loads(text, 0, NULL);
	size_t members = json_object_size(v);
	assert_int_equal(idempotency_hash(v, ret), 0);
	assert_int_equal(json_object_size(v), members); /* the body keeps its key */
	json_decref(v);
}

static void hashes(void **state)
{
	uint8_t a[IDEMPOTENCY_HASH_LEN], b[IDEMPOTENCY_HASH_LEN];
	hash_of("{\"environment\":\"b\",\"labels\":{\"x\":\"1\",\"y\":\"2\"},\"idempotency_key\":\"k\"}", a);
	hash_of("{\"labels\":{\"y\":\"2\",\"x\":\"1\"},\"environment\":\"b\"}", b);
	assert_memory_equal(a, b, sizeof(a));
	hash_of("{\"labels\":{\"y\":\"2\",\"x\":\"1\"},\"environment\":\"c\"}", b);
	assert_memory_not_equal(a, b, sizeof(a));
}

static void ids(void **state)
{
	char a[SANDBOX_ID_MAX + 1], b[SANDBOX_ID_MAX + 1], edge[EDGE_NAME_MAX + 1];
	idempotency_id(secret, "default", "k", "e0", a);
	assert_true(id_sandbox_edge(a, edge));
	assert_string_equal(edge, "e0");
	idempotency_id(secret, "default", "k", "e0", b);
	assert_string_equal(a, b);
	static const char *const differ[][3] = {
		{ "default", "l", "e0" }, { "other", "k", "e0" }, { "default", "k", "e1" }, { "defaul", "tk", "e0" },
	};
	for (size_t i = 0; i < sizeof(differ) / sizeof(differ[0]); i++) {
		idempotency_id(secret, differ[i][0], differ[i][1], differ[i][2], b);
		assert_string_not_equal(strrchr(a, '-'), strrchr(b, '-'));
	}
	idempotency_id(other_secret, "default", "k", "e0", b);
	assert_string_not_equal(a, b);
}

static int best_of(const char *key, int edges)
{
	uint64_t best = 0;
	int at = -1;
	for (int i = 0; i < edges; i++) {
		char name[8];
		snprintf(name, sizeof(name), "e%d", i);
		uint64_t w = idempotency_weight(secret, "default", key, name);
		if (at < 0 || w > best) {
			best = w;
			at = i;
		}
	}
	return at;
}

/* Keys spread over the edges; an edge that is added takes some and moves no other. */
static void edges_of_keys(void **state)
{
	int share[5] = { 0 };
	for (int i = 0; i < 1000; i++) {
		char key[16];
		snprintf(key, sizeof(key), "key-%d", i);
		int four = best_of(key, 4), five = best_of(key, 5);
		assert_true(five == four || five == 4);
		share[five]++;
	}
	for (int i = 0; i < 5; i++)
		assert_in_range(share[i], 120, 280);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_at_their_bounds),
		cmocka_unit_test(hashes),
		cmocka_unit_test(ids),
		cmocka_unit_test(edges_of_keys),
	};
	return cmocka_run_group_tests_name("control idempotency", tests, NULL, NULL);
}
