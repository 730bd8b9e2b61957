/* The examples of mlx5dv_wr_set_mkey_crypto(3), compared with the AES-XTS of
 * OpenSSL. The DEKs are plaintext: softmkey run --crypto plaintext. */
#include "pair.h"

#include <openssl/evp.h>

/* A DEK, and its bytes for the reference. */
struct secret {
	struct mlx5dv_dek *dek;
	uint8_t key[64];
	int bits;
};

static struct secret secret_create(struct pair *p, int bits, uint32_t seed)
{
	struct secret s = { .bits = bits };
	struct mlx5dv_dek_init_attr attr = {
		.key_size = bits == 128 ? MLX5DV_CRYPTO_KEY_SIZE_128 : MLX5DV_CRYPTO_KEY_SIZE_256,
		.key_purpose = MLX5DV_CRYPTO_KEY_PURPOSE_AES_XTS, .pd = p->pd, .opaque = "example",
		.comp_mask = MLX5DV_DEK_INIT_ATTR_CRYPTO_LOGIN, /* crypto_login is NULL: the key is plaintext */
	};
	struct mlx5dv_dek_attr got = {};

	pattern(s.key, sizeof s.key, seed);
	memcpy(attr.key, s.key, bits / 4);
	s.dek = mlx5dv_dek_create(p->ctx, &attr);
	must(s.dek, "mlx5dv_dek_create: %m");
	must(!mlx5dv_dek_query(s.dek, &got) && got.state == MLX5DV_DEK_STATE_READY, "mlx5dv_dek_query: state %d", got.state);
	must(!memcmp(got.opaque, attr.opaque, sizeof got.opaque), "mlx5dv_dek_query: another opaque");
	return s;
}

/* encrypt is the reference. The tweak is the little-endian number of the data unit. */
static void encrypt(const struct secret *s, uint64_t tweak, int unit, const uint8_t *in, uint8_t *out, int len)
{
	EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
	must(c, "EVP_CIPHER_CTX_new");
	for (int at = 0; at < len; at += unit, tweak++) {
		uint8_t iv[16] = {};
		int n = 0;
		for (int i = 0; i < 8; i++)
			iv[i] = tweak >> 8 * i;
		must(EVP_EncryptInit_ex(c, s->bits == 128 ? EVP_aes_128_xts() : EVP_aes_256_xts(), NULL, s->key, iv), "EVP_EncryptInit_ex");
		must(EVP_EncryptUpdate(c, out + at, &n, in + at, unit) && n == unit, "EVP_EncryptUpdate");
	}
	EVP_CIPHER_CTX_free(c);
}

static struct mlx5dv_crypto_attr crypto_attr(const struct secret *s, bool encrypt_on_tx, enum mlx5dv_block_size unit, uint64_t tweak)
{
	struct mlx5dv_crypto_attr attr = {
		.crypto_standard = MLX5DV_CRYPTO_STANDARD_AES_XTS, .encrypt_on_tx = encrypt_on_tx,
		.signature_crypto_order = MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_BEFORE_CRYPTO_ON_TX,
		.data_unit_size = unit, .dek = s->dek,
	};
	for (int i = 0; i < 8; i++)
		attr.initial_tweak[i] = tweak >> 8 * i;
	return attr;
}

/* encrypted_memory: ciphertext in memory, plaintext on the wire (examples 1 and 1.1,
 * row F). */
