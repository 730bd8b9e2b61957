#include "repeat.h"

uint32_t dif_repeat(enum dif_op op, uint8_t *dst, uint8_t *src, uint32_t n, const struct dif *c, size_t times)
{
	uint32_t good = n, m;

	for (; times > 0; times--) {
		m = n;
		switch (op) {
		case DIF_GENERATE:
			dif_generate(src, n, c);
			break;
		case DIF_VERIFY:
			m = dif_verify(src, n, c);
			break;
		case DIF_GENERATE_COPY:
			dif_generate_copy(dst, src, n, c);
			break;
		case DIF_VERIFY_COPY:
			m = dif_verify_copy(dst, src, n, c);
			break;
		}
		if (m < good)
			good = m;
	}
	return good;
}

uint64_t sum_repeat(int kind, uint8_t *p, size_t stride, size_t size, size_t n, size_t times)
{
	uint64_t all = 0;

	for (; times > 0; times--)
		all |= sum_blocks(kind, p, stride, size, n);
	return all;
}

void copy_repeat(uint8_t *dst, const uint8_t *src, size_t n, size_t times)
{
	for (; times > 0; times--) {
		copy_memory(dst, src, n);
		// Keeps the compiler from leaving out copies of the same bytes.
		__asm__ volatile("" : : "r"(dst), "r"(src) : "memory");
	}
}
