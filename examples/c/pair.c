#include "pair.h"

#include <time.h>

void qp_connect(struct pair *p, struct ibv_qp *qp, uint32_t peer)
{
	const int index = 3; /* RoCE v2 on the device's address */
	union ibv_gid gid;
	must(!ibv_query_gid(p->ctx, 1, index, &gid), "ibv_query_gid");
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = p->psn,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = index, .hop_limit = 64 } },
	};
	must(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = p->psn, .max_rd_atomic = 1,
	};
	must(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void open_side(struct pair *p, struct side *s)
{
	s->buf = aligned_alloc(4096, ROOM);
	must(s->buf, "no memory");
	memset(s->buf, 0, ROOM);
	s->mr = ibv_reg_mr(p->pd, s->buf, ROOM, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(s->mr, "ibv_reg_mr");
	s->cq = ibv_create_cq(p->ctx, 64, NULL, NULL, 0);
	must(s->cq, "ibv_create_cq");
}

void pair_open(struct pair *p, uint32_t flags)
{
	memset(p, 0, sizeof *p);
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	must(list && n > 0, "no RDMA device: run this with softmkey run");
	p->ctx = ibv_open_device(list[0]);
	must(p->ctx, "ibv_open_device");
	ibv_free_device_list(list);
	p->pd = ibv_alloc_pd(p->ctx);
	must(p->pd, "ibv_alloc_pd");
	open_side(p, &p->near);
	open_side(p, &p->far);

	struct ibv_qp_cap cap = { .max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 512 };
	struct ibv_qp_init_attr_ex near = {
		.send_cq = p->near.cq, .recv_cq = p->near.cq, .cap = cap, .qp_type = IBV_QPT_RC, .pd = p->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct mlx5dv_qp_init_attr dv = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE | MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED,
	};
	if (flags) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
		dv.create_flags = flags;
	}
	p->near.qp = mlx5dv_create_qp(p->ctx, &near, &dv);
	must(p->near.qp, "mlx5dv_create_qp");
	p->ex = ibv_qp_to_qp_ex(p->near.qp);
	p->dv = mlx5dv_qp_ex_from_ibv_qp_ex(p->ex);
	struct ibv_qp_init_attr far = { .send_cq = p->far.cq, .recv_cq = p->far.cq, .cap = cap, .qp_type = IBV_QPT_RC };
	p->far.qp = ibv_create_qp(p->pd, &far);
	must(p->far.qp, "ibv_create_qp");

	qp_connect(p, p->near.qp, p->far.qp->qp_num);
	qp_connect(p, p->far.qp, p->near.qp->qp_num);
}

static void close_side(struct side *s)
{
	must(!ibv_destroy_qp(s->qp), "ibv_destroy_qp");
	must(!ibv_destroy_cq(s->cq), "ibv_destroy_cq");
	must(!ibv_dereg_mr(s->mr), "ibv_dereg_mr");
	free(s->buf);
}

void pair_close(struct pair *p)
{
	close_side(&p->near);
	close_side(&p->far);
	must(!ibv_dealloc_pd(p->pd), "ibv_dealloc_pd");
	must(!ibv_close_device(p->ctx), "ibv_close_device");
}

struct mlx5dv_mkey *key_create(struct pair *p, uint32_t flags, int entries)
{
	struct mlx5dv_mkey_init_attr attr = {
		.pd = p->pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | flags, .max_entries = entries,
	};
	struct mlx5dv_mkey *key = mlx5dv_create_mkey(&attr);
	must(key, "mlx5dv_create_mkey");
	return key;
}

void key_start(struct pair *p, struct mlx5dv_mkey *key, int setters, uint32_t access, uint32_t len)
{
	struct mlx5dv_mkey_conf_attr conf = {};
	struct ibv_sge sge = { (uintptr_t)p->near.buf, len, p->near.mr->lkey };

	ibv_wr_start(p->ex);
	p->ex->wr_id = 0;
	p->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(p->dv, key, 2 + setters, &conf);
	mlx5dv_wr_set_mkey_access_flags(p->dv, access);
	mlx5dv_wr_set_mkey_layout_list(p->dv, 1, &sge);
}

uint64_t poll_one(struct ibv_cq *cq, enum ibv_wc_status want, const char *what)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 20;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		must(time(NULL) < end, "%s: no completion in 20 s", what);
	must(n == 1, "%s: ibv_poll_cq: %d", what, n);
	must(wc.status == want, "%s: %s, not %s", what, ibv_wc_status_str(wc.status), ibv_wc_status_str(want));
	return wc.wr_id;
}

