#define _GNU_SOURCE
/* The features that the device lacks. The program asks for each of them. The answer must come at
 * once, with the errno of mlx5's driver for an adapter without the feature, or of a kernel that does
 * not know the method. */
#include "pair.h"

#include <errno.h>

static int wrong;

/* refused prints a feature's errno and compares it with the wanted one. */
static void refused(const char *feature, int ok, int got, int want)
{
	const char *result = ok ? "is there" : strerrorname_np(got);
	if (ok || got != want) {
		wrong = 1;
		printf("WRONG: %s: %s, not %s\n", feature, result ? result : "?", strerrorname_np(want));
	} else {
		printf("absent: %s: %s\n", feature, result);
	}
}

/* null tests a call that must return NULL and set errno, and fails one that must return an errno. */
#define null(feature, want, call) do { errno = 0; void *r_ = (call); refused(feature, r_ != NULL, errno, want); } while (0)
#define fails(feature, want, call) do { errno = 0; int r_ = (call); refused(feature, r_ == 0, r_ > 0 ? r_ : r_ == -1 ? errno : -r_, want); } while (0)

static void queue_pairs(struct pair *p)
{
	struct ibv_qp_cap cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 };
	struct ibv_srq_init_attr sattr = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(p->pd, &sattr);
	must(srq, "ibv_create_srq");
#define QP(t, ...) &(struct ibv_qp_init_attr_ex){ .qp_type = t, .send_cq = p->near.cq, .recv_cq = p->near.cq, .pd = p->pd, .cap = cap, .comp_mask = IBV_QP_INIT_ATTR_PD, __VA_ARGS__ }
	null("raw packet QP", EOPNOTSUPP, ibv_create_qp_ex(p->ctx, QP(IBV_QPT_RAW_PACKET)));
	struct mlx5dv_qp_init_attr dci = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS, .dc_init_attr = { .dc_type = MLX5DV_DCTYPE_DCI, .dci_streams = { 1, 1 } } };
	null("DC streams", EINVAL, mlx5dv_create_qp(p->ctx, QP(IBV_QPT_DRIVER), &dci));
	null("QP with checksum offload", EOPNOTSUPP, ibv_create_qp_ex(p->ctx, QP(IBV_QPT_RC, .create_flags = IBV_QP_CREATE_CVLAN_STRIPPING, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS)));
	null("QP with scatter FCS", EOPNOTSUPP, ibv_create_qp_ex(p->ctx, QP(IBV_QPT_RC, .create_flags = IBV_QP_CREATE_SCATTER_FCS, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS)));
	null("QP on another QP's number", EOPNOTSUPP, ibv_create_qp_ex(p->ctx, QP(IBV_QPT_UD, .create_flags = IBV_QP_CREATE_SOURCE_QPN, .source_qpn = 5, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS)));
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS };
	dv.create_flags = MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE;
	null("packet-based credits", EOPNOTSUPP, mlx5dv_create_qp(p->ctx, QP(IBV_QPT_RC), &dv));
	dv.create_flags = MLX5DV_QP_CREATE_TUNNEL_OFFLOADS;
	null("tunnel offload", EOPNOTSUPP, mlx5dv_create_qp(p->ctx, QP(IBV_QPT_RAW_PACKET), &dv));

	struct ibv_qp_attr attr = { .alt_ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 3 } }, .alt_port_num = 1, .alt_timeout = 14 };
	fails("alternate path", EOPNOTSUPP, ibv_modify_qp(p->near.qp, &attr, IBV_QP_ALT_PATH));
	struct ibv_qp_rate_limit_attr rate = { .rate_limit = 1000 };
	fails("rate limit", EOPNOTSUPP, ibv_modify_qp_rate_limit(p->near.qp, &rate));
	fails("UDP source port", EOPNOTSUPP, mlx5dv_modify_qp_udp_sport(p->near.qp, 50000));
	uint8_t port, active;
	fails("LAG", EOPNOTSUPP, mlx5dv_query_qp_lag_port(p->near.qp, &port, &active));
	uint32_t number;
	fails("reserved QP numbers", EOPNOTSUPP, mlx5dv_reserved_qpn_alloc(p->ctx, &number));
	struct ibv_srq_attr size = { .max_wr = 16 };
	fails("SRQ of another size", EINVAL, ibv_modify_srq(srq, &size, IBV_SRQ_MAX_WR));
	must(!ibv_destroy_srq(srq), "ibv_destroy_srq");
	struct ibv_srq_init_attr_ex tm = {
		.srq_type = IBV_SRQT_TM, .pd = p->pd, .cq = p->near.cq, .attr = { .max_wr = 8, .max_sge = 1 }, .tm_cap = { .max_num_tags = 4, .max_ops = 4 },
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
	};
	null("tag matching", EINVAL, ibv_create_srq_ex(p->ctx, &tm));
}

