/* Queues, doorbell records and buffers with random content, or without memory. */
#include "hostile.h"

#include <sys/mman.h>
#include <time.h>

struct queues {
	struct mlx5dv_qp qp;
	struct mlx5dv_cq cq;
};

static void look_inside(struct side *s, struct queues *q)
{
	struct mlx5dv_obj obj = { .qp = { s->qp, &q->qp }, .cq = { s->cq, &q->cq } };
	memset(q, 0, sizeof *q);
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
}

static void ring(struct queues *q, uint64_t ctrl)
{
	*(volatile uint64_t *)q->qp.bf.reg = ctrl;
	*(volatile uint64_t *)((char *)q->qp.bf.reg + 0x100) = ctrl;
}

/* a_wqe writes a request into a block of the send queue: a valid request with up to three
 * changed bytes, or random bytes. */
static void a_wqe(struct pair *p, struct queues *q, uint32_t index)
{
	static const uint8_t opcodes[] = { 0x00, 0x01, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x10, 0x11, 0x12, 0x14, 0x15, 0x18, 0x19, 0x1b, 0x20, 0x25, 0x3f };
	uint8_t *w = (uint8_t *)q->qp.sq.buf + (size_t)(index % q->qp.sq.wqe_cnt) * q->qp.sq.stride;
	if (rnd() % 4 == 0) {
		for (int i = 0; i < 64; i++)
			w[i] = rnd();
		return;
	}
	memset(w, 0, 64);
	int ds = 1 + rnd() % 6;
	put_be32(w, index << 8 | opcodes[rnd() % sizeof opcodes]);
	put_be32(w + 4, p->near.qp->qp_num << 8 | ds);
	w[11] = rnd() % 2 ? 8 : rnd();
	put_be32(w + 12, rnd() % 2 ? p->near.mr->lkey : rnd());
	uint64_t far = (uintptr_t)p->far.buf, near = (uintptr_t)p->near.buf;
	put_be32(w + 16, far >> 32);
	put_be32(w + 20, far);
	put_be32(w + 24, p->far.mr->rkey);
	put_be32(w + 32, rnd() % 4 ? rnd() % 70000 : rnd());
	put_be32(w + 36, p->near.mr->lkey);
	put_be32(w + 40, near >> 32);
	put_be32(w + 44, near);
	for (int changes = rnd() % 4; changes > 0; changes--)
		w[rnd() % 64] = rnd();
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc[16];
	for (int i = 0; i < 50; i++) {
		ibv_poll_cq(cq, 16, wc);
		struct timespec t = { 0, 20000 };
		nanosleep(&t, NULL);
	}
}

static void wqes(void)
{
	struct pair p;
	struct queues q;
	for (int turn = 0; turn < 4; turn++) {
		pair_open(&p, 0);
		look_inside(&p.near, &q);
		uint32_t posted = 0;
		for (int i = 0; i < 60; i++) {
			for (int n = 1 + rnd() % 4; n > 0; n--)
				a_wqe(&p, &q, posted++);
			if (rnd() % 16 == 0)
				posted = rnd();
			put_be32((uint8_t *)&q.qp.dbrec[1], posted & 0xffff);
			if (rnd() % 16 == 0)
				put_be32((uint8_t *)&q.qp.dbrec[rnd() % 2], rnd());
			if (rnd() % 8 == 0)
				put_be32((uint8_t *)&q.cq.dbrec[rnd() % 2], rnd());
			ring(&q, (uint64_t)rnd() << 32 | rnd());
			if (rnd() % 16 == 0) /* overwrite the memory of the completion queue */
				memset(q.cq.buf, rnd(), q.cq.cqe_cnt * q.cq.cqe_size);
		}
		drain(p.near.cq); /* the objects are not destroyed */
	}
}

/* bad_receives fills the receive queue with random bytes and sends messages to it. */
static void bad_receives(void)
{
	struct pair p;
	struct queues q;
	pair_open(&p, 0);
	look_inside(&p.far, &q);
	uint8_t *rq = q.qp.rq.buf;
	for (int i = 0; i < 40; i++) {
		for (unsigned k = 0; k < q.qp.rq.wqe_cnt * q.qp.rq.stride; k++)
			if (rnd() % 2)
				rq[k] = rnd();
		put_be32((uint8_t *)&q.qp.dbrec[0], rnd() % 4 ? i * 4 : rnd());
		struct ibv_sge sge = { (uintptr_t)p.near.buf, 1 + rnd() % 3000, p.near.mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
		ibv_post_send(p.near.qp, &wr, &bad);
	}
	drain(p.near.cq);
}

/* post posts transfers of the whole buffer without waiting for them. */
static void post(struct pair *p, enum ibv_wr_opcode op, int n)
{
	struct ibv_sge sge = { (uintptr_t)p->near.buf, ROOM, p->near.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p->far.buf;
	wr.wr.rdma.rkey = p->far.mr->rkey;
	while (n-- > 0)
		ibv_post_send(p->near.qp, &wr, &bad);
}

static void pause_a_little(void)
{
	struct timespec t = { 0, rnd() % 300000 };
	nanosleep(&t, NULL);
}

/* unmapped unmaps or protects memory while the device uses it. */
static void unmapped(void)
{
	struct pair p;
	struct queues near, far;
	pair_open(&p, 0);
	look_inside(&p.near, &near);
	look_inside(&p.far, &far);
	post(&p, rnd() % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, 20);
	pause_a_little();
	void *page = (void *)((uintptr_t)near.qp.dbrec & ~4095ul);
	switch (rnd() % 6) {
	case 0: munmap(near.cq.buf, 4096); break;
	case 1: munmap(p.near.buf, ROOM); break;
	case 2: munmap(p.far.buf, ROOM); break;
	case 3: munmap((void *)((uintptr_t)near.qp.sq.buf & ~4095ul), 4096); break;
	case 4: munmap(page, 4096); break;
	case 5: mprotect(p.near.buf, ROOM, PROT_READ), mprotect(p.far.buf, ROOM, PROT_NONE); break;
	}
	pause_a_little();
	ring(&near, rnd());
	struct timespec t = { 0, 5000000 };
	nanosleep(&t, NULL);
	if (rnd() % 2)
		ibv_dereg_mr(p.far.mr);
}

/* unread causes hundreds of events and reads none of them. */
static void unread(void)
{
	struct pair p;
	pair_open(&p, 0);
	struct ibv_comp_channel *ch = ibv_create_comp_channel(p.ctx);
	struct ibv_cq *cq = ibv_create_cq(p.ctx, 16, NULL, ch, 0);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 16, 16, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(p.pd, &init);
	must(ch && cq && qp, "objects");
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_recv_wr wr = { 0 }, *bad;
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	struct ibv_qp_attr first = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_wc wc;
	for (int i = 0; i < 300; i++) { /* each receive is flushed, which causes an event of the armed queue */
		ibv_req_notify_cq(cq, 0);
		ibv_modify_qp(qp, &first, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
		ibv_post_recv(qp, &wr, &bad);
		ibv_modify_qp(qp, &error, IBV_QP_STATE);
		while (ibv_poll_cq(cq, 1, &wc) == 0)
			;
		ibv_modify_qp(qp, &reset, IBV_QP_STATE);
	}
}

const struct mode queue_modes[] = {
	{ "wqes", wqes }, { "bad_receives", bad_receives }, { "unmapped", unmapped }, { "unread", unread }, { 0 },
};
