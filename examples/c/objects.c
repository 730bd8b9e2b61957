/* Reregistration of regions, memory windows, atomics, parent domains, device memory, asynchronous events, and the
 * import of a device by its descriptor. */
#include "pair.h"

#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

enum { ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

/* post posts a request of the far side on 8 bytes and waits for its status. A request that
 * fails takes the two QPs to the error state. */
static void post(struct pair *p, enum ibv_wr_opcode op, void *local, uint64_t raddr, uint32_t rkey, enum ibv_wc_status want, const char *what)
{
	struct ibv_sge sge = { (uintptr_t)local, 8, p->far.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED }, *bad;
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = raddr;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 5;
		wr.wr.atomic.swap = 100;
	} else {
		wr.wr.rdma.remote_addr = raddr;
		wr.wr.rdma.rkey = rkey;
	}
	must(!ibv_post_send(p->far.qp, &wr, &bad), "%s: ibv_post_send", what);
	poll_one(p->far.cq, want, what);
}

/* again connects the two QPs anew, with other packet sequence numbers. With the same numbers, a late
 * answer to an old request, such as the second NAK of a retransmitted request, could be taken for the
 * answer to a new one. */
static void again(struct pair *p)
{
	struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
	must(!ibv_modify_qp(p->near.qp, &reset, IBV_QP_STATE) && !ibv_modify_qp(p->far.qp, &reset, IBV_QP_STATE), "RESET");
	p->psn = (p->psn + 0x10000) & 0xffffff;
	qp_connect(p, p->near.qp, p->far.qp->qp_num);
	qp_connect(p, p->far.qp, p->near.qp->qp_num);
}

static uint64_t *word(struct side *s, int at) { return (uint64_t *)(s->buf + at); }

/* event waits for an asynchronous event. */
static void event(struct pair *p, enum ibv_event_type want, void *object)
{
	struct pollfd fd = { .fd = p->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event e;
	must(poll(&fd, 1, 20000) == 1, "no event: %s", ibv_event_type_str(want));
	must(!ibv_get_async_event(p->ctx, &e), "ibv_get_async_event");
	must(e.event_type == want, "event %s, not %s", ibv_event_type_str(e.event_type), ibv_event_type_str(want));
	must((void *)e.element.qp == object, "%s: another object", ibv_event_type_str(want));
	ibv_ack_async_event(&e);
}

static void rereg(struct pair *p)
{
	static uint8_t first[4096] __attribute__((aligned(4096))), second[4096] __attribute__((aligned(4096)));
	struct ibv_mr *mr = ibv_reg_mr(p->pd, first, sizeof first, ALL);
	must(mr, "ibv_reg_mr");
	uint32_t rkey = mr->rkey;
	*word(&p->far, 0) = 0x1111;
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, (uintptr_t)first, mr->rkey, IBV_WC_SUCCESS, "WRITE");
	must(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second, sizeof second, 0), "ibv_rereg_mr: %m");
	*word(&p->far, 0) = 0x2222;
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, (uintptr_t)second, mr->rkey, IBV_WC_SUCCESS, "WRITE to the second place");
	must(*(uint64_t *)first == 0x1111 && *(uint64_t *)second == 0x2222, "ibv_rereg_mr: %llx, %llx", *(unsigned long long *)first, *(unsigned long long *)second);
	must(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ), "ibv_rereg_mr: %m");
	post(p, IBV_WR_RDMA_READ, p->far.buf, (uintptr_t)second, mr->rkey, IBV_WC_SUCCESS, "READ");
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, (uintptr_t)second, mr->rkey, IBV_WC_REM_ACCESS_ERR, "WRITE to a region for reading");
	event(p, IBV_EVENT_QP_ACCESS_ERR, p->near.qp);
	again(p);
	struct ibv_pd *pd = ibv_alloc_pd(p->ctx);
	must(pd && !ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS, pd, NULL, 0, ALL), "ibv_rereg_mr: %m");
	post(p, IBV_WR_RDMA_READ, p->far.buf, (uintptr_t)second, mr->rkey, IBV_WC_REM_ACCESS_ERR, "READ of another protection domain");
	event(p, IBV_EVENT_QP_ACCESS_ERR, p->near.qp);
	again(p);
	must(mr->rkey == rkey, "ibv_rereg_mr: another key");
	must(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd), "destroy: %m");
	printf("ok: a region is registered again\n");
}

/* device_memory writes to memory of the adapter itself, by the processor, by the library's copy and
 * by RDMA, and reads it in the two other ways. */
