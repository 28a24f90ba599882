/* fuzz_chronus_wire.h: the fuzz target of chronus's parsers, for its replay in tests. */
#pragma once
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* aborts on a failed check */
/* A mostly well-formed input made from `seed`; its size. max at least 4 KiB. */
size_t fuzz_chronus_generate(uint64_t seed, uint8_t *p, size_t max);
