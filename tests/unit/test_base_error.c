/* The error object: codes are complete and distinct, words are bounded. */
#include "unit.h"
#include "base/cleanup.h"
#include "base/error.h"

static void test_every_code_is_whole(void **state)
{
	for (int c = 0; c < DSEC_E_COUNT_; c++) {
		const char *name = dsec_code_name(c);
		assert_non_null(name);
		assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
		assert_int_equal(dsec_code_from_name(name), c); /* so names are distinct */
		int http = dsec_code_http(c);
		assert_true(c == DSEC_OK ? http == 200 : http >= 400 && http < 600);
		if (c == DSEC_OK)
			continue;
		assert_non_null(dsec_fault_name(dsec_code_fault(c)));
		/* A caller's mistake is 4xx, so that no client retries it blindly. */
		if (dsec_code_fault(c) == DSEC_FAULT_CALLER)
			assert_true(http < 500);
		/* 429 and 503 promise that a retry may help. */
		if (http == 429 || http == 503)
			assert_true(dsec_code_retry(c));
	}
	assert_string_equal(dsec_code_name(DSEC_E_COUNT_), "internal");
	assert_int_equal(dsec_code_http(DSEC_E_COUNT_), 500);
	assert_int_equal(dsec_code_from_name("no_such_code"), DSEC_E_INTERNAL);
}

static void test_words(void **state)
{
	struct dsec_error e = { 0 };
	assert_int_equal(dsec_error_set(NULL, -EINVAL, DSEC_E_BAD_FIELD, "x"), -EINVAL);
	assert_int_equal(dsec_error_errno(NULL, -EIO, "x"), -EIO);
	assert_int_equal(dsec_error_set(&e, -EINVAL, DSEC_E_BAD_FIELD, "cpu must be %d", 1), -EINVAL);
	assert_int_equal(e.code, DSEC_E_BAD_FIELD);
	assert_string_equal(e.message, "cpu must be 1");
	assert_int_equal(dsec_error_errno(&e, -ENOSPC, "writing %s", "f"), -ENOSPC);
	assert_int_equal(e.code, DSEC_E_DISK_FULL);
	assert_string_equal(e.message, "writing f: No space left on device");
	dsec_error_errno(&e, -ETIMEDOUT, "t");
	assert_int_equal(e.code, DSEC_E_DEADLINE);
	dsec_error_errno(&e, -EMFILE, "t");
	assert_int_equal(e.code, DSEC_E_CAPACITY);
	dsec_error_errno(&e, -EIO, "t");
	assert_int_equal(e.code, DSEC_E_INTERNAL);
}

static void test_long_words_are_cut(void **state)
{
	struct {
		struct dsec_error e;
		char guard[16];
	} box;
	char words[2 * DSEC_ERROR_MESSAGE_MAX];
	memset(&box, 0x5a, sizeof(box));
	memset(words, 'w', sizeof(words));
	words[sizeof(words) - 1] = 0;
	dsec_error_set(&box.e, -1, DSEC_E_INTERNAL, "%s", words);
	assert_int_equal(strlen(box.e.message), DSEC_ERROR_MESSAGE_MAX - 1);
	dsec_error_errno(&box.e, -EIO, "%s", words);
	assert_int_equal(strlen(box.e.message), DSEC_ERROR_MESSAGE_MAX - 1);
	for (size_t n = DSEC_ERROR_MESSAGE_MAX - 30; n <= DSEC_ERROR_MESSAGE_MAX + 1; n++) {
		dsec_error_errno(&box.e, -EIO, "%.*s", (int)n, words);
		assert_true(strlen(box.e.message) < DSEC_ERROR_MESSAGE_MAX);
	}
	for (size_t i = 0; i < sizeof(box.guard); i++)
		assert_int_equal(box.guard[i], 0x5a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_code_is_whole),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_long_words_are_cut),
	};
	return cmocka_run_group_tests_name("base_error", tests, NULL, NULL);
}
