/* Calls that mlx5's driver, uverbs and an adapter refuse, and one that they accept although a flag has no meaning. It
 * prints a line for each that goes another way, and ends with their number. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int wrong;

static void want(const char *what, int got, int errnum)
{
	if (got != errnum) {
		printf("%s: %d (%s), want %d\n", what, got, strerror(got), errnum);
		wrong++;
	}
}

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static union ibv_gid gid;

static int init(struct ibv_qp *qp, int access)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access };
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static int ready(struct ibv_qp *qp, uint32_t peer, int port, int rate)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = port, .static_rate = rate, .grh = { .dgid = gid, .sgid_index = 3, .hop_limit = 1 } } };
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type != IBV_QPT_XRC_SEND)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &a, mask);
}

static int send_state(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	return ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

static struct ibv_qp *rc(void)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };
	return ibv_create_qp(pd, &a);
}

static void addresses(void)
{
	struct ibv_qp *qp = rc();
	want("MW_BIND and other flags of an access that is a QP's", init(qp, IBV_ACCESS_MW_BIND | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ), 0);
	want("RTR with port 0", ready(qp, qp->qp_num, 0, 0), EINVAL);
	want("RTR with port 2", ready(qp, qp->qp_num, 2, 0), EINVAL);
	want("RTR with rate 1", ready(qp, qp->qp_num, 1, 1), EINVAL);
	want("RTR with rate 200", ready(qp, qp->qp_num, 1, 200), EINVAL);
	want("RTR", ready(qp, qp->qp_num, 1, IBV_RATE_100_GBPS), 0);
	want("RTS", send_state(qp), 0);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_SQD };
	struct ibv_qp_init_attr i;
	want("RTS to SQD", ibv_modify_qp(qp, &a, IBV_QP_STATE), EINVAL);
	want("query", ibv_query_qp(qp, &a, IBV_QP_ACCESS_FLAGS | IBV_QP_AV, &i), 0);
	want("access flags of the context", a.qp_access_flags, IBV_ACCESS_REMOTE_READ);
	a.qp_state = IBV_QPS_ERR;
	a.cur_qp_state = IBV_QPS_RTS;
	want("ERR with the current state", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
	a.qp_state = IBV_QPS_RESET;
	want("RESET", ibv_modify_qp(qp, &a, IBV_QP_STATE), 0);
	want("query", ibv_query_qp(qp, &a, IBV_QP_AV, &i), 0);
	want("a GID index after RESET", a.ah_attr.grh.sgid_index, 0);
	want("destroy", ibv_destroy_qp(qp), 0);
	struct ibv_gid_entry e;
	want("ibv_query_gid_ex with flags", ibv_query_gid_ex(ctx, 1, 3, &e, 1), EINVAL);
}

static void memory(void)
{
	char *page = aligned_alloc(4096, 8192);
	errno = 0;
	want("an iova with another place in a page", ibv_reg_mr_iova(pd, page, 4096, 0x10001, IBV_ACCESS_LOCAL_WRITE) ? 0 : errno, EINVAL);
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, page + 1, 4096, 0x10001, IBV_ACCESS_LOCAL_WRITE);
	want("an iova with the same place", mr ? 0 : errno, 0);
	if (mr)
		ibv_dereg_mr(mr);
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 16, .max_sge = 1, .srq_limit = 5 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &s);
	struct ibv_srq_attr q;
	want("query SRQ", ibv_query_srq(srq, &q), 0);
	want("a limit that ibv_create_srq was given", q.srq_limit, 0);
	ibv_destroy_srq(srq);
}

static void groups(void)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	want("attach", ibv_attach_mcast(qp, &group, 0), 0);
	want("destroy of an attached QP", ibv_destroy_qp(qp), EBUSY);
	want("detach", ibv_detach_mcast(qp, &group, 0), 0);
	want("destroy", ibv_destroy_qp(qp), 0);
}

static int status(void)
{
	struct ibv_wc wc = { .status = -1 };
	for (time_t end = time(NULL) + 20; time(NULL) < end && ibv_poll_cq(cq, 1, &wc) == 0;)
		;
	return wc.status;
}

/* Messages that are longer than max_msg_sz: of one SGE, and together of two. */
static void lengths(void)
{
	struct ibv_port_attr port;
	want("query port", ibv_query_port(ctx, 1, &port), 0);
	static const int ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND };
	for (int i = 0; i < 6; i++) {
		struct ibv_qp_init_attr qa = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 4, 4, 2, 1, 0 } };
		struct ibv_qp *qp = ibv_create_qp(pd, &qa);
		want("connect", init(qp, 0) | ready(qp, qp->qp_num, 1, 0) | send_state(qp), 0);
		struct ibv_sge s[2] = { { .length = port.max_msg_sz + 4 }, { .length = 4 } };
		if (i >= 3)
			s[0].length = port.max_msg_sz;
		struct ibv_send_wr w = { .sg_list = s, .num_sge = 1 + (i >= 3), .opcode = ops[i % 3], .send_flags = IBV_SEND_SIGNALED }, *bad;
		want("post", ibv_post_send(qp, &w, &bad), 0);
		want("a message of more than max_msg_sz", status(), IBV_WC_LOC_LEN_ERR);
		ibv_destroy_qp(qp);
	}
}

