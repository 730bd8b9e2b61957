/* Completion queues: all fields of an extended completion, timestamps, events, moderation,
 * completions of 128 bytes, and a queue that is resized while it holds completions. */
#include "pair.h"

#include <poll.h>
#include <time.h>

/* loop is an RC QP that is connected to itself. */
struct loop {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *buf;
};

static void loop_open(struct loop *l, struct pair *p, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	*l = (struct loop){ .ctx = p->ctx, .pd = p->pd, .mr = p->far.mr, .buf = p->far.buf };
	l->qp = ibv_create_qp(p->pd, &attr);
	must(l->qp, "ibv_create_qp: %m");
	qp_connect(p, l->qp, l->qp->qp_num);
}

/* post posts a receive request, and a SEND with immediate data to it. flags are those of the
 * SEND. */
static void post(struct loop *l, uint32_t imm, int len, int flags)
{
	struct ibv_sge room = { (uintptr_t)l->buf, 4096, l->mr->lkey }, data = { (uintptr_t)l->buf + 8192, len, l->mr->lkey };
	struct ibv_recv_wr rwr = { .wr_id = imm, .sg_list = &room, .num_sge = 1 }, *rbad;
	struct ibv_send_wr swr = { .wr_id = imm, .sg_list = &data, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(imm), .send_flags = flags }, *sbad;
	must(!ibv_post_recv(l->qp, &rwr, &rbad), "ibv_post_recv");
	must(!ibv_post_send(l->qp, &swr, &sbad), "ibv_post_send");
}

static uint64_t wall(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* next starts polling an extended queue when it has a completion. */
static void next(struct ibv_cq_ex *cq)
{
	struct ibv_poll_cq_attr attr = {};
	time_t end = time(NULL) + 20;
	int err;
	while ((err = ibv_start_poll(cq, &attr)) == ENOENT)
		must(time(NULL) < end, "no completion in 20 s");
	must(!err, "ibv_start_poll: %d", err);
	must(cq->status == IBV_WC_SUCCESS, "completion: %s", ibv_wc_status_str(cq->status));
}

/* every_field reads each field that wc_flags can ask for. */
static void every_field(struct pair *p)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(p->ctx, &attr);
	must(cq, "ibv_create_cq_ex: %m");
	struct loop l;
	loop_open(&l, p, ibv_cq_ex_to_cq(cq));

	uint64_t before = wall(), last = 0;
	struct mlx5dv_clock_info clock;
	must(!mlx5dv_get_clock_info(p->ctx, &clock), "mlx5dv_get_clock_info");
	for (int i = 1; i <= 3; i++) {
		post(&l, i, 100 * i, 0);
		next(cq);
		must(cq->wr_id == (uint64_t)i, "work request %d: wr_id %llu", i, (unsigned long long)cq->wr_id);
		must(ibv_wc_read_opcode(cq) == IBV_WC_RECV, "opcode %d", ibv_wc_read_opcode(cq));
		must(ibv_wc_read_byte_len(cq) == 100u * i, "byte_len %u", ibv_wc_read_byte_len(cq));
		must(ibv_wc_read_imm_data(cq) == htobe32(i), "imm_data %#x", ibv_wc_read_imm_data(cq));
		must(ibv_wc_read_qp_num(cq) == l.qp->qp_num, "qp_num %#x", ibv_wc_read_qp_num(cq));
		must(ibv_wc_read_wc_flags(cq) == IBV_WC_WITH_IMM, "wc_flags %#x", ibv_wc_read_wc_flags(cq));
		must(ibv_wc_read_slid(cq) == 0, "slid %u on Ethernet", ibv_wc_read_slid(cq));
		must(ibv_wc_read_dlid_path_bits(cq) == 0, "dlid_path_bits %u", ibv_wc_read_dlid_path_bits(cq));
		uint64_t at = ibv_wc_read_completion_ts(cq), ns = ibv_wc_read_completion_wallclock_ns(cq);
		must(at > last, "completion %d: timestamp %llu after %llu", i, (unsigned long long)at, (unsigned long long)last);
		/* The clock page relates the counter of timestamps to the time of day. The two clocks
		 * differ slightly. */
		const uint64_t slack = 50000000;
		must(ns + slack > before && ns < wall() + slack, "completion %d: at %llu ns, not between %llu and now", i, (unsigned long long)ns, (unsigned long long)before);
		must(mlx5dv_ts_to_ns(&clock, at) == ns || llabs((long long)(mlx5dv_ts_to_ns(&clock, at) - ns)) < (long long)slack, "mlx5dv_ts_to_ns and the completion differ");
		last = at;
		ibv_end_poll(cq);
	}
	printf("ok: every field of an extended completion\n");
	must(!ibv_destroy_qp(l.qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), "destroy: %m");
}

