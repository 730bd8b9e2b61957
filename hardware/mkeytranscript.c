/* mkeytranscript writes what an mlx5 adapter does with memory keys, one line a step, and compares two such transcripts. See README.md.
 *   gcc -O2 -Wall -Wextra -o mkeytranscript mkeytranscript.c -libverbs -lmlx5 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 24576 }; /* bytes of each side's memory */

#define must(cond, ...) do { if (!(cond)) { fprintf(stderr, "mkeytranscript: " __VA_ARGS__); fputc('\n', stderr); exit(2); } } while (0)
typedef unsigned long long ull;

/* The generator is splitmix64. Each group starts it anew, so that --only gives the lines of a whole run. */
static uint64_t state;

static uint64_t rnd64(void) {
	uint64_t z = state += 0x9e3779b97f4a7c15; z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9; z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}
static uint32_t rnd(uint32_t n) { return (rnd64() >> 32) % n; }
static uint32_t ror(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* digest returns the first 8 bytes of the SHA-256 of a side's memory, whose length is a multiple of 64. */
static ull digest(const uint8_t *p) {
	static uint32_t k[64];
	uint32_t h[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };
	uint8_t last[64] = { 0x80, [61] = ROOM * 8 >> 16 & 0xff, [62] = ROOM * 8 >> 8 & 0xff, [63] = ROOM * 8 & 0xff };
	/* The constants are the fractions of the cube roots of the first 64 primes. */
	for (int i = 0, prime = 2, d = 2; !k[63]; prime++, d = 2) {
		uint64_t root = 0;
		while (prime % d) d++;
		for (unsigned __int128 bit = 1ull << 35; bit; bit /= 2) root += (root + bit) * (root + bit) * (root + bit) <= (unsigned __int128)prime << 96 ? bit : 0;
		if (d == prime) k[i++] = root;
	}
	for (int n = 0; n <= ROOM; n += 64) {
		const uint8_t *b = n < ROOM ? p + n : last;
		uint32_t w[64], v[8];
		for (int i = 0; i < 64; i++)
			w[i] = i < 16 ? (uint32_t)b[4 * i] << 24 | b[4 * i + 1] << 16 | b[4 * i + 2] << 8 | b[4 * i + 3]
				: w[i - 16] + w[i - 7] + (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) + (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
		memcpy(v, h, sizeof v);
		for (int i = 0; i < 64; i++) {
			uint32_t t1 = v[7] + (ror(v[4], 6) ^ ror(v[4], 11) ^ ror(v[4], 25)) + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
			uint32_t t2 = (ror(v[0], 2) ^ ror(v[0], 13) ^ ror(v[0], 22)) + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
			memmove(v + 1, v, 28); v[4] += t1; v[0] = t1 + t2;
		}
		for (int i = 0; i < 8; i++) h[i] += v[i];
	}
	return (ull)h[0] << 32 | h[1];
}

enum { CONF, OP, OP2, OP3, RECV, RECV2, WAIT, WAIT_RECV, IDS }; /* ids of work requests: a side has at most one of each at a time */

struct side {
	const char *name;
	struct ibv_context *ctx;
	struct ibv_pd *pd, *other; /* other is a PD that is wrong for the QP */
	struct ibv_cq *cq;
	struct ibv_mr *mr, *spare_mr;
	struct ibv_qp *qp, *conf_qp; /* conf_qp configures keys */
	struct ibv_srq *srq; /* in place of the QP's receive queue, for XRC */
	struct mlx5dv_dek *dek[2]; /* without and with a key tag; NULL without encryption */
	struct ibv_port_attr attr; union ibv_gid gid; int port, index, srqn;
	uint8_t *buf, *spare;
	struct ibv_wc wc[IDS]; bool posted[IDS], done[IDS];
};
static struct side near = { .name = "near" }, far = { .name = "far" };

enum { READ_RIGHT = IBV_ACCESS_REMOTE_READ, WRITE_RIGHT = IBV_ACCESS_REMOTE_WRITE, ATOMIC_RIGHT = IBV_ACCESS_REMOTE_ATOMIC, RIGHTS = 15 };

static void connect_qp(struct side *s, struct side *peer, uint32_t psn, int rights, int retries) {
	int type = s->qp->qp_type;
	enum ibv_mtu mtu = s->attr.active_mtu < peer->attr.active_mtu ? s->attr.active_mtu : peer->attr.active_mtu;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RESET, .port_num = s->port, .qp_access_flags = rights, .path_mtu = mtu < IBV_MTU_1024 ? mtu : IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num, .rq_psn = psn, .sq_psn = psn, .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 12,
		.timeout = 14, .retry_cnt = retries ? retries : 7, .rnr_retry = retries,
		.ah_attr = { .port_num = s->port, .dlid = peer->attr.lid, .is_global = s->index >= 0,
			     .grh = { .dgid = peer->gid, .sgid_index = s->index < 0 ? 0 : s->index, .hop_limit = 64 } },
	};
	const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	const int masks[] = { IBV_QP_STATE, init, rtr | (type == IBV_QPT_XRC_SEND ? 0 : responder), rts };
	for (; a.qp_state <= (type == IBV_QPT_XRC_RECV ? IBV_QPS_RTR : IBV_QPS_RTS); a.qp_state++)
		must(!ibv_modify_qp(s->qp, &a, masks[a.qp_state]), "%s: a QP cannot be connected, state %d: %m; --gid chooses another GID", s->name, a.qp_state);
	memset(s->posted, 0, sizeof s->posted);
}

static int far_rights = RIGHTS;

static void connect_pair(int retries) {
	static uint32_t psn = 0x1000;
	psn = (psn + 0x10000) & 0xffffff; /* no packet of the connection before has a number of this one */
	connect_qp(&near, &far, psn, RIGHTS, retries); connect_qp(&far, &near, psn, far_rights, retries);
}

static struct ibv_qp *create_qp(struct side *s, uint32_t flags) {
	struct ibv_qp_init_attr_ex a = {
		.send_cq = s->cq, .recv_cq = s->cq, .qp_type = IBV_QPT_RC, .pd = s->pd, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.cap = { .max_send_wr = 64, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 512 },
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ
			| IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV,
	};
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE, .create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE | flags }; /* mlx5dv_create_mkey(3) asks for it */
	return mlx5dv_create_qp(s->ctx, &a, &dv);
}

static void reap(struct side *s) {
	struct ibv_wc wc[8];
	for (int i = 0, n = ibv_poll_cq(s->cq, 8, wc); i < n; i++) { s->wc[wc[i].wr_id] = wc[i]; s->done[wc[i].wr_id] = true; s->posted[wc[i].wr_id] = false; }
}

/* await returns whether the request id of s completes within some seconds. */
static bool await(struct side *s, int id, int seconds) {
	time_t end = time(NULL) + seconds + 1;
	for (unsigned n = 1; !s->done[id] && (n % 1024 || time(NULL) < end); n++) {
		reap(s);
		if (n % 1024 == 0) usleep(50);
	}
	return s->done[id];
}
static bool good(struct side *s, int id) { return await(s, id, 20) && s->wc[id].status == IBV_WC_SUCCESS; }
static int post(struct side *s, int id, enum ibv_wr_opcode op, struct ibv_sge sge, uint64_t raddr, uint32_t rkey, int flags) {
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = op != IBV_WR_LOCAL_INV, .opcode = op, .send_flags = IBV_SEND_SIGNALED | flags }, *bad;
	wr.wr.rdma.remote_addr = raddr; wr.wr.rdma.rkey = rkey;
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.compare_add = 1; wr.wr.atomic.swap = 2; wr.wr.atomic.rkey = rkey;
	} else if (op == IBV_WR_SEND_WITH_INV || op == IBV_WR_LOCAL_INV) wr.invalidate_rkey = rkey;
	if (s->qp->qp_type == IBV_QPT_XRC_SEND) wr.qp_type.xrc.remote_srqn = near.srqn;
	s->done[id] = false;
	int err = ibv_post_send(s->qp, &wr, &bad);
	s->posted[id] = !err;
	return err;
}
static void post_recv(struct side *s, int id, struct ibv_sge sge) {
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	s->done[id] = false;
	must(!(s->srq ? ibv_post_srq_recv(s->srq, &wr, &bad) : ibv_post_recv(s->qp, &wr, &bad)), "%s: a receive request was refused", s->name);
	s->posted[id] = true;
}
static struct ibv_sge plain(struct side *s, uint32_t off, uint32_t len) { return (struct ibv_sge){ (uintptr_t)s->buf + off, len, s->mr->lkey }; }
static struct ibv_sge spare(struct side *s) { return (struct ibv_sge){ (uintptr_t)s->spare, 8, s->spare_mr->lkey }; }

