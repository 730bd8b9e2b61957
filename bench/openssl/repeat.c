#include "repeat.h"

int xts_repeat(EVP_CIPHER_CTX *c, uint8_t *dst, const uint8_t *src, int size, size_t n, uint64_t first, size_t times)
{
	uint8_t tweak[16] = { 0 };

	for (; times > 0; times--) {
		for (size_t i = 0; i < n; i++) {
			for (int k = 0; k < 8; k++)
				tweak[k] = (uint8_t)((first + i) >> 8 * k);
			if (!xts_unit(c, dst + i * size, src + i * size, size, tweak))
				return 0;
		}
	}
	return 1;
}
