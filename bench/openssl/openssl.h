#ifndef SOFTMKEY_BENCH_OPENSSL_H
#define SOFTMKEY_BENCH_OPENSSL_H

#include <stdint.h>
#include <openssl/evp.h>

// Each returns 0, or NULL, if OpenSSL refuses.
EVP_CIPHER_CTX *xts_new(const uint8_t *key, int bits, int encrypt);
int xts_unit(EVP_CIPHER_CTX *c, uint8_t *dst, const uint8_t *src, int size, const uint8_t *tweak);
int wrap(const uint8_t *kek, int bits, const uint8_t *key, int size, uint8_t *out);

#endif
