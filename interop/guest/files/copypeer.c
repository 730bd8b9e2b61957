// SPDX-License-Identifier: Apache-2.0
//
// copypeer: the other side of "softmkey copy --cm" on librdmacm and libibverbs, without
// memory keys.
//
//   copypeer receive PORT FILE         listens, and writes what arrives to FILE
//   copypeer send ADDR PORT FILE OP    connects, and sends FILE with OP, "send" or "write"
//
// The package documents of internal/tool/rendezvous (the stream), internal/tool/jsonline (the
// lines) and internal/tool/filecopy (hello, endpoints, messages) describe the conversation.

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STREAM_RECVS = 8, STREAM_MESSAGE = 1024, SLOTS = 8, CHUNK = 1 << 20, INBOX = 16, MESSAGE = 216, LINE = 8192 };
enum { CREDIT = 1, DONE = 4, RESULT = 5, STOP = 6, BYE = 7 };

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "copypeer: %s: %s\n", what, strerror(errno));
	exit(1);
}

// ---- the stream of the connection: SENDs of at most STREAM_MESSAGE bytes, lines of JSON

static struct rdma_cm_id *id;
static char *stream_in, *stream_out;
static struct ibv_mr *stream_in_mr, *stream_out_mr;

static void stream_post(int i)
{
	char *p = stream_in + i * STREAM_MESSAGE;
	check(rdma_post_recv(id, p, p, STREAM_MESSAGE, stream_in_mr) == 0, "rdma_post_recv");
}

static void stream_begin(void)
{
	stream_in = calloc(STREAM_RECVS, STREAM_MESSAGE);
	stream_out = calloc(1, STREAM_MESSAGE);
	check(stream_in && stream_out, "calloc");
	stream_in_mr = rdma_reg_msgs(id, stream_in, STREAM_RECVS * STREAM_MESSAGE);
	stream_out_mr = rdma_reg_msgs(id, stream_out, STREAM_MESSAGE);
	check(stream_in_mr && stream_out_mr, "rdma_reg_msgs");
	for (int i = 0; i < STREAM_RECVS; i++)
		stream_post(i);
}

static void tell(const char *line)
{
	size_t n = strlen(line);
	struct ibv_wc wc;
	check(n < STREAM_MESSAGE, "line too long");
	memcpy(stream_out, line, n);
	stream_out[n] = '\n';
	check(rdma_post_send(id, NULL, stream_out, n + 1, stream_out_mr, IBV_SEND_SIGNALED) == 0, "rdma_post_send");
	check(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "sending a line");
}

// hear returns the next line, in a buffer that the next call overwrites.
static char *hear(void)
{
	static char line[LINE];
	static char *at; // unread bytes of the message that came last
	static int left, index;
	for (int n = 0; n < LINE;) {
		if (left == 0) {
			struct ibv_wc wc;
			check(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS, "receiving a line");
			at = (char *)(uintptr_t)wc.wr_id;
			index = (at - stream_in) / STREAM_MESSAGE;
			left = wc.byte_len;
		}
		char c = 0;
		if (left > 0) {
			c = *at++;
			left--;
			line[n++] = c;
		}
		if (left == 0)
			stream_post(index);
		if (c == '\n') {
			line[n - 1] = 0;
			return line;
		}
	}
	check(false, "a line without end");
	return NULL;
}

static void agree(void)
{
	tell("{}");
	char *line = hear();
	if (strcmp(line, "{}")) {
		fprintf(stderr, "copypeer: the other side refuses: %s\n", line);
		exit(1);
	}
}

// ---- the two connections: control and data

static struct ibv_cq *cq;
static struct ibv_qp *qps[2]; // control, data
static char *memory, *inbox, *outbox;
static struct ibv_mr *memory_mr, *inbox_mr, *outbox_mr;

