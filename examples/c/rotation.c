/* A program that runs while a crypto officer changes keys: softmkey run --crypto wrapped --officer
 * SOCKET. It logs in, makes a wrapped DEK and then executes commands from standard input:
 *
 *   state        print the state of the login
 *   dek          print the state of the first DEK
 *   create FILE  make a DEK from a wrapped key
 *   login FILE   log in with a wrapped credential
 *   logout       log out
 *   use          write a block through a memory key that encrypts with the first DEK
 *   !COMMAND     run a command of the shell, for example softmkey officer
 *
 * Usage: rotation CREDENTIAL-ID KEK-ID WRAPPED-CREDENTIAL WRAPPED-KEY */
#define _GNU_SOURCE /* strerrorname_np */
#include "pair.h"

#include <errno.h>

static struct pair p;
static uint32_t credential_id, kek_id;

static void load(const char *name, void *to, size_t n)
{
	FILE *f = fopen(name, "r");
	must(f && fread(to, 1, n, f) == n, "%s: %m", name);
	fclose(f);
}

static int login(const char *file)
{
	struct mlx5dv_crypto_login_attr attr = { .credential_id = credential_id, .import_kek_id = kek_id };

	load(file, attr.credential, sizeof attr.credential);
	return mlx5dv_crypto_login(p.ctx, &attr);
}

static struct mlx5dv_dek *create(const char *file)
{
	struct mlx5dv_dek_init_attr attr = {
		.key_size = MLX5DV_CRYPTO_KEY_SIZE_128, .key_purpose = MLX5DV_CRYPTO_KEY_PURPOSE_AES_XTS, .pd = p.pd,
	};

	load(file, attr.key, 32 + 8); /* two AES keys of 128 bits, and 8 bytes that the key wrap adds */
	return mlx5dv_dek_create(p.ctx, &attr);
}

static void say(const char *what, int err)
{
	printf("%s: %s\n", what, err ? strerrorname_np(err) : "done");
}

/* use lets the near side send 512 bytes through a key that encrypts. */
static void use(struct mlx5dv_dek *dek)
{
	struct mlx5dv_crypto_attr attr = {
		.crypto_standard = MLX5DV_CRYPTO_STANDARD_AES_XTS, .encrypt_on_tx = true,
		.signature_crypto_order = MLX5DV_SIGNATURE_CRYPTO_ORDER_SIGNATURE_BEFORE_CRYPTO_ON_TX,
		.data_unit_size = MLX5DV_BLOCK_SIZE_512, .dek = dek,
	};
	struct mlx5dv_mkey *key = key_create(&p, MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO, 1);
	struct ibv_wc wc;

	key_start(&p, key, 1, IBV_ACCESS_LOCAL_WRITE, 512);
	mlx5dv_wr_set_mkey_crypto(p.dv, &attr);
	configured(&p);
	struct ibv_sge sge = { .length = 512, .lkey = key->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p.far.buf;
	wr.wr.rdma.rkey = p.far.mr->rkey;
	must(!ibv_post_send(p.near.qp, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(p.near.cq, 1, &wc))
		;
	printf("use: %s\n", ibv_wc_status_str(wc.status));
}

int main(int argc, char **argv)
{
	static const char *const states[] = { "valid", "no login", "invalid" };
	char line[4096];

	must(argc == 5, "usage: rotation CREDENTIAL-ID KEK-ID WRAPPED-CREDENTIAL WRAPPED-KEY");
	credential_id = strtoul(argv[1], NULL, 0);
	kek_id = strtoul(argv[2], NULL, 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	pair_open(&p, 0);
	say("login", login(argv[3]));
	struct mlx5dv_dek *dek = create(argv[4]);
	say("create", dek ? 0 : errno);
	must(dek, "no DEK");
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (line[0] == '!') {
			must(!system(line + 1), "%s failed", line + 1);
		} else if (!strcmp(line, "state")) {
			enum mlx5dv_crypto_login_state state;
			int err = mlx5dv_crypto_login_query_state(p.ctx, &state);
			printf("state: %s\n", err ? strerrorname_np(err) : states[state]);
		} else if (!strcmp(line, "dek")) {
			struct mlx5dv_dek_attr got = {};
			int err = mlx5dv_dek_query(dek, &got);
			printf("dek: %s\n", err ? strerrorname_np(err) : got.state == MLX5DV_DEK_STATE_READY ? "ready" : "error");
		} else if (!strncmp(line, "create ", 7)) {
			say("create", create(line + 7) ? 0 : errno);
		} else if (!strncmp(line, "login ", 6)) {
			say("login", login(line + 6));
		} else if (!strcmp(line, "logout")) {
			say("logout", mlx5dv_crypto_logout(p.ctx));
		} else if (!strcmp(line, "use")) {
			use(dek);
		} else {
			die("%s: no such command", line);
		}
	}
	return 0;
}
