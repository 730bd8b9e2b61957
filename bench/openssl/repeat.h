// Processing many data units in one call from Go. A call from Go to C takes some tens of
// nanoseconds, which must not count as the peer's time.
#ifndef SOFTMKEY_BENCH_OPENSSL_REPEAT_H
#define SOFTMKEY_BENCH_OPENSSL_REPEAT_H

#include "openssl.h"

#include <stddef.h>

// Does n units of size bytes each, with tweaks from first on, times times. Returns 0 if
// OpenSSL refuses something.
int xts_repeat(EVP_CIPHER_CTX *c, uint8_t *dst, const uint8_t *src, int size, size_t n, uint64_t first, size_t times);

#endif
