/* Counts what is out of the order of an adapter, between two queue pairs of a device:
 *
 * - the peer's answer to a message completes before the message does, for SEND and WRITE with immediate;
 * - a READ returns what a later request of the same queue pair has written, although it was posted first. */
#include "pair.h"

#include <errno.h>
#include <pthread.h>

enum { ROUNDS = 300 };

struct answers {
	struct pair *p;
	enum ibv_wr_opcode op;
	uint32_t len;
};

static void post(struct side *s, struct side *to, enum ibv_wr_opcode op, uint32_t len)
{
	struct ibv_sge sge = { (uintptr_t)s->buf, len, s->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 200, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)to->buf + ROOM / 2, to->mr->rkey } }, *bad;
	must(!ibv_post_send(s->qp, &wr, &bad), "ibv_post_send: %s", strerror(errno));
}

static void *answer(void *arg)
{
	struct answers *a = arg;
	struct side *far = &a->p->far;
	for (int i = 0; i < ROUNDS; i++) {
		while (poll_one(far->cq, IBV_WC_SUCCESS, "the message") != 100)
			; /* the completion of the last answer */
		receive(far, (uintptr_t)far->buf, ROOM / 2, far->mr->lkey);
		post(far, &a->p->near, a->op, a->len);
	}
	poll_one(far->cq, IBV_WC_SUCCESS, "the last answer");
	return NULL;
}

static int answered_early(struct pair *p, enum ibv_wr_opcode op, uint32_t len)
{
	struct answers a = { p, op, len };
	pthread_t peer;
	int early = 0;
	must(!pthread_create(&peer, NULL, answer, &a), "pthread_create");
	for (int i = 0; i < ROUNDS; i++) {
		post(&p->near, &p->far, op, len);
		early += poll_one(p->near.cq, IBV_WC_SUCCESS, "the message or its answer") != 200;
		poll_one(p->near.cq, IBV_WC_SUCCESS, "the message or its answer");
		receive(&p->near, (uintptr_t)p->near.buf, ROOM / 2, p->near.mr->lkey);
	}
	pthread_join(peer, NULL);
	return early;
}

static int overtaken(struct pair *p, enum ibv_wr_opcode op, uint32_t len)
{
	int changed = 0;
	for (int i = 0; i < ROUNDS; i++) {
		memset(p->near.buf, 0, ROOM);
		memset(p->near.buf + ROOM / 2, 2, len);
		memset(p->far.buf, 1, ROOM);
		struct ibv_sge to = { (uintptr_t)p->near.buf, len, p->near.mr->lkey };
		struct ibv_sge from = { (uintptr_t)p->near.buf + ROOM / 2, len, p->near.mr->lkey };
		struct ibv_send_wr write = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { (uintptr_t)p->far.buf, p->far.mr->rkey } };
		struct ibv_send_wr read = { .wr_id = 1, .next = &write, .sg_list = &to, .num_sge = 1, .opcode = IBV_WR_RDMA_READ,
			.send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)p->far.buf, p->far.mr->rkey } }, *bad;
		must(!ibv_post_send(p->near.qp, &read, &bad), "ibv_post_send: %s", strerror(errno));
		must(poll_one(p->near.cq, IBV_WC_SUCCESS, "the READ") == 1, "the READ does not complete first");
		poll_one(p->near.cq, IBV_WC_SUCCESS, "the WRITE");
		if (op == IBV_WR_SEND) {
			poll_one(p->far.cq, IBV_WC_SUCCESS, "the message");
			receive(&p->far, (uintptr_t)p->far.buf, ROOM / 2, p->far.mr->lkey);
		}
		for (uint32_t k = 0; k < len; k++)
			if (p->near.buf[k] != 1) {
				changed++;
				break;
			}
		must(p->far.buf[0] == 2 && p->far.buf[len - 1] == 2, "the request after the READ wrote nothing");
	}
	return changed;
}

int main(void)
{
	static const uint32_t sizes[] = { 1, 64, 5000, ROOM / 2 };
	struct pair p;
	int bad = 0;
	pair_open(&p, 0);
	for (int i = 0; i < 8; i++) {
		receive(&p.near, (uintptr_t)p.near.buf, ROOM / 2, p.near.mr->lkey);
		receive(&p.far, (uintptr_t)p.far.buf, ROOM / 2, p.far.mr->lkey);
	}
	for (int i = 0; i < 4; i++) {
		int sends = answered_early(&p, IBV_WR_SEND, sizes[i]), writes = answered_early(&p, IBV_WR_RDMA_WRITE_WITH_IMM, sizes[i]);
		int w = overtaken(&p, IBV_WR_RDMA_WRITE, sizes[i]), s = overtaken(&p, IBV_WR_SEND, sizes[i]);
		if (sends + writes + w + s)
			printf("%u bytes, of %d: answers before the completion: %d of SEND, %d of WRITE with immediate; READs overtaken: %d by WRITE, %d by SEND\n",
			       sizes[i], ROUNDS, sends, writes, w, s);
		bad += sends + writes + w + s;
	}
	pair_close(&p);
	if (!bad)
		puts("requests and answers are in order");
	return !!bad;
}