static void device_memory(struct pair *p)
{
	struct ibv_device_attr_ex attr;
	must(!ibv_query_device_ex(p->ctx, NULL, &attr) && attr.max_dm_size >= 8192, "max_dm_size %llu", (unsigned long long)attr.max_dm_size);
	struct ibv_alloc_dm_attr how = { .length = 8192, .log_align_req = 6 };
	struct ibv_dm *dm = ibv_alloc_dm(p->ctx, &how), *other = ibv_alloc_dm(p->ctx, &how);
	must(dm && other, "ibv_alloc_dm: %m");
	struct ibv_mr *mr = ibv_reg_dm_mr(p->pd, dm, 4096, 4096, ALL | IBV_ACCESS_ZERO_BASED);
	must(mr, "ibv_reg_dm_mr: %m");
	uint64_t v = 0x5555, w = 0;
	must(!ibv_memcpy_to_dm(dm, 4096 + 64, &v, 8), "ibv_memcpy_to_dm: %m");
	post(p, IBV_WR_RDMA_READ, p->far.buf, 64, mr->rkey, IBV_WC_SUCCESS, "READ of device memory");
	must(*word(&p->far, 0) == v, "device memory: %llx", (unsigned long long)*word(&p->far, 0));
	*word(&p->far, 0) = 0x6666;
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, 128, mr->rkey, IBV_WC_SUCCESS, "WRITE to device memory");
	must(!ibv_memcpy_from_dm(&w, dm, 4096 + 128, 8) && w == 0x6666, "device memory: %llx", (unsigned long long)w);
	must(!ibv_memcpy_from_dm(&w, other, 4096 + 128, 8) && w == 0, "another allocation: %llx", (unsigned long long)w);
	post(p, IBV_WR_ATOMIC_FETCH_AND_ADD, p->far.buf, 128, mr->rkey, IBV_WC_SUCCESS, "FETCH_AND_ADD in device memory");
	must(!ibv_memcpy_from_dm(&w, dm, 4096 + 128, 8) && w == 0x6666 + 5, "device memory: %llx", (unsigned long long)w);
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, 4096, mr->rkey, IBV_WC_REM_ACCESS_ERR, "WRITE behind the region");
	event(p, IBV_EVENT_QP_ACCESS_ERR, p->near.qp);
	again(p);
	must(!ibv_dereg_mr(mr) && !ibv_free_dm(dm) && !ibv_free_dm(other), "destroy: %m");
	printf("ok: device memory\n");
}

static void windows(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->pd, p->near.buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	must(mr, "ibv_reg_mr");
	struct ibv_mw *one = ibv_alloc_mw(p->pd, IBV_MW_TYPE_1), *two = ibv_alloc_mw(p->pd, IBV_MW_TYPE_2);
	must(one && two, "ibv_alloc_mw: %m");
	struct ibv_mw_bind bind = {
		.wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = mr, .addr = (uintptr_t)p->near.buf + 64, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	must(!ibv_bind_mw(p->near.qp, one, &bind), "ibv_bind_mw: %m");
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the bind");
	*word(&p->far, 0) = 0x3333;
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, (uintptr_t)p->near.buf + 64, one->rkey, IBV_WC_SUCCESS, "WRITE through a window");
	must(*word(&p->near, 64) == 0x3333, "a window: %llx", (unsigned long long)*word(&p->near, 64));
	post(p, IBV_WR_RDMA_WRITE, p->far.buf, (uintptr_t)p->near.buf, one->rkey, IBV_WC_REM_ACCESS_ERR, "WRITE beside the window");
	event(p, IBV_EVENT_QP_ACCESS_ERR, p->near.qp);
	again(p);

	struct ibv_send_wr wr = {
		.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
		.bind_mw = { .mw = two, .rkey = ibv_inc_rkey(two->rkey), .bind_info = { .mr = mr, .addr = (uintptr_t)p->near.buf + 128, .length = 64, .mw_access_flags = IBV_ACCESS_REMOTE_READ } },
	}, *bad;
	must(!ibv_post_send(p->near.qp, &wr, &bad), "bind of type 2: %m");
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the bind of type 2");
	two->rkey = wr.bind_mw.rkey;
	*word(&p->near, 128) = 0x4444;
	post(p, IBV_WR_RDMA_READ, p->far.buf, (uintptr_t)p->near.buf + 128, two->rkey, IBV_WC_SUCCESS, "READ through a window of type 2");
	must(*word(&p->far, 0) == 0x4444, "a window of type 2: %llx", (unsigned long long)*word(&p->far, 0));
	struct ibv_send_wr invalidate = { .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = two->rkey };
	must(!ibv_post_send(p->near.qp, &invalidate, &bad), "LOCAL_INV: %m");
	poll_one(p->near.cq, IBV_WC_SUCCESS, "LOCAL_INV");
	post(p, IBV_WR_RDMA_READ, p->far.buf, (uintptr_t)p->near.buf + 128, two->rkey, IBV_WC_REM_ACCESS_ERR, "READ through an invalid window");
	event(p, IBV_EVENT_QP_ACCESS_ERR, p->near.qp);
	again(p);
	must(!ibv_dealloc_mw(one) && !ibv_dealloc_mw(two) && !ibv_dereg_mr(mr), "destroy: %m");
	printf("ok: memory windows of both types\n");
}

