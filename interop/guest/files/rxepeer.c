// SPDX-License-Identifier: Apache-2.0
//
// rxepeer: a peer on libibverbs that a test drives over TCP, one text line a command.
//
// It runs in a guest whose kernel has soft-RoCE (rdma_rxe). The test requests each
// object and work request, and gets each completion. Each connection to TCP port
// 4791 gets a process of its own with its own device context, protection domain
// and completion queue; closing the connection frees all of it.
//
// Request   COMMAND [KEY=VALUE]...\n      numbers in C notation, no spaces in values
// Reply     ok [KEY=VALUE]...\n  or  err REASON\n
// len raw bytes follow the request "put", and the replies to "get" and "sh".
// The reply of "wait" is followed by n lines, one for each completion.
//
// buf    size= [access=lwrab] [skew=]        -> buf addr lkey rkey      memory, registered; skew moves its start off the page
// fill   buf= off= len= seed= [pos=]         -> -                       pattern: little-endian words of splitmix64, see pattern()
// put    buf= off= len=                      -> -                       raw bytes follow the line
// get    buf= off= len=                      -> len                     raw bytes follow the reply
// crc    buf= off= len=                      -> crc                     CRC-32 (IEEE 802.3)
// qp     [access=wra] [sends=] [recvs=] [sges=] [inline=] -> qp qpn     an RC queue pair in INIT
// connect qp= src= dst= qpn= psn= rpsn= [mtu=] [rd=] [drd=] [timeout=] [retry=] [rnr=] [minrnr=]
//                                            -> -                       INIT to RTR to RTS; src and dst are IP addresses,
//                                                                       psn is what it sends first, rpsn what it expects first
// modify qp= state=error|reset|init|sqd|rts  -> -
// mw     -> mw rkey                                                     a type 2 memory window, to be bound with post op=bind
// post   qp= op= [n=] [id=] [buf= off= len= step= sges=] [raddr= rkey= rstep=] [imm=] [inv=] [cmp= swap=] [mw= access=] [flags=]
//                                            -> posted [rkey]           n requests; request i has id+i, off+i*step,
//                                                                       raddr+i*rstep and imm+i; sges cuts it into pieces
//   op     recv send send_imm send_inv write write_imm read cas fadd bind
//   flags  any of s (signaled, the default) f (fence) e (solicited event) i (inline) u (unsignaled)
// wait   n= ms=                              -> n                       up to n completions, as lines
//                                               wc id status op len imm inv qpn   (imm and inv only when present)
// sh     ms= cmd=                            -> status len              the rest of the line is a shell command; its output follows;
//                                                                       it is killed, with status 124, after ms milliseconds
//
// access is any of l (local write) w (remote write) r (remote read) a (remote
// atomic) b (window binding). Numbers of status and op are those of
// enum ibv_wc_status and ibv_wc_opcode.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 4791, MAX_BUFS = 256, MAX_QPS = 1024, MAX_MWS = 1024, MAX_SGES = 16, CQ_DEPTH = 32000 };

struct buf { uint8_t *base; uint64_t size; struct ibv_mr *mr; };

static FILE *in, *out;
static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *chan;
static struct ibv_cq *cq;
static struct buf bufs[MAX_BUFS];
static struct ibv_qp *qps[MAX_QPS];
static struct ibv_mw *mws[MAX_MWS];
static int nbufs, nqps, nmws;

// ---- requests and replies

static char *line;  // the current request, cut into words by arg()

// arg returns the value of key, or NULL. Words are separated by zero bytes and the list ends with an empty one.
static const char *arg(const char *key) {
	size_t n = strlen(key);
	for (char *w = line; *w; w += strlen(w) + 1)
		if (!strncmp(w, key, n) && w[n] == '=') return w + n + 1;
	return NULL;
}

static uint64_t num(const char *key, uint64_t otherwise) {
	const char *v = arg(key);
	return v ? strtoull(v, NULL, 0) : otherwise;
}