/* flush takes both QPs to ERR, so that every request completes. recover also connects them again. */
static void flush(void) {
	for (struct side *s = &near; s; s = s == &near ? &far : NULL) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
		ibv_modify_qp(s->qp, &a, IBV_QP_STATE);
		for (int id = 0; id < IDS; id++)
			if (s->posted[id]) await(s, id, 2);
	}
}
static void recover(void) { flush(); connect_pair(7); }

/* request posts a request, and the receive request for it if there is one, and waits. If a NAK is lost, a refusal looks like no answer, since the
 * other QP is in ERR: then the request is made again, unless that is the expected outcome. */
static bool request(struct side *source, struct side *sink, const struct ibv_sge *recv, int op, struct ibv_sge sge, uint64_t raddr, uint32_t rkey, int tries) {
	for (;; recover()) {
		if (recv) post_recv(sink, RECV, *recv);
		bool ok = !post(source, OP, op, sge, raddr, rkey, 0) && good(source, OP) && (!recv || good(sink, RECV));
		if (ok || !source->done[OP] || source->wc[OP].status != IBV_WC_RETRY_EXC_ERR || --tries == 0) return ok;
	}
}

/* settle sends a message behind a request. When it has arrived, the other side has polled the record of a bad signature that the request left. */
static bool settle(struct side *from, struct side *to) {
	post_recv(to, WAIT_RECV, spare(to));
	return !post(from, WAIT, IBV_WR_SEND, spare(from), 0, 0, 0) && good(from, WAIT) && good(to, WAIT_RECV);
}
static const char *group;
static char line[4096];
static size_t at, number;

__attribute__((format(printf, 1, 2))) static void add(const char *fmt, ...) {
	va_list ap;
	va_start(ap, fmt); at += vsnprintf(line + at, sizeof line - at, fmt, ap); va_end(ap);
	must(at < sizeof line, "a line is too long");
}
static void begin(void) { at = 0; add("%s %zu: ", group, ++number); }

/* finish ends a line, and connects the QPs again unless all is well. */
static void finish(bool ok) { line[at - (line[at - 1] == ' ')] = 0; puts(line); if (!ok) recover(); }
static void absent(const char *what) { begin(); add("absent: %s", what); finish(true); }
static void add_wc(struct side *s, int id, const char *name) {
	const struct ibv_wc *wc = &s->wc[id];
	if (!s->done[id]) add("%s=none ", name);
	else if (wc->status || id < RECV) add("%s=%d/%x ", name, wc->status, wc->status ? wc->vendor_err : 0);
	else add("%s=0/0+%u ", name, wc->byte_len);
}
static void add_digests(void) { add("| near %016llx far %016llx ", digest(near.buf), digest(far.buf)); }

enum type { NONE, DIF, CSUM, CRC32, CRC32C, CRC64 };
static const char *const types[] = { "none", "dif", "csum", "crc32", "crc32c", "crc64" };
static const int sizes[] = { 512, 520, 4048, 4096, 4160 };
enum { B512, B520, B4048, B4096 }; /* indexes of sizes, and the values of enum mlx5dv_block_size */

struct domain { enum type type; int size, ones, flags; uint16_t app; uint32_t ref; }; /* ones: the seed */

struct conf {
	int rights, entries, repeat; /* repeat 0: a list. No entries: the layout is not set */
	struct { uint32_t off, len, skip; } entry[4];
	struct domain mem, wire; /* if both are NONE, the signature is not set */
	int check, copy, unit; /* copy -1: not set */
	bool reset, crypto, encrypt, before;
	uint64_t tweak[2]; /* the low half first */
	uint8_t keytag; /* its first byte; 0 for the DEK without a tag */
};

static struct mlx5dv_context caps = { .comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD | MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD };
static char no_crypto[80] = "encryption";
static int field(const struct domain *d) { return d->type == NONE ? 0 : d->type == CRC32 || d->type == CRC32C ? 4 : 8; }
static bool has(const struct domain *d) {
	const struct mlx5dv_sig_caps *c = &caps.sig_caps;
	return d->type == NONE || ((c->block_size & 1ull << d->size) && (d->type < CRC32 ? (c->block_prot & MLX5DV_SIG_PROT_CAP_T10DIF) && (c->t10dif_bg & 1 << (d->type - DIF))
		: (c->block_prot & MLX5DV_SIG_PROT_CAP_CRC) && (c->crc_type & 1 << (d->type - CRC32))));
}

/* unable writes a line if the device cannot do c. */
static bool unable(const struct conf *c) {
	const struct domain *d = has(&c->mem) ? &c->wire : &c->mem;
	char why[80];
	if (has(d) && (!c->crypto || (near.dek[1] && far.dek[1]))) return false;
	snprintf(why, sizeof why, "%s in blocks of %d bytes", types[d->type], sizes[d->size]); absent(has(d) ? no_crypto : why);
	return true;
}

static struct mlx5dv_mkey *create_key(struct ibv_pd *pd, bool sig, bool crypto, uint32_t flags) {
	struct mlx5dv_mkey_init_attr a = { .pd = pd, .max_entries = 4, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | flags
		| (sig ? MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE : 0) | (crypto ? MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO : 0) };
	struct mlx5dv_mkey *key = mlx5dv_create_mkey(&a);
	must(key, "mlx5dv_create_mkey: %m");
	return key;
}
static void add_domain(const char *name, const struct domain *d) {
	if (d->type) add("%s %s/%d/%d", name, types[d->type], sizes[d->size], d->ones);
	if (d->type == DIF || d->type == CSUM) add("/%x/%x/%d", d->app, d->ref, d->flags);
}
static void add_conf(const struct conf *c) {
	add(c->repeat ? "%d times" : "list", c->repeat);
	for (int i = 0; i < c->entries; i++) add(c->repeat ? " %u+%u/%u" : " %u+%u", c->entry[i].off, c->entry[i].len, c->entry[i].skip);
	add_domain(" mem", &c->mem); add_domain(" wire", &c->wire);
	if (c->mem.type || c->wire.type) add(c->copy < 0 ? " check %02x" : " check %02x copy %02x", c->check, c->copy);
	if (c->crypto)
		add(" %s signature-%s unit %d tweak %llx:%llx", c->encrypt ? "encrypt" : "decrypt", c->before ? "before" : "after", sizes[c->unit], (ull)c->tweak[1], (ull)c->tweak[0]);
	if (c->rights != RIGHTS) add(" rights %d", c->rights);
}

/* start_conf posts the configuration of a key up to ibv_wr_complete or ibv_wr_abort. */
static struct ibv_qp_ex *start_conf(struct side *s, struct mlx5dv_mkey *key, const struct conf *c, uint32_t lkey) {
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(s->conf_qp);
	struct mlx5dv_qp_ex *dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
	struct mlx5dv_mkey_conf_attr attr = { .conf_flags = c->reset ? MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR : 0 };
	struct mlx5dv_sig_t10dif dif[2];
	struct mlx5dv_sig_crc crc[2];
	struct mlx5dv_sig_block_domain dom[2];
	struct mlx5dv_mr_interleaved pattern[4];
	struct ibv_sge list[4];
	bool sig = c->mem.type || c->wire.type;
	s->done[CONF] = false; ibv_wr_start(ex); ex->wr_id = CONF; ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	mlx5dv_wr_mkey_configure(dv, key, 1 + (c->entries > 0) + sig + c->crypto, &attr); mlx5dv_wr_set_mkey_access_flags(dv, c->rights);
	for (int i = 0; i < c->entries; i++) {
		list[i] = (struct ibv_sge){ (uintptr_t)s->buf + c->entry[i].off, c->entry[i].len, lkey };
		pattern[i] = (struct mlx5dv_mr_interleaved){ list[i].addr, list[i].length, c->entry[i].skip, lkey };
	}
	if (c->repeat) mlx5dv_wr_set_mkey_layout_interleaved(dv, c->repeat, c->entries, pattern);
	else if (c->entries) mlx5dv_wr_set_mkey_layout_list(dv, c->entries, list);
	for (int i = 0; i < 2; i++) {
		const struct domain *d = i ? &c->wire : &c->mem;
		bool is_crc = d->type >= CRC32;
		dif[i] = (struct mlx5dv_sig_t10dif){ d->type == CSUM ? MLX5DV_SIG_T10DIF_CSUM : MLX5DV_SIG_T10DIF_CRC, d->ones ? 0xffff : 0, d->app, d->ref, d->flags };
		crc[i] = (struct mlx5dv_sig_crc){ is_crc ? d->type - CRC32 : 0, !d->ones ? 0 : d->type == CRC64 ? UINT64_MAX : UINT32_MAX };
		dom[i] = (struct mlx5dv_sig_block_domain){ .sig_type = is_crc ? MLX5DV_SIG_TYPE_CRC : MLX5DV_SIG_TYPE_T10DIF, .sig.dif = &dif[i], .block_size = d->size };
		if (is_crc) dom[i].sig.crc = &crc[i];
	}
	struct mlx5dv_sig_block_attr sa = { .mem = c->mem.type ? &dom[0] : NULL, .wire = c->wire.type ? &dom[1] : NULL, .check_mask = c->check,
		.copy_mask = c->copy < 0 ? 0 : c->copy, .flags = c->copy < 0 ? 0 : MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK };
	if (sig) mlx5dv_wr_set_mkey_sig_block(dv, &sa);
	struct mlx5dv_crypto_attr ca = { .crypto_standard = MLX5DV_CRYPTO_STANDARD_AES_XTS, .encrypt_on_tx = c->encrypt, .data_unit_size = c->unit,
		.signature_crypto_order = c->before ? MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_BEFORE_CRYPTO_ON_TX : MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_AFTER_CRYPTO_ON_TX,
		.dek = s->dek[c->keytag > 0], .keytag = { (char)c->keytag } };
	for (int i = 0; i < 16; i++) ca.initial_tweak[i] = (char)(c->tweak[i / 8] >> i % 8 * 8);
	if (c->crypto) mlx5dv_wr_set_mkey_crypto(dv, &ca);
	return ex;
}

