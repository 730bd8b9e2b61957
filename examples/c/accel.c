/* Memory keys as storage accelerators use them. The program makes keys and DEKs by firmware
 * commands, connects a queue pair to itself by firmware commands, and writes requests into the
 * send queue itself. READs of a key copy, encrypt, decrypt and checksum local memory. The
 * ciphertext is compared with OpenSSL's, and checksums with those of RFC 3720. The DEKs are
 * plaintext: softmkey run --crypto plaintext. */
#include "pair.h"

#include <openssl/evp.h>
#include <stdatomic.h>

enum { TAG = 0x42, BLOCK = 64, CE_ALWAYS = 2 << 2, CE_FIRST_ERROR = 1 << 2, FENCE = 3 << 5 };

/* engine is a queue pair whose queues the program writes and reads itself. */
struct engine {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint32_t pdn;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct mlx5dv_cq dvcq;
	struct mlx5dv_qp dvqp;
	uint32_t ci;
	uint16_t pi;
};

static void set(uint8_t *b, int off, int bits, uint64_t v)
{
	for (int i = off + bits - 1; i >= off; i--, v >>= 1)
		b[i / 8] = (b[i / 8] & ~(0x80 >> i % 8)) | (v & 1 ? 0x80 >> i % 8 : 0);
}

static uint64_t get(const uint8_t *b, int off, int bits)
{
	uint64_t v = 0;
	for (int i = off; i < off + bits; i++)
		v = v << 1 | (b[i / 8] >> (7 - i % 8) & 1);
	return v;
}

/* change executes a firmware command that changes the state of the QP. in is the command. */
static void change(struct engine *e, uint16_t opcode, uint8_t *in, const char *what)
{
	uint8_t out[16] = {};
	set(in, 0, 16, opcode);
	set(in, 0x48, 24, e->qp->qp_num);
	must(!mlx5dv_devx_qp_modify(e->qp, in, 0x110, out, sizeof out), "%s: %m, syndrome %#llx", what, (unsigned long long)get(out, 0x20, 32));
}

/* start makes the queues and connects the QP to itself. */
static void start(struct engine *e)
{
	enum { QPC = 0x18 * 8, ADS = QPC + 0xc0 };
	struct ibv_cq_init_attr_ex cattr = { .cqe = 127, .wc_flags = IBV_WC_STANDARD_FLAGS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN };
	struct mlx5dv_cq_init_attr dattr = {};
	e->cq = ibv_cq_ex_to_cq(mlx5dv_create_cq(e->ctx, &cattr, &dattr));
	must(e->cq, "mlx5dv_create_cq: %m");
	struct ibv_qp_init_attr qattr = { .send_cq = e->cq, .recv_cq = e->cq, .cap = { .max_send_wr = 32, .max_send_sge = 4 }, .qp_type = IBV_QPT_RC };
	e->qp = ibv_create_qp(e->pd, &qattr);
	must(e->qp, "ibv_create_qp: %m");
	struct mlx5dv_obj obj = { .qp = { e->qp, &e->dvqp }, .cq = { e->cq, &e->dvcq } };
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_QP | MLX5DV_OBJ_CQ), "mlx5dv_init_obj");
	e->ci = e->pi = 0;

	struct ibv_qp_attr attr;
	must(!ibv_query_qp(e->qp, &attr, IBV_QP_PORT, &qattr) && attr.port_num == 1, "a QP in RESET: port %d, not 1", attr.port_num);
	uint8_t in[0x110] = {};
	set(in, QPC + 0x13, 2, 3);       /* migrated */
	set(in, ADS + 0x128, 8, 1);      /* port */
	set(in, QPC + 0x490, 2, 3);      /* the peer may read and write */
	change(e, 0x502, in, "RST2INIT_QP");
	memset(in, 0, sizeof in);
	set(in, QPC + 0x40, 3, IBV_MTU_4096);
	set(in, QPC + 0x43, 5, 30);      /* messages of 2^30 bytes */
	set(in, QPC + 0xa8, 24, e->qp->qp_num);
	set(in, QPC + 0x4a8, 24, 0x4242); /* PSN */
	set(in, QPC + 0x488, 3, 4);      /* 16 READs */
	set(in, QPC + 0x4a3, 5, 12);
	set(in, ADS, 1, 1);              /* forced loopback: no GID, no MAC */
	change(e, 0x503, in, "INIT2RTR_QP");
	memset(in, 0, sizeof in);
	set(in, ADS + 0x40, 5, 14);      /* timeout */
	set(in, QPC + 0x38d, 3, 7);
	set(in, QPC + 0x390, 3, 7);
	set(in, QPC + 0x3c8, 24, 0x4242);
	set(in, QPC + 0x388, 3, 4);
	change(e, 0x504, in, "RTR2RTS_QP");
}