static void refuse(const char *format, ...) {
	va_list ap;
	va_start(ap, format);
	fputs("err ", out);
	vfprintf(out, format, ap);
	fputc('\n', out);
	va_end(ap);
}

static void refuse_errno(const char *what, int err) { refuse("%s: %s", what, strerror(err)); }

static int access_flags(const char *letters) {
	int flags = 0;
	for (; letters && *letters; letters++) switch (*letters) {
		case 'l': flags |= IBV_ACCESS_LOCAL_WRITE; break;
		case 'w': flags |= IBV_ACCESS_REMOTE_WRITE; break;
		case 'r': flags |= IBV_ACCESS_REMOTE_READ; break;
		case 'a': flags |= IBV_ACCESS_REMOTE_ATOMIC; break;
		case 'b': flags |= IBV_ACCESS_MW_BIND; break;
		}
	return flags;
}

static struct buf *buf_arg(void) {
	uint64_t i = num("buf", MAX_BUFS);
	if (i < (uint64_t)nbufs) return &bufs[i];
	refuse("no such buf");
	return NULL;
}

// range_arg gives the memory that buf, off and len name, or NULL after an error reply.
static uint8_t *range_arg(uint64_t *len) {
	struct buf *b = buf_arg();
	if (!b) return NULL;
	uint64_t off = num("off", 0);
	*len = num("len", 0);
	if (off > b->size || *len > b->size - off) return refuse("range outside buf"), NULL;
	return b->base + off;
}

static struct ibv_qp *qp_arg(void) {
	uint64_t i = num("qp", MAX_QPS);
	if (i < (uint64_t)nqps) return qps[i];
	refuse("no such qp");
	return NULL;
}

// ---- device and memory

static void do_buf(void) {
	if (nbufs == MAX_BUFS) return refuse("too many bufs");
	struct buf *b = &bufs[nbufs];
	uint64_t skew = num("skew", 0);
	const char *access = arg("access");
	b->size = num("size", 4096);
	uint8_t *page = mmap(NULL, b->size + skew + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (page == MAP_FAILED) return refuse_errno("mmap", errno);
	b->base = page + skew;
	b->mr = ibv_reg_mr(pd, b->base, b->size, access_flags(access ? access : "lwrab"));
	if (!b->mr) return refuse_errno("ibv_reg_mr", errno);
	fprintf(out, "ok buf=%d addr=%#lx lkey=%#x rkey=%#x\n", nbufs++, (unsigned long)b->base, b->mr->lkey, b->mr->rkey);
}

// pattern is byte pos of the pattern of a seed: word pos/8 of splitmix64 started at seed, little-endian.
static uint8_t pattern(uint64_t seed, uint64_t pos) {
	uint64_t z = seed + (pos / 8 + 1) * 0x9e3779b97f4a7c15;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return (z ^ (z >> 31)) >> (pos % 8 * 8);
}

static void do_fill(void) {
	uint64_t len, seed = num("seed", 0), pos = num("pos", 0);
	uint8_t *p = range_arg(&len);
	if (!p) return;
	for (uint64_t i = 0; i < len; i++) p[i] = pattern(seed, pos + i);
	fputs("ok\n", out);
}

static void do_put(void) {
	uint64_t len;
	uint8_t *p = range_arg(&len);
	if (!p) exit(1);  // otherwise the raw bytes that follow would be read as requests
	if (fread(p, 1, len, in) != len) exit(1);
	fputs("ok\n", out);
}

static void do_get(void) {
	uint64_t len;
	uint8_t *p = range_arg(&len);
	if (!p) return;
	fprintf(out, "ok len=%lu\n", len);
	fwrite(p, 1, len, out);
}

static void do_crc(void) {
	static uint32_t table[256];
	uint64_t len;
	uint8_t *p = range_arg(&len);
	if (!p) return;
	for (int i = 0; i < 256 && !table[255]; i++) {
		uint32_t c = i;
		for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
		table[i] = c;
	}
	uint32_t crc = ~0u;
	while (len--) crc = crc >> 8 ^ table[(crc ^ *p++) & 0xff];
	fprintf(out, "ok crc=%#x\n", ~crc);
}

// ---- queue pairs

static void do_qp(void) {
	if (nqps == MAX_QPS) return refuse("too many qps");
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = num("sends", 256), .max_recv_wr = num("recvs", 256),
			.max_send_sge = num("sges", MAX_SGES), .max_recv_sge = num("sges", MAX_SGES),
			.max_inline_data = num("inline", 0),
		},
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	if (!qp) return refuse_errno("ibv_create_qp", errno);
	const char *access = arg("access");
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = access_flags(access ? access : "wra"),
	};
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (err) return refuse_errno("to INIT", err);
	qps[nqps] = qp;
	fprintf(out, "ok qp=%d qpn=%u\n", nqps++, qp->qp_num);
}

