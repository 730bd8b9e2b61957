// Reading memory without using the bytes, which is the limit of all checks.
#ifndef SOFTMKEY_BENCH_MEMORY_H
#define SOFTMKEY_BENCH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

// Reads n bytes, a multiple of 256, times times.
void read_repeat(const uint8_t *p, size_t n, size_t times);

#endif