/* has_event waits for an event, takes it, and reports whether there was one in time. */
static int has_event(struct ibv_comp_channel *ch, int milliseconds)
{
	struct pollfd fd = { .fd = ch->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;
	if (poll(&fd, 1, milliseconds) != 1)
		return 0;
	must(!ibv_get_cq_event(ch, &cq, &context), "ibv_get_cq_event");
	ibv_ack_cq_events(cq, 1);
	return 1;
}

/* events checks that an armed queue causes one event, that a queue armed for solicited completions
 * ignores others, and that moderation delays the event until enough completions have come. */
static void events(struct pair *p)
{
	const int patience = 20000;
	struct ibv_comp_channel *ch = ibv_create_comp_channel(p->ctx);
	must(ch, "ibv_create_comp_channel");
	struct ibv_cq *cq = ibv_create_cq(p->ctx, 64, NULL, ch, 0);
	must(cq, "ibv_create_cq");
	struct loop l;
	loop_open(&l, p, cq);

	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	post(&l, 1, 8, 0);
	must(has_event(ch, patience), "no event");
	post(&l, 2, 8, 0);
	poll_one(cq, IBV_WC_SUCCESS, "the receive");
	poll_one(cq, IBV_WC_SUCCESS, "the receive");
	must(!has_event(ch, 0), "a second event of one arm");

	/* Arming the queue after the completion was polled causes no event for that completion. */
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	must(!has_event(ch, 20), "an event of a completion that was polled");
	post(&l, 3, 8, 0);
	must(has_event(ch, patience), "no event");
	poll_one(cq, IBV_WC_SUCCESS, "the receive");

	must(!ibv_req_notify_cq(cq, 1), "ibv_req_notify_cq");
	post(&l, 4, 8, 0);
	poll_one(cq, IBV_WC_SUCCESS, "the receive");
	must(!has_event(ch, 0), "an event of a completion that is not solicited");
	post(&l, 5, 8, IBV_SEND_SOLICITED);
	must(has_event(ch, patience), "no event of a solicited completion");
	poll_one(cq, IBV_WC_SUCCESS, "the receive");
	printf("ok: one event for each arm\n");

	const int period = 4000; /* microseconds; at most 4095, as on adapters */
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = 3, .cq_period = period } };
	must(!ibv_modify_cq(cq, &moderate), "ibv_modify_cq");
	for (int early = 1; early;) {
		uint64_t start = wall();
		early = 0;
		must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		for (int i = 0; i < 3; i++) {
			if (i && !early && has_event(ch, 0)) { /* on a slow machine the period may have ended */
				must(wall() - start >= 1000ull * period, "an event after %d of 3 completions", i);
				early = 1;
			}
			post(&l, 6 + i, 8, 0);
			poll_one(cq, IBV_WC_SUCCESS, "the receive");
		}
		must(early || has_event(ch, patience), "no event after 3 completions");
	}
	moderate.moderate.cq_period = 1000; /* ends the wait for the others */
	must(!ibv_modify_cq(cq, &moderate), "ibv_modify_cq");
	must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
	post(&l, 9, 8, 0);
	must(has_event(ch, patience), "no event after the period");
	poll_one(cq, IBV_WC_SUCCESS, "the receive");
	printf("ok: moderation\n");
	must(!ibv_destroy_qp(l.qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch), "destroy: %m");
}

/* resized resizes a queue that holds completions, to a larger and to a smaller size. size is the
 * size of a completion in bytes. */
static void resized(struct pair *p, int size)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 15, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .cqe_size = size };
	struct ibv_cq_ex *ex = mlx5dv_create_cq(p->ctx, &attr, &dv);
	must(ex, "mlx5dv_create_cq: %m");
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ex);
	struct loop l;
	struct ibv_wc wc[2];
	uint64_t id = 0, want = 0;
	loop_open(&l, p, cq);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 5; i++)
			post(&l, ++id, 8, IBV_SEND_SIGNALED);
		/* At most 4 completions are left when the queue is resized. */
		while (want + 2 * 2 < 2 * id) {
			int n = ibv_poll_cq(cq, 1, wc);
			must(n >= 0, "ibv_poll_cq");
			want += n;
		}
		must(!ibv_resize_cq(cq, round % 2 ? 15 : 255), "ibv_resize_cq: %m");
		must(cq->cqe >= (round % 2 ? 15 : 255), "a queue of %d", cq->cqe);
	}
	time_t end = time(NULL) + 20;
	while (want < 2 * id) {
		int n = ibv_poll_cq(cq, 2, wc);
		must(n >= 0 && time(NULL) < end, "%llu of %llu completions in 20 s", (unsigned long long)want, 2ull * id);
		for (int i = 0; i < n; i++)
			must(wc[i].status == IBV_WC_SUCCESS, "completion: %s", ibv_wc_status_str(wc[i].status));
		want += n;
	}
	must(ibv_poll_cq(cq, 1, wc) == 0, "more completions than requests");
	printf("ok: a queue with completions of %d bytes is resized\n", size);
	must(!ibv_destroy_qp(l.qp) && !ibv_destroy_cq(cq), "destroy: %m");
}

int main(void)
{
	struct pair p;
	pair_open(&p, 0);
	every_field(&p);
	events(&p);
	resized(&p, 64);
	resized(&p, 128);
	pair_close(&p);
	return 0;
}
