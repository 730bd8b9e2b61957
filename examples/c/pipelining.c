/* Signature pipelining as in mlx5dv_qp_cancel_posted_send_wrs(3). A storage target reads a
 * client's data with T10-DIF, and posts the answer "good" with a fence before it knows that
 * the data is good. */
#include "pair.h"

#include <poll.h>

enum { BLOCKS = 8, DATA = BLOCKS * 512, WHOLE = BLOCKS * 520, ANSWER = 4 };
enum { READ_ID = 1, GOOD_ID, BAD_ID };

/* post_transaction posts the READ through the key and, fenced, the answer "good". */
static void post_transaction(struct pair *p, struct mlx5dv_mkey *key)
{
	memset(p->far.buf + ROOM - ANSWER, 0, ANSWER);
	ibv_wr_start(p->ex);
	p->ex->wr_id = READ_ID;
	p->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_read(p->ex, p->far.mr->rkey, (uintptr_t)p->far.buf);
	ibv_wr_set_sge(p->ex, key->lkey, 0, WHOLE);
	p->ex->wr_id = GOOD_ID;
	p->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_INLINE;
	ibv_wr_send(p->ex);
	ibv_wr_set_inline_data(p->ex, "good", ANSWER);
	must(!ibv_wr_complete(p->ex), "ibv_wr_complete");
}

/* answered waits for the client's answer. */
static void answered(struct pair *p, const char *what, const char *want)
{
	poll_one(p->far.cq, IBV_WC_SUCCESS, what);
	same(what, p->far.buf + ROOM - ANSWER, (const uint8_t *)want, ANSWER);
}

static void expect_id(struct pair *p, uint64_t want, const char *what)
{
	uint64_t id = poll_one(p->near.cq, IBV_WC_SUCCESS, what);
	must(id == want, "%s: a completion of request %llu, not %llu", what, (unsigned long long)id, (unsigned long long)want);
}

/* drained waits up to ms milliseconds for the asynchronous event SQ_DRAINED of the near QP, and
 * returns whether it came. */
static bool drained(struct pair *p, int ms)
{
	struct pollfd fd = { .fd = p->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event event;

	if (poll(&fd, 1, ms) == 0)
		return false;
	must(!ibv_get_async_event(p->ctx, &event), "ibv_get_async_event");
	must(event.event_type == IBV_EVENT_SQ_DRAINED && event.element.qp == p->near.qp, "the event: %s", ibv_event_type_str(event.event_type));
	ibv_ack_async_event(&event);
	return true;
}

static enum ibv_qp_state state(struct pair *p)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	must(!ibv_query_qp(p->near.qp, &attr, IBV_QP_STATE, &init), "ibv_query_qp");
	return attr.qp_state;
}

/* bad: the queue stops at the fence, and the good answer is never sent. */
static void bad(struct pair *p, struct mlx5dv_mkey *key)
{
	struct mlx5dv_mkey_err err;
	struct ibv_wc wc;

	p->far.buf[5 * 520 + 7] ^= 1;
	post_transaction(p, key);
	must(drained(p, 20000), "bad: no event in 20 s");
	must(state(p) == IBV_QPS_SQD, "bad: the QP is in state %d, not SQD", state(p));
	expect_id(p, READ_ID, "bad: the READ");
	must(ibv_poll_cq(p->near.cq, 1, &wc) == 0, "bad: the answer has completed");
	must(!mlx5dv_mkey_check(key, &err) && err.err_type == MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD, "bad: mlx5dv_mkey_check: error %d", err.err_type);
	printf("ok: bad: SQ_DRAINED, and a bad guard at offset %llu\n", (unsigned long long)err.err.sig.offset);

	int n = mlx5dv_qp_cancel_posted_send_wrs(p->dv, GOOD_ID);
	must(n == 1, "bad: %d requests cancelled, not 1", n);
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	must(!ibv_modify_qp(p->near.qp, &rts, IBV_QP_STATE | IBV_QP_CUR_STATE), "bad: RTS");
	expect_id(p, GOOD_ID, "bad: the cancelled request");

	ibv_wr_start(p->ex);
	p->ex->wr_id = BAD_ID;
	p->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	ibv_wr_send(p->ex);
	ibv_wr_set_inline_data(p->ex, "fail", ANSWER);
	must(!ibv_wr_complete(p->ex), "ibv_wr_complete");
	expect_id(p, BAD_ID, "bad: the other answer");
	answered(p, "bad: the client's only answer", "fail");
	p->far.buf[5 * 520 + 7] ^= 1;
}

/* good: both requests run, and nothing stops. */
static void good(struct pair *p, struct mlx5dv_mkey *key, const uint8_t *data, const char *what)
{
	struct mlx5dv_mkey_err err;

	memset(p->near.buf, 0xee, ROOM);
	post_transaction(p, key);
	expect_id(p, READ_ID, "good: the READ");
	expect_id(p, GOOD_ID, "good: the answer");
	answered(p, what, "good");
	same("good: the data without fields", p->near.buf, data, DATA);
	must(p->near.buf[DATA] == 0xee, "good: a field came into memory");
	must(!mlx5dv_mkey_check(key, &err) && err.err_type == MLX5DV_MKEY_NO_ERR, "good: mlx5dv_mkey_check: error %d", err.err_type);
	must(!drained(p, 0) && state(p) == IBV_QPS_RTS, "good: the queue has stopped");
	must(mlx5dv_qp_cancel_posted_send_wrs(p->dv, GOOD_ID) < 0, "good: a request was cancelled in RTS");
}

int main(void)
{
	static uint8_t data[DATA];
	struct pair p;
	pair_open(&p, MLX5DV_QP_CREATE_SIG_PIPELINING);

	struct mlx5dv_mkey *key = key_create(&p, MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);
	struct mlx5dv_sig_t10dif dif = { .bg_type = MLX5DV_SIG_T10DIF_CRC, .app_tag = 1, .ref_tag = 100, .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP };
	struct mlx5dv_sig_block_domain wire = { .sig_type = MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &dif, .block_size = MLX5DV_BLOCK_SIZE_512 };
	struct mlx5dv_sig_block_attr sig = {
		.wire = &wire, .check_mask = MLX5DV_SIG_MASK_T10DIF_GUARD | MLX5DV_SIG_MASK_T10DIF_APPTAG | MLX5DV_SIG_MASK_T10DIF_REFTAG,
	};
	key_start(&p, key, 1, IBV_ACCESS_LOCAL_WRITE, DATA);
	mlx5dv_wr_set_mkey_sig_block(p.dv, &sig);
	configured(&p);

	pattern(data, DATA, 3);
	for (int i = 0; i < BLOCKS; i++) {
		memcpy(p.far.buf + i * 520, data + i * 512, 512);
		put_dif(p.far.buf + i * 520 + 512, crc16_t10dif(data + i * 512, 512), 1, 100 + i);
	}
	for (int i = 0; i < 3; i++) /* one for each transaction, because a cancelled SEND needs no receive */
		receive(&p.far, (uintptr_t)p.far.buf + ROOM - ANSWER, ANSWER, p.far.mr->lkey);
	good(&p, key, data, "good: the answer");
	bad(&p, key);
	good(&p, key, data, "good: the answer after the bad transaction");

	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
	pair_close(&p);
	return 0;
}
