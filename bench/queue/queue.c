/* queue measures block requests between two programs that poll, a client and a storage target.
 * A request is a SEND of 64 bytes. The target transfers the block by RDMA WRITE (for a read
 * request) or RDMA READ (for a write request) and answers with a SEND of 16 bytes. Over TCP
 * the same messages go through one socket on each side, which the programs poll, too.
 *
 *   queue -l PORT                 serves one client
 *   queue [-w] [-s SIZE] [-q DEPTH] [-t SECONDS] HOST PORT
 *   queue ... both                both ends, in two processes
 *
 * -T uses TCP instead of RDMA; both ends need it. The queue pairs meet over TCP.
 * The client prints requests per second, their mean and median latency in microseconds, and
 * MiB/s. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define die(...) (fprintf(stderr, "queue: " __VA_ARGS__), fprintf(stderr, "\n"), exit(1))
#define must(cond, ...) do { if (!(cond)) die(__VA_ARGS__); } while (0)

enum { MOST = 256, PLACES = 2 * MOST, COMMAND = 64, ANSWER = 16 };

struct command { uint64_t addr; uint32_t key, tag, size, write, end; };
struct terms { uint32_t qpn, psn, depth, size; union ibv_gid gid; };

static int tcp, writes, depth = 1;
static double seconds = 3;
static uint32_t size = 4096;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void all(int fd, void *p, size_t n, int out)
{
	for (char *b = p; n;) {
		ssize_t k = out ? send(fd, b, n, MSG_NOSIGNAL) : recv(fd, b, n, 0);
		if (k < 0 && errno == EAGAIN)
			continue; /* nothing to read or no room: try again at once */
		must(k > 0, "the other end is gone");
		b += k;
		n -= k;
	}
}

struct end {
	int fd, depth;
	char *blocks, *commands, *answers; /* arrays of depth elements */
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr, *cmr, *amr;
};

static char *room(size_t n)
{
	char *p = aligned_alloc(4096, (n + 4095) / 4096 * 4096);
	must(p, "no memory");
	memset(p, 1, n);
	return p;
}