/* configure returns false, and adds the reason to the line, if the configuration fails. */
static bool configure(struct side *s, struct mlx5dv_mkey *key, const struct conf *c, uint32_t lkey) {
	int err = ibv_wr_complete(start_conf(s, key, c, lkey));
	s->posted[CONF] = !err;
	if (!err && good(s, CONF)) return true;
	if (err) add("conf=errno %d ", err);
	else add_wc(s, CONF, "conf");
	return false;
}

/* mem_offset returns where byte pos of the memory domain is in the near memory. */
static uint32_t mem_offset(const struct conf *c, uint32_t pos) {
	for (int r = 0; r <= c->repeat; r++)
		for (int i = 0; i < c->entries; i++) {
			if (pos < c->entry[i].len) return c->entry[i].off + r * (c->entry[i].len + c->entry[i].skip) + pos;
			pos -= c->entry[i].len;
		}
	return 0;
}

/* wire_length returns the length of the wire domain of data bytes. */
static uint32_t wire_length(const struct conf *c, uint32_t data) { return data + data / sizes[c->wire.size] * field(&c->wire); }
static void fill(void) {
	for (int i = 0; i < ROOM; i += 8) {
		uint64_t a = rnd64(), b = rnd64();
		memcpy(near.buf + i, &a, 8); memcpy(far.buf + i, &b, 8);
	}
}

/* Transfers through a key of the near side. The first three read its memory, the others write it. */
enum way { NEAR_SEND, NEAR_WRITE, FAR_READ, FAR_SEND, NEAR_READ, FAR_WRITE };
static const char *const ways[] = { "near send", "near write", "far read", "far send", "near read", "far write" };

static void add_record(const struct conf *c, enum way way, struct mlx5dv_mkey *key) {
	static const char *const kinds[] = { "ok", "guard", "reftag", "apptag" };
	const struct domain *in = (way < FAR_SEND ? c->mem.type : !c->wire.type) ? &c->mem : &c->wire;
	struct mlx5dv_mkey_err e = { 0 };
	const struct mlx5dv_sig_err *sig = &e.err.sig;
	int err = mlx5dv_mkey_check(key, &e), unit = sizes[in->size] + field(in);
	if (err) add("| errno %d ", err);
	else if (e.err_type == MLX5DV_MKEY_NO_ERR) add("| ok ");
	else add("| %s %llu+%llu %llx/%llx ", kinds[e.err_type & 3], (ull)sig->offset / unit, (ull)sig->offset % unit, (ull)sig->actual_value, (ull)sig->expected_value);
}

/* run_transfer moves len bytes of the wire domain from byte off of a key, and ends the line, with 16 bytes of the written memory from show on. */
static void run_transfer(const struct conf *c, struct mlx5dv_mkey *key, enum way way, uint32_t off, uint32_t len, int show) {
	static const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE };
	struct side *source = way == FAR_READ || way == FAR_SEND || way == FAR_WRITE ? &far : &near, *sink = source == &far ? &near : &far;
	struct ibv_sge keyed = { off, len, key->lkey }, flat = plain(&far, off, len), recv = sink == &near ? keyed : plain(&far, off, ROOM - off);
	bool send = ops[way] == IBV_WR_SEND, by_near = source == &near;
	bool ok = request(source, sink, send ? &recv : NULL, ops[way], by_near ? keyed : flat, by_near ? (uintptr_t)flat.addr : off, by_near ? far.mr->rkey : key->rkey, 4);
	ok = ok && (send || by_near || settle(source, sink));
	if (!ok) flush();
	add_wc(source, OP, source->name);
	if (send) add_wc(sink, RECV, sink->name);
	if (c->mem.type || c->wire.type) add_record(c, way, key);
	else add("| - ");
	add_digests();
	for (int i = 0; show >= 0 && i < 16; i++) add(i ? "%02x" : "| %02x", (way < FAR_SEND ? far.buf : near.buf)[show + i]);
	finish(ok);
}

/* play runs steps with the configuration c. Words of its text: F fills both memories anew, A fills the first 512 bytes with 0xa5, and a step is
 * "nw0+520!10?508": near write of 520 bytes from 0, whose byte 10 of the input is damaged, and of which bytes from 508 on are of interest. After ~
 * the key is not configured anew. */
__attribute__((format(printf, 2, 3))) static void play(const struct conf *c, const char *fmt, ...) {
	static struct mlx5dv_mkey *keys[8]; /* those of XRC are its own */
	bool sig = c->mem.type || c->wire.type;
	struct mlx5dv_mkey **key = &keys[sig + 2 * c->crypto + 4 * (near.srq != NULL)];
	char text[200], name[3];
	va_list ap;
	va_start(ap, fmt); vsnprintf(text, sizeof text, fmt, ap); va_end(ap);
	for (char *w = strtok(text, " "), *more; w; w = strtok(NULL, " ")) {
		if (*w == 'F') fill();
		else if (*w == 'A') { memset(near.buf, 0xa5, 512); memset(far.buf, 0xa5, 512); }
		if (*w == 'F' || *w == 'A' || unable(c)) continue;
		bool anew = *w != '~';
		uint32_t off, len, way = 0;
		must(sscanf(w + !anew, "%2s%u+%u", name, &off, &len) == 3, "the step %s", w);
		while (ways[way][0] != name[0] || strchr(ways[way], ' ')[1] != name[1]) way++;
		int flip = (more = strchr(w, '!')) ? atoi(more + 1) : -1, show = (more = strchr(w, '?')) ? atoi(more + 1) : -1;
		*key = *key ? *key : create_key(near.pd, sig, c->crypto, 0); begin();
		if (anew) add_conf(c);
		else add("as before");
		add(" | %s %u+%u", ways[way], off, len);
		if (flip >= 0) { *(way < FAR_SEND ? near.buf + mem_offset(c, flip) : far.buf + flip) ^= 1; add(", byte %d flipped", flip); }
		add(near.srq ? " by XRC | " : " | ");
		if (!anew || configure(&near, *key, c, near.mr->lkey)) run_transfer(c, *key, way, off, len, show);
		else finish(false);
	}
}

static const struct domain none;
static struct domain dom(enum type type) { return (struct domain){ .type = type, .ones = 1, .app = 0x5678, .ref = 0xf0debc9a, .flags = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP }; }
static struct conf conf(struct domain mem, struct domain wire, uint32_t data) {
	struct conf c = { .rights = RIGHTS, .mem = mem, .wire = wire, .check = 0xff, .copy = -1, .entries = 1, .tweak = { 0x0123456789abcdef } };
	c.entry[0].len = data + data / sizes[mem.size] * field(&mem);
	return c;
}