static void atomics(struct pair *p)
{
	struct ibv_mr *mr = ibv_reg_mr(p->pd, p->near.buf, 4096, ALL);
	must(mr, "ibv_reg_mr");
	*word(&p->near, 0) = 5;
	post(p, IBV_WR_ATOMIC_CMP_AND_SWP, p->far.buf, (uintptr_t)p->near.buf, mr->rkey, IBV_WC_SUCCESS, "compare and swap");
	must(*word(&p->far, 0) == 5 && *word(&p->near, 0) == 100, "compare and swap: %llu, now %llu", (unsigned long long)*word(&p->far, 0), (unsigned long long)*word(&p->near, 0));
	post(p, IBV_WR_ATOMIC_CMP_AND_SWP, p->far.buf, (uintptr_t)p->near.buf, mr->rkey, IBV_WC_SUCCESS, "compare and swap of another value");
	must(*word(&p->far, 0) == 100 && *word(&p->near, 0) == 100, "compare and swap of another value");
	post(p, IBV_WR_ATOMIC_FETCH_AND_ADD, p->far.buf, (uintptr_t)p->near.buf, mr->rkey, IBV_WC_SUCCESS, "fetch and add");
	must(*word(&p->far, 0) == 100 && *word(&p->near, 0) == 105, "fetch and add");
	post(p, IBV_WR_ATOMIC_FETCH_AND_ADD, p->far.buf, (uintptr_t)p->near.buf + 4, mr->rkey, IBV_WC_REM_INV_REQ_ERR, "an address that is not aligned");
	struct pollfd fd = { .fd = p->ctx->async_fd, .events = POLLIN };
	must(poll(&fd, 1, 20000) == 1, "no event");
	event(p, IBV_EVENT_QP_REQ_ERR, p->near.qp);
	again(p);
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	printf("ok: atomics\n");
}

/* parent_domain makes a QP and a CQ in a parent domain with a thread domain. */
static void parent_domain(struct pair *p)
{
	struct ibv_td_init_attr tattr = {};
	struct ibv_td *td = ibv_alloc_td(p->ctx, &tattr);
	must(td, "ibv_alloc_td: %m");
	struct ibv_parent_domain_init_attr attr = { .pd = p->pd, .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(p->ctx, &attr);
	must(parent, "ibv_alloc_parent_domain: %m");
	struct ibv_cq_init_attr_ex cattr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = parent };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(p->ctx, &cattr);
	must(cq, "ibv_create_cq_ex: %m");
	struct ibv_qp_init_attr qattr = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(parent, &qattr), *far = p->far.qp;
	must(qp, "ibv_create_qp: %m");
	qp_connect(p, qp, qp->qp_num);
	struct side s = { .qp = qp, .cq = ibv_cq_ex_to_cq(cq), .mr = p->near.mr, .buf = p->near.buf };
	*word(&p->near, 0) = 0x5555;
	transfer(&s, IBV_WR_RDMA_WRITE, (uintptr_t)p->near.buf, 8, p->near.mr->lkey, (uintptr_t)p->near.buf + 256, p->near.mr->rkey);
	must(*word(&p->near, 256) == 0x5555 && far == p->far.qp, "a WRITE in a parent domain");
	must(!ibv_destroy_qp(qp) && !ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td), "destroy: %m");
	printf("ok: parent domain and thread domain\n");
}

