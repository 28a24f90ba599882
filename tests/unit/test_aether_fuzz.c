/* Replays the fuzz corpus and a fixed set of generated inputs (fuzz/). */
#include "unit.h"
#include "fuzz_aether.h"
#include "../../fuzz/fuzz_aether.c"

static void test_corpus(void **state)
{
	int n = fuzz_aether_replay(TEST_SOURCE_ROOT "/fuzz/corpus/aether");
	assert_true(n >= 10); /* found, and not emptied by accident */
}

static void test_generated(void **state)
{
	static uint8_t data[8192];
	for (uint64_t seed = 0; seed < 3000; seed++)
		LLVMFuzzerTestOneInput(data, fuzz_aether_generate(seed, data, sizeof(data)));
}

/* Generated inputs are of use only if many get far and many end in a violation. */
static void test_generated_inputs_reach_deep(void **state)
{
	static uint8_t data[8192];
	static const uint8_t whole[] = { 0 };
	unsigned clean = 0, violations = 0;
	for (uint64_t seed = 0; seed < 300; seed++) {
		size_t n = fuzz_aether_generate(seed, data, sizeof(data));
		struct outcome o = run(data + 2, n - 2, data[0], whole, 1);
		clean += !o.err && o.events > 5;
		violations += o.err == -EPROTO;
	}
	assert_true(clean > 30);
	assert_true(violations > 30);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_corpus),
		cmocka_unit_test(test_generated),
		cmocka_unit_test(test_generated_inputs_reach_deep),
	};
	return cmocka_run_group_tests_name("aether_fuzz", tests, NULL, NULL);
}
