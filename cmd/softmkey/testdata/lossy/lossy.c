// Many messages in flight over a connection of rdma_cm, whose every byte is compared. The client
// sends with SEND, SEND with immediate and WRITE with immediate, and READs a library of the
// server. Packets are lost by `softmkey run --fault`.
//
//	lossy server ADDR BYTES INFLIGHT MESSAGES
//	lossy client ADDR BYTES INFLIGHT MESSAGES
//	lossy both   ADDR BYTES INFLIGHT MESSAGES   client and server in one process each, in one run
//
// Each end prints "N messages, M wrong", and ends with 0 if all messages came, in order, and none
// was wrong.

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(x) do { if (!(x)) { perror(#x); exit(2); } } while (0)

enum { LIBRARY = 1 << 18, PATIENCE = 60 };

static uint32_t bytes, depth, total;

// offer is the private data of the server's reply.
struct offer {
	uint64_t slots, library;
	uint32_t slots_key, library_key;
};

static uint32_t word(uint32_t message, uint32_t k) { return message * 2654435761u + k * 40503u; }

static void fill(uint32_t *p, uint32_t message)
{
	for (uint32_t k = 0; k < bytes / 4; k++)
		p[k] = word(message, k);
}

// wrong reports the first word of a message that is not what was sent.
static int wrong(const char *what, const uint32_t *p, uint32_t message)
{
	for (uint32_t k = 0; k < bytes / 4; k++)
		if (p[k] != word(message, k)) {
			printf("%s %u, word %u: %08x, sent %08x\n", what, message, k, p[k], word(message, k));
			return 1;
		}
	return 0;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

// The kind of a message: every fourth is a READ, which the server does not see.
enum { SEND, SEND_IMM, WRITE_IMM, READ };
static int kind(uint32_t message) { return message % 4; }

static void *memory(size_t n)
{
	void *p = aligned_alloc(4096, (n + 4095) & ~4095ul);
	CHECK(p);
	memset(p, 0, n);
	return p;
}

static int server(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;
	struct ibv_wc w;
	CHECK(!rdma_get_request(listener, &id));

	// A slot of WRITE is used again after twice as many messages as there are receives, so
	// that the message before it was compared.
	uint32_t receives = 8 * depth, slots = 4 * receives;
	uint32_t *in = memory((size_t)receives * bytes), *written = memory((size_t)slots * bytes), *library = memory(LIBRARY);
	for (uint32_t k = 0; k < LIBRARY / 4; k++)
		library[k] = word(7, k);
	struct ibv_mr *in_mr = rdma_reg_msgs(id, in, (size_t)receives * bytes), *written_mr = rdma_reg_write(id, written, (size_t)slots * bytes),
		*library_mr = rdma_reg_read(id, library, LIBRARY);
	CHECK(in_mr && written_mr && library_mr);
	for (uint64_t i = 0; i < receives; i++)
		CHECK(!rdma_post_recv(id, (void *)i, in + i * bytes / 4, bytes, in_mr));
	struct offer offer = {(uintptr_t)written, (uintptr_t)library, written_mr->rkey, library_mr->rkey};
	struct rdma_conn_param param = {
		.private_data = &offer, .private_data_len = sizeof offer, .responder_resources = 8, .initiator_depth = 8, .rnr_retry_count = 7};
	CHECK(!rdma_accept(id, &param));

	uint32_t got = 0, bad = 0, message = 0;
	for (double end = now() + PATIENCE; message < total && now() < end; message++) {
		if (kind(message) == READ)
			continue;
		int n = 0;
		while ((n = ibv_poll_cq(id->recv_cq, 1, &w)) == 0 && now() < end)
			;
		if (n != 1 || w.status) {
			printf("receive %u: %s\n", message, n == 1 ? ibv_wc_status_str(w.status) : "nothing came");
			break;
		}
		uint32_t *p = kind(message) == WRITE_IMM ? written + (size_t)(message % slots) * bytes / 4 : in + w.wr_id * bytes / 4;
		if (kind(message) != SEND && ntohl(w.imm_data) != message) {
			printf("receive %u: immediate %u\n", message, ntohl(w.imm_data));
			bad++;
		} else
			bad += wrong("message", p, message);
		got++;
		CHECK(!rdma_post_recv(id, (void *)w.wr_id, in + w.wr_id * bytes / 4, bytes, in_mr));
	}
	printf("%u messages, %u wrong\n", got, bad);
	// The client disconnects when its last message is acknowledged.
	struct rdma_cm_event *event;
	alarm(PATIENCE);
	CHECK(!rdma_get_cm_event(id->channel, &event) && event->event == RDMA_CM_EVENT_DISCONNECTED);
	return bad || message < total;
}

static int client(const char *addr, struct rdma_addrinfo *res, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *id;
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7, .responder_resources = 8, .initiator_depth = 8};
	CHECK(!rdma_create_ep(&id, res, NULL, attr));
	uint32_t *out = memory((size_t)depth * bytes), slots = 4 * 8 * depth;
	struct ibv_mr *mr = rdma_reg_msgs(id, out, (size_t)depth * bytes);
	CHECK(mr);
	CHECK(!rdma_connect(id, &param));
	struct offer offer;
	memcpy(&offer, id->event->param.conn.private_data, sizeof offer);

	uint32_t sent = 0, done = 0, bad = 0;
	struct ibv_wc w;
	for (double end = now() + PATIENCE; done < total && now() < end;) {
		while (sent < total && sent - done < depth) {
			uint32_t *p = out + (size_t)(sent % depth) * bytes / 4, at = sent * 512u % (LIBRARY - bytes) & ~3u;
			struct ibv_sge sge = {(uintptr_t)p, bytes, mr->lkey};
			struct ibv_send_wr wr = {.wr_id = sent, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(sent)}, *failed;
			if (kind(sent) != READ)
				fill(p, sent);
			switch (kind(sent)) {
			case SEND: wr.opcode = IBV_WR_SEND; break;
			case SEND_IMM: wr.opcode = IBV_WR_SEND_WITH_IMM; break;
			case WRITE_IMM:
				wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
				wr.wr.rdma.remote_addr = offer.slots + (uint64_t)(sent % slots) * bytes;
				wr.wr.rdma.rkey = offer.slots_key;
				break;
			case READ:
				wr.opcode = IBV_WR_RDMA_READ;
				wr.wr.rdma.remote_addr = offer.library + at;
				wr.wr.rdma.rkey = offer.library_key;
			}
			CHECK(!ibv_post_send(id->qp, &wr, &failed));
			sent++;
		}
		if (ibv_poll_cq(id->send_cq, 1, &w) <= 0)
			continue;
		if (w.status || w.wr_id != done) {
			printf("request %u: %s, of %u\n", done, ibv_wc_status_str(w.status), (uint32_t)w.wr_id);
			bad++;
			break;
		}
		if (kind(done) == READ) {
			uint32_t *p = out + (size_t)(done % depth) * bytes / 4, at = (done * 512u % (LIBRARY - bytes) & ~3u) / 4;
			for (uint32_t k = 0; k < bytes / 4; k++)
				if (p[k] != word(7, at + k)) {
					printf("READ %u, word %u: %08x, is %08x\n", done, k, p[k], word(7, at + k));
					bad++;
					break;
				}
		}
		done++;
	}
	printf("%u messages, %u wrong\n", done, bad);
	rdma_disconnect(id);
	return bad || done < total;
}

int main(int argc, char **argv)
{
	CHECK(argc == 6);
	int both = !strcmp(argv[1], "both"), serves = both || !strcmp(argv[1], "server");
	bytes = atoi(argv[3]) & ~3u, depth = atoi(argv[4]), total = atoi(argv[5]);
	CHECK(bytes >= 4 && bytes < LIBRARY / 2 && depth > 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	struct ibv_qp_init_attr attr = {.cap = {depth, 8 * depth, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_addrinfo passive = {.ai_port_space = RDMA_PS_TCP, .ai_flags = RAI_PASSIVE}, active = {.ai_port_space = RDMA_PS_TCP}, *res;
	pid_t child = -1;
	if (serves) {
		struct rdma_cm_id *listener;
		int ready[2];
		CHECK(!pipe(ready));
		if (both && (child = fork()) > 0) {
			char c;
			close(ready[1]);
			CHECK(read(ready[0], &c, 1) == 1);
		} else {
			CHECK(!rdma_getaddrinfo(argv[2], "7799", &passive, &res));
			CHECK(!rdma_create_ep(&listener, res, NULL, &attr));
			CHECK(!rdma_listen(listener, 1));
			CHECK(write(ready[1], "", 1) == 1);
			if (!both)
				puts("listening");
			return server(listener);
		}
	}
	CHECK(!rdma_getaddrinfo(argv[2], "7799", &active, &res));
	int status = client(argv[2], res, &attr), other = 0;
	if (child > 0)
		CHECK(wait(&other) == child);
	return status || other;
}