static void encrypted_memory(struct pair *p)
{
	enum { UNIT = 512, DATA = 8 * UNIT, TWEAK = 0xfffffffe };
	static uint8_t plain[DATA], cipher[DATA];
	struct secret s = secret_create(p, 128, 11);
	struct mlx5dv_crypto_attr crypto = crypto_attr(&s, false, MLX5DV_BLOCK_SIZE_512, TWEAK);
	struct mlx5dv_mkey *key = key_create(p, MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO, 1);

	pattern(plain, DATA, 1);
	encrypt(&s, TWEAK, UNIT, plain, cipher, DATA);
	key_start(p, key, 1, IBV_ACCESS_LOCAL_WRITE, DATA);
	mlx5dv_wr_set_mkey_crypto(p->dv, &crypto);
	configured(p);

	/* Example 1: SEND decrypts. */
	memcpy(p->near.buf, cipher, DATA);
	memset(p->far.buf, 0xee, ROOM);
	receive(&p->far, (uintptr_t)p->far.buf, ROOM, p->far.mr->lkey);
	transfer(&p->near, IBV_WR_SEND, 0, DATA, key->lkey, 0, 0);
	poll_one(p->far.cq, IBV_WC_SUCCESS, "the receive");
	same("crypto 1: the peer gets plaintext", p->far.buf, plain, DATA);
	must(p->far.buf[DATA] == 0xee, "crypto 1: more than the data came");

	/* Example 1.1: RECV encrypts. */
	memset(p->near.buf, 0xee, ROOM);
	memcpy(p->far.buf, plain, DATA);
	receive(&p->near, 0, DATA, key->lkey);
	transfer(&p->far, IBV_WR_SEND, (uintptr_t)p->far.buf, DATA, p->far.mr->lkey, 0, 0);
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the receive");
	same("crypto 1.1: memory gets ciphertext", p->near.buf, cipher, DATA);
	must(p->near.buf[DATA] == 0xee, "crypto 1.1: more than the data came");

	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
	must(!mlx5dv_dek_destroy(s.dek), "mlx5dv_dek_destroy");
}

/* encrypted_wire: plaintext in memory, encrypted data and T10-DIF on the wire
 * (examples 2 and 2.1, row C). */
static void encrypted_wire(struct pair *p)
{
	enum { BLOCKS = 8, UNIT = 520, DATA = BLOCKS * 512, WHOLE = BLOCKS * UNIT, TWEAK = 0x1234 };
	static uint8_t data[DATA], whole[WHOLE], cipher[WHOLE];
	struct secret s = secret_create(p, 256, 12);
	struct mlx5dv_crypto_attr crypto = crypto_attr(&s, true, MLX5DV_BLOCK_SIZE_520, TWEAK);
	struct mlx5dv_mkey *key = key_create(p, MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, 1);
	struct wire_dif sig;

	pattern(data, DATA, 2);
	protect(whole, data, BLOCKS, 512);
	wire_dif_init(&sig, MLX5DV_BLOCK_SIZE_512);
	encrypt(&s, TWEAK, UNIT, whole, cipher, WHOLE);
	key_start(p, key, 2, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, DATA);
	mlx5dv_wr_set_mkey_sig_block(p->dv, &sig.attr);
	mlx5dv_wr_set_mkey_crypto(p->dv, &crypto);
	configured(p);

	/* Example 2: the peer's READ gets data and generated fields, encrypted. */
	memcpy(p->near.buf, data, DATA);
	memset(p->far.buf, 0xee, ROOM);
	transfer(&p->far, IBV_WR_RDMA_READ, (uintptr_t)p->far.buf, WHOLE, p->far.mr->lkey, 0, key->rkey);
	same("crypto 2: the peer reads ciphertext of data with fields", p->far.buf, cipher, WHOLE);

	/* Example 2.1: the peer's WRITE is decrypted, checked and stripped. */
	memset(p->near.buf, 0xee, ROOM);
	memcpy(p->far.buf, cipher, WHOLE);
	transfer(&p->far, IBV_WR_RDMA_WRITE, (uintptr_t)p->far.buf, WHOLE, p->far.mr->lkey, 0, key->rkey);
	same("crypto 2.1: memory gets the data without fields", p->near.buf, data, DATA);
	must(p->near.buf[DATA] == 0xee, "crypto 2.1: a field came into memory");

	/* A damaged byte of ciphertext in block 3 is a bad guard after the decryption. */
	p->far.buf[3 * UNIT + 100] ^= 1;
	struct mlx5dv_mkey_err err = written_bad(p, key, WHOLE);
	must(err.err.sig.offset / UNIT == 3, "the bad block: offset %llu, not in block 3", (unsigned long long)err.err.sig.offset);
	printf("ok: mkey_check: bad guard at offset %llu\n", (unsigned long long)err.err.sig.offset);

	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
	must(!mlx5dv_dek_destroy(s.dek), "mlx5dv_dek_destroy");
}

int main(void)
{
	struct pair p;
	pair_open(&p, 0);
	encrypted_memory(&p);
	encrypted_wire(&p);
	pair_close(&p);
	return 0;
}