static void stop(struct engine *e)
{
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	must(!ibv_modify_qp(e->qp, &err, IBV_QP_STATE), "ERR: %m");
	must(!ibv_destroy_qp(e->qp), "ibv_destroy_qp: %m");
	must(!ibv_destroy_cq(e->cq), "ibv_destroy_cq: %m");
}

/* post writes an entry of the given number of bytes into the send queue. An entry that does not fit
 * before the end of the ring continues at its beginning. */
static void post(struct engine *e, uint8_t opcode, uint8_t flags, uint32_t imm, uint8_t *wqe, int bytes)
{
	mlx5dv_set_ctrl_seg((struct mlx5_wqe_ctrl_seg *)wqe, e->pi, opcode, 0, e->qp->qp_num, flags, bytes / 16, 0, htobe32(imm));
	for (int at = 0; at < bytes; at += BLOCK, e->pi++)
		memcpy((uint8_t *)e->dvqp.sq.buf + e->pi % e->dvqp.sq.wqe_cnt * BLOCK, wqe + at, bytes - at < BLOCK ? bytes - at : BLOCK);
}

/* ring rings the doorbell for all entries that were posted. It always uses the same register. */
static void ring(struct engine *e, const uint8_t *last)
{
	atomic_thread_fence(memory_order_release);
	e->dvqp.dbrec[MLX5_SND_DBR] = htobe32(e->pi);
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint64_t *)e->dvqp.bf.reg = *(const uint64_t *)last;
}

/* completion waits for the next completion and returns its syndrome, 0 for success. It does not write
 * the doorbell record of the CQ, which ignores overruns. */
static int completion(struct engine *e)
{
	struct mlx5_cqe64 *cqe = (void *)((uint8_t *)e->dvcq.buf + e->ci % e->dvcq.cqe_cnt * e->dvcq.cqe_size + e->dvcq.cqe_size - 64);
	int owner = e->ci / e->dvcq.cqe_cnt & 1;
	while (mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_INVALID || mlx5dv_get_cqe_owner(cqe) != owner)
		asm volatile("" ::: "memory");
	atomic_thread_fence(memory_order_acquire);
	e->ci++;
	return mlx5dv_get_cqe_opcode(cqe) == MLX5_CQE_REQ ? 0 : ((struct mlx5_err_cqe *)cqe)->syndrome;
}

/* key_make makes a key by CREATE_MKEY. Its layout, a list of pieces of memory, is set by a request. */
enum kind { PLAIN, SIGNED, ENCRYPTED };

static struct mlx5dv_devx_obj *key_make(struct engine *e, enum kind kind, uint32_t *number)
{
	enum { MKC = 0x10 * 8 };
	uint8_t in[0x110] = {}, out[16] = {};
	set(in, 0, 16, 0x200);
	set(in, MKC + 0x10, 1, 1);         /* requests configure it */
	set(in, MKC + 0x12, 4, 0xf);       /* rights: remote write and read, local write and read */
	set(in, MKC + 0x16, 2, 2);         /* a list of keys */
	set(in, MKC + 0x20, 24, 0xffffff); /* of no QP */
	set(in, MKC + 0x38, 8, TAG);
	set(in, MKC + 0x68, 24, e->pdn);
	set(in, MKC + 0x1a0, 32, 4);
	if (kind != PLAIN) {
		set(in, MKC + 0x61, 1, 1); /* bsf_en */
		set(in, MKC + 0x100, 32, 4);
		set(in, MKC + 0x1e3, 2, kind == ENCRYPTED);
	}
	struct mlx5dv_devx_obj *key = mlx5dv_devx_obj_create(e->ctx, in, sizeof in, out, sizeof out);
	must(key, "CREATE_MKEY: %m, syndrome %#llx", (unsigned long long)get(out, 0x20, 32));
	*number = get(out, 0x48, 24) << 8 | TAG;
	return key;
}

