/* The examples of mlx5dv_wr_set_mkey_sig_block(3), and a bad block found by
 * mlx5dv_mkey_check(3). */
#include "pair.h"

/* crc32_memory: a CRC32 after every 512 bytes in memory, and no fields on the wire (examples 1
 * and 1.1). */
static void crc32_memory(struct pair *p)
{
	enum { BLOCKS = 8, DATA = BLOCKS * 512, WHOLE = BLOCKS * 516 };
	static uint8_t data[DATA], whole[WHOLE];
	struct mlx5dv_mkey *key = key_create(p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);
	struct mlx5dv_sig_crc crc = { .type = MLX5DV_SIG_CRC_TYPE_CRC32, .seed = 0xffffffff };
	struct mlx5dv_sig_block_domain mem = { .sig_type = MLX5DV_SIG_TYPE_CRC, .sig.crc = &crc, .block_size = MLX5DV_BLOCK_SIZE_512 };
	/* A copy mask has no effect if only one domain has a signature; libmlx5 accepts it if that is
	 * the memory domain. */
	struct mlx5dv_sig_block_attr sig = {
		.mem = &mem, .check_mask = MLX5DV_SIG_MASK_CRC32,
		.flags = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK, .copy_mask = MLX5DV_SIG_MASK_CRC32,
	};

	pattern(data, DATA, 1);
	for (int i = 0; i < BLOCKS; i++) {
		memcpy(whole + i * 516, data + i * 512, 512);
		put_be32(whole + i * 516 + 512, crc32_msb(data + i * 512, 512));
	}
	key_start(p, key, 1, IBV_ACCESS_LOCAL_WRITE, WHOLE);
	mlx5dv_wr_set_mkey_sig_block(p->dv, &sig);
	configured(p);

	/* Example 1: SEND checks and strips the fields. */
	memcpy(p->near.buf, whole, WHOLE);
	memset(p->far.buf, 0xee, ROOM);
	receive(&p->far, (uintptr_t)p->far.buf, ROOM, p->far.mr->lkey);
	transfer(&p->near, IBV_WR_SEND, 0, DATA, key->lkey, 0, 0);
	poll_one(p->far.cq, IBV_WC_SUCCESS, "the receive");
	same("signature 1: the peer gets the data without fields", p->far.buf, data, DATA);
	must(p->far.buf[DATA] == 0xee, "signature 1: more than the data came");

	/* Example 1.1: RECV generates the fields. */
	memset(p->near.buf, 0xee, ROOM);
	memcpy(p->far.buf, data, DATA);
	receive(&p->near, 0, DATA, key->lkey);
	transfer(&p->far, IBV_WR_SEND, (uintptr_t)p->far.buf, DATA, p->far.mr->lkey, 0, 0);
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the receive");
	same("signature 1.1: memory gets the data with fields", p->near.buf, whole, WHOLE);

	struct mlx5dv_mkey_err err;
	must(!mlx5dv_mkey_check(key, &err) && err.err_type == MLX5DV_MKEY_NO_ERR, "signature 1.1: an error that is not there");
	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
}

/* dif_wire: no fields in memory, and a T10-DIF after every 4096 bytes on the wire (examples 2
 * and 2.1). */
static void dif_wire(struct pair *p)
{
	enum { BLOCKS = 4, DATA = BLOCKS * 4096, WHOLE = BLOCKS * 4104 };
	static uint8_t data[DATA], whole[WHOLE];
	struct mlx5dv_mkey *key = key_create(p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);
	struct wire_dif sig;
	struct mlx5dv_mkey_err err;

	pattern(data, DATA, 2);
	protect(whole, data, BLOCKS, 4096);
	wire_dif_init(&sig, MLX5DV_BLOCK_SIZE_4096);
	key_start(p, key, 1, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, DATA);
	mlx5dv_wr_set_mkey_sig_block(p->dv, &sig.attr);
	configured(p);

	/* Example 2: the peer's READ gets generated fields. */
	memcpy(p->near.buf, data, DATA);
	memset(p->far.buf, 0xee, ROOM);
	transfer(&p->far, IBV_WR_RDMA_READ, (uintptr_t)p->far.buf, WHOLE, p->far.mr->lkey, 0, key->rkey);
	same("signature 2: the peer reads the data with fields", p->far.buf, whole, WHOLE);

	/* Example 2.1: the peer's WRITE is checked and stripped. */
	memset(p->near.buf, 0xee, ROOM);
	memcpy(p->far.buf, whole, WHOLE);
	transfer(&p->far, IBV_WR_RDMA_WRITE, (uintptr_t)p->far.buf, WHOLE, p->far.mr->lkey, 0, key->rkey);
	same("signature 2.1: memory gets the data without fields", p->near.buf, data, DATA);
	must(p->near.buf[DATA] == 0xee, "signature 2.1: a field came into memory");
	must(!mlx5dv_mkey_check(key, &err) && err.err_type == MLX5DV_MKEY_NO_ERR, "signature 2.1: an error that is not there");

	/* A byte in block 2 is damaged. The transfer succeeds, and the key records the error. */
	p->far.buf[2 * 4104 + 1000] ^= 1;
	err = written_bad(p, key, WHOLE);
	uint16_t stored = crc16_t10dif(data + 2 * 4096, 4096), computed = crc16_t10dif(p->far.buf + 2 * 4104, 4096);
	must(err.err.sig.expected_value == stored || err.err.sig.expected_value == computed, "the bad block: expected %#llx",
	     (unsigned long long)err.err.sig.expected_value);
	printf("ok: mkey_check: bad guard at offset %llu, expected %#llx, actual %#llx (stored %#x, computed %#x)\n",
	       (unsigned long long)err.err.sig.offset, (unsigned long long)err.err.sig.expected_value,
	       (unsigned long long)err.err.sig.actual_value, stored, computed);
	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
}

int main(void)
{
	struct pair p;
	pair_open(&p, 0);
	crc32_memory(&p);
	dif_wire(&p);
	pair_close(&p);
	return 0;
}
