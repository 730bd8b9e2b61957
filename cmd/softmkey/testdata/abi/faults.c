/* Asks for each fault of "softmkey control" and checks what an adapter's driver would show: events,
 * states, files, and the ends of requests. Arguments: softmkey, and the control socket. */
#include "pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

static const char *softmkey, *control;

static void ask(const char *fault)
{
	char line[400];
	snprintf(line, sizeof line, "%s control %s %s", softmkey, control, fault);
	must(system(line) == 0, "%s failed", line);
}

static void event(struct ibv_context *ctx, enum ibv_event_type want)
{
	struct pollfd p = { ctx->async_fd, POLLIN };
	struct ibv_async_event e;
	must(poll(&p, 1, 20000) == 1, "no event, want %s", ibv_event_type_str(want));
	must(!ibv_get_async_event(ctx, &e), "ibv_get_async_event: %s", strerror(errno));
	must(e.event_type == want, "event %s, want %s", ibv_event_type_str(e.event_type), ibv_event_type_str(want));
	ibv_ack_async_event(&e);
}

static void file(const char *name, const char *want)
{
	char path[200], text[200] = "";
	snprintf(path, sizeof path, "/sys/class/infiniband/mlx5_0/ports/1/%s", name);
	FILE *f = fopen(path, "r");
	if (f) {
		must(fgets(text, sizeof text, f), "%s is empty", path);
		fclose(f);
	}
	text[strcspn(text, "\n")] = 0;
	must(!strcmp(text, want), "%s: \"%s\", want \"%s\"", path, text, want);
}

static void state(struct ibv_context *ctx, int port, int phys)
{
	struct ibv_port_attr a;
	must(!ibv_query_port(ctx, 1, &a), "ibv_query_port: %s", strerror(errno));
	must(a.state == port && a.phys_state == phys, "port state %d, %d, want %d, %d", a.state, a.phys_state, port, phys);
	file("state", port == IBV_PORT_ACTIVE ? "4: ACTIVE" : "1: DOWN");
	file("phys_state", phys == 5 ? "5: LinkUp" : "3: Disabled");
}

static void write_to_far(struct pair *p, enum ibv_wc_status want, const char *what)
{
	struct ibv_sge s = { (uintptr_t)p->near.buf, 64, p->near.mr->lkey };
	struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)p->far.buf, p->far.mr->rkey } }, *bad;
	must(!ibv_post_send(p->near.qp, &w, &bad), "ibv_post_send: %s", strerror(errno));
	poll_one(p->near.cq, want, what);
}

/* retry_soon connects both queue pairs anew, with retries that end soon. */
static void retry_soon(struct pair *p)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_qp *qp = i ? p->far.qp : p->near.qp, *peer = i ? p->near.qp : p->far.qp;
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
		must(!ibv_modify_qp(qp, &a, IBV_QP_STATE), "RESET");
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
		must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
			.max_dest_rd_atomic = 1, .min_rnr_timer = 12,
			.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 3, .hop_limit = 64 } } };
		must(!ibv_query_gid(p->ctx, 1, 3, &a.ah_attr.grh.dgid), "ibv_query_gid");
		must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 2, .max_rd_atomic = 1 };
		must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	}
}

/* bound returns an id that is bound to the device's address, with its channel. */
static struct rdma_cm_id *bound(struct rdma_event_channel **channel, const char *address)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	struct rdma_cm_id *id;
	must(inet_pton(AF_INET, address, &a.sin_addr) == 1, "%s is no address", address);
	must(*channel = rdma_create_event_channel(), "rdma_create_event_channel: %s", strerror(errno));
	must(!rdma_create_id(*channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id: %s", strerror(errno));
	must(!rdma_bind_addr(id, (struct sockaddr *)&a) && id->verbs, "rdma_bind_addr: %s", strerror(errno));
	return id;
}

/* moderate asks for a moderation of events that an adapter takes, and for longer ones. */
static void moderate(struct ibv_cq *cq)
{
	static const struct { unsigned short period; int want; } cases[] = { { 4095, 0 }, { 4096, EINVAL }, { 65535, EINVAL } };
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ibv_modify_cq_attr a = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 16, cases[i].period } };
		int got = ibv_modify_cq(cq, &a);
		must(got == cases[i].want, "a moderation of %u us: %d, want %d", cases[i].period, got, cases[i].want);
	}
}

