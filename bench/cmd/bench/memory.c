#include "memory.h"

#include <string.h>

// A vector of 64 bytes is one register where the machine has such, else several: the
// compiler splits it.
typedef uint64_t vector __attribute__((vector_size(64)));

#ifdef __x86_64__
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
void read_repeat(const uint8_t *p, size_t n, size_t times)
{
	vector a = { 0 }, b = a, c = a, d = a, v;

	for (; times > 0; times--) {
		for (size_t i = 0; i < n; i += 256) {
			memcpy(&v, p + i, sizeof(v));
			a |= v;
			memcpy(&v, p + i + 64, sizeof(v));
			b |= v;
			memcpy(&v, p + i + 128, sizeof(v));
			c |= v;
			memcpy(&v, p + i + 192, sizeof(v));
			d |= v;
		}
		// All of it was wanted, and reading it again is not the same.
		a |= b | c | d;
		__asm__ volatile("" : : "m"(a) : "memory");
	}
}