static void group_record(void) {
	static const char *const makes[] = { "ns", "nw", "fr" }, *const checks[] = { "fs", "nr", "fw" };
	for (int i = 0; i < 8; i++) {
		enum type type = DIF + i % 4;
		bool wire = i < 4, tags = type < CRC32;
		struct conf c = conf(wire ? none : dom(type), wire ? dom(type) : none, 2048);
		uint32_t n = wire_length(&c, 2048), unit = 512 + field(&c.mem) + field(&c.wire);
		const char *make = (wire ? makes : checks)[i % 3], *k = (wire ? checks : makes)[i % 3];
		play(&c, "F %s0+%u %s0+%u", make, n, k, n);
		/* An application tag, then the guard of that block, then the reference tag of an earlier block. */
		play(&c, "%s0+%u!%u %s0+%u!%u %s0+%u!%u", k, n, 2 * unit + (tags ? 515 : 100), k, n, 2 * unit + 7, k, n, unit + (tags ? 519 : 513));
	}
}
static void group_again(void) {
	struct conf c = conf(none, dom(DIF), 2048);
	play(&c, "F nw0+2080 fw0+2080!600 ~fw0+2080 fw0+2080 ~nr0+2080!100 ~nr0+2080");
}
static void group_crc64(void) {
	for (int i = 0; i < 4; i++) {
		struct conf c = conf(i & 1 ? dom(CRC64) : none, i & 1 ? none : dom(CRC64), 1024);
		c.mem.ones = c.wire.ones = i < 2;
		play(&c, i & 1 ? "F A fw0+1024?508 nw0+1024 nw0+1024!523" : "F A nw0+1040?508 fw0+1040 fw0+1040!523");
	}
}
static void group_offset(void) {
	struct conf c = conf(none, dom(DIF), 2048);
	play(&c, "F nw1040+1040?1552 fr0+2080?2072 fw1040+1040!1565 nr520+1560 fs520+1560 ns100+512 fr512+512 fw524+512");
	c = conf(dom(DIF), none, 2048); play(&c, "F fw512+1536 nw1024+1024!1565 fr512+1536 nw100+512"); c = conf(none, dom(CRC32C), 2048);
	play(&c, "F nw1032+1032?1536 fr0+2064?2048 fw1032+1032!1553 nr516+1548 fs516+1548 ns100+512 fr512+512 fw520+512");
	c = conf(dom(CRC32C), none, 2048); play(&c, "F fw512+1536 nw1024+1024!1553 fr512+1536 nw100+512");
}
static void group_partial(void) {
	static const uint32_t ends[] = { 100, 512, 513, 514, 516, 518, 519, 520, 1033 };
	for (unsigned i = 0; i < 9; i++) {
		struct conf wire = conf(none, dom(DIF), 1024), mem = conf(dom(DIF), none, 1024);
		play(&wire, i % 2 ? "F nw0+1040 fs0+%u?508 F ns0+%u?508" : "F nw0+1040 fw0+%u?508 F fr0+%u?508", ends[i], ends[i]);
		play(&mem, i % 2 ? "F fw0+%u?508 nw0+%u?508" : "F nr0+%u?508 fr0+%u?508", ends[i] - i, ends[i] - i);
	}
}
static void group_escape(void) {
	static const uint8_t masks[] = { 0xff, 0xcf, 0xc0, 0x3f, 0x20, 0x08 };
	for (int all = 0; all < 2; all++) {
		struct conf c = conf(none, dom(DIF), 512);
		c.wire = (struct domain){ .type = DIF, .app = 0xffff, .ref = all ? 0xffffffff : 0x01020304 };
		play(&c, "F nw0+520"); c.wire.app = 0x1234; c.wire.ref = 0x01020305;
		for (int i = 0; i < 24; i++) { c.wire.flags = i % 4 << 1; c.check = masks[i / 4]; play(&c, i ? "fw0+520" : "fw0+520!10"); }
	}
}

/* group_abort has keys of its own, and says in words what is done with them. */
static void group_abort(void) {
	struct conf dif = conf(none, dom(DIF), 1024), crc = conf(dom(CRC32C), none, 1024), bare = conf(none, none, 1024), rights = bare, reset = bare;
	const struct { const char *what; const struct conf *before, *aborted, *after; bool complete; } cases[] = {
		{ "T10-DIF, CRC32C aborted", &dif, &crc, NULL, false }, { "T10-DIF, CRC32C aborted, rights alone", &dif, &crc, &rights, false },
		{ "T10-DIF, CRC32C aborted, a layout", &dif, &crc, &bare, false }, { "T10-DIF, CRC32C aborted, a reset and a layout", &dif, &crc, &reset, false },
		{ "free, T10-DIF aborted", NULL, &dif, NULL, false }, { "free, T10-DIF aborted, a layout", NULL, &dif, &bare, false },
		{ "free, T10-DIF aborted, a reset and a layout", NULL, &dif, &reset, false }, { "T10-DIF, CRC32C in a chain that fails", &dif, &crc, NULL, true },
		{ "T10-DIF, CRC32C in a chain that fails, a layout", &dif, &crc, &bare, true },
	};
	rights.entries = 0; reset.reset = true;
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		fill();
		if (unable(&dif) || unable(&crc)) continue;
		struct mlx5dv_mkey *key = create_key(near.pd, true, false, 0);
		begin(); add("%s | near write 0+520 | ", cases[i].what);
		bool ok = !cases[i].before || configure(&near, key, cases[i].before, near.mr->lkey);
		struct ibv_qp_ex *ex = start_conf(&near, key, cases[i].aborted, near.mr->lkey);
		if (cases[i].complete) { /* a setter without its builder fails the chain */
			mlx5dv_wr_set_mkey_access_flags(mlx5dv_qp_ex_from_ibv_qp_ex(ex), RIGHTS); add("chain=errno %d ", ibv_wr_complete(ex));
		} else ibv_wr_abort(ex);
		if (ok && (!cases[i].after || configure(&near, key, cases[i].after, near.mr->lkey))) run_transfer(&dif, key, NEAR_WRITE, 0, 520, 508);
		else finish(false);
		mlx5dv_destroy_mkey(key);
	}
}
static struct conf encrypted(struct domain mem, struct domain wire, uint32_t data, bool encrypt, bool before, int unit) {
	struct conf c = conf(mem, wire, data);
	c.crypto = true; c.encrypt = encrypt; c.before = before; c.unit = unit;
	return c;
}
static void group_tail(void) {
	static const uint32_t lengths[] = { 16, 128, 496, 504, 512, 520, 528, 1008, 1024, 1040, /* in units of 520: */ 16, 496, 504, 512, 520, 528, 536, 1016, 1040, 1048 };
	for (int i = 0; i < 20; i++) {
		struct conf c = encrypted(none, none, lengths[i], true, false, i < 10 ? B512 : B520);
		play(&c, i % 2 ? "F nw0+%u fw0+%u" : "F fr0+%u nr0+%u", lengths[i], lengths[i]);
	}
}
static void group_tweak(void) {
	static const uint64_t tweaks[][2] = { { 0, 0 }, { UINT64_MAX - 1, 0 }, { UINT64_MAX, UINT64_MAX } };
	for (int i = 0; i < 9; i++) {
		int unit = i / 3 == 2 ? B4096 : i / 3, n = sizes[unit];
		struct conf c = encrypted(none, none, 4 * n, i % 2, false, unit);
		memcpy(c.tweak, tweaks[i % 3], sizeof c.tweak);
		play(&c, "F nw0+%d nw%d+%d ~fw%d+%d ns%d+%d", 4 * n, n, 3 * n, 2 * n, 2 * n, n / 2, n);
	}
}

/* group_rows has the rows of mlx5dv_wr_set_mkey_crypto(3), two combinations beside them that libmlx5 accepts, and two that it refuses. */
static void group_rows(void) {
	/* encrypt on TX, signature before crypto, a signature in memory, on the wire; units of 520 bytes */
	static const char *const rows[] = { "E", "E w", "EB w5", "EBm ", "EBmw5", " ", "  w", "  m 5", "  mw5", " Bm", "E m", " B w", "E mw", " Bmw" };
	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool mem = strchr(rows[i], 'm'), wire = strchr(rows[i], 'w');
		struct conf c = encrypted(mem ? dom(DIF) : none, wire ? dom(DIF) : none, 1024, strchr(rows[i], 'E'), strchr(rows[i], 'B'), strchr(rows[i], '5') ? B520 : B512);
		uint32_t n = wire_length(&c, 1024);
		c.wire.app = 0x4321; /* so that two domains differ */
		play(&c, mem && !wire ? "F fw0+%u nw0+%u nw0+%u!600" : "F nw0+%u fw0+%u fw0+%u!600", n, n, n);
	}
}