/* A request for an SRQ that is not of the receiver's domain is invalid: it does not wait for a receive request. */
static void domains(void)
{
	struct ibv_xrcd_init_attr da = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *d = ibv_open_xrcd(ctx, &da), *other = ibv_open_xrcd(ctx, &da);
	struct ibv_srq_init_attr_ex sa = { .attr = { 16, 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = other, .cq = cq };
	struct ibv_srq *srq = ibv_create_srq_ex(ctx, &sa);
	uint32_t number = 0;
	want("number of the SRQ", ibv_get_srq_num(srq, &number), 0);
	struct ibv_qp_init_attr_ex ra = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = d };
	struct ibv_qp_init_attr_ex ta = { .qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd, .send_cq = cq, .cap = { .max_send_wr = 4, .max_send_sge = 1, .max_inline_data = 16 } };
	struct ibv_qp *r = ibv_create_qp_ex(ctx, &ra), *t = ibv_create_qp_ex(ctx, &ta);
	want("INIT", init(r, 0) | init(t, 0), 0);
	want("RTR", ready(r, t->qp_num, 1, 0) | ready(t, r->qp_num, 1, 0), 0);
	want("RTS", send_state(t), 0);
	struct ibv_sge sge = { (uintptr_t)"x", 1, 0 };
	struct ibv_send_wr w = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .qp_type.xrc.remote_srqn = number }, *bad;
	want("post", ibv_post_send(t, &w, &bad), 0);
	want("a SEND to an SRQ of another domain", status(), IBV_WC_REM_INV_REQ_ERR);
	ibv_destroy_qp(t);
	ibv_destroy_qp(r);
	ibv_destroy_srq(srq);
}

/* Indexes of the GID table that are empty, or behind its end. */
static void indexes(void)
{
	struct ibv_port_attr port;
	ibv_query_port(ctx, 1, &port);
	for (int i = 0; i <= port.gid_tbl_len && i < 256; i++) {
		struct ibv_gid_entry e;
		int none = i >= port.gid_tbl_len ? EINVAL : ibv_query_gid_ex(ctx, 1, i, &e, 0);
		struct ibv_qp *qp = rc();
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .min_rnr_timer = 1,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = i, .hop_limit = 1 } } };
		init(qp, 0);
		want("RTR with a GID index", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), none);
		struct ibv_ah *ah = ibv_create_ah(pd, &a.ah_attr);
		want("an address with a GID index", ah ? 0 : errno, none);
		if (ah)
			ibv_destroy_ah(ah);
		ibv_destroy_qp(qp);
	}
}

