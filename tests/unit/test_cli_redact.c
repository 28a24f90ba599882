/* What is taken out of a bundle for a bug report: values that were learned, what looks like a key, new fields. */
#include "unit.h"
#include "cli/debug_redact.h"

static void expect(const struct redact *r, const char *before, const char *after)
{
	char text[256];
	snprintf(text, sizeof(text), "%s", before);
	redact_text(r, text, strlen(text), false);
	assert_string_equal(text, after);
}

static void test_learned(void **state)
{
	struct redact r = { 0 };
	redact_learn(&r, "abcdef");
	redact_learn(&r, "defghi");
	redact_learn(&r, "abc\"\xc3\xa4\nline two");
	redact_learn(&r, "xyz"); /* too short */
	expect(&r, "see abcdef, abcdefghi and ababcdef", "see ******, ********* and ab******");
	expect(&r, "xyz abc\"\xc3\xa4 line two", "xyz ****** ********");
	expect(&r, "{\"m\": \"abc\\\"\xc3\xa4\\nline two\"}", "{\"m\": \"*****************\"}");
	expect(&r, "", "");
	redact_done(&r);
}

static void test_looks_like_a_key(void **state)
{
	struct redact r = { 0 };
	expect(&r, "key dsk-0a1b2c.", "key dsk-*******");
	expect(&r, "Authorization: Bearer tok.en-1\r\n", "Authorization: Bearer ********\r\n");
	expect(&r, "?TOKEN=abc&x=1 password= 'p q'", "?TOKEN=***&x=1 password= '* q'");
	expect(&r, "{\"secret\": \"s3\"}", "{\"secret\": \"**\"}");
	expect(&r, "http://u:p@host/x http://host/a@b", "http://***@host/x http://host/a@b");
	expect(&r, "dsk-", "dsk-");
	expect(&r, "://", "://");
}

static void test_keys_only(void **state)
{
	struct redact r = { 0 };
	char text[] = "{\"ok\": true, \"key\": \"k-1234567\", \"m\": \"dsk-1\"}";
	redact_learn_key(&r, "k-1234567\n");
	redact_learn(&r, "true");
	redact_text(&r, text, strlen(text), true);
	assert_string_equal(text, "{\"ok\": true, \"key\": \"*********\", \"m\": \"dsk-*\"}");
	redact_done(&r);
}

static void test_too_many(void **state)
{
	struct redact r = { 0 };
	char value[32];
	for (int i = 0; i <= REDACT_VALUES_MAX; i++) {
		assert_int_equal(r.overflow, false);
		snprintf(value, sizeof(value), "value-%d", i);
		redact_learn(&r, value);
	}
	assert_int_equal(r.overflow, true);
	redact_learn(&r, "value-1"); /* known */
	assert_int_equal(r.n, REDACT_VALUES_MAX);
	redact_done(&r);
}

static void test_objects(void **state)
{
	struct redact r = { 0 };
	json_t *s = json_pack("{s:s, s:s, s:{s:s}, s:{s:s}, s:s, s:s, s:s}", "id", "sb-1", "message", "cannot: hush-env",
			      "labels", "team", "hush-label", "env", "TOKEN", "hush-env", "user", "hush-user-x", "cwd",
			      "/hush-cwd", "field_of_tomorrow", "hush-new");
	json_t *x = json_pack("{s:s, s:[s,s], s:{s:s,s:s}}", "id", "x1", "argv", "run", "--pass=hush-argv-piece", "error", "code",
			      "bad_cwd", "message", "no hush-argv-piece here");
	redact_learn_object(&r, s);
	redact_learn_object(&r, x);
	json_t *s2 = redact_sandbox(&r, s), *x2 = redact_exec(&r, x);
	char *a = json_dumps(s2, JSON_COMPACT), *b = json_dumps(x2, JSON_COMPACT);
	assert_null(strstr(a, "hush"));
	assert_null(strstr(b, "hush"));
	assert_non_null(strstr(a, "\"label_names\":[\"team\"]"));
	assert_non_null(strstr(a, "\"env_names\":[\"TOKEN\"]"));
	assert_non_null(strstr(b, "\"argv_words\":2"));
	assert_non_null(strstr(b, "\"error_code\":\"bad_cwd\""));
	free(a);
	free(b);
	json_decref(s);
	json_decref(x);
	json_decref(s2);
	json_decref(x2);
	redact_done(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_learned), cmocka_unit_test(test_looks_like_a_key),
					    cmocka_unit_test(test_keys_only),
					    cmocka_unit_test(test_too_many), cmocka_unit_test(test_objects) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