/* group_order posts a READ into memory and a WRITE from the same memory behind it, with and without a fence. */
static void group_order(void) {
	static uint8_t old[ROOM];
	for (int i = 0; i < 12; i++) {
		uint32_t n = 64 << i / 2 * 7 / 5; /* to 8192 */
		fill(); memcpy(old, near.buf, ROOM); begin();
		add("plain memory | near read 0+%u, near write 0+%u%s | ", n, n, i % 2 ? " with a fence" : "");
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(near.qp); near.done[OP] = near.done[OP2] = false;
		ibv_wr_start(ex); ex->wr_id = OP; ex->wr_flags = IBV_SEND_SIGNALED; ibv_wr_rdma_read(ex, far.mr->rkey, (uintptr_t)far.buf); ibv_wr_set_sge(ex, near.mr->lkey, (uintptr_t)near.buf, n);
		ex->wr_id = OP2; ex->wr_flags |= i % 2 ? IBV_SEND_FENCE : 0; ibv_wr_rdma_write(ex, far.mr->rkey, (uintptr_t)(far.buf + ROOM / 2)); ibv_wr_set_sge(ex, near.mr->lkey, (uintptr_t)near.buf, n);
		bool ok = !ibv_wr_complete(ex) && good(&near, OP) && good(&near, OP2); /* one doorbell for both, so that no answer comes between them */
		add_wc(&near, OP, "read"); add_wc(&near, OP2, "write");
		add("%s", !memcmp(far.buf + ROOM / 2, far.buf, n) ? "new bytes" : !memcmp(far.buf + ROOM / 2, old, n) ? "old bytes" : "mixed bytes"); finish(ok);
	}
}

/* Memory that a mistake names: regions of 4096 bytes, and keys of such regions. Of a key whose name begins with OF_, the region has that name. */
enum token {
	REGION, ZERO, FREED, OTHER_PD, READ_ONLY, NO_READ, NO_WRITE, NO_ATOMIC, KEY, OF_ZERO, OF_FREED, OF_OTHER_PD, OF_READ_ONLY, OF_NO_READ, OF_NO_WRITE,
	K_FREE, K_FREED, K_OTHER_PD, K_READ_ONLY, K_NO_READ, K_NO_WRITE, K_NO_ATOMIC, K_TAG, K_LONG, K_DIF, K_UNSET, K_CRYPTO, K_KEYTAG, K_INV, K_INV_FREE,
};
static const char *const tokens[] = {
	"region", "key 0", "freed region", "region of another PD", "read-only region", "region without remote read", "region without remote write", "region without atomics",
	"mkey", "mkey of key 0", "mkey of a freed region", "mkey of a region of another PD", "mkey of a read-only region", "mkey of a region without remote read", "mkey of a region without remote write",
	"unconfigured mkey", "invalidated mkey", "mkey of another PD", "read-only mkey", "mkey without remote read", "mkey without remote write", "mkey without atomics", "mkey with another tag",
	"mkey longer than its region", "T10-DIF mkey", "crypto mkey without crypto", "crypto mkey", "crypto mkey with another key tag", "invalidatable mkey", "unconfigured invalidatable mkey",
};

enum { SEND = IBV_WR_SEND, WRITE = IBV_WR_RDMA_WRITE, READ = IBV_WR_RDMA_READ, SWAP = IBV_WR_ATOMIC_CMP_AND_SWP, FADD = IBV_WR_ATOMIC_FETCH_AND_ADD,
	INV = IBV_WR_SEND_WITH_INV, LOCAL = IBV_WR_LOCAL_INV };
/* A mistake is one request of the near side: from (or into) its memory, to memory of the far side, into which a receive request may point. */
static const struct mistake {
	enum token from, to, into;
	int op, from_off, to_off, len, into_len; /* len 0: 64, or 8 for atomics; -1: none. into_len 0: len */
	int no_recv, dead, rights; /* dead: the far QP is in RESET. rights: of the far QP; 0: all */
} mistakes[] = {
#define M(o, ...) { .op = o, __VA_ARGS__ }
	M(SEND), M(WRITE), M(READ), M(SWAP), M(INV, .to = K_INV), M(FADD, .to = KEY), M(SEND, .from = ZERO), M(SEND, .from = FREED), M(SEND, .from = OTHER_PD),
	M(SEND, .from_off = -8), M(SEND, .from_off = 4090), M(SEND, .from = ZERO, .len = -1), M(WRITE, .from = ZERO), M(WRITE, .from = OTHER_PD),
	M(READ, .from = READ_ONLY), M(READ, .from = ZERO), M(READ, .from = OTHER_PD), M(SWAP, .from = READ_ONLY), M(FADD, .len = 4), M(FADD, .len = 16),
	M(SEND, .from = K_FREE), M(SEND, .from = K_FREED), M(SEND, .from = K_OTHER_PD), M(SEND, .from = KEY, .from_off = 4090),
	M(SEND, .from = KEY, .from_off = 8192), M(SEND, .from = KEY, .from_off = -8), M(SEND, .from = OF_ZERO), M(SEND, .from = OF_FREED),
	M(SEND, .from = OF_OTHER_PD), M(SEND, .from = K_LONG, .from_off = 4090), M(READ, .from = K_READ_ONLY), M(READ, .from = OF_READ_ONLY),
	M(SEND, .from = K_DIF, .from_off = 100), M(SEND, .from = K_DIF, .from_off = 3640, .len = 1040), M(SEND, .from = K_UNSET),
	M(SEND, .from = K_CRYPTO, .len = 47), M(SEND, .from = K_KEYTAG), M(SEND, .into = ZERO), M(SEND, .into = FREED), M(SEND, .into = OTHER_PD),
	M(SEND, .into = READ_ONLY), M(SEND, .into_len = 32), M(SEND, .into_len = 8192), M(SEND, .into = K_FREE), M(SEND, .into = K_READ_ONLY),
	M(SEND, .into = OF_READ_ONLY), M(SEND, .into = OF_OTHER_PD), M(SEND, .into = K_CRYPTO, .len = 47), M(WRITE, .to = ZERO), M(WRITE, .to = FREED),
	M(WRITE, .to = OTHER_PD), M(WRITE, .to = NO_WRITE), M(READ, .to = NO_READ), M(SWAP, .to = NO_ATOMIC), M(WRITE, .to_off = 4090),
	M(READ, .to_off = 4090), M(FADD, .to_off = 4096), M(WRITE, .to_off = -8), M(FADD, .to_off = 4), M(WRITE, .to = ZERO, .len = -1),
	M(WRITE, .rights = READ_RIGHT), M(READ, .rights = WRITE_RIGHT), M(FADD, .rights = WRITE_RIGHT), M(WRITE, .to = K_FREE), M(WRITE, .to = K_FREED),
	M(WRITE, .to = K_NO_WRITE), M(READ, .to = K_NO_READ), M(FADD, .to = K_NO_ATOMIC), M(WRITE, .to = KEY, .to_off = 4090),
	M(READ, .to = KEY, .to_off = 8192), M(WRITE, .to = K_TAG), M(WRITE, .to = OF_FREED), M(READ, .to = OF_OTHER_PD), M(WRITE, .to = OF_READ_ONLY),
	M(WRITE, .to = OF_NO_WRITE), M(READ, .to = OF_NO_READ), M(WRITE, .to = K_LONG, .to_off = 4090), M(WRITE, .to = K_DIF, .to_off = 100),
	M(READ, .to = K_DIF, .to_off = 100), M(READ, .to = K_CRYPTO, .len = 47), M(WRITE, .to = K_UNSET), M(READ, .from = READ_ONLY, .to = NO_READ),
	M(SEND, .no_recv = 1), M(SEND, .no_recv = 1, .dead = 1), M(WRITE, .dead = 1), M(INV, .to = K_INV_FREE), M(INV, .to = KEY),
	M(INV, .to = REGION), M(INV, .to = ZERO), M(LOCAL, .from = ZERO), M(LOCAL, .from = REGION), M(LOCAL, .from = K_FREE),
};
static struct ibv_mr *mrs[3], *freed[3]; static int regions, freed_regions;
static struct mlx5dv_mkey *mkeys[3]; static int keys_made;

/* memory makes what t names. It returns false, and adds the reason to the line, if that fails. */
static bool memory(struct side *s, enum token t, struct ibv_sge *sge) {
	enum token of = t < KEY ? t : t >= OF_ZERO && t <= OF_NO_WRITE ? t - OF_ZERO + ZERO : REGION;
	bool no_read = t == K_NO_READ || of == NO_READ, no_write = t == K_NO_WRITE || of == NO_WRITE, no_atomic = t == K_NO_ATOMIC || of == NO_ATOMIC;
	int rights = t == K_READ_ONLY || of == READ_ONLY ? READ_RIGHT : RIGHTS & ~(no_read ? READ_RIGHT : no_write ? WRITE_RIGHT : no_atomic ? ATOMIC_RIGHT : 0);
	struct ibv_mr *mr = ibv_reg_mr(of == OTHER_PD ? s->other : s->pd, s->buf, 4096, t > OF_NO_WRITE ? RIGHTS : rights);
	must(mr, "%s: ibv_reg_mr: %m", s->name);
	*(of == FREED ? &freed[freed_regions++] : &mrs[regions++]) = mr; *sge = (struct ibv_sge){ (uintptr_t)s->buf, 64, of == ZERO ? 0 : mr->lkey };
	if (t < KEY) return true;
	bool set = t == K_CRYPTO || t == K_KEYTAG;
	struct conf c = conf(none, t == K_DIF ? dom(DIF) : none, t == K_LONG ? 8192 : 4096);
	struct mlx5dv_mkey *key = create_key(t == K_OTHER_PD ? s->other : s->pd, t == K_DIF, set || t == K_UNSET, t >= K_INV ? MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE : 0);
	c.crypto = set; c.keytag = t == K_KEYTAG ? 2 : 0; c.rights = t > OF_NO_WRITE ? rights : RIGHTS; mkeys[keys_made++] = key;
	bool ok = t == K_FREE || t == K_INV_FREE || configure(s, key, &c, sge->lkey);
	*sge = (struct ibv_sge){ 0, 64, t == K_TAG ? key->lkey ^ 0x55 : key->lkey };
	return ok && (t != K_FREED || (!post(s, OP3, IBV_WR_LOCAL_INV, *sge, 0, key->lkey, 0) && good(s, OP3)));
}