/* A context of a queue pair has the logarithms of max_rd_atomic and max_dest_rd_atomic. */
static void in_flight(void)
{
	for (int n = 0; n <= 17; n++) {
		struct ibv_qp *qp = rc();
		struct ibv_qp_init_attr ia;
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = n, .min_rnr_timer = 1,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = 3, .hop_limit = 1 } } };
		int is = 1, asked = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC, bad = n > 16 ? EINVAL : 0;
		while (is < n)
			is *= 2;
		init(qp, asked);
		want("max_dest_rd_atomic", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), bad);
		if (bad)
			want("RTR", ready(qp, qp->qp_num, 1, 0), 0);
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = n };
		want("max_rd_atomic", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC), bad);
		ibv_query_qp(qp, &a, IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ACCESS_FLAGS, &ia);
		if (!bad) {
			want("max_dest_rd_atomic of the queue pair", a.max_dest_rd_atomic, is);
			want("max_rd_atomic of the queue pair", a.max_rd_atomic, is);
			want("its rights", a.qp_access_flags, n ? asked : IBV_ACCESS_REMOTE_WRITE);
			a.qp_access_flags = IBV_ACCESS_REMOTE_READ;
			want("other rights", ibv_modify_qp(qp, &a, IBV_QP_ACCESS_FLAGS), 0);
			ibv_query_qp(qp, &a, IBV_QP_ACCESS_FLAGS, &ia);
			want("its rights then", a.qp_access_flags, n ? IBV_ACCESS_REMOTE_READ : 0);
		}
		ibv_destroy_qp(qp);
	}
}

/* Multicast groups of both forms, and a datagram to each. */
static void group_forms(void)
{
	struct ibv_qp_init_attr qa = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 16 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &qa);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11 };
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	a.qp_state = IBV_QPS_RTR;
	ibv_modify_qp(qp, &a, IBV_QP_STATE);
	a.qp_state = IBV_QPS_RTS;
	ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
	static char memory[64];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	static const struct { const char *gid; int is; } forms[] = { { "ff01:0:2:c985::", 0 }, { "ff0e::ffff:ef01:203", 0 }, { "ff02::1:2", 0 }, { "::ffff:239.1.2.3", 0 }, { "::ffff:127.0.0.1", EINVAL }, { "2001:db8::1", EINVAL } };
	for (int i = 0; i < sizeof forms / sizeof *forms; i++) {
		union ibv_gid group;
		inet_pton(AF_INET6, forms[i].gid, &group);
		want(forms[i].gid, ibv_attach_mcast(qp, &group, 0), forms[i].is);
		if (forms[i].is)
			continue;
		struct ibv_ah_attr at = { .is_global = 1, .port_num = 1, .grh = { .dgid = group, .sgid_index = 3, .hop_limit = 1 } };
		struct ibv_ah *ah = ibv_create_ah(pd, &at);
		struct ibv_sge in = { (uintptr_t)memory, sizeof memory, mr->lkey }, out = { (uintptr_t)"x", 1, 0 };
		struct ibv_recv_wr r = { .sg_list = &in, .num_sge = 1, .wr_id = 1 }, *badr;
		struct ibv_send_wr w = { .sg_list = &out, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE, .wr.ud = { ah, 0xffffff, 0x11 } }, *bad;
		want("receive", ibv_post_recv(qp, &r, &badr), 0);
		want("send", ah ? ibv_post_send(qp, &w, &bad) : errno, 0);
		want("the datagram to the group", status() | status(), 0);
		want("detach", ibv_detach_mcast(qp, &group, 0), 0);
		ibv_destroy_ah(ah);
	}
	struct ibv_qp *other = rc();
	union ibv_gid group;
	inet_pton(AF_INET6, forms[0].gid, &group);
	want("a queue pair of type RC in a group", ibv_attach_mcast(other, &group, 0), EINVAL);
	ibv_destroy_qp(other);
	ibv_destroy_qp(qp);
	ibv_dereg_mr(mr);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	ctx = ibv_open_device(list[0]);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	if (!pd || !cq || ibv_query_gid(ctx, 1, 3, &gid))
		return 2;
	addresses();
	memory();
	groups();
	domains();
	lengths();
	indexes();
	in_flight();
	group_forms();
	if (!wrong)
		printf("all is refused as on an adapter\n");
	return wrong != 0;
}