// number returns the number after the nth occurrence of a key in a line of JSON.
static unsigned long number(const char *line, const char *key, int nth)
{
	for (; line && (line = strstr(line, key)); nth--) {
		line += strlen(key);
		if (nth == 0)
			return strtoul(line, NULL, 10);
	}
	check(false, key);
	return 0;
}

static void connect_qps(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 32, .max_recv_wr = 32, .max_send_sge = 1, .max_recv_sge = 1},
	};
	// The two QPs use the same path as the QP of the connection.
	struct ibv_qp_attr path;
	check(ibv_query_qp(id->qp, &path, IBV_QP_AV, &(struct ibv_qp_init_attr){0}) == 0, "ibv_query_qp");
	struct ibv_port_attr port;
	check(ibv_query_port(id->verbs, id->port_num, &port) == 0, "ibv_query_port");

	char address[INET6_ADDRSTRLEN], line[STREAM_MESSAGE];
	struct sockaddr *self = rdma_get_local_addr(id);
	const void *ip = self->sa_family == AF_INET ? (void *)&((struct sockaddr_in *)self)->sin_addr : (void *)&((struct sockaddr_in6 *)self)->sin6_addr;
	inet_ntop(self->sa_family, ip, address, sizeof address);
	int n = 0;
	for (int i = 0; i < 2; i++) {
		check((qps[i] = ibv_create_qp(id->pd, &init)), "ibv_create_qp");
		n += snprintf(line + n, sizeof line - n, "%c{\"gid\":\"%s\",\"qpn\":%u,\"psn\":%u,\"mtu\":%d}", "[,"[i], address,
			      qps[i]->qp_num, 1000 + i, 128 << port.active_mtu);
	}
	strcpy(line + n, "]");
	tell(line);
	char *theirs = hear();

	for (int i = 0; i < 2; i++) {
		unsigned mtu = number(theirs, "\"mtu\":", i);
		struct ibv_qp_attr a = {
			.qp_state = IBV_QPS_INIT, .port_num = id->port_num, .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		};
		check(ibv_modify_qp(qps[i], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0, "INIT");
		a.qp_state = IBV_QPS_RTR;
		a.ah_attr = path.ah_attr;
		a.path_mtu = port.active_mtu;
		while (128u << a.path_mtu > mtu)
			a.path_mtu--;
		a.dest_qp_num = number(theirs, "\"qpn\":", i);
		a.rq_psn = number(theirs, "\"psn\":", i);
		a.min_rnr_timer = 12;
		check(ibv_modify_qp(qps[i], &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0, "RTR");
		a.qp_state = IBV_QPS_RTS;
		a.sq_psn = 1000 + i;
		a.timeout = 17;
		a.retry_cnt = a.rnr_retry = 7;
		check(ibv_modify_qp(qps[i], &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC) == 0, "RTS");
	}
}

// The work request ids: the kind in the high half, the number in the low one.
enum { IN = 1, CHUNKS = 2, OUT = 3 };

static void listen_message(uint64_t i)
{
	struct ibv_sge s = {(uintptr_t)inbox + i * MESSAGE, MESSAGE, inbox_mr->lkey};
	struct ibv_recv_wr r = {.wr_id = (uint64_t)IN << 32 | i, .sg_list = &s, .num_sge = 1}, *bad;
	check(ibv_post_recv(qps[0], &r, &bad) == 0, "ibv_post_recv");
}

static struct ibv_wc next_completion(void)
{
	struct ibv_wc wc;
	int n;
	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0)
		usleep(200);
	check(n == 1, "ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "copypeer: completion %#lx: %s\n", (unsigned long)wc.wr_id, ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static void put64(char *p, uint64_t v) { v = htobe64(v); memcpy(p, &v, 8); }
static void put32(char *p, uint32_t v) { v = htobe32(v); memcpy(p, &v, 4); }
static uint64_t get64(const char *p) { uint64_t v; memcpy(&v, p, 8); return be64toh(v); }
static uint32_t get32(const char *p) { uint32_t v; memcpy(&v, p, 4); return be32toh(v); }

// message returns the room for message number n; send_message sends it.
static char *message(uint64_t n, int kind)
{
	char *p = outbox + n % INBOX * MESSAGE;
	memset(p, 0, MESSAGE);
	p[0] = kind;
	return p;
}

static void send_message(char *p, int len)
{
	struct ibv_sge s = {(uintptr_t)p, len, outbox_mr->lkey};
	struct ibv_send_wr w = {.wr_id = (uint64_t)OUT << 32, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	check(ibv_post_send(qps[0], &w, &bad) == 0, "ibv_post_send");
}

static char *slot(uint64_t k) { return memory + k % SLOTS * CHUNK; }

// ---- the two sides

static void grant(uint64_t k, bool write)
{
	struct ibv_sge s = {(uintptr_t)slot(k), CHUNK, memory_mr->lkey};
	struct ibv_recv_wr r = {.wr_id = (uint64_t)CHUNKS << 32 | k, .sg_list = &s, .num_sge = !write}, *bad;
	check(ibv_post_recv(qps[1], &r, &bad) == 0, "ibv_post_recv");
	char *m = message(k, CREDIT);
	put32(m + 4, memory_mr->rkey);
	put64(m + 8, k);
	put64(m + 16, (uintptr_t)slot(k));
	send_message(m, 24);
}

static void receive(FILE *file, bool write)
{
	uint64_t arrived = 0, bytes = 0;
	for (uint64_t k = 0; k < SLOTS; k++)
		grant(k, write);
	for (;;) {
		struct ibv_wc wc = next_completion();
		if (wc.wr_id >> 32 == CHUNKS) {
			check((uint32_t)wc.wr_id == arrived, "the order of chunks");
			check(fwrite(slot(arrived), 1, wc.byte_len, file) == wc.byte_len, "write");
			bytes += wc.byte_len;
			grant(arrived++ + SLOTS, write);
		} else if (wc.wr_id >> 32 == IN) {
			char *m = inbox + (uint32_t)wc.wr_id * MESSAGE;
			if (m[0] == BYE)
				return;
			if (m[0] == STOP) {
				fprintf(stderr, "copypeer: the other side stops: %.*s\n", (int)(wc.byte_len - 56), m + 56);
				exit(1);
			}
			check(m[0] == DONE && get64(m + 8) == arrived && get64(m + 16) == bytes, "DONE");
			check(fflush(file) == 0, "write");
			char *r = message(arrived + SLOTS, RESULT);
			put64(r + 8, bytes);
			send_message(r, 96);
			listen_message((uint32_t)wc.wr_id);
		}
	}
}

static void send_file(FILE *file, bool write)
{
	struct { uint32_t rkey; uint64_t addr; } grants[SLOTS];
	uint64_t granted = 0, sent = 0, done = 0, bytes = 0;
	bool end = false, said = false;
	for (;;) {
		while (!end && sent < granted && sent < done + SLOTS) {
			size_t n = fread(slot(sent), 1, CHUNK, file);
			end = n < CHUNK;
			if (n == 0)
				break;
			struct ibv_sge s = {(uintptr_t)slot(sent), n, memory_mr->lkey};
			struct ibv_send_wr w = {
				.wr_id = (uint64_t)CHUNKS << 32 | sent, .sg_list = &s, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
				.opcode = write ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_SEND, .imm_data = htobe32(sent),
				.wr.rdma = {grants[sent % SLOTS].addr, grants[sent % SLOTS].rkey},
			}, *bad;
			check(ibv_post_send(qps[1], &w, &bad) == 0, "ibv_post_send");
			bytes += n;
			sent++;
		}
		if (end && done == sent && !said) {
			said = true;
			char *m = message(0, DONE);
			put64(m + 8, sent);
			put64(m + 16, bytes);
			send_message(m, 136);
		}
		struct ibv_wc wc = next_completion();
		if (wc.wr_id >> 32 == CHUNKS) {
			done++;
		} else if (wc.wr_id >> 32 == IN) {
			char *m = inbox + (uint32_t)wc.wr_id * MESSAGE;
			if (m[0] == RESULT) {
				check(said && get64(m + 8) == bytes, "RESULT");
				send_message(message(1, BYE), 16);
				while (next_completion().wr_id >> 32 != OUT)
					;
				return;
			}
			check(m[0] == CREDIT && get64(m + 8) == granted, "CREDIT");
			grants[granted % SLOTS].rkey = get32(m + 4);
			grants[granted++ % SLOTS].addr = get64(m + 16);
			listen_message((uint32_t)wc.wr_id);
		}
	}
}

int main(int argc, char **argv)
{
	bool sender = argc == 6 && !strcmp(argv[1], "send");
	if (!sender && !(argc == 4 && !strcmp(argv[1], "receive"))) {
		fprintf(stderr, "usage: copypeer receive PORT FILE | copypeer send ADDR PORT FILE OP\n");
		return 2;
	}
	FILE *file = fopen(argv[argc - 1 - sender], sender ? "r" : "w");
	check(file, "fopen");

	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = sender ? 0 : RAI_PASSIVE}, *ai;
	struct ibv_qp_init_attr attr = {
		.cap = {.max_send_wr = 2, .max_recv_wr = STREAM_RECVS, .max_send_sge = 1, .max_recv_sge = 1}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
	};
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
	check(rdma_getaddrinfo(sender ? argv[2] : "::", argv[1 + 1 + sender], &hints, &ai) == 0, "rdma_getaddrinfo");
	check(rdma_create_ep(&id, ai, NULL, &attr) == 0, "rdma_create_ep");
	if (sender) {
		stream_begin();
		check(rdma_connect(id, &param) == 0, "rdma_connect");
	} else {
		struct rdma_cm_id *listener = id;
		check(rdma_listen(listener, 1) == 0, "rdma_listen");
		check(rdma_get_request(listener, &id) == 0, "rdma_get_request");
		stream_begin();
		check(rdma_accept(id, &param) == 0, "rdma_accept");
	}

	check((cq = ibv_create_cq(id->verbs, 128, NULL, NULL, 0)), "ibv_create_cq");
	check((memory = calloc(SLOTS, CHUNK)) && (inbox = calloc(INBOX, MESSAGE)) && (outbox = calloc(INBOX, MESSAGE)), "calloc");
	memory_mr = ibv_reg_mr(id->pd, memory, SLOTS * CHUNK, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	inbox_mr = ibv_reg_mr(id->pd, inbox, INBOX * MESSAGE, IBV_ACCESS_LOCAL_WRITE);
	outbox_mr = ibv_reg_mr(id->pd, outbox, INBOX * MESSAGE, 0);
	check(memory_mr && inbox_mr && outbox_mr, "ibv_reg_mr");

	char hello[STREAM_MESSAGE];
	snprintf(hello, sizeof hello, "{\"program\":\"softmkey copy\",\"version\":3,\"role\":\"%s\",\"terms\":{%s%s%s},\"size\":-1}",
		 sender ? "sender" : "receiver", sender ? "\"op\":\"" : "", sender ? argv[5] : "", sender ? "\"" : "");
	tell(hello);
	char *theirs = hear();
	bool write = sender ? !strcmp(argv[5], "write") : strstr(theirs, "\"op\":\"send\"") == NULL; // the default is write
	check(!strstr(theirs, "\"op\":\"read\""), "the operation read");
	agree();
	connect_qps();
	for (int i = 0; i < INBOX; i++)
		listen_message(i);
	agree();

	if (sender)
		send_file(file, write);
	else
		receive(file, write);
	check(fclose(file) == 0, "fclose");
	rdma_disconnect(id);
	return 0;
}