// gid_arg reads an IP address as the GID that stands for it.
static int gid_arg(const char *key, union ibv_gid *gid) {
	const char *text = arg(key);
	if (!text) return 0;
	*gid = (union ibv_gid){.raw = {[10] = 0xff, [11] = 0xff}};
	return inet_pton(AF_INET, text, gid->raw + 12) == 1 || inet_pton(AF_INET6, text, gid->raw) == 1;
}

static int gid_index(const union ibv_gid *want) {
	union ibv_gid gid;
	for (int i = 0; !ibv_query_gid(ctx, 1, i, &gid); i++)
		if (!memcmp(&gid, want, sizeof gid)) return i;
	return -1;
}

static enum ibv_mtu mtu_enum(uint64_t bytes) {
	enum ibv_mtu mtu = IBV_MTU_256;
	while (mtu < IBV_MTU_4096 && 128u << mtu < bytes) mtu++;
	return mtu;
}

static void do_connect(void) {
	struct ibv_qp *qp = qp_arg();
	if (!qp) return;
	union ibv_gid src;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = mtu_enum(num("mtu", 1024)), .dest_qp_num = num("qpn", 0),
		.rq_psn = num("rpsn", 0), .max_dest_rd_atomic = num("drd", 16), .min_rnr_timer = num("minrnr", 12),
		.ah_attr = {.is_global = 1, .port_num = 1, .grh.hop_limit = 64},
	};
	if (!gid_arg("src", &src) || !gid_arg("dst", &attr.ah_attr.grh.dgid)) return refuse("bad address");
	int index = gid_index(&src);
	if (index < 0) return refuse("no GID for src");
	attr.ah_attr.grh.sgid_index = index;
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (err) return refuse_errno("to RTR", err);
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = num("psn", 0), .max_rd_atomic = num("rd", 16),
		.timeout = num("timeout", 14), .retry_cnt = num("retry", 7), .rnr_retry = num("rnr", 7),
	};
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
				       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	if (err) return refuse_errno("to RTS", err);
	fputs("ok\n", out);
}

static void do_modify(void) {
	static const struct { const char *name; enum ibv_qp_state state; int mask; } states[] = {
		{"error", IBV_QPS_ERR, 0}, {"reset", IBV_QPS_RESET, 0}, {"sqd", IBV_QPS_SQD, 0}, {"rts", IBV_QPS_RTS, 0},
		{"init", IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	};
	struct ibv_qp *qp = qp_arg();
	const char *name = arg("state"), *access = arg("access");
	if (!qp) return;
	for (size_t i = 0; name && i < sizeof states / sizeof *states; i++) {
		if (strcmp(states[i].name, name)) continue;
		struct ibv_qp_attr attr = {
			.qp_state = states[i].state, .port_num = 1, .qp_access_flags = access_flags(access ? access : "wra"),
		};
		int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | states[i].mask);
		if (err) return refuse_errno("ibv_modify_qp", err);
		fputs("ok\n", out);
		return;
	}
	refuse("no such state");
}