/* dek_make makes a DEK of 256 bits by CREATE_GENERAL_OBJECT. */
static struct mlx5dv_devx_obj *dek_make(struct engine *e, const uint8_t key[64], uint32_t *id)
{
	enum { OBJ = 0x10 * 8 };
	uint8_t in[0x110] = {}, out[16] = {};
	set(in, 0, 16, 0xa00);
	set(in, 0x30, 16, 0xc);
	set(in, OBJ + 0x54, 4, 1);
	set(in, OBJ + 0x5c, 4, 3); /* for AES-XTS */
	set(in, OBJ + 0x68, 24, e->pdn);
	memcpy(in + 0x10 + 0x40, key, 64);
	struct mlx5dv_devx_obj *dek = mlx5dv_devx_obj_create(e->ctx, in, sizeof in, out, sizeof out);
	must(dek, "a DEK: %m, syndrome %#llx", (unsigned long long)get(out, 0x20, 32));
	*id = get(out, 0x40, 32);
	return dek;
}

/* configure posts a UMR that sets the layout of a key and, if bsf is not NULL, its signature or
 * crypto attributes. The UMR sets neither access rights nor the key's tag. */
static void configure(struct engine *e, uint32_t key, const struct ibv_sge *list, int n, const uint8_t *bsf)
{
	uint8_t wqe[320] = {};
	struct mlx5_wqe_umr_ctrl_seg *umr = (void *)(wqe + 16);
	struct mlx5_wqe_mkey_context_seg *ctx = (void *)(wqe + 64);
	struct mlx5_wqe_data_seg *klm = (void *)(wqe + 128);
	uint64_t len = 0;
	umr->flags = MLX5_WQE_UMR_CTRL_FLAG_INLINE;
	umr->klm_octowords = htobe16(4);
	umr->mkey_mask = htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN);
	ctx->qpn_mkey = htobe32(0xffffff00 | (key & 0xff));
	for (int i = 0; i < n; i++, len += list[i - 1].length)
		klm[i] = (struct mlx5_wqe_data_seg){ htobe32(list[i].length), htobe32(list[i].lkey), htobe64(list[i].addr) };
	ctx->len = htobe64(len);
	if (bsf) {
		umr->bsf_octowords = htobe16(4);
		memcpy(wqe + 192, bsf, 64);
	}
	post(e, MLX5_OPCODE_UMR, CE_FIRST_ERROR, key, wqe, bsf ? 256 : 192);
}

/* read_key posts a READ of a key into local memory, and rings the doorbell. */
static void read_key(struct engine *e, uint32_t key, struct ibv_sge to, uint8_t flags)
{
	uint8_t wqe[64] = {};
	*(struct mlx5_wqe_raddr_seg *)(wqe + 16) = (struct mlx5_wqe_raddr_seg){ .rkey = htobe32(key) };
	*(struct mlx5_wqe_data_seg *)(wqe + 32) = (struct mlx5_wqe_data_seg){ htobe32(to.length), htobe32(to.lkey), htobe64(to.addr) };
	post(e, MLX5_OPCODE_RDMA_READ, flags | FENCE, 0, wqe, 48);
	ring(e, wqe);
}

static void success(struct engine *e, const char *what)
{
	int syndrome = completion(e);
	must(!syndrome, "%s: syndrome %#x", what, syndrome);
}

/* copy copies two pieces of memory into one, many times. Its entries have several blocks of the
 * ring, so that the end of the ring comes at different places in them. */
static void copy(struct engine *e, uint32_t key, struct ibv_mr *mr, uint8_t *buf, const char *what)
{
	enum { HALF = 1000, ROUNDS = 300 };
	for (int i = 0; i < ROUNDS; i++) {
		pattern(buf, 4 * HALF, i);
		memset(buf + 32768, 0, 2 * HALF);
		struct ibv_sge from[2] = { { (uintptr_t)buf + 2 * HALF, HALF, mr->lkey }, { (uintptr_t)buf, HALF, mr->lkey } };
		configure(e, key, from, 2, NULL);
		read_key(e, key, (struct ibv_sge){ (uintptr_t)buf + 32768, 2 * HALF, mr->lkey }, CE_ALWAYS);
		success(e, what);
		must(!memcmp(buf + 32768, buf + 2 * HALF, HALF) && !memcmp(buf + 32768 + HALF, buf, HALF), "%s: round %d: other bytes", what, i);
	}
	printf("ok: %s\n", what);
}

