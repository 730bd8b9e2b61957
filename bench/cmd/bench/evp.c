#include "evp.h"

#include <string.h>

EVP_CIPHER_CTX *evp_xts(const uint8_t *key, int bits, int encrypt)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();

	if (c && !EVP_CipherInit_ex(c, bits == 128 ? EVP_aes_128_xts() : EVP_aes_256_xts(), NULL, key, NULL, encrypt)) {
		EVP_CIPHER_CTX_free(c);
		return NULL;
	}
	return c;
}

int evp_run(EVP_CIPHER_CTX *c, uint8_t *dst, const uint8_t *src, int size, size_t n, uint64_t first, size_t times)
{
	int len;

	for (; times > 0; times--) {
		for (size_t i = 0; i < n; i++) {
			uint64_t tweak[2] = { first + i, 0 }; // little-endian, as the machine

			if (!EVP_CipherInit_ex(c, NULL, NULL, NULL, (const uint8_t *)tweak, -1) ||
			    !EVP_CipherUpdate(c, dst + i * size, &len, src + i * size, size) || len != size)
				return 0;
		}
	}
	return 1;
}