static void do_mw(void) {
	if (nmws == MAX_MWS) return refuse("too many mws");
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	if (!mw) return refuse_errno("ibv_alloc_mw", errno);
	mws[nmws] = mw;
	fprintf(out, "ok mw=%d rkey=%#x\n", nmws++, mw->rkey);
}

// ---- work requests and completions

static const struct { const char *name; int opcode; } ops[] = {
	{"recv", -1},
	{"send", IBV_WR_SEND}, {"send_imm", IBV_WR_SEND_WITH_IMM}, {"send_inv", IBV_WR_SEND_WITH_INV},
	{"write", IBV_WR_RDMA_WRITE}, {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM}, {"read", IBV_WR_RDMA_READ},
	{"cas", IBV_WR_ATOMIC_CMP_AND_SWP}, {"fadd", IBV_WR_ATOMIC_FETCH_AND_ADD},
	{"bind", IBV_WR_BIND_MW},
};

static int send_flags(const char *letters) {
	int flags = IBV_SEND_SIGNALED;
	for (; letters && *letters; letters++) switch (*letters) {
		case 'u': flags &= ~IBV_SEND_SIGNALED; break;
		case 'f': flags |= IBV_SEND_FENCE; break;
		case 'e': flags |= IBV_SEND_SOLICITED; break;
		case 'i': flags |= IBV_SEND_INLINE; break;
		}
	return flags;
}

// cut divides len bytes into n pieces, the last one taking the remainder.
static int cut(struct ibv_sge *sge, int n, const struct buf *b, uint64_t off, uint32_t len) {
	if (!b || !len) return 0;
	uint32_t piece = len / n;
	for (int i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){
			.addr = (uintptr_t)b->base + off + (uint64_t)i * piece,
			.length = i == n - 1 ? len - i * piece : piece,
			.lkey = b->mr->lkey,
		};
	}
	return n;
}

// fill_wr sets what the opcode of wr needs beyond its pieces of memory; i counts the requests of one post.
static int fill_wr(struct ibv_send_wr *wr, struct buf *b, uint64_t off, uint32_t len, uint64_t i) {
	uint64_t raddr = num("raddr", 0) + i * num("rstep", 0);
	const char *access = arg("access");
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		wr->imm_data = htonl(num("imm", 0) + i);
		__attribute__((fallthrough));  // the write needs its target too, the send ignores it
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		wr->wr.rdma.remote_addr = raddr;
		wr->wr.rdma.rkey = num("rkey", 0);
		return 1;
	case IBV_WR_SEND_WITH_INV:
		wr->invalidate_rkey = num("inv", 0);
		return 1;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = raddr;
		wr->wr.atomic.rkey = num("rkey", 0);
		wr->wr.atomic.compare_add = num("cmp", 0);
		wr->wr.atomic.swap = num("swap", 0);
		return 1;
	case IBV_WR_BIND_MW:
		if (num("mw", MAX_MWS) >= (uint64_t)nmws || !b) return 0;
		wr->bind_mw.mw = mws[num("mw", 0)];
		wr->bind_mw.rkey = ibv_inc_rkey(wr->bind_mw.mw->rkey);
		wr->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = b->mr, .addr = (uintptr_t)b->base + off, .length = len,
			.mw_access_flags = access_flags(access ? access : "wra"),
		};
		wr->num_sge = 0;
		return 1;
	default:
		return 1;
	}
}

static int post_one(struct ibv_qp *qp, int opcode, struct buf *b, uint64_t off, uint32_t len, uint64_t i) {
	struct ibv_sge sge[MAX_SGES];
	int sges = cut(sge, num("sges", 1), b, off, len);
	uint64_t id = num("id", 0) + i;
	if (opcode < 0) {
		struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = sges}, *bad;
		return ibv_post_recv(qp, &wr, &bad);
	}
	struct ibv_send_wr *bad, wr = {
		.wr_id = id, .opcode = opcode, .sg_list = sge, .num_sge = sges, .send_flags = send_flags(arg("flags")),
	};
	if (!fill_wr(&wr, b, off, len, i)) return EINVAL;
	int err = ibv_post_send(qp, &wr, &bad);
	if (!err && opcode == IBV_WR_BIND_MW) wr.bind_mw.mw->rkey = wr.bind_mw.rkey;
	return err;
}