/* aes_xts encrypts blocks by a READ of a key, and decrypts them by another READ. */
static void aes_xts(struct engine *e, struct ibv_mr *mr, uint8_t *buf)
{
	enum { UNIT = 512, UNITS = 8, LEN = UNIT * UNITS, LBA = 0x12345678 };
	uint8_t secret[64], plain[LEN], want[LEN];
	uint32_t key, id;
	pattern(secret, sizeof secret, 99);
	struct mlx5dv_devx_obj *obj = key_make(e, ENCRYPTED, &key), *dek = dek_make(e, secret, &id);
	pattern(plain, LEN, 5);
	for (int i = 0; i < UNITS; i++) {
		uint8_t iv[16] = {};
		uint64_t lba = htole64(LBA + i);
		int n = 0;
		memcpy(iv, &lba, sizeof lba);
		EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
		must(c && EVP_EncryptInit_ex(c, EVP_aes_256_xts(), NULL, secret, iv), "EVP_EncryptInit_ex");
		must(EVP_EncryptUpdate(c, want + i * UNIT, &n, plain + i * UNIT, UNIT) && n == UNIT, "EVP_EncryptUpdate");
		EVP_CIPHER_CTX_free(c);
	}
	uint8_t bsf[64] = { 0x81, 2, 0, 0, 0, 0, LEN >> 8, LEN & 0xff, 1 }; /* encrypt; units of 512 bytes */
	uint64_t lba = htobe64(LBA);
	uint32_t number = htobe32(id);
	memcpy(bsf + 0x18, &lba, sizeof lba);
	memcpy(bsf + 0x20, &number, sizeof number);
	memcpy(buf, plain, LEN);
	struct ibv_sge from = { (uintptr_t)buf, LEN, mr->lkey }, to = { (uintptr_t)buf + 16384, LEN, mr->lkey };
	configure(e, key, &from, 1, bsf);
	read_key(e, key, to, CE_ALWAYS);
	success(e, "encryption");
	must(!memcmp(buf + 16384, want, LEN), "encryption: other bytes than OpenSSL's");
	printf("ok: a READ of a key encrypts\n");

	bsf[1] = 3; /* decrypt */
	struct ibv_sge back = { (uintptr_t)buf + 32768, LEN, mr->lkey };
	configure(e, key, &to, 1, bsf);
	read_key(e, key, back, CE_ALWAYS);
	success(e, "decryption");
	must(!memcmp(buf + 32768, plain, LEN), "decryption: other bytes");
	printf("ok: a READ of a key decrypts\n");
	must(!mlx5dv_devx_obj_destroy(dek) && !mlx5dv_devx_obj_destroy(obj), "destroy: %m");
}

/* signed_part configures a key over the memory from with a transaction signature, and reads the key into
 * the memory to. The PSV holds the CRC32C between keys: if init is set, the CRC starts from its seed, and
 * otherwise it continues. If gen is set, the CRC follows the data. */
static void signed_part(struct engine *e, uint32_t key, uint32_t psv, struct ibv_sge from, struct ibv_sge to, int init, int gen)
{
	uint8_t bsf[64] = { 0x40, 0xff };
	set(bsf, 4 * 8, 32, from.length);
	set(bsf, 16 * 8 + 2, 1, init);
	set(bsf, 16 * 8 + 3, 1, gen);
	set(bsf, 24 * 8, 8, 0x40); /* CRC32C, seed of ones */
	set(bsf, 25 * 8, 24, psv);
	to.length = from.length + (gen ? 4 : 0);
	configure(e, key, &from, 1, bsf);
	read_key(e, key, to, CE_ALWAYS);
	success(e, "a transaction signature");
}

/* crc32c computes the checksums of RFC 3720, appendix B.4, over one key, and over two keys with one
 * PSV. */
static void crc32c(struct engine *e, struct ibv_mr *mr, uint8_t *buf)
{
	enum { LEN = 32 };
	static const uint8_t want[4][4] = { { 0xaa, 0x36, 0x91, 0x8a }, { 0x43, 0xab, 0xa8, 0x62 }, { 0x4e, 0x79, 0xdd, 0x46 }, { 0x5c, 0xdb, 0x3f, 0x11 } };
	uint8_t in[16] = {}, out[32] = {};
	set(in, 0, 16, 0x600); /* CREATE_PSV */
	set(in, 0x40, 4, 1);
	set(in, 0x48, 24, e->pdn);
	struct mlx5dv_devx_obj *psv = mlx5dv_devx_obj_create(e->ctx, in, sizeof in, out, sizeof out);
	must(psv, "CREATE_PSV: %m");
	uint32_t number = get(out, 0x88, 24), first, last;
	struct mlx5dv_devx_obj *a = key_make(e, SIGNED, &first), *b = key_make(e, SIGNED, &last);
	for (int v = 0; v < 4; v++) {
		for (int i = 0; i < LEN; i++)
			buf[i] = (uint8_t[]){ 0, 0xff, i, LEN - 1 - i }[v];
		struct ibv_sge from = { (uintptr_t)buf, LEN, mr->lkey }, to = { (uintptr_t)buf + 4096, 0, mr->lkey };
		memset(buf + 4096, 0xee, 256);
		signed_part(e, first, number, from, to, 1, 1);
		must(!memcmp(buf + 4096, buf, LEN) && !memcmp(buf + 4096 + LEN, want[v], 4), "vector %d over one key", v);
		for (int cut = 1; cut < LEN; cut += 10) {
			struct ibv_sge head = { (uintptr_t)buf, cut, mr->lkey }, tail = { (uintptr_t)buf + cut, LEN - cut, mr->lkey };
			memset(buf + 4096, 0xee, 256);
			signed_part(e, first, number, head, to, 1, 0);
			signed_part(e, last, number, tail, (struct ibv_sge){ to.addr + cut, 0, to.lkey }, 0, 1);
			must(!memcmp(buf + 4096, buf, LEN) && !memcmp(buf + 4096 + LEN, want[v], 4), "vector %d over keys of %d and %d bytes", v, cut, LEN - cut);
		}
	}
	printf("ok: CRC32C over one key and over two keys on a PSV\n");
	must(!mlx5dv_devx_obj_destroy(a) && !mlx5dv_devx_obj_destroy(b) && !mlx5dv_devx_obj_destroy(psv), "destroy: %m");
}

