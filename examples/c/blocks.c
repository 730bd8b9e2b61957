/* Every signature type, with both seeds and every block size, in the wire domain and in the
 * memory domain of a key. The peer sees the wire domain as plain bytes, and the near buffer is
 * the memory domain. Fields that the adapter generates are compared with a reference, and a
 * damaged byte must be found. */
#include "pair.h"

enum { CRC32, CRC32C, XP10, DIF_CRC, DIF_CSUM, KINDS };
static const char *const names[KINDS] = { "CRC32", "CRC32C", "CRC64_XP10", "T10-DIF CRC", "T10-DIF CSUM" };
static const int fields[KINDS] = { 4, 4, 8, 8, 8 };

enum { BLOCKS = 3, APP = 0x1234, REF = 0xfffffffe };

/* crc is a bitwise CRC of up to 64 bits, most significant bit first or reflected. */
static uint64_t crc(const uint8_t *p, size_t n, uint64_t poly, int bits, int reflected, uint64_t r)
{
	uint64_t top = 1ull << (bits - 1);
	for (size_t i = 0; i < n; i++) {
		if (reflected) {
			r ^= p[i];
			for (int b = 0; b < 8; b++)
				r = r & 1 ? r >> 1 ^ poly : r >> 1;
		} else {
			r ^= (uint64_t)p[i] << (bits - 8);
			for (int b = 0; b < 8; b++)
				r = r & top ? r << 1 ^ poly : r << 1;
		}
	}
	return bits == 64 ? r : r & ((1ull << bits) - 1);
}