static void do_post(void) {
	struct ibv_qp *qp = qp_arg();
	if (!qp) return;
	const char *name = arg("op");
	size_t op = 0;
	while (op < sizeof ops / sizeof *ops && (!name || strcmp(ops[op].name, name))) op++;
	if (op == sizeof ops / sizeof *ops) return refuse("no such op");
	struct buf *b = NULL;
	if (arg("buf") && !(b = buf_arg())) return;
	if (num("sges", 1) < 1 || num("sges", 1) > MAX_SGES) return refuse("sges out of range");
	uint64_t n = num("n", 1);
	for (uint64_t i = 0; i < n; i++) {
		int err = post_one(qp, ops[op].opcode, b, num("off", 0) + i * num("step", 0), num("len", 0), i);
		if (err) return refuse("request %lu: %s", i, strerror(abs(err)));  // some functions of the provider return -errno
	}
	fprintf(out, "ok posted=%lu", n);
	if (ops[op].opcode == IBV_WR_BIND_MW) fprintf(out, " rkey=%#x", mws[num("mw", 0)]->rkey);
	fputc('\n', out);
}

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// collect polls for up to n completions, sleeping on the completion channel until the deadline.
static int collect(struct ibv_wc *wc, int n, int64_t deadline) {
	int got = 0, armed = 0;
	while (got < n) {
		int k = ibv_poll_cq(cq, n - got, wc + got);
		if (k < 0) return -1;
		got += k;
		if (k || got == n) continue;
		int64_t left = deadline - now_ms();
		if (left <= 0) break;
		if (!armed) {  // arm the queue, then poll once more, because a completion may have come in between
			ibv_req_notify_cq(cq, 0);
			armed = 1;
			continue;
		}
		struct pollfd p = {.fd = chan->fd, .events = POLLIN};
		if (poll(&p, 1, left) > 0) {
			struct ibv_cq *which;
			void *context;
			if (ibv_get_cq_event(chan, &which, &context)) return -1;
			ibv_ack_cq_events(which, 1);
			armed = 0;
		}
	}
	return got;
}

// RXE_WC_WITH_INV says that a key was invalidated. rxe of Linux 6.1 hands the
// kernel's number of the flag (1 << 2) to user space, where that number means
// IBV_WC_IP_CSUM_OK, which rxe never sets.
enum { RXE_WC_WITH_INV = IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK };

static void do_wait(void) {
	uint64_t n = num("n", 1);
	if (n > CQ_DEPTH) return refuse("n out of range");
	struct ibv_wc *wc = calloc(n + 1, sizeof *wc);
	int got = collect(wc, n, now_ms() + num("ms", 1000));
	if (got < 0) {
		refuse("ibv_poll_cq failed");
	} else {
		fprintf(out, "ok n=%d\n", got);
	}
	for (int i = 0; i < got; i++) {
		fprintf(out, "wc id=%lu status=%d op=%d len=%u qpn=%u", wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].byte_len, wc[i].qp_num);
		if (wc[i].wc_flags & IBV_WC_WITH_IMM) fprintf(out, " imm=%#x", ntohl(wc[i].imm_data));
		if (wc[i].wc_flags & RXE_WC_WITH_INV) fprintf(out, " inv=%#x", wc[i].invalidated_rkey);
		fputc('\n', out);
	}
	free(wc);
}

// ---- the rest of the guest