/* failing reads a key that does not exist. Of the requests that are flushed after that error, those
 * that ask for a completion on the first error only have none. At the end the queue pair is made
 * anew. */
static void failing(struct engine *e, uint32_t key, struct ibv_mr *mr, uint8_t *buf)
{
	struct ibv_sge from = { (uintptr_t)buf, 64, mr->lkey }, to = { (uintptr_t)buf + 4096, 64, mr->lkey };
	read_key(e, 0xbad00, to, CE_FIRST_ERROR);
	configure(e, key, &from, 1, NULL);
	read_key(e, key, to, CE_FIRST_ERROR);
	read_key(e, key, to, CE_ALWAYS);
	int first = completion(e), second = completion(e);
	/* The QP is its own peer, which may fail before the answer comes. */
	must(first == MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR || first == MLX5_CQE_SYNDROME_WR_FLUSH_ERR, "a key that does not exist: syndrome %#x", first);
	must(second == MLX5_CQE_SYNDROME_WR_FLUSH_ERR, "the request behind it: syndrome %#x", second);
	stop(e);
	start(e);
	copy(e, key, mr, buf, "copies after an error, on a new QP");
}

int main(void)
{
	struct engine e = {};
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	must(list && n > 0, "no RDMA device: run this with softmkey run");
	e.ctx = mlx5dv_open_device(list[0], &(struct mlx5dv_context_attr){ .flags = MLX5DV_CONTEXT_FLAGS_DEVX });
	must(e.ctx, "mlx5dv_open_device: %m");
	ibv_free_device_list(list);

	uint8_t in[16] = {}, out[0x110] = {};
	set(in, 0, 16, 0x754); /* QUERY_NIC_VPORT_CONTEXT */
	must(!mlx5dv_devx_general_cmd(e.ctx, in, sizeof in, out, sizeof out) && get(out, 0x80 + 0x1f, 1), "RoCE is not enabled");

	e.pd = ibv_alloc_pd(e.ctx);
	must(e.pd, "ibv_alloc_pd");
	struct mlx5dv_pd dvpd = {};
	struct mlx5dv_obj obj = { .pd = { e.pd, &dvpd } };
	must(!mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD), "mlx5dv_init_obj");
	e.pdn = dvpd.pdn;
	uint8_t *buf = aligned_alloc(4096, ROOM);
	must(buf, "no memory");
	struct ibv_mr *mr = ibv_reg_mr(e.pd, buf, ROOM, IBV_ACCESS_LOCAL_WRITE);
	must(mr, "ibv_reg_mr: %m");
	uint32_t number = mr->lkey;
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	mr = ibv_reg_mr(e.pd, buf, ROOM, IBV_ACCESS_LOCAL_WRITE);
	must(mr && mr->lkey == number, "a region that is registered again: key %#x, not %#x", mr->lkey, number);
	printf("ok: a region that is registered again has its number\n");

	uint32_t key;
	struct mlx5dv_devx_obj *k = key_make(&e, PLAIN, &key);
	start(&e);
	copy(&e, key, mr, buf, "copies by READs of a key");
	aes_xts(&e, mr, buf);
	crc32c(&e, mr, buf);
	failing(&e, key, mr, buf);
	stop(&e);
	must(!mlx5dv_devx_obj_destroy(k), "DESTROY_MKEY: %m");
	must(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(e.pd) && !ibv_close_device(e.ctx), "close");
	free(buf);
	return 0;
}