static void group_mistakes(void) {
	static const char *const ops[] = { [WRITE] = "write", [SEND] = "send", [READ] = "read", [SWAP] = "compare and swap", [FADD] = "fetch and add", [LOCAL] = "invalidate", [INV] = "send with invalidate" };
	for (const struct mistake *m = mistakes; m < mistakes + sizeof mistakes / sizeof *mistakes; m++) {
		bool recv = (m->op == SEND || m->op == INV) && !m->no_recv;
		struct conf need = conf(none, m->from == K_DIF || m->to == K_DIF ? dom(DIF) : none, 512);
		uint32_t len = m->len < 0 ? 0 : m->len ? m->len : m->op == SWAP || m->op == FADD ? 8 : 64;
		struct ibv_qp_attr reset = { .qp_state = IBV_QPS_RESET };
		struct ibv_sge from, to, into;
		need.crypto = (m->from >= K_UNSET && m->from <= K_KEYTAG) || (m->to >= K_UNSET && m->to <= K_KEYTAG) || m->into == K_CRYPTO;
		fill();
		if (unable(&need)) continue;
		begin(); add("near %s%+d, far %s%+d", tokens[m->from], m->from_off, tokens[m->to], m->to_off);
		if (recv) add(", receive of %d into %s", m->into_len ? m->into_len : (int)len, tokens[m->into]);
		add(" | %s of %u%s%s | ", ops[m->op], len, m->dead ? " to a QP in RESET" : "", m->rights ? " to a QP without the right" : m->no_recv ? " without a receive request" : "");
		far_rights = m->rights ? m->rights : RIGHTS; connect_pair(m->dead || m->op == INV ? 1 : m->no_recv ? 0 : 7);
		bool made = memory(&near, m->from, &from) && memory(&far, m->to, &to) && memory(&far, m->into, &into);
		while (freed_regions) ibv_dereg_mr(freed[--freed_regions]); /* after all are made, so that no key is used again */
		if (made) {
			from.addr += m->from_off; from.length = len;
			into.length = m->into_len ? (uint32_t)m->into_len : len;
			if (m->dead) ibv_modify_qp(far.qp, &reset, IBV_QP_STATE);
			if (!request(&near, &far, recv ? &into : NULL, m->op, from, to.addr + m->to_off, m->op == LOCAL ? from.lkey : to.lkey, m->dead || m->op == INV ? 1 : 4)) flush();
			add_wc(&near, OP, "near");
			if (recv) add_wc(&far, RECV, "far");
			add("| - "); add_digests();
		}
		far_rights = RIGHTS; finish(false);
		while (keys_made) mlx5dv_destroy_mkey(mkeys[--keys_made]);
		while (regions) ibv_dereg_mr(mrs[--regions]);
	}
}

/* group_xrc has the near side as the responder of an XRC connection. */
static void group_xrc(void) {
	struct ibv_xrcd_init_attr da = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_xrcd *domain = ibv_open_xrcd(near.ctx, &da);
	struct ibv_srq_init_attr_ex sa = { .attr = { .max_wr = 16, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .pd = near.pd, .xrcd = domain, .cq = near.cq,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD };
	struct ibv_qp_init_attr_ex ra = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = domain };
	struct ibv_qp_init_attr_ex ta = { .qp_type = IBV_QPT_XRC_SEND, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = far.pd, .send_cq = far.cq, .cap = { .max_send_wr = 16, .max_send_sge = 1 } };
	struct ibv_srq *srq = domain ? ibv_create_srq_ex(near.ctx, &sa) : NULL;
	struct ibv_qp *near_qp = near.qp, *far_qp = far.qp, *responder = srq ? ibv_create_qp_ex(near.ctx, &ra) : NULL, *requester = responder ? ibv_create_qp_ex(far.ctx, &ta) : NULL;
	struct conf c = conf(none, dom(DIF), 1024);
	if (!requester || ibv_get_srq_num(srq, (uint32_t *)&near.srqn)) { absent("XRC"); return; }
	near.qp = responder; far.qp = requester; near.srq = srq; connect_pair(7);
	play(&c, "F fw0+1040 F fw0+1040!600 F fr0+1040 F fs0+1040!1036 F fw520+520!1000 F fr1040+520 F fw100+512");
	near.qp = near_qp; far.qp = far_qp; near.srq = NULL; recover();
}

/* group_pipelining posts a WRITE with bad fields and two SENDs behind it, the first without or with a fence. */
static void group_pipelining(void) {
	struct conf c = conf(dom(CRC32), none, 1024);
	struct ibv_qp *usual = near.qp;
	struct ibv_qp_attr resume = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQD };
	if (unable(&c)) return;
	near.qp = create_qp(&near, MLX5DV_QP_CREATE_SIG_PIPELINING);
	if (!near.qp) absent("signature pipelining");
	for (int fence = 0; fence < 2 && near.qp; fence++) {
		struct mlx5dv_mkey *key = create_key(near.pd, true, false, 0);
		struct ibv_sge keyed = { 0, 1024, key->lkey };
		recover(); fill(); begin(); add_conf(&c); add(" | near write 0+1024, send%s, send with a fence | ", fence ? " with a fence" : "");
		post_recv(&far, RECV, spare(&far)); post_recv(&far, RECV2, spare(&far));
		bool ok = configure(&near, key, &c, near.mr->lkey) && !post(&near, OP, IBV_WR_RDMA_WRITE, keyed, (uintptr_t)far.buf, far.mr->rkey, 0)
			&& !post(&near, OP2, IBV_WR_SEND, spare(&near), 0, 0, fence ? IBV_SEND_FENCE : 0) && !post(&near, OP3, IBV_WR_SEND, spare(&near), 0, 0, IBV_SEND_FENCE);
		struct pollfd p = { .fd = near.ctx->async_fd, .events = POLLIN };
		struct ibv_async_event e;
		bool event = false;
		while (ok && !event && poll(&p, 1, 3000) == 1 && !ibv_get_async_event(near.ctx, &e)) { event = e.event_type == IBV_EVENT_SQ_DRAINED; ibv_ack_async_event(&e); }
		reap(&near); add("event=%d write=%d send=%d fenced=%d ", event, near.done[OP], near.done[OP2], near.done[OP3]);
		if (event && ibv_modify_qp(near.qp, &resume, IBV_QP_STATE | IBV_QP_CUR_STATE)) add("resume=errno %d ", errno);
		if (ok && good(&near, OP3)) good(&far, RECV2);
		add_wc(&near, OP3, "then"); add_record(&c, NEAR_WRITE, key); add_digests(); finish(true); mlx5dv_destroy_mkey(key);
	}
	near.qp = usual; recover();
}
static void limit(const char *name, ull value) { begin(); add("%s | query | %#llx", name, value); finish(true); }
static void group_limits(void) {
	struct ibv_device_attr a;
	struct ibv_qp_attr qa;
	struct ibv_qp_init_attr q;
	must(!ibv_query_device(near.ctx, &a) && !ibv_query_qp(near.qp, &qa, IBV_QP_CAP, &q), "the limits cannot be queried");
#define LIMIT(field) limit(#field, a.field)
	LIMIT(max_mr_size), LIMIT(max_qp), LIMIT(max_qp_wr), LIMIT(max_sge), LIMIT(max_sge_rd), LIMIT(max_cq), LIMIT(max_cqe), LIMIT(max_mr), LIMIT(max_pd), LIMIT(max_mw);
	LIMIT(max_qp_rd_atom), LIMIT(max_qp_init_rd_atom), LIMIT(max_res_rd_atom), LIMIT(atomic_cap), LIMIT(max_srq), LIMIT(max_srq_wr), LIMIT(max_srq_sge), LIMIT(max_ah);
	LIMIT(max_pkeys), LIMIT(max_mcast_grp), LIMIT(local_ca_ack_delay), LIMIT(page_size_cap), LIMIT(device_cap_flags), limit("max_msg_sz", near.attr.max_msg_sz);
	limit("max_send_wr for 64", q.cap.max_send_wr), limit("max_recv_wr for 16", q.cap.max_recv_wr), limit("max_inline_data for 512", q.cap.max_inline_data);
}
static int count = 100;

