// SPDX-License-Identifier: Apache-2.0
//
// cmpeer: a side of a connection on librdmacm that prints each event and stops where a
// test wants it to stop.
//
//   cmpeer listen PORT [OPTION]...
//   cmpeer connect ADDR PORT [OPTION]...
//
// Options
//   udp          datagrams (RDMA_PS_UDP) instead of a connection
//   noqp         no queue pair: the program itself gets the event CONNECT_RESPONSE
//   private=TEXT private data of the request or of the acceptance
//   reject=TEXT  refuse the request, with private data
//   hold=EVENT   print this event, do nothing about it, and wait for a signal
//   stay         do not disconnect an established connection
//   ask          disconnect it when a byte arrives on standard input
//
// Output, a line each: "pid N"; "listening"; "EVENT status=N data=TEXT" for each event, without
// the prefix RDMA_CM_EVENT_; "error CALL: TEXT" before an exit with status 1. The program ends
// with status 0 when the connection has ended.

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool udp, noqp, stay, ask;
static const char *private_data = "", *reject, *hold = "";

static void check(bool ok, const char *call)
{
	if (ok)
		return;
	printf("error %s: %s\n", call, strerror(errno));
	exit(1);
}

static void create_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = udp ? IBV_QPT_UD : IBV_QPT_RC,
	};
	if (!noqp)
		check(rdma_create_qp(id, NULL, &attr) == 0, "rdma_create_qp");
}

static struct rdma_conn_param param(struct rdma_cm_id *id)
{
	return (struct rdma_conn_param){
		.private_data = private_data, .private_data_len = strlen(private_data), .responder_resources = 1, .initiator_depth = 1,
		.retry_count = 7, .rnr_retry_count = 7, .qp_num = id->qp ? id->qp->qp_num : 1000,
	};
}

// print prints an event. Private data is text that ends with a zero byte.
static const char *print(struct rdma_cm_event *e)
{
	const char *name = rdma_event_str(e->event) + strlen("RDMA_CM_EVENT_");
	const char *data = udp ? e->param.ud.private_data : e->param.conn.private_data;
	int len = udp ? e->param.ud.private_data_len : e->param.conn.private_data_len;
	printf("%s status=%d data=%.*s\n", name, e->status, data ? len : 0, data ? data : "");
	return name;
}

// handle acts on an event and returns whether the connection has ended.
static bool handle(struct rdma_cm_event *e)
{
	struct rdma_cm_id *id = e->id;
	struct rdma_conn_param p;
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		check(rdma_resolve_route(id, 2000) == 0, "rdma_resolve_route");
		return false;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		create_qp(id);
		p = param(id);
		check(rdma_connect(id, &p) == 0, "rdma_connect");
		return false;
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		if (reject) {
			check(rdma_reject(id, reject, strlen(reject)) == 0, "rdma_reject");
			return true;
		}
		create_qp(id);
		p = param(id);
		check(rdma_accept(id, &p) == 0, "rdma_accept");
		return udp;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		check(rdma_establish(id) == 0, "rdma_establish");
		return false;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (udp)
			return true;
		if (ask)
			getchar();
		if (!stay)
			check(rdma_disconnect(id) == 0, "rdma_disconnect");
		return false;
	case RDMA_CM_EVENT_DISCONNECTED:
		rdma_disconnect(id); // answers the DREQ, if the other side disconnected first
		return true;
	default:
		return true;
	}
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	bool listen = argc > 2 && !strcmp(argv[1], "listen");
	int at = listen ? 3 : 4;
	if (argc < at)
		return 2;
	const char *port = argv[at - 1];
	for (; at < argc; at++) {
		const char *o = argv[at];
		if (!strcmp(o, "udp"))
			udp = true;
		else if (!strcmp(o, "noqp"))
			noqp = true;
		else if (!strcmp(o, "stay"))
			stay = true;
		else if (!strcmp(o, "ask"))
			ask = true;
		else if (!strncmp(o, "private=", 8))
			private_data = o + 8;
		else if (!strncmp(o, "reject=", 7))
			reject = o + 7;
		else if (!strncmp(o, "hold=", 5))
			hold = o + 5;
		else
			return 2;
	}
	printf("pid %d\n", getpid());

	struct rdma_addrinfo hints = {.ai_port_space = udp ? RDMA_PS_UDP : RDMA_PS_TCP, .ai_flags = listen ? RAI_PASSIVE : 0}, *ai;
	check(rdma_getaddrinfo(listen ? NULL : argv[2], port, &hints, &ai) == 0, "rdma_getaddrinfo");
	struct rdma_event_channel *channel = rdma_create_event_channel();
	check(channel, "rdma_create_event_channel");
	struct rdma_cm_id *id;
	check(rdma_create_id(channel, &id, NULL, hints.ai_port_space) == 0, "rdma_create_id");
	if (listen) {
		check(rdma_bind_addr(id, ai->ai_src_addr) == 0, "rdma_bind_addr");
		check(rdma_listen(id, 8) == 0, "rdma_listen");
		printf("listening\n");
	} else {
		check(rdma_resolve_addr(id, NULL, ai->ai_dst_addr, 2000) == 0, "rdma_resolve_addr");
	}

	for (bool ended = false; !ended;) {
		struct rdma_cm_event *e;
		check(rdma_get_cm_event(channel, &e) == 0, "rdma_get_cm_event");
		if (!strcmp(print(e), hold))
			for (;;)
				pause();
		struct rdma_cm_event copy = *e;
		check(rdma_ack_cm_event(e) == 0, "rdma_ack_cm_event");
		ended = handle(&copy);
	}
	return 0;
}
