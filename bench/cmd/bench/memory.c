#include "memory.h"

#include <string.h>

// READ defines a function that reads memory with four vectors of SIZE bytes at a time. Each
// instruction set has a function with its own size of vectors, because compilers generate
// slow code for vectors that are larger than a register.
#define READ(NAME, SIZE)                                                        \
	static void NAME(const uint8_t *p, size_t n, size_t times)              \
	{                                                                       \
		typedef uint64_t vector __attribute__((vector_size(SIZE)));     \
		vector a = { 0 }, b = a, c = a, d = a, v;                       \
		for (; times > 0; times--) {                                    \
			for (size_t i = 0; i < n; i += 4 * SIZE) {              \
				memcpy(&v, p + i, SIZE);                        \
				a |= v;                                         \
				memcpy(&v, p + i + SIZE, SIZE);                 \
				b |= v;                                         \
				memcpy(&v, p + i + 2 * SIZE, SIZE);             \
				c |= v;                                         \
				memcpy(&v, p + i + 3 * SIZE, SIZE);             \
				d |= v;                                         \
			}                                                       \
			/* Keeps the compiler from leaving out any of the reads. */ \
			a |= b | c | d;                                         \
			__asm__ volatile("" : : "m"(a) : "memory");             \
		}                                                               \
	}

READ(read16, 16)

#ifdef __x86_64__
__attribute__((target("avx2"))) READ(read32, 32)
__attribute__((target("avx512f"))) READ(read64, 64)
#endif

void read_repeat(const uint8_t *p, size_t n, size_t times)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx512f"))
		return read64(p, n, times);
	if (__builtin_cpu_supports("avx2"))
		return read32(p, n, times);
#endif
	read16(p, n, times);
}