/* group_random makes pairs of steps: the second one takes back what the first one moved, of which a byte may be damaged. */
static void group_random(void) {
	static struct conf c;
	static const char codes[] = "nsnwfrfsnrfw"; /* in the order of enum way */
	enum way back = NEAR_SEND;
	uint32_t off = 0, len = 1;
	for (int i = 0; i < count; i++) {
		if (i % 2) {
			uint32_t flip = back < FAR_SEND ? rnd(off + len) : off + rnd(len);
			play(&c, rnd(2) ? "%.2s%u+%u" : "%.2s%u+%u!%u", codes + 2 * back, off, len, flip); continue;
		}
		int kind = rnd(10), blocks = 1 + rnd(4), at_entry = rnd(64);
		struct domain d = { .type = DIF + rnd(5), .size = rnd(5), .ones = rnd(2), .app = rnd(4) ? rnd(65536) : 0xffff, .ref = rnd(8) ? rnd64() : 0xffffffff - rnd(2), .flags = rnd(8) };
		uint32_t size = sizes[d.size], data = blocks * size, left;
		c = conf(kind >= 4 ? d : none, kind >= 7 || (kind >= 1 && kind < 4) ? d : none, data); c.check = rnd(3) ? 0xff : rnd(256);
		if (kind >= 7) {
			c.wire.type = rnd(4) ? d.type : DIF + rnd(5);
			c.wire.app ^= rnd(2); c.wire.ref ^= rnd(2);
			if (rnd(4) == 0 && c.wire.type == c.mem.type) c.copy = rnd(256);
		} else if (rnd(3) == 0) { /* encryption, where the stream is of whole units */
			bool stays = c.mem.type || c.wire.type; /* the fields stay outside of the encrypted stream */
			c.crypto = true; c.encrypt = rnd(2); c.before = stays ? c.encrypt == (c.mem.type != NONE) : rnd(2); c.unit = d.size;
			c.tweak[0] = rnd64(); c.tweak[1] = rnd64();
		}
		left = c.entry[0].len;
		if (rnd(4) == 0) {
			c.repeat = blocks; c.entries = 1 + (c.mem.type != NONE);
			c.entry[0].off = at_entry, c.entry[0].len = size, c.entry[0].skip = rnd(64);
			c.entry[1].off = 20000, c.entry[1].len = field(&c.mem), c.entry[1].skip = rnd(16);
		} else
			for (c.entries = 0; left; left -= c.entry[c.entries++].len) {
				c.entry[c.entries].off = at_entry; c.entry[c.entries].len = c.entries == 3 ? left : 1 + rnd(left);
				at_entry += c.entry[c.entries].len + rnd(512);
			}
		off = rnd(4) ? 0 : rnd(blocks) * (size + field(&c.wire)); len = wire_length(&c, data) - off; len = rnd(4) ? len : 1 + rnd(len);
		bool tx = c.wire.type || (!c.mem.type && rnd(2));
		back = (tx ? FAR_SEND : NEAR_SEND) + rnd(3); play(&c, "F %.2s%u+%u", codes + 2 * ((tx ? NEAR_SEND : FAR_SEND) + rnd(3)), off, len);
	}
}

static const struct group { const char *name, *question; void (*run)(void); } groups[] = {
	{ "record", "the order of the values and the offset of a record", group_record }, { "again", "a second bad block before the key is configured anew", group_again },
	{ "crc64", "the bytes of CRC64", group_crc64 }, { "offset", "transfers that begin within a key: the offset of an error, tags, cut blocks", group_offset },
	{ "partial", "transfers that end between data and field, or within one", group_partial }, { "escape", "escapes under masks", group_escape },
	{ "abort", "a key after ibv_wr_abort, and after a chain that failed", group_abort }, { "tail", "partial blocks with crypto", group_tail },
	{ "tweak", "the tweak over several blocks", group_tweak }, { "rows", "the order of signature and crypto", group_rows },
	{ "order", "a WRITE behind an unfenced READ", group_order }, { "xrc", "XRC's responder", group_xrc },
	{ "pipelining", "where a QP with signature pipelining stops", group_pipelining }, { "mistakes", "status and vendor_err of mistakes", group_mistakes },
	{ "limits", "limits that the device announces", group_limits }, { "random", "random keys", group_random },
};
enum { GROUPS = sizeof groups / sizeof *groups };
static struct ibv_context *open_device(const char *name) {
	struct ibv_device **d = ibv_get_device_list(NULL);
	struct mlx5dv_context_attr attr = { .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	while (d && *d && (name ? strcmp(ibv_get_device_name(*d), name) != 0 : !mlx5dv_is_supported(*d))) d++;
	must(d && *d, "there is no %s", name ? name : "mlx5 device");
	struct ibv_context *ctx = mlx5dv_open_device(*d, &attr);
	must(ctx, "%s cannot be opened with DEVX, which memory keys need: %m", ibv_get_device_name(*d));
	return ctx;
}

static void open_side(struct side *s, struct ibv_context *ctx, int gid) {
	struct ibv_gid_entry e; int best = 0;
	s->ctx = ctx; s->index = gid; s->port = 1;
	while (!ibv_query_port(ctx, s->port, &s->attr) && s->attr.state != IBV_PORT_ACTIVE) s->port++;
	must(s->attr.state == IBV_PORT_ACTIVE, "no port of the device is active");
	/* RoCE: the first GID of version 2, of an IPv4 address if there is one. InfiniBand: LIDs, unless a GID was asked for. */
	for (int i = 0; gid < 0 && s->attr.link_layer == IBV_LINK_LAYER_ETHERNET && i < s->attr.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(ctx, s->port, i, &e, 0) || e.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
		int rank = e.gid.raw[10] == 0xff && e.gid.raw[11] == 0xff ? 2 : 1;
		if (rank > best) { best = rank; s->index = i; }
	}
	must(s->index >= 0 || s->attr.link_layer != IBV_LINK_LAYER_ETHERNET, "the port has no GID of RoCE v2: give its network device an address");
	must(!ibv_query_gid(ctx, s->port, s->index < 0 ? 0 : s->index, &s->gid), "there is no GID %d", s->index);
	s->buf = aligned_alloc(4096, ROOM); s->spare = calloc(1, 4096);
	s->pd = ibv_alloc_pd(ctx); s->other = ibv_alloc_pd(ctx); s->cq = ibv_create_cq(ctx, 256, NULL, NULL, 0);
	must(s->buf && s->spare && s->pd && s->other && s->cq, "no memory, PD or CQ: %m");
	s->mr = ibv_reg_mr(s->pd, s->buf, ROOM, RIGHTS); s->spare_mr = ibv_reg_mr(s->pd, s->spare, 4096, RIGHTS);
	s->qp = s->conf_qp = create_qp(s, 0);
	must(s->mr && s->spare_mr && s->qp, "a region, or a QP by mlx5dv_create_qp with MKEY_CONFIGURE: %m");
}

static void open_deks(struct side *s) {
	struct mlx5dv_dek_init_attr a = { .key_size = MLX5DV_CRYPTO_KEY_SIZE_128, .key_purpose = MLX5DV_CRYPTO_KEY_PURPOSE_AES_XTS, .pd = s->pd,
		.comp_mask = MLX5DV_DEK_INIT_ATTR_CRYPTO_LOGIN }; /* with no login: plaintext */
	for (int i = 0; i < 40; i++) a.key[i] = i < 32 ? i : i == 32; /* both halves of the key, then the tag */
	for (int i = 0; i < 2 && caps.crypto_caps.flags & MLX5DV_CRYPTO_CAPS_CRYPTO; i++) {
		a.has_keytag = i;
		if (!(s->dek[i] = mlx5dv_dek_create(s->ctx, &a))) snprintf(no_crypto, sizeof no_crypto, "encryption with a plaintext DEK (errno %d)", errno);
	}
}

/* print_library prints the version of a library, which is in the name of its file. */
static void print_library(const char *name) {
	char text[4096], *found = NULL;
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && !found && fgets(text, sizeof text, f)) found = strstr(text, name);
	printf(" %.*s", found ? (int)strcspn(found, " \n/") : 0, found ? found : "");
}
static void header(ull seed, bool two) {
	const struct mlx5dv_sig_caps *sig = &caps.sig_caps;
	const struct mlx5dv_crypto_caps *crypto = &caps.crypto_caps;
	enum mlx5dv_crypto_login_state login = MLX5DV_CRYPTO_LOGIN_STATE_NO_LOGIN;
	struct ibv_device_attr a;
	struct utsname u;
	must(!ibv_query_device(near.ctx, &a) && !uname(&u), "the device cannot be queried");
	if (crypto->flags & MLX5DV_CRYPTO_CAPS_CRYPTO) mlx5dv_crypto_login_query_state(near.ctx, &login);
	printf("# mkeytranscript 1, seed %llu, count %d, %s\n# device: vendor %#x part %u revision %#x firmware %.32s\n# software: Linux %.32s %.16s", seed, count,
		two ? "two devices" : "one device", a.vendor_id, a.vendor_part_id, a.hw_ver, a.fw_ver, u.release, u.machine);
	print_library("libibverbs.so"); print_library("libmlx5");
	printf("\n# port: %s\n", near.attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "RoCE" : near.index < 0 ? "InfiniBand with LIDs" : "InfiniBand with GIDs");
	printf("# signatures: block sizes %#llx, types %#x, guards of T10-DIF %#x, CRCs %#x\n", (ull)sig->block_size, sig->block_prot, sig->t10dif_bg, sig->crc_type);
	printf("# crypto: engines %#x, flags %#x, import %#x, failed self-tests %#x, login %d\n", crypto->crypto_engines, crypto->flags, crypto->wrapped_import_method,
		crypto->failed_selftests, login);
}