void receive(struct side *s, uint64_t addr, uint32_t len, uint32_t key)
{
	struct ibv_sge sge = { addr, len, key };
	struct ibv_recv_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = 1 }, *bad;
	must(!ibv_post_recv(s->qp, &wr, &bad), "ibv_post_recv");
}

void transfer(struct side *s, enum ibv_wr_opcode op, uint64_t addr, uint32_t len, uint32_t key, uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = { addr, len, key };
	struct ibv_send_wr wr = { .wr_id = op, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	must(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
	poll_one(s->cq, IBV_WC_SUCCESS, "the transfer");
}

void configured(struct pair *p)
{
	must(!ibv_wr_complete(p->ex), "ibv_wr_complete");
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the configuration");
}

uint32_t crc32_msb(const uint8_t *p, size_t n)
{
	uint32_t crc = ~0u;
	while (n--) {
		crc ^= (uint32_t)*p++ << 24;
		for (int i = 0; i < 8; i++)
			crc = crc << 1 ^ (crc & 0x80000000 ? 0x04c11db7 : 0);
	}
	return ~crc;
}

uint16_t crc16_t10dif(const uint8_t *p, size_t n)
{
	uint16_t crc = 0;
	while (n--) {
		crc ^= *p++ << 8;
		for (int i = 0; i < 8; i++)
			crc = crc << 1 ^ (crc & 0x8000 ? 0x8bb7 : 0);
	}
	return crc;
}

void put_be32(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = v >> (24 - 8 * i);
}

void put_dif(uint8_t *p, uint16_t guard, uint16_t app, uint32_t ref)
{
	put_be32(p, (uint32_t)guard << 16 | app);
	put_be32(p + 4, ref);
}

void protect(uint8_t *whole, const uint8_t *data, int blocks, int size)
{
	for (int i = 0; i < blocks; i++) {
		uint8_t *block = whole + i * (size + 8);
		memcpy(block, data + i * size, size);
		put_dif(block + size, crc16_t10dif(block, size), APP_TAG, REF_TAG + i);
	}
}

void wire_dif_init(struct wire_dif *w, enum mlx5dv_block_size size)
{
	*w = (struct wire_dif){
		.dif = { .bg_type = MLX5DV_SIG_T10DIF_CRC, .bg = 0, .app_tag = APP_TAG, .ref_tag = REF_TAG, .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP },
		.wire = { .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &w->dif, .block_size = size },
		.attr = { .wire = &w->wire, .check_mask = MLX5DV_SIG_MASK_T10DIF_GUARD | MLX5DV_SIG_MASK_T10DIF_APPTAG | MLX5DV_SIG_MASK_T10DIF_REFTAG },
	};
}

struct mlx5dv_mkey_err written_bad(struct pair *p, struct mlx5dv_mkey *key, uint32_t len)
{
	struct mlx5dv_mkey_err err;
	transfer(&p->far, IBV_WR_RDMA_WRITE, (uintptr_t)p->far.buf, len, p->far.mr->lkey, 0, key->rkey);
	/* The WRITE succeeds, and completes on the far side only. The near side's library learns
	 * of the error with its next completion, which this message causes. */
	receive(&p->near, (uintptr_t)p->near.buf, 64, p->near.mr->lkey);
	transfer(&p->far, IBV_WR_SEND, (uintptr_t)p->far.buf, 8, p->far.mr->lkey, 0, 0);
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the receive");
	must(!mlx5dv_mkey_check(key, &err), "mlx5dv_mkey_check");
	must(err.err_type == MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD, "the bad block: error %d, not a bad guard", err.err_type);
	return err;
}

void pattern(uint8_t *p, size_t n, uint32_t seed)
{
	while (n--) {
		seed = seed * 1664525 + 1013904223;
		*p++ = seed >> 24;
	}
}

void equal(const char *what, const uint8_t *got, const uint8_t *want, size_t n)
{
	for (size_t i = 0; i < n; i++)
		must(got[i] == want[i], "%s: byte %zu is %02x, not %02x", what, i, got[i], want[i]);
}

void same(const char *what, const uint8_t *got, const uint8_t *want, size_t n)
{
	equal(what, got, want, n);
	printf("ok: %s (%zu bytes)\n", what, n);
}