// run_shell runs a command in a process group of its own, and kills the group when
// the time is over or the client has gone: programs that wait for a peer would stay.
static void run_shell(char *request) {
	char *command;
	long limit = strtol(request, &command, 10);
	int ends[2];
	if (limit <= 0 || strncmp(command, " cmd=", 5)) return refuse("sh needs ms=N cmd=COMMAND");
	command += 5;
	char *text = NULL;
	size_t size = 0;
	FILE *sink = open_memstream(&text, &size);
	signal(SIGCHLD, SIG_DFL);  // the server ignores SIGCHLD, with which waitpid would get no status
	if (pipe(ends)) return refuse_errno("pipe", errno);
	pid_t pid = fork();
	if (pid < 0) return refuse_errno("fork", errno);
	if (!pid) {
		setpgid(0, 0);
		dup2(ends[1], 1);
		close(ends[0]);
		close(ends[1]);
		close(fileno(in));
		close(fileno(out));
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	setpgid(pid, pid);  // also called by the child, because either process may run first
	close(ends[1]);
	struct pollfd fds[2] = {{.fd = ends[0], .events = POLLIN}, {.fd = fileno(in), .events = POLLRDHUP}};
	uint64_t end = now_ms() + limit;
	bool late = false;
	for (;;) {
		uint64_t now = now_ms();
		int n = poll(fds, 2, now < end ? (int)(end - now) : 0);
		char chunk[4096];
		if (fds[1].revents) {
			kill(-pid, SIGKILL);
			exit(0);
		}
		if (!n) {
			if (late) break;  // a process outside of the group keeps the pipe open
			kill(-pid, SIGKILL);
			late = true;
			end = now + 1000;  // for the output that is still in the pipe
			continue;
		}
		ssize_t got = read(ends[0], chunk, sizeof chunk);
		if (got <= 0) break;
		fwrite(chunk, 1, got, sink);
	}
	close(ends[0]);
	int status;
	waitpid(pid, &status, 0);
	fclose(sink);
	int code = late ? 124 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	fprintf(out, "ok status=%d len=%zu\n", code, size);
	fwrite(text, 1, size, out);
	free(text);
}

static void open_device(void) {
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (!list || !n || !(ctx = ibv_open_device(list[0])) || !(pd = ibv_alloc_pd(ctx)) ||
	    !(chan = ibv_create_comp_channel(ctx)) || !(cq = ibv_create_cq(ctx, CQ_DEPTH, NULL, chan, 0))) {
		refuse("cannot open an RDMA device");
		exit(1);
	}
	ibv_free_device_list(list);
}

static const struct { const char *name; void (*run)(void); } commands[] = {
	{"buf", do_buf}, {"fill", do_fill}, {"put", do_put}, {"get", do_get}, {"crc", do_crc},
	{"qp", do_qp}, {"connect", do_connect}, {"modify", do_modify}, {"mw", do_mw},
	{"post", do_post}, {"wait", do_wait},
};

static void serve(int fd) {
	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	size_t room = 0;
	ssize_t n;
	char *text = NULL;
	while (fflush(out), (n = getline(&text, &room, in)) > 0) {
		text[strcspn(text, "\r\n")] = 0;
		if (!strncmp(text, "sh ms=", 6)) {
			run_shell(text + 6);
			continue;
		}
		line = calloc(1, n + 2);  // two zero bytes at the end: the last word's and the list's
		char *to = line, *state;
		for (char *w = strtok_r(text, " ", &state); w; w = strtok_r(NULL, " ", &state)) to = stpcpy(to, w) + 1;
		if (!ctx) open_device();
		size_t c = 0;
		while (c < sizeof commands / sizeof *commands && strcmp(commands[c].name, line)) c++;
		if (c < sizeof commands / sizeof *commands) commands[c].run();
		else refuse("no such command");
		free(line);
	}
}

int main(void) {
	int one = 1, listener = socket(AF_INET6, SOCK_STREAM, 0);
	struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(listener, (struct sockaddr *)&any, sizeof any) || listen(listener, 64)) return perror("rxepeer"), 1;
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	puts("rxepeer: listening");
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0) continue;
		if (!fork()) {
			close(listener);
			serve(fd);
			_exit(0);
		}
		close(fd);
	}
}
