/* Six programs that fail, for a course: exercises 1 to 6. docs/course.md asks the questions. */
#include "pair.h"

#include <time.h>

/* show prints the next completion of a queue. */
static void show(const char *whose, struct ibv_cq *cq)
{
	struct ibv_wc wc;
	time_t end = time(NULL) + 20;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		must(time(NULL) < end, "%s: no completion in 20 s", whose);
	printf("%s: %s (%d)\n", whose, ibv_wc_status_str(wc.status), wc.status);
}

static void post(struct side *s, enum ibv_wr_opcode op, uint64_t addr, uint32_t len, uint32_t key, uint64_t raddr, uint32_t rkey)
{
	struct ibv_sge sge = { addr, len, key };
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = raddr;
	wr.wr.rdma.rkey = rkey;
	must(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send");
}

int main(int argc, char **argv)
{
	struct pair p;
	struct ibv_mr *mr;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };

	pair_open(&p, 0);
	uint64_t near = (uintptr_t)p.near.buf, far = (uintptr_t)p.far.buf;
	uint32_t lkey = p.near.mr->lkey;
	switch (argc > 1 ? atoi(argv[1]) : 0) {
	case 1:
		mr = ibv_reg_mr(p.pd, p.far.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
		must(mr, "ibv_reg_mr");
		post(&p.near, IBV_WR_RDMA_WRITE, near, 64, lkey, far, mr->rkey);
		show("the WRITE", p.near.cq);
		break;
	case 2:
		post(&p.near, IBV_WR_RDMA_WRITE, near + ROOM - 32, 64, lkey, far, p.far.mr->rkey);
		show("the WRITE", p.near.cq);
		break;
	case 3:
		receive(&p.far, far, 32, p.far.mr->lkey);
		post(&p.near, IBV_WR_SEND, near, 64, lkey, 0, 0);
		show("the SEND", p.near.cq);
		show("the receive", p.far.cq);
		break;
	case 4:
		must(!ibv_modify_qp(p.near.qp, &attr, IBV_QP_STATE), "RESET");
		attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
		if (ibv_modify_qp(p.near.qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC))
			perror("ibv_modify_qp");
		break;
	case 5: {
		struct mlx5dv_mkey *key = key_create(&p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);
		struct mlx5dv_mkey_err err;
		struct wire_dif sig;

		wire_dif_init(&sig, MLX5DV_BLOCK_SIZE_512);
		pattern(p.near.buf, 4 * 512, 1);
		protect(p.far.buf, p.near.buf, 4, 512);
		put_be32(p.far.buf + 2 * 520 + 516, REF_TAG + 7);
		key_start(&p, key, 1, IBV_ACCESS_LOCAL_WRITE, 4 * 512);
		mlx5dv_wr_set_mkey_sig_block(p.dv, &sig.attr);
		configured(&p);
		post(&p.near, IBV_WR_RDMA_READ, 0, 4 * 520, key->lkey, far, p.far.mr->rkey);
		show("the READ", p.near.cq);
		must(!mlx5dv_mkey_check(key, &err), "mlx5dv_mkey_check");
		printf("the key: error %d at offset %lu\n", err.err_type, (unsigned long)err.err.sig.offset);
		break;
	}
	case 6:
		must(!ibv_destroy_qp(p.far.qp), "ibv_destroy_qp");
		attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET };
		must(!ibv_modify_qp(p.near.qp, &attr, IBV_QP_STATE), "RESET");
		qp_connect(&p, p.near.qp, 0x123456);
		post(&p.near, IBV_WR_SEND, near, 64, lkey, 0, 0);
		show("the SEND", p.near.cq);
		break;
	default:
		die("usage: exercises 1 to 6");
	}
	return 1;
}
