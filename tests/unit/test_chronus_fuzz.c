/* Replays the corpus and a fixed set of generated inputs of chronus's parsers (fuzz/). */
#include "unit.h"
#include <dirent.h>
#include "../../fuzz/fuzz_chronus_wire.c"

static void test_corpus(void **state)
{
	DIR *d = opendir(TEST_SOURCE_ROOT "/fuzz/corpus/chronus");
	struct dirent *de;
	int n = 0;
	assert_non_null(d);
	while ((de = readdir(d))) {
		char *text;
		size_t len;
		if (de->d_name[0] == '.')
			continue;
		assert_int_equal(read_file_at(dirfd(d), de->d_name, 1 << 20, &text, &len), 0);
		LLVMFuzzerTestOneInput((uint8_t *)text, len);
		free(text);
		n++;
	}
	closedir(d);
	assert_true(n >= 6); /* found, and not emptied by accident */
}

static void test_generated(void **state)
{
	static uint8_t data[1 << 15];
	for (uint64_t seed = 0; seed < 20000; seed++)
		LLVMFuzzerTestOneInput(data, fuzz_chronus_generate(seed, data, sizeof(data)));
}

/* Generated inputs are of use only if many get through and many are refused. */
static void test_generated_inputs_reach_deep(void **state)
{
	static uint8_t data[1 << 15];
	struct wire_open o;
	unsigned good = 0, bad = 0, tar_good = 0, tar_bad = 0;
	for (uint64_t seed = 0; seed < 3000; seed++) {
		size_t n = fuzz_chronus_generate(seed, data, sizeof(data)), entries;
		if (data[0] % PARSERS == PARSE_OPEN)
			*(wire_decode_open(data + 1, n - 1, &o) == 0 ? &good : &bad) += 1;
		if (data[0] % PARSERS == PARSE_TAR)
			*(parse_tar(data + 1, n - 1, 512, &entries) == 0 ? &tar_good : &tar_bad) += 1;
	}
	assert_true(good > 30 && bad > 30);
	assert_true(tar_good > 30 && tar_bad > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_corpus),
		cmocka_unit_test(test_generated),
		cmocka_unit_test(test_generated_inputs_reach_deep),
	};
	return cmocka_run_group_tests_name("chronus_fuzz", tests, NULL, NULL);
}
