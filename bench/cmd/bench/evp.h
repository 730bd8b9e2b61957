// AES-XTS as OpenSSL offers it: one unit a call, the tweak set before it.
#ifndef SOFTMKEY_BENCH_EVP_H
#define SOFTMKEY_BENCH_EVP_H

#include <stddef.h>
#include <stdint.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

EVP_CIPHER_CTX *evp_xts(const uint8_t *key, int bits, int encrypt);

// Does n units of size bytes each, with tweaks from first on, times times. Returns 0 if
// OpenSSL refuses something.
int evp_run(EVP_CIPHER_CTX *c, uint8_t *dst, const uint8_t *src, int size, size_t n, uint64_t first, size_t times);

#endif