static uint16_t ip_sum(const uint8_t *p, size_t n, uint32_t sum)
{
	for (size_t i = 0; i < n; i += 2) {
		sum += p[i] << 8 | p[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return ~sum;
}

/* field writes the field of a block. */
static void field(int kind, int ones, uint32_t number, const uint8_t *block, int size, uint8_t *out)
{
	uint64_t v;
	switch (kind) {
	case CRC32:
		put_be32(out, ~crc(block, size, 0x04c11db7, 32, 0, ones ? 0xffffffff : 0));
		break;
	case CRC32C:
		v = ~crc(block, size, 0x82f63b78, 32, 1, ones ? 0xffffffff : 0);
		for (int i = 0; i < 4; i++)
			out[i] = v >> 8 * i;
		break;
	case XP10:
		v = ~crc(block, size, 0x9a6c9329ac4bc9b5, 64, 1, ones ? ~0ull : 0);
		for (int i = 0; i < 8; i++)
			out[i] = v >> 8 * i;
		break;
	case DIF_CRC:
		put_dif(out, crc(block, size, 0x8bb7, 16, 0, ones ? 0xffff : 0), APP, REF + number);
		break;
	default:
		put_dif(out, ip_sum(block, size, ones ? 0xffff : 0), APP, REF + number);
	}
}

/* domain describes a kind for the driver. */
static void domain(struct mlx5dv_sig_block_domain *d, struct mlx5dv_sig_t10dif *dif, struct mlx5dv_sig_crc *c, int kind, int ones, enum mlx5dv_block_size size)
{
	*dif = (struct mlx5dv_sig_t10dif){
		.bg_type = kind == DIF_CRC ? MLX5DV_SIG_T10DIF_CRC : MLX5DV_SIG_T10DIF_CSUM, .bg = ones ? 0xffff : 0, .app_tag = APP, .ref_tag = REF,
		.flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP,
	};
	*c = (struct mlx5dv_sig_crc){
		.type = kind == CRC32 ? MLX5DV_SIG_CRC_TYPE_CRC32 : kind == CRC32C ? MLX5DV_SIG_CRC_TYPE_CRC32C : MLX5DV_SIG_CRC_TYPE_CRC64_XP10,
		.seed = !ones ? 0 : kind == XP10 ? ~0ull : 0xffffffff,
	};
	*d = (struct mlx5dv_sig_block_domain){ .sig_type = kind >= DIF_CRC ? MLX5DV_SIG_TYPE_T10DIF : MLX5DV_SIG_TYPE_CRC, .block_size = size };
	if (kind >= DIF_CRC)
		d->sig.dif = dif;
	else
		d->sig.crc = c;
}

/* check asks a key for its first error, and compares it with the damage. */
static void check(struct mlx5dv_mkey *key, const char *what, int bad)
{
	struct mlx5dv_mkey_err err;
	must(!mlx5dv_mkey_check(key, &err), "%s: mlx5dv_mkey_check", what);
	must(err.err_type == (bad ? MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD : MLX5DV_MKEY_NO_ERR), "%s: error %d", what, err.err_type);
}

static void one(struct pair *p, int kind, int ones, enum mlx5dv_block_size code, int size)
{
	static uint8_t data[BLOCKS * 4160], whole[BLOCKS * 4168];
	const int unit = size + fields[kind], DATA = BLOCKS * size, WHOLE = BLOCKS * unit;
	static const uint8_t masks[KINDS] = { MLX5DV_SIG_MASK_CRC32, MLX5DV_SIG_MASK_CRC32C, MLX5DV_SIG_MASK_CRC64_XP10, 0xff, 0xff };
	struct mlx5dv_mkey *key = key_create(p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);
	struct mlx5dv_sig_block_domain d;
	struct mlx5dv_sig_t10dif dif;
	struct mlx5dv_sig_crc c;
	char what[100];

	pattern(data, DATA, kind * 100 + size);
	for (int i = 0; i < BLOCKS; i++) {
		memcpy(whole + i * unit, data + i * size, size);
		field(kind, ones, i, data + i * size, size, whole + i * unit + size);
	}
	domain(&d, &dif, &c, kind, ones, code);

	/* On the wire: the peer's READ generates, its WRITE checks and strips. */
	snprintf(what, sizeof what, "%s, seed %s, %d bytes, wire", names[kind], ones ? "ones" : "0", size);
	struct mlx5dv_sig_block_attr wire = { .wire = &d, .check_mask = masks[kind] };
	key_start(p, key, 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, DATA);
	mlx5dv_wr_set_mkey_sig_block(p->dv, &wire);
	configured(p);
	memcpy(p->near.buf, data, DATA);
	transfer(&p->far, IBV_WR_RDMA_READ, (uintptr_t)p->far.buf, WHOLE, p->far.mr->lkey, 0, key->rkey);
	equal(what, p->far.buf, whole, WHOLE);
	memset(p->near.buf, 0, DATA);
	transfer(&p->far, IBV_WR_RDMA_WRITE, (uintptr_t)p->far.buf, WHOLE, p->far.mr->lkey, 0, key->rkey);
	equal(what, p->near.buf, data, DATA);

	/* In memory: SEND checks and strips, RECV generates. */
	snprintf(what, sizeof what, "%s, seed %s, %d bytes, memory", names[kind], ones ? "ones" : "0", size);
	struct mlx5dv_sig_block_attr mem = { .mem = &d, .check_mask = masks[kind] };
	key_start(p, key, 1, IBV_ACCESS_LOCAL_WRITE, WHOLE);
	mlx5dv_wr_set_mkey_sig_block(p->dv, &mem);
	configured(p);
	memcpy(p->near.buf, whole, WHOLE);
	receive(&p->far, (uintptr_t)p->far.buf, ROOM, p->far.mr->lkey);
	transfer(&p->near, IBV_WR_SEND, 0, DATA, key->lkey, 0, 0);
	poll_one(p->far.cq, IBV_WC_SUCCESS, what);
	equal(what, p->far.buf, data, DATA);
	check(key, what, 0);
	memset(p->near.buf, 0, WHOLE);
	receive(&p->near, 0, DATA, key->lkey);
	transfer(&p->far, IBV_WR_SEND, (uintptr_t)p->far.buf, DATA, p->far.mr->lkey, 0, 0);
	poll_one(p->near.cq, IBV_WC_SUCCESS, what);
	equal(what, p->near.buf, whole, WHOLE);
	check(key, what, 0);
	p->near.buf[(BLOCKS - 1) * unit + 7] ^= 0x20;
	receive(&p->far, (uintptr_t)p->far.buf, ROOM, p->far.mr->lkey);
	transfer(&p->near, IBV_WR_SEND, 0, DATA, key->lkey, 0, 0);
	poll_one(p->far.cq, IBV_WC_SUCCESS, what);
	check(key, what, 1);
	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
}

int main(void)
{
	static const struct { enum mlx5dv_block_size code; int bytes; } sizes[] = {
		{ MLX5DV_BLOCK_SIZE_512, 512 }, { MLX5DV_BLOCK_SIZE_520, 520 }, { MLX5DV_BLOCK_SIZE_4048, 4048 },
		{ MLX5DV_BLOCK_SIZE_4096, 4096 }, { MLX5DV_BLOCK_SIZE_4160, 4160 },
	};
	struct pair p;
	pair_open(&p, 0);
	for (int kind = 0; kind < KINDS; kind++) {
		for (int ones = 0; ones < 2; ones++)
			for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
				one(&p, kind, ones, sizes[i].code, sizes[i].bytes);
		printf("ok: %s\n", names[kind]);
	}
	pair_close(&p);
	return 0;
}
