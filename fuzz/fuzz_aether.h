/* fuzz_aether.h: the fuzz target of the aether core, for its replay in tests. */
#pragma once
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* aborts on a failed check */
/* Inputs replayed from a file or, recursively, a directory; negative errno. */
int fuzz_aether_replay(const char *path);
/* A mostly well-formed input made from `seed`; its size. max at least 1 KiB. */
size_t fuzz_aether_generate(uint64_t seed, uint8_t *p, size_t max);