/* async_events are those of SRQs, QPs and CQs. */
static void async_events(struct pair *p)
{
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(p->pd, &sattr);
	must(srq, "ibv_create_srq: %m");
	struct ibv_cq *small = ibv_create_cq(p->ctx, 1, NULL, NULL, 0);
	must(small, "ibv_create_cq: %m");
	struct ibv_qp_init_attr qattr = { .send_cq = p->near.cq, .recv_cq = p->near.cq, .srq = srq, .qp_type = IBV_QPT_RC, .cap = { 16, 0, 1, 0, 0 } };
	struct ibv_qp *qp = ibv_create_qp(p->pd, &qattr);
	must(qp, "ibv_create_qp: %m");
	qp_connect(p, qp, qp->qp_num);

	struct ibv_sge sge = { (uintptr_t)p->near.buf, 64, p->near.mr->lkey };
	struct ibv_recv_wr rwr = { .sg_list = &sge, .num_sge = 1 }, *rbad;
	for (int i = 0; i < 3; i++)
		must(!ibv_post_srq_recv(srq, &rwr, &rbad), "ibv_post_srq_recv");
	struct ibv_srq_attr limit = { .srq_limit = 3 };
	must(!ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), "ibv_modify_srq: %m");
	struct side s = { .qp = qp, .cq = p->near.cq, .mr = p->near.mr, .buf = p->near.buf };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	must(!ibv_post_send(s.qp, &wr, &bad), "ibv_post_send");
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the receive");
	event(p, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	must(!ibv_query_srq(srq, &limit) && limit.srq_limit == 0, "the limit is %u after its event", limit.srq_limit);

	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	must(!ibv_modify_qp(qp, &err, IBV_QP_STATE), "ERR");
	event(p, IBV_EVENT_QP_LAST_WQE_REACHED, qp);
	must(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq), "destroy: %m");

	/* More completions than the queue can hold cause an error event. */
	struct ibv_qp_init_attr oattr = { .send_cq = small, .recv_cq = small, .qp_type = IBV_QPT_RC, .cap = { 16, 1, 1, 1, 0 } };
	must((qp = ibv_create_qp(p->pd, &oattr)), "ibv_create_qp: %m");
	qp_connect(p, qp, qp->qp_num);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = (uintptr_t)p->near.buf + 4096;
	wr.wr.rdma.rkey = p->near.mr->rkey;
	for (int i = 0; i < small->cqe + 2; i++)
		must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	event(p, IBV_EVENT_CQ_ERR, small);
	event(p, IBV_EVENT_QP_FATAL, qp);
	must(!ibv_destroy_qp(qp) && !ibv_destroy_cq(small), "destroy: %m");
	printf("ok: asynchronous events\n");
}

/* imported opens the device again by its descriptor, with the PD and the region of the
 * first open. */
static void imported(struct pair *p)
{
	struct ibv_context *ctx = ibv_import_device(dup(p->ctx->cmd_fd));
	must(ctx, "ibv_import_device: %m");
	struct ibv_pd *pd = ibv_import_pd(ctx, p->pd->handle);
	must(pd, "ibv_import_pd: %m");
	struct ibv_mr *mr = ibv_import_mr(pd, p->near.mr->handle);
	must(mr && mr->lkey == p->near.mr->lkey && mr->rkey == p->near.mr->rkey, "ibv_import_mr: %m");
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	must(cq, "ibv_create_cq: %m");
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &attr);
	must(qp, "ibv_create_qp: %m");
	qp_connect(p, qp, qp->qp_num);
	struct side s = { .qp = qp, .cq = cq, .mr = mr, .buf = p->near.buf };
	*word(&p->near, 0) = 0x6666;
	transfer(&s, IBV_WR_RDMA_WRITE, (uintptr_t)p->near.buf, 8, mr->lkey, (uintptr_t)p->near.buf + 512, mr->rkey);
	must(*word(&p->near, 512) == 0x6666, "a WRITE on the imported device");
	must(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq), "destroy: %m");
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	must(!ibv_close_device(ctx), "ibv_close_device: %m");
	printf("ok: a device, a PD and a region are imported\n");
}

/* Without arguments all parts run, otherwise those that are named. */
int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(struct pair *p); } parts[] = {
		{ "rereg", rereg }, { "devmem", device_memory }, { "windows", windows }, { "atomics", atomics },
		{ "parent", parent_domain }, { "events", async_events }, { "import", imported },
	};
	struct pair p;
	pair_open(&p, 0);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		bool wanted = argc == 1;
		for (int arg = 1; arg < argc; arg++)
			wanted |= !strcmp(argv[arg], parts[i].name);
		if (wanted)
			parts[i].run(&p);
	}
	pair_close(&p);
	return 0;
}
