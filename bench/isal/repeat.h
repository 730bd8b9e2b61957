// Functions that do the same work many times in one call from Go. A call from Go to C takes
// some tens of nanoseconds, which must not count as the peer's time.
#ifndef SOFTMKEY_BENCH_REPEAT_H
#define SOFTMKEY_BENCH_REPEAT_H

#include "t10dif.h"

enum dif_op { DIF_GENERATE, DIF_VERIFY, DIF_GENERATE_COPY, DIF_VERIFY_COPY };

// Returns the number of the first bad block, or n.
uint32_t dif_repeat(enum dif_op op, uint8_t *dst, uint8_t *src, uint32_t n, const struct dif *c, size_t times);

uint64_t sum_repeat(int kind, uint8_t *p, size_t stride, size_t size, size_t n, size_t times);
void copy_repeat(uint8_t *dst, const uint8_t *src, size_t n, size_t times);

#endif
