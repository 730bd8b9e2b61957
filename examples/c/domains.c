/* One I/O through the four domains of two keys. The initiator's memory has no fields, the wire domain
 * of both keys has T10-DIF, and the target stores the fields. The target transfers the data by an RDMA
 * READ from the initiator's key into its own. For a second READ its key expects another application
 * tag, so it finds the first block bad. */
#include "pair.h"

enum { BLOCKS = 8, DATA = BLOCKS * 512, WHOLE = BLOCKS * 520, FIRST = 1536, GAP = 8192 };

/* configure makes pieces of mr the layout of a key, with a signature. */
static void configure(struct pair *p, struct mlx5dv_mkey *key, uint32_t access, int n, struct ibv_sge *pieces, struct mlx5dv_sig_block_attr *sig)
{
	struct mlx5dv_mkey_conf_attr conf = {};

	ibv_wr_start(p->ex);
	p->ex->wr_id = 0;
	p->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(p->dv, key, 3, &conf);
	mlx5dv_wr_set_mkey_access_flags(p->dv, access);
	mlx5dv_wr_set_mkey_layout_list(p->dv, n, pieces);
	mlx5dv_wr_set_mkey_sig_block(p->dv, sig);
	configured(p);
}

int main(void)
{
	static uint8_t data[DATA], want[WHOLE];
	struct pair p;
	struct wire_dif initiator, target;
	struct mlx5dv_mkey_err err;

	pair_open(&p, 0);
	struct mlx5dv_mkey *from = key_create(&p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 2);
	struct mlx5dv_mkey *to = key_create(&p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);

	/* The initiator's data lies in two pieces. */
	pattern(data, DATA, 9);
	memcpy(p.far.buf + GAP, data, FIRST);
	memcpy(p.far.buf, data + FIRST, DATA - FIRST);
	protect(want, data, BLOCKS, 512);
	struct ibv_sge pieces[] = {
		{ (uintptr_t)p.far.buf + GAP, FIRST, p.far.mr->lkey },
		{ (uintptr_t)p.far.buf, DATA - FIRST, p.far.mr->lkey },
	};
	wire_dif_init(&initiator, MLX5DV_BLOCK_SIZE_512);
	configure(&p, from, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, 2, pieces, &initiator.attr);

	/* The target stores blocks with their fields. */
	struct ibv_sge stored = { (uintptr_t)p.near.buf, WHOLE, p.near.mr->lkey };
	wire_dif_init(&target, MLX5DV_BLOCK_SIZE_512);
	target.attr.mem = &target.wire;
	configure(&p, to, IBV_ACCESS_LOCAL_WRITE, 1, &stored, &target.attr);
	transfer(&p.near, IBV_WR_RDMA_READ, 0, WHOLE, to->lkey, 0, from->rkey);
	must(!mlx5dv_mkey_check(to, &err) && err.err_type == MLX5DV_MKEY_NO_ERR, "good: mlx5dv_mkey_check: error %d", err.err_type);
	same("good: blocks with fields in the target's memory", p.near.buf, want, WHOLE);

	/* A target that expects other tags finds the first block. */
	target.dif.app_tag = APP_TAG + 1;
	configure(&p, to, IBV_ACCESS_LOCAL_WRITE, 1, &stored, &target.attr);
	transfer(&p.near, IBV_WR_RDMA_READ, 0, WHOLE, to->lkey, 0, from->rkey);
	must(!mlx5dv_mkey_check(to, &err) && err.err_type == MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG, "bad: mlx5dv_mkey_check: error %d", err.err_type);
	must(err.err.sig.actual_value == APP_TAG + 1 || err.err.sig.expected_value == APP_TAG + 1, "bad: the tags %llx and %llx",
	     (unsigned long long)err.err.sig.actual_value, (unsigned long long)err.err.sig.expected_value);
	printf("ok: bad: an application tag, at offset %llu\n", (unsigned long long)err.err.sig.offset);

	must(!mlx5dv_destroy_mkey(from) && !mlx5dv_destroy_mkey(to), "mlx5dv_destroy_mkey");
	pair_close(&p);
	return 0;
}