enum { CONFIGURED, SENT, COMPLETIONS, RECORD, DIGESTS, BYTES, PARTS };
struct transcript { struct line { char *name, *part[PARTS]; } *lines; size_t n; };

static struct transcript load(const char *file) {
	struct transcript t = { 0 };
	FILE *f = fopen(file, "r");
	must(f, "%s: %m", file);
	while (fgets(line, sizeof line, f)) {
		if (*line == '#') continue;
		char *rest = strdup(line), *colon = strstr(rest, ": ");
		must(colon && strchr(rest, '\n'), "%s: this is no line of a transcript: %.60s", file, line);
		*strchr(rest, '\n') = 0; *colon = 0; t.lines = realloc(t.lines, (t.n + 1) * sizeof *t.lines);
		t.lines[t.n].name = rest; rest = colon + 1;
		for (int p = 0; p < PARTS; p++) {
			char *text = rest ? strsep(&rest, "|") : "";
			t.lines[t.n].part[p] = text + (*text == ' ');
		}
		t.n++;
	}
	fclose(f);
	return t;
}

struct record { char kind[20]; ull block, byte, actual, expected; };
static bool parse(const char *s, struct record *r) { return sscanf(s, "%19s %llu+%llu %llx/%llx", r->kind, &r->block, &r->byte, &r->actual, &r->expected) == 5; }

/* only_order returns whether two records are of one bad block and have the same two values. */
static bool only_order(const char *a, const char *b) {
	struct record x, y;
	return parse(a, &x) && parse(b, &y) && !strcmp(x.kind, y.kind) && x.block == y.block
		&& ((x.actual == y.actual && x.expected == y.expected) || (x.actual == y.expected && x.expected == y.actual));
}

/* say prints a part of a line in words. */
static void say(const char *file, int part, const char *s) {
	static const char *const parts[PARTS] = { "configuration", "request", "completions", "record", "first bytes of SHA-256", "bytes in memory" };
	struct record r;
	char name[20]; unsigned status, vendor;
	printf("  %s, %s: ", file, parts[part]);
	if (part == RECORD && parse(s, &r))
		printf("bad %s in block %llu, offset %llu of block and field, actual %#llx, expected %#llx", r.kind, r.block, r.byte, r.actual, r.expected);
	else if (part != COMPLETIONS) printf("%s", *s ? s : "none");
	for (int n = 0; part == COMPLETIONS && *s; s += n) {
		if (sscanf(s, " %19[^= ]=%u/%x%n", name, &status, &vendor, &n) == 3) printf(" %s: %s (vendor_err %#x)", name, ibv_wc_status_str(status), vendor);
		else printf("%.*s", n = 1 + strcspn(s + 1, " "), s);
	}
	printf("\n");
}

static int compare(const char *file_a, const char *file_b) {
	struct transcript a = load(file_a), b = load(file_b);
	struct { int steps, differ, part; struct line *a, *b; } found[GROUPS] = { 0 };
	int compared = 0, differ = 0, missing = 0;
	for (size_t i = 0, j = 0; i < a.n; i++) {
		struct line *x = &a.lines[i], *y = NULL;
		int part = 0, last = BYTES, g = 0;
		for (size_t k = 0; k < b.n && !y; k++, j = (j + 1) % b.n)
			if (!strcmp(b.lines[j].name, x->name)) y = &b.lines[j];
		if (!y || !strncmp(x->part[0], "absent", 6) || !strncmp(y->part[0], "absent", 6)) { missing++; continue; }
		while (part < PARTS && !strcmp(x->part[part], y->part[part])) part++;
		while (last > part && !strcmp(x->part[last], y->part[last])) last--;
		while (g < GROUPS && (strncmp(x->name, groups[g].name, strcspn(x->name, " ")) || groups[g].name[strcspn(x->name, " ")])) g++;
		must(part > SENT && g < GROUPS, "%s is another step in %s: the files have another --seed, --count or version", x->name, file_b);
		if (part == RECORD && last == RECORD && only_order(x->part[part], y->part[part])) g = 0;
		compared++, differ += part < PARTS; found[g].steps++;
		if (part < PARTS && !found[g].differ++) found[g].part = part, found[g].a = x, found[g].b = y;
	}
	for (int g = 0; g < GROUPS; g++) {
		if (!found[g].differ) continue;
		printf("%s: %s: %d of %d steps differ\n  the first is %s (%s; %s)\n", groups[g].name, groups[g].question, found[g].differ, found[g].steps, found[g].a->name,
			found[g].a->part[CONFIGURED], found[g].a->part[SENT]);
		say(file_a, found[g].part, found[g].a->part[found[g].part]); say(file_b, found[g].part, found[g].b->part[found[g].part]);
	}
	printf("%d steps compared, %d differ, %d are absent from a file\n", compared, differ, missing);
	return !compared ? 2 : differ > 0;
}

static ull number_of(const char *flag, const char *s, ull most, ull otherwise) {
	char *end = "";
	errno = 0;
	ull n = s ? strtoull(s, &end, 10) : otherwise;
	must(!s || (*s >= '0' && *s <= '9' && !*end && !errno && n <= most), "--%s %s: it is a number from 0 to %llu", flag, s, most);
	return n;
}

int main(int argc, char **argv) {
	enum { DEVICE, PEER, GID, SEED, COUNT, ONLY, COMPARE, OPTIONS };
	static const struct option options[] = { { "device", 1, 0, DEVICE }, { "peer", 1, 0, PEER }, { "gid", 1, 0, GID }, { "seed", 1, 0, SEED }, { "count", 1, 0, COUNT },
		{ "only", 1, 0, ONLY }, { "compare", 0, 0, COMPARE }, { 0, 0, 0, 0 } };
	const char *set[OPTIONS] = { 0 };
	int c, g = 0;
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1 && c != '?') set[c] = optarg ? optarg : "";
	if (c == '?') return 2;
	must(argc - optind == (set[COMPARE] ? 2 : 0), "--compare takes two files, and other options none");
	if (set[COMPARE]) return compare(argv[optind], argv[optind + 1]);
	int gid = number_of("gid", set[GID], 255, -1);
	ull seed = number_of("seed", set[SEED], UINT64_MAX, 1);
	count = number_of("count", set[COUNT], 100000000, count);
	while (set[ONLY] && g < GROUPS && strcmp(set[ONLY], groups[g].name)) g++;
	for (int i = 0; g == GROUPS && i < GROUPS; i++) fprintf(stderr, "%-11s %s\n", groups[i].name, groups[i].question);
	must(g < GROUPS, "there is no group %s; these are the groups", set[ONLY]);
	open_side(&near, open_device(set[DEVICE]), gid); open_side(&far, set[PEER] ? open_device(set[PEER]) : near.ctx, gid);
	must(!mlx5dv_query_device(near.ctx, &caps), "mlx5dv_query_device: %m");
	open_deks(&near); open_deks(&far); header(seed, set[PEER]); connect_pair(7);
	for (g = 0; g < GROUPS; g++) {
		group = groups[g].name, number = 0, state = seed * GROUPS + g;
		if (!set[ONLY] || !strcmp(set[ONLY], group)) groups[g].run();
	}
	must(!fflush(stdout) && !ferror(stdout), "the transcript cannot be written");
	return 0;
}