int main(int argc, char **argv)
{
	struct pair p;
	union ibv_gid gid, moved, none = { .raw = { 0 } };
	char line[100];

	must(argc == 4, "usage: faults SOFTMKEY SOCKET ADDRESS");
	softmkey = argv[1], control = argv[2];
	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 1); /* or objects of a failed device cannot be destroyed */
	pair_open(&p, 0);
	state(p.ctx, IBV_PORT_ACTIVE, 5);
	write_to_far(&p, IBV_WC_SUCCESS, "a write");
	moderate(p.near.cq);

	retry_soon(&p);
	ask("port down");
	event(p.ctx, IBV_EVENT_PORT_ERR);
	state(p.ctx, IBV_PORT_DOWN, 3);
	write_to_far(&p, IBV_WC_RETRY_EXC_ERR, "a write without a link");
	ask("port down"); /* no change, and no event */
	ask("port up");
	event(p.ctx, IBV_EVENT_PORT_ACTIVE);
	state(p.ctx, IBV_PORT_ACTIVE, 5);
	retry_soon(&p);
	write_to_far(&p, IBV_WC_SUCCESS, "a write after port up");

	ask("gid change");
	event(p.ctx, IBV_EVENT_GID_CHANGE);
	must(!ibv_query_gid(p.ctx, 1, 3, &gid) && !memcmp(&gid, &none, sizeof gid), "GID 3 is not empty");
	must(!ibv_query_gid(p.ctx, 1, 5, &moved) && memcmp(&moved, &none, sizeof gid), "GID 5 is empty");
	file("gids/3", "0000:0000:0000:0000:0000:0000:0000:0000");
	file("gid_attrs/types/3", "");
	file("gid_attrs/types/5", "RoCE v2");
	write_to_far(&p, IBV_WC_SUCCESS, "a write after gid change");
	ask("clear");
	event(p.ctx, IBV_EVENT_GID_CHANGE);
	must(!ibv_query_gid(p.ctx, 1, 3, &gid) && !memcmp(&gid, &moved, sizeof gid), "GID 3 has not come back");
	file("gid_attrs/types/3", "RoCE v2");

	/* Loss of everything: the retries end. Then nothing is lost, for a new connection. */
	ask("loss 100%");
	write_to_far(&p, IBV_WC_RETRY_EXC_ERR, "a write that is lost");
	ask("clear");
	retry_soon(&p);
	write_to_far(&p, IBV_WC_SUCCESS, "a write after clear");

	snprintf(line, sizeof line, "--device mlx5_0 qp %#x error", p.near.qp->qp_num);
	ask(line);
	event(p.ctx, IBV_EVENT_QP_FATAL);
	write_to_far(&p, IBV_WC_WR_FLUSH_ERR, "a write of a failed QP");
	pair_close(&p);

	pair_open(&p, 0);
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id = bound(&channel, argv[3]);
	struct rdma_cm_event *removal;
	ask("device fatal");
	event(p.ctx, IBV_EVENT_DEVICE_FATAL);
	must(!rdma_get_cm_event(channel, &removal), "rdma_get_cm_event: %s", strerror(errno));
	must(removal->event == RDMA_CM_EVENT_DEVICE_REMOVAL && removal->id == id, "event %s, want DEVICE_REMOVAL", rdma_event_str(removal->event));
	rdma_ack_cm_event(removal);
	must(!rdma_destroy_id(id), "rdma_destroy_id: %s", strerror(errno));
	rdma_destroy_event_channel(channel);
	errno = 0;
	must(!ibv_alloc_pd(p.ctx) && errno == EIO, "ibv_alloc_pd: errno %d, want EIO", errno);
	pair_close(&p);
	pair_open(&p, 0);
	write_to_far(&p, IBV_WC_SUCCESS, "a write after the device was opened anew");
	pair_close(&p);
	puts("all faults are as on an adapter");
	return 0;
}