/* meet opens an end and connects it to the other end, by messages over the socket fd. */
static void meet(struct end *e, int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	struct terms mine = { .depth = depth, .size = size }, theirs;
	memset(e, 0, sizeof *e);
	e->fd = fd;
	if (!tcp) {
		int n = 0;
		struct ibv_device **list = ibv_get_device_list(&n);
		must(list && n > 0, "no RDMA device");
		must(e->ctx = ibv_open_device(list[0]), "ibv_open_device");
		must(e->pd = ibv_alloc_pd(e->ctx), "ibv_alloc_pd");
		must(e->cq = ibv_create_cq(e->ctx, 4 * PLACES, NULL, NULL, 0), "ibv_create_cq");
		struct ibv_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = 3 * PLACES, .max_recv_wr = PLACES, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = COMMAND } };
		must(e->qp = ibv_create_qp(e->pd, &init), "ibv_create_qp");
		must(!ibv_query_gid(e->ctx, 1, 3, &mine.gid), "ibv_query_gid");
		mine.qpn = e->qp->qp_num;
		mine.psn = 7;
	}
	all(fd, &mine, sizeof mine, 1);
	all(fd, &theirs, sizeof theirs, 0);
	/* The server (depth 0) takes the client's size. It has twice as many places as the client has
	 * requests: a place is free again only when the completion of its answer was polled, and the
	 * client's next request must not meet a queue without a receive request. */
	if (!depth) {
		e->depth = 2 * theirs.depth;
		size = theirs.size;
	} else
		e->depth = depth;
	must(e->depth <= PLACES, "a depth of %d: at most %d", e->depth, PLACES);
	e->blocks = room((size_t)e->depth * size);
	e->commands = room(e->depth * COMMAND);
	e->answers = room(e->depth * ANSWER);
	if (tcp)
		return;
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	must(e->mr = ibv_reg_mr(e->pd, e->blocks, (size_t)e->depth * size, rights), "ibv_reg_mr");
	must(e->cmr = ibv_reg_mr(e->pd, e->commands, e->depth * COMMAND, rights), "ibv_reg_mr");
	must(e->amr = ibv_reg_mr(e->pd, e->answers, e->depth * ANSWER, rights), "ibv_reg_mr");
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights };
	must(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = theirs.qpn, .rq_psn = theirs.psn,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = theirs.gid, .sgid_index = 3, .hop_limit = 64 } } };
	must(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .sq_psn = 7, .max_rd_atomic = 16 };
	must(!ibv_modify_qp(e->qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			    IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void ready(struct end *e)
{
	char c = 0;
	all(e->fd, &c, 1, 1);
	all(e->fd, &c, 1, 0);
	fcntl(e->fd, F_SETFL, O_NONBLOCK);
}

static void receive(struct end *e, int i, char *p, int len, struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)p, len, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
	must(!ibv_post_recv(e->qp, &wr, &bad), "ibv_post_recv");
}

/* The ID of a send request is the index of its block plus one of these. */
enum { FETCHED = 1 << 16, ANSWERED = 2 << 16 };

static void answer(struct end *e, int i, struct command *c)
{
	uint32_t *text = (uint32_t *)(e->answers + i * ANSWER);
	text[0] = c->tag;
	struct ibv_sge block = { (uintptr_t)e->blocks + (size_t)i * size, c->size, e->mr->lkey };
	struct ibv_sge words = { (uintptr_t)text, ANSWER, e->amr->lkey };
	struct ibv_send_wr reply = { .wr_id = ANSWERED | i, .sg_list = &words, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr data = { .wr_id = i, .sg_list = &block, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .next = &reply };
	data.wr.rdma.remote_addr = c->addr;
	data.wr.rdma.rkey = c->key;
	struct ibv_send_wr *first = c->write ? &reply : &data, *bad;
	must(!ibv_post_send(e->qp, first, &bad), "ibv_post_send");
}

static void fetch(struct end *e, int i, struct command *c)
{
	struct ibv_sge block = { (uintptr_t)e->blocks + (size_t)i * size, c->size, e->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = FETCHED | i, .sg_list = &block, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = c->addr;
	wr.wr.rdma.rkey = c->key;
	must(!ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
}

static int poll_cq(struct end *e, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(e->cq, 16, wc);
	must(n >= 0, "ibv_poll_cq: %d", n);
	for (int i = 0; i < n; i++)
		must(wc[i].status == IBV_WC_SUCCESS, "request %#lx: %s", (long)wc[i].wr_id, ibv_wc_status_str(wc[i].status));
	return n;
}

static void serve_rdma(struct end *e)
{
	struct ibv_wc wc[16];
	struct command held[PLACES];
	for (int i = 0; i < e->depth; i++)
		receive(e, i, e->commands + i * COMMAND, COMMAND, e->cmr);
	ready(e);
	for (;;) {
		int n = poll_cq(e, wc);
		for (int k = 0; k < n; k++) {
			int i = wc[k].wr_id & 0xffff;
			if (wc[k].opcode & IBV_WC_RECV) {
				memcpy(&held[i], e->commands + i * COMMAND, sizeof held[i]);
				must(held[i].size <= size, "a block of %u", held[i].size);
				if (held[i].end)
					return;
				held[i].write ? fetch(e, i, &held[i]) : answer(e, i, &held[i]);
			} else if (wc[k].wr_id & FETCHED)
				answer(e, i, &held[i]);
			else /* The place of the request is free. */
				receive(e, i, e->commands + i * COMMAND, COMMAND, e->cmr);
		}
	}
}

static void serve_tcp(struct end *e)
{
	struct command c;
	uint32_t text[ANSWER / 4] = { 0 };
	char padded[COMMAND];
	ready(e);
	for (;;) {
		all(e->fd, padded, COMMAND, 0);
		memcpy(&c, padded, sizeof c);
		if (c.end)
			return;
		if (c.write)
			all(e->fd, e->blocks, c.size, 0);
		text[0] = c.tag;
		char *whole = e->blocks;
		if (!c.write) { /* One call for both, as the client expects the answer first. */
			struct iovec v[2] = { { text, ANSWER }, { whole, c.size } };
			struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
			ssize_t k;
			while ((k = sendmsg(e->fd, &m, MSG_NOSIGNAL)) < 0 && errno == EAGAIN)
				;
			must(k >= 0, "the client is gone");
			if (k < ANSWER) {
				all(e->fd, (char *)text + k, ANSWER - k, 1);
				k = ANSWER;
			}
			all(e->fd, whole + k - ANSWER, c.size - (k - ANSWER), 1);
		} else
			all(e->fd, text, ANSWER, 1);
	}
}

static void order(struct end *e, int i, int last)
{
	char padded[COMMAND] = { 0 };
	struct command c = { .tag = i, .size = size, .write = writes, .end = last };
	if (tcp) {
		memcpy(padded, &c, sizeof c);
		struct iovec v[2] = { { padded, COMMAND }, { e->blocks + (size_t)i * size, writes && !last ? size : 0 } };
		struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
		ssize_t k, whole = COMMAND + v[1].iov_len;
		while ((k = sendmsg(e->fd, &m, MSG_NOSIGNAL)) < 0 && errno == EAGAIN)
			;
		must(k >= COMMAND, "the target is gone");
		all(e->fd, e->blocks + (size_t)i * size + k - COMMAND, whole - k, 1);
		return;
	}
	c.addr = (uintptr_t)e->blocks + (size_t)i * size;
	c.key = e->mr->rkey;
	memcpy(e->commands + i * COMMAND, &c, sizeof c);
	struct ibv_sge sge = { (uintptr_t)e->commands + i * COMMAND, COMMAND, e->cmr->lkey };
	struct ibv_send_wr wr = { .wr_id = ANSWERED | i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	if (!last)
		receive(e, i, e->answers + i * ANSWER, ANSWER, e->amr);
	must(!ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
}

/* answered waits for the next answers and returns their tags. */
static int answered(struct end *e, int *tags)
{
	if (tcp) {
		uint32_t text[ANSWER / 4];
		all(e->fd, text, ANSWER, 0);
		tags[0] = text[0] % MOST;
		if (!writes)
			all(e->fd, e->blocks + (size_t)tags[0] * size, size, 0);
		return 1;
	}
	struct ibv_wc wc[16];
	static char sent[MOST], got[MOST];
	int count = 0, n = poll_cq(e, wc);
	for (int k = 0; k < n; k++) {
		/* An answer names its request. Both must be complete before their room is used again. */
		int i = wc[k].wr_id & 0xffff;
		if (wc[k].opcode & IBV_WC_RECV) {
			i = *(uint32_t *)(e->answers + i * ANSWER) % MOST;
			got[i] = 1;
		} else
			sent[i] = 1;
		if (got[i] && sent[i]) {
			got[i] = sent[i] = 0;
			tags[count++] = i;
		}
	}
	return count;
}

static int later(const void *a, const void *b)
{
	float x = *(float *)a, y = *(float *)b;
	return (x > y) - (x < y);
}

static void client(int fd)
{
	struct end e;
	double began[MOST], start, end, t = 0;
	static float times[1 << 22];
	int tags[16];
	long count = 0;
	meet(&e, fd);
	ready(&e);
	start = now();
	end = start + seconds;
	for (int i = 0; i < e.depth; i++) {
		began[i] = now();
		order(&e, i, 0);
	}
	for (int open = e.depth; open;) {
		int n = answered(&e, tags);
		t = now();
		for (int k = 0; k < n; k++) {
			times[count++ % (1 << 22)] = t - began[tags[k]];
			if (t < end) {
				began[tags[k]] = t;
				order(&e, tags[k], 0);
			} else
				open--;
		}
		must(t < end + 10, "%ld answers, none for 10 s", count);
	}
	order(&e, 0, 1);
	long kept = count < 1 << 22 ? count : 1 << 22;
	double sum = 0;
	for (long i = 0; i < kept; i++)
		sum += times[i];
	qsort(times, kept, sizeof *times, later);
	printf("%.0f /s  mean %.1f us  median %.1f us  99%% %.1f us  %.0f MiB/s\n", count / (t - start), sum / kept * 1e6, times[kept / 2] * 1e6,
	       times[kept * 99 / 100] * 1e6, count / (t - start) * size / (1 << 20));
	if (!tcp) { /* The target ends by this request. */
		struct ibv_wc wc[16];
		while (!poll_cq(&e, wc))
			;
	}
}

static int listening(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_ANY) };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(!bind(fd, (struct sockaddr *)&a, sizeof a) && !listen(fd, 5), "port %d: %s", port, strerror(errno));
	return fd;
}

static void serve(int l)
{
	struct end e;
	int fd = accept(l, NULL, NULL);
	must(fd >= 0, "accept");
	depth = 0;
	meet(&e, fd);
	tcp ? serve_tcp(&e) : serve_rdma(&e);
}

static int reach(const char *host, int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	must(inet_pton(AF_INET, host, &a.sin_addr) == 1, "%s is no address", host);
	for (int i = 0; i < 100; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (!connect(fd, (struct sockaddr *)&a, sizeof a))
			return fd;
		close(fd);
		usleep(50000);
	}
	die("nobody listens at %s port %d", host, port);
}

int main(int argc, char **argv)
{
	int c, port = 0;
	while ((c = getopt(argc, argv, "Tws:q:t:l:")) != -1)
		switch (c) {
		case 'T': tcp = 1; break;
		case 'w': writes = 1; break;
		case 's': size = atoi(optarg); break;
		case 'q': depth = atoi(optarg); break;
		case 't': seconds = atof(optarg); break;
		case 'l': port = atoi(optarg); break;
		default: return 2;
		}
	must(depth >= 1 && depth <= MOST && size >= 1 && size <= 1 << 24, "-q %d -s %u: 1 to %d, 1 to 16777216", depth, size, MOST);
	if (port) {
		serve(listening(port));
		return 0;
	}
	if (optind + 1 == argc && !strcmp(argv[optind], "both")) {
		struct sockaddr_in a;
		socklen_t len = sizeof a;
		int l = listening(0), status = 0;
		getsockname(l, (struct sockaddr *)&a, &len);
		pid_t child = fork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve(l);
			return 0;
		}
		client(reach("127.0.0.1", ntohs(a.sin_port)));
		waitpid(child, &status, 0);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	must(optind + 2 == argc, "HOST and PORT, or both");
	client(reach(argv[optind], atoi(argv[optind + 1])));
	return 0;
}
