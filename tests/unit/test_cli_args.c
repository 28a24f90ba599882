/* Values of options: what is one, what is none, the limits. */
#include "unit.h"
#include "cli/cli.h"
#include "cli/cp_path.h"
#include "cli/session.h"

static void test_args_durations(void **state)
{
	static const struct {
		const char *text;
		double seconds; /* -1: none */
	} cases[] = {
		{ "30", 30 }, { "30s", 30 }, { "5m", 300 }, { "2h", 7200 }, { "1d", 86400 }, { "0.5", 0.5 }, { "0", 0 },
		{ "", -1 }, { "s", -1 }, { "-1", -1 }, { "+1", -1 }, { " 1", -1 }, { "1 s", -1 }, { "1ms", -1 }, { "1e3", -1 },
		{ "0x10", -1 }, { "inf", -1 }, { "nan", -1 }, { "1.2.3", -1 }, { "9999999999999", -1 }, { "5M", -1 },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		double got = -1;
		assert_int_equal(parse_duration(cases[i].text, &got), cases[i].seconds >= 0);
		assert_true(got == cases[i].seconds);
	}
}

static void test_args_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t mb; /* 0: none */
	} cases[] = { { "512", 512 }, { "512m", 512 }, { "2g", 2048 }, { "1.5G", 1536 }, { "1t", 1048576 },
		      { "0", 0 },     { "0.5", 0 },    { "g", 0 },     { "12k", 0 },     { "-2g", 0 } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t got = 0;
		assert_int_equal(parse_mebibytes(cases[i].text, &got), cases[i].mb > 0);
		assert_int_equal(got, cases[i].mb);
	}
}

static void test_args_counts(void **state)
{
	uint64_t n = 7;
	assert_true(parse_count("0", 10, &n));
	assert_int_equal(n, 0);
	assert_true(parse_count("10", 10, &n));
	assert_false(parse_count("11", 10, &n));
	assert_false(parse_count("", 10, &n));
	assert_false(parse_count("1x", 10, &n));
	assert_false(parse_count("18446744073709551616", UINT64_MAX, &n)); /* 2^64 */
}

static void test_args_pairs(void **state)
{
	struct dsec_pair p;
	char plain[] = "K=V=W", empty[] = "K=", none[] = "=V", bare[] = "DSEC_TEST_X", missing[] = "DSEC_TEST_NO";
	assert_true(parse_pair(plain, false, &p));
	assert_string_equal(p.name, "K");
	assert_string_equal(p.value, "V=W");
	assert_true(parse_pair(empty, false, &p));
	assert_string_equal(p.value, "");
	assert_false(parse_pair(none, false, &p));
	setenv("DSEC_TEST_X", "y", 1);
	assert_false(parse_pair(bare, false, &p));
	assert_true(parse_pair(bare, true, &p));
	assert_string_equal(p.value, "y");
	assert_false(parse_pair(missing, true, &p));
}

static void check_place(const char *word, bool remote, const char *id, const char *path, bool content, bool slash)
{
	struct cp_place p;
	assert_int_equal(cp_place_parse(word, &p), 0);
	assert_int_equal(p.remote, remote);
	if (remote)
		assert_string_equal(p.id, id);
	assert_string_equal(p.path, path);
	assert_int_equal(p.content, content);
	assert_int_equal(p.slash, slash);
	cp_place_done(&p);
}

static void test_args_cp_places(void **state)
{
	check_place("sb-e0-abc:/etc/passwd", true, "sb-e0-abc", "/etc/passwd", false, false);
	check_place("sb-e0-abc:", true, "sb-e0-abc", ".", false, false);
	check_place("sb-e0-abc:a:b", true, "sb-e0-abc", "a:b", false, false);
	check_place("sb-e0-abc:/d/.", true, "sb-e0-abc", "/d/.", true, false);
	check_place("./sb-x:y", false, NULL, "./sb-x:y", false, false);
	check_place("dir/sb-x:y", false, NULL, "dir/sb-x:y", false, false);
	check_place("sb-/x:y", false, NULL, "sb-/x:y", false, false);
	check_place("c:file", false, NULL, "c:file", false, false);
	check_place("d/", false, NULL, "d/", false, true);
	check_place(".", false, NULL, ".", true, false);
	struct cp_place p;
	assert_int_equal(cp_place_parse("", &p), -EINVAL);
}

static void test_args_cp_names(void **state)
{
	static const char *const cases[][2] = { { "/a/b", "b" }, { "a/b/", "b" }, { "a", "a" }, { "/", "" }, { "a/..", "" },
						{ ".", "" },     { "a/.", "" },   { "..a", "..a" }, { "", "" } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *name = cp_base_name(cases[i][0]);
		assert_string_equal(name, cases[i][1]);
		free(name);
	}
	char *joined = cp_join("/a/", "b");
	assert_string_equal(joined, "/a/b");
	free(joined);
	joined = cp_join("/a", "");
	assert_string_equal(joined, "/a");
	free(joined);
}

static void test_args_signals_and_status(void **state)
{
	assert_int_equal(signal_number("KILL"), 9);
	assert_int_equal(signal_number("SIGTERM"), 15);
	assert_int_equal(signal_number("15"), 15);
	assert_int_equal(signal_number("NOSUCH"), 0);
	assert_int_equal(signal_number("0"), 0);
	struct dsec_exec ended = { .has_exit_code = true, .exit_code = 255, .killed_by = "" };
	struct dsec_exec killed = { .signal = "KILL", .killed_by = "" };
	assert_int_equal(session_status(&ended, true), 255);
	assert_int_equal(session_status(&killed, true), 137);
	assert_int_equal(session_status(&(struct dsec_exec){ .killed_by = "" }, true), EXIT_NOT_RUN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_args_durations), cmocka_unit_test(test_args_sizes),
		cmocka_unit_test(test_args_counts),    cmocka_unit_test(test_args_pairs),
		cmocka_unit_test(test_args_cp_places), cmocka_unit_test(test_args_cp_names),
		cmocka_unit_test(test_args_signals_and_status),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