static void completion_queues(struct pair *p)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct mlx5dv_cq_init_attr dv = { .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE, .cqe_comp_res_format = MLX5DV_CQE_RES_FORMAT_HASH };
	null("compressed completions", EINVAL, mlx5dv_create_cq(p->ctx, &attr, &dv));
	dv = (struct mlx5dv_cq_init_attr){ .comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_FLAGS | MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE, .flags = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD, .cqe_size = 128 };
	null("padded completions", EINVAL, mlx5dv_create_cq(p->ctx, &attr, &dv));
	attr.comp_vector = 1000;
	null("completion vector 1000", EINVAL, ibv_create_cq_ex(p->ctx, &attr));
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	fails("reading of the raw clock", EOPNOTSUPP, ibv_query_rt_values_ex(p->ctx, &values));
}

static void memory(struct pair *p)
{
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct mlx5dv_alloc_dm_attr steering = { .type = MLX5DV_DM_TYPE_STEERING_SW_ICM };
	null("device memory for flow steering", EOPNOTSUPP, mlx5dv_alloc_dm(p->ctx, &dm, &steering));
	struct ibv_dm *near = ibv_alloc_dm(p->ctx, &dm);
	null("operation address of device memory", EPROTONOSUPPORT, near ? mlx5dv_dm_map_op_addr(near, 0) : NULL);
	if (near)
		ibv_free_dm(near);
}

static void steering(struct pair *p)
{
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_SNIFFER, .size = sizeof flow, .port = 1 };
	null("flow", EOPNOTSUPP, ibv_create_flow(p->near.qp, &flow));
	struct mlx5dv_flow_matcher_attr matcher = { .type = IBV_FLOW_ATTR_NORMAL };
	uint64_t room[64] = {};
	matcher.match_mask = (struct mlx5dv_flow_match_parameters *)room;
	null("flow matcher", EPROTONOSUPPORT, mlx5dv_create_flow_matcher(p->ctx, &matcher));
	struct ibv_flow_action_esp_attr esp = {};
	null("flow action", EPROTONOSUPPORT, ibv_create_flow_action_esp(p->ctx, &esp));
	struct mlx5dv_dr_domain *rules = mlx5dv_dr_domain_create(p->ctx, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	must(rules, "mlx5dv_dr_domain_create: %m"); /* the library needs no device for it */
	struct mlx5dv_dr_table *table = mlx5dv_dr_table_create(rules, 0);
	must(table, "mlx5dv_dr_table_create: %m");
	null("direct rules", EPROTONOSUPPORT, mlx5dv_dr_matcher_create(table, 0, 0, matcher.match_mask));
	null("direct rules beyond the first table", EOPNOTSUPP, mlx5dv_dr_table_create(rules, 1));
	must(!mlx5dv_dr_table_destroy(table) && !mlx5dv_dr_domain_destroy(rules), "destroy: %m");
	struct ibv_counters_init_attr counters = {};
	null("flow counters", EPROTONOSUPPORT, ibv_create_counters(p->ctx, &counters));
	struct ibv_wq_init_attr wq = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = p->pd, .cq = p->near.cq };
	null("work queue", EOPNOTSUPP, ibv_create_wq(p->ctx, &wq));
}

static void driver(struct pair *p)
{
	null("VAR", EPROTONOSUPPORT, mlx5dv_alloc_var(p->ctx, 0));
	uint8_t pacing[64] = {};
	null("packet pacing", EPROTONOSUPPORT, mlx5dv_pp_alloc(p->ctx, sizeof pacing, pacing, 0));
	struct mlx5dv_sched_attr sched = {};
	null("scheduling", EOPNOTSUPP, mlx5dv_sched_node_create(p->ctx, &sched));
	struct mlx5dv_port port = {};
	fails("mlx5dv_query_port", EPROTONOSUPPORT, mlx5dv_query_port(p->ctx, 1, &port));
	struct mlx5dv_devx_event_channel *events = mlx5dv_devx_create_event_channel(p->ctx, 0);
	must(events, "mlx5dv_devx_create_event_channel: %m");
	fails("DEVX events of no object", EOPNOTSUPP, mlx5dv_devx_subscribe_devx_event(events, NULL, 2, (uint16_t[]){ 9 }, 0));
	mlx5dv_devx_destroy_event_channel(events);
	null("DEVX MSI vector", EOPNOTSUPP, mlx5dv_devx_alloc_msi_vector(p->ctx));
	uint8_t in[64] = { 0x05, 0x02 }, out[64]; /* RST2INIT_QP creates nothing */
	null("another command by DEVX", EINVAL, mlx5dv_devx_obj_create(p->ctx, in, sizeof in, out, sizeof out));
	in[0] = 0x09;
	in[1] = 0x04; /* CREATE_SQ */
	null("a send queue of Ethernet", EREMOTEIO, mlx5dv_devx_obj_create(p->ctx, in, sizeof in, out, sizeof out));
	in[1] = 0;
	in[0] = 0x0a; /* CREATE_GENERAL_OBJECT of an unknown type */
	in[7] = 0x21;
	null("another object by DEVX", EREMOTEIO, mlx5dv_devx_obj_create(p->ctx, in, sizeof in, out, sizeof out));
}

int main(void)
{
	struct pair p;
	setvbuf(stdout, NULL, _IOLBF, 0);
	pair_open(&p, 0);
	queue_pairs(&p);
	completion_queues(&p);
	memory(&p);
	steering(&p);
	driver(&p);
	pair_close(&p);
	return wrong;
}
