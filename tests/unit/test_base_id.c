/* Ids and names from outside: what is taken, what is not, at the limits. */
#include "unit.h"
#include "base/cleanup.h"
#include "base/id.h"

static void test_sandbox_ids(void **state)
{
	char a[SANDBOX_ID_MAX + 1], b[SANDBOX_ID_MAX + 1], edge[EDGE_NAME_MAX + 1];
	id_sandbox("e0", a);
	id_sandbox("e0", b);
	assert_string_not_equal(a, b);
	assert_true(id_sandbox_edge(a, edge));
	assert_string_equal(edge, "e0");
	id_sandbox("abcdefghij012345", a); /* the longest edge name */
	assert_int_equal(strlen(a), SANDBOX_ID_MAX);
	assert_true(id_sandbox_edge(a, edge));
	assert_string_equal(edge, "abcdefghij012345");
}

static void test_malformed_sandbox_ids(void **state)
{
#define R "abcdefghijklmnopqrstuvwxyz"
	static const char *const bad[] = {
		"", "sb", "sb-", "sb--" R, "sb-e0", "sb-e0-", "sb-e0-" R "a", "sb-e0-abcdefghijklmnopqrstuvwxy",
		"SB-e0-" R, "sb-E0-" R, "sb-e.0-" R, "sb-e0-ABCDEFGHIJKLMNOPQRSTUVWXYZ", "sb-e0-../../../../etc/passwd/aa",
		"sb-e0-abcdefghijklmnopqrstuvwxy1", "sb-abcdefghij0123456-" R, "ex-" R, "sb-e0-" R "\n", " sb-e0-" R,
	};
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		char edge[EDGE_NAME_MAX + 1] = "kept";
		if (id_sandbox_edge(bad[i], edge))
			fail_msg("accepted: %s", bad[i]);
		assert_string_equal(edge, "kept");
	}
	char edge[EDGE_NAME_MAX + 1];
	assert_true(id_sandbox_edge("sb-e0-" R, edge));
}

static void test_exec_ids(void **state)
{
	char id[EXEC_ID_MAX + 1], longest[EXEC_ID_MAX + 2];
	id_exec(id);
	assert_true(id_exec_valid(id));
	memset(longest, 'x', sizeof(longest));
	longest[EXEC_ID_MAX + 1] = 0;
	assert_false(id_exec_valid(longest));
	longest[EXEC_ID_MAX] = 0;
	assert_true(id_exec_valid(longest));
	static const char *const bad[] = { "", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa9", "a:b", "%41" };
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(id_exec_valid(bad[i]));
	static const char *const good[] = { "a", "A-1_2.b", "0", "-", "_" };
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(id_exec_valid(good[i]));
}

static void test_names(void **state)
{
	char longest[NAME_MAX_LEN + 2];
	memset(longest, 'n', sizeof(longest));
	longest[NAME_MAX_LEN + 1] = 0;
	assert_false(id_name_valid(longest));
	longest[NAME_MAX_LEN] = 0;
	assert_true(id_name_valid(longest));
	static const char *const bad[] = { "", ".", "-a", "_a", ".a", "A", "a/b", "a b", "a@1", "a:b", "\xff" };
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(id_name_valid(bad[i]));
	assert_true(id_name_valid("base"));
	assert_true(id_name_valid("0.9-rc_1"));
	assert_false(id_edge_name_valid(""));
	assert_false(id_edge_name_valid("e-0"));
	assert_true(id_edge_name_valid("abcdefghij012345"));
	assert_false(id_edge_name_valid("abcdefghij0123456"));
}

static void test_random_uses_the_whole_alphabet(void **state)
{
	bool seen[256] = { false };
	char r[ID_RANDOM_LEN + 1];
	for (int i = 0; i < 200; i++) {
		id_random(r);
		assert_int_equal(strlen(r), ID_RANDOM_LEN);
		for (int k = 0; k < ID_RANDOM_LEN; k++)
			seen[(uint8_t)r[k]] = true;
	}
	int n = 0;
	for (int i = 0; i < 256; i++)
		n += seen[i];
	assert_int_equal(n, 32); /* 5,200 draws: missing one has odds below 1e-70 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sandbox_ids),
		cmocka_unit_test(test_malformed_sandbox_ids),
		cmocka_unit_test(test_exec_ids),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_random_uses_the_whole_alphabet),
	};
	return cmocka_run_group_tests_name("base_id", tests, NULL, NULL);
}
