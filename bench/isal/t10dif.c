#include "t10dif.h"

#include <arpa/inet.h>
#include <string.h>

struct field {
	uint16_t guard;
	uint16_t app_tag;
	uint32_t ref_tag;
} __attribute__((packed));

static void set_field(uint8_t *p, uint16_t guard, uint32_t block, const struct dif *c)
{
	struct field *f = (struct field *)p;

	if (c->check_guard)
		f->guard = htons(guard);
	if (c->check_app)
		f->app_tag = htons(c->app_tag);
	if (c->check_ref)
		f->ref_tag = htonl(c->ref_tag + block);
}

static bool good_field(const uint8_t *p, uint16_t guard, uint32_t block, const struct dif *c)
{
	const struct field *f = (const struct field *)p;

	if (f->app_tag == 0xFFFF)
		return true;
	if (c->check_guard && ntohs(f->guard) != guard)
		return false;
	if (c->check_app && (ntohs(f->app_tag) & c->app_mask) != (c->app_tag & c->app_mask))
		return false;
	return !c->check_ref || ntohl(f->ref_tag) == c->ref_tag + block;
}

void dif_generate(uint8_t *buf, uint32_t n, const struct dif *c)
{
	for (uint32_t i = 0; i < n; i++) {
		uint16_t guard = crc16_t10dif(c->seed, buf, c->block_size);

		set_field(buf + c->block_size, guard, i, c);
		buf += c->block_size + sizeof(struct field);
	}
}

uint32_t dif_verify(uint8_t *buf, uint32_t n, const struct dif *c)
{
	for (uint32_t i = 0; i < n; i++) {
		uint16_t guard = crc16_t10dif(c->seed, buf, c->block_size);

		if (!good_field(buf + c->block_size, guard, i, c))
			return i;
		buf += c->block_size + sizeof(struct field);
	}
	return n;
}

void dif_generate_copy(uint8_t *dst, uint8_t *src, uint32_t n, const struct dif *c)
{
	for (uint32_t i = 0; i < n; i++) {
		uint16_t guard = crc16_t10dif_copy(c->seed, dst, src, c->block_size);

		set_field(dst + c->block_size, guard, i, c);
		src += c->block_size;
		dst += c->block_size + sizeof(struct field);
	}
}

uint32_t dif_verify_copy(uint8_t *dst, uint8_t *src, uint32_t n, const struct dif *c)
{
	for (uint32_t i = 0; i < n; i++) {
		uint16_t guard = crc16_t10dif_copy(c->seed, dst, src, c->block_size);

		if (!good_field(src + c->block_size, guard, i, c))
			return i;
		src += c->block_size + sizeof(struct field);
		dst += c->block_size;
	}
	return n;
}

uint64_t sum_blocks(int kind, uint8_t *p, size_t stride, size_t size, size_t n)
{
	uint64_t all = 0;

	for (; n > 0; n--, p += stride) {
		switch (kind) {
		case 0:
			all |= crc32_ieee(0, p, size);
			break;
		case 1:
			all |= crc32_iscsi(p, size, -1);
			break;
		default:
			all |= crc64_ecma_refl(0, p, size);
		}
	}
	return all;
}

void copy_memory(uint8_t *dst, const uint8_t *src, size_t n)
{
	memcpy(dst, src, n);
}
