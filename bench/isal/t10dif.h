// The loop over blocks of a storage stack's DIF library. It computes the guard of each block
// with one call of ISA-L, and sets or checks the three parts of its field as a context says.
// Written from the public interface of SPDK's lib/util (dif.h). It does less than SPDK's code,
// which also supports scatter lists and more formats.
#ifndef SOFTMKEY_BENCH_T10DIF_H
#define SOFTMKEY_BENCH_T10DIF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <isa-l.h>

struct dif {
	uint32_t block_size;
	uint16_t seed;
	uint16_t app_tag;
	uint16_t app_mask;
	uint32_t ref_tag;
	bool check_guard, check_app, check_ref;
};

void dif_generate(uint8_t *buf, uint32_t n, const struct dif *c);
uint32_t dif_verify(uint8_t *buf, uint32_t n, const struct dif *c);
void dif_generate_copy(uint8_t *dst, uint8_t *src, uint32_t n, const struct dif *c);
uint32_t dif_verify_copy(uint8_t *dst, uint8_t *src, uint32_t n, const struct dif *c);

uint64_t sum_blocks(int kind, uint8_t *p, size_t stride, size_t size, size_t n);
void copy_memory(uint8_t *dst, const uint8_t *src, size_t n);

#endif
