#include "openssl.h"

EVP_CIPHER_CTX *xts_new(const uint8_t *key, int bits, int encrypt)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();

	if (c && !EVP_CipherInit_ex(c, bits == 128 ? EVP_aes_128_xts() : EVP_aes_256_xts(), NULL, key, NULL, encrypt)) {
		EVP_CIPHER_CTX_free(c);
		return NULL;
	}
	return c;
}

int xts_unit(EVP_CIPHER_CTX *c, uint8_t *dst, const uint8_t *src, int size, const uint8_t *tweak)
{
	int len;

	return EVP_CipherInit_ex(c, NULL, NULL, NULL, tweak, -1) &&
	       EVP_CipherUpdate(c, dst, &len, src, size) && len == size;
}

int wrap(const uint8_t *kek, int bits, const uint8_t *key, int size, uint8_t *out)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	int len = 0, ok;

	if (!c)
		return 0;
	EVP_CIPHER_CTX_set_flags(c, EVP_CIPHER_CTX_FLAG_WRAP_ALLOW);
	ok = EVP_EncryptInit_ex(c, bits == 128 ? EVP_aes_128_wrap() : EVP_aes_256_wrap(), NULL, kek, NULL) &&
	     EVP_EncryptUpdate(c, out, &len, key, size) && len == size + 8;
	EVP_CIPHER_CTX_free(c);
	return ok;
}
