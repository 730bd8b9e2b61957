/* Two connected queue pairs of one device: "near", which can configure memory
 * keys, and "far", the peer, which sees the wire domain as plain bytes. */
#ifndef PAIR_H
#define PAIR_H

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM 65536 /* bytes of each side's buffer */

struct side {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *buf;
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct side near, far;
	struct ibv_qp_ex *ex;
	struct mlx5dv_qp_ex *dv;
	uint32_t psn; /* the first packet sequence number of a connection, in both directions */
};

/* die prints why a program cannot go on, and ends it. */
#define die(...) (fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n"), exit(1))

/* must ends the program unless a condition holds. */
#define must(cond, ...) do { if (!(cond)) die(__VA_ARGS__); } while (0)

/* pair_open opens the first device and connects the two QPs. flags are those of
 * mlx5dv_qp_init_attr.create_flags for the near one. */
void pair_open(struct pair *p, uint32_t flags);
void pair_close(struct pair *p);

/* qp_connect takes an RC QP of the device to RTS, connected to the QP peer of the device. */
void qp_connect(struct pair *p, struct ibv_qp *qp, uint32_t peer);

/* key_create makes a memory key with room for entries. */
struct mlx5dv_mkey *key_create(struct pair *p, uint32_t flags, int entries);

/* key_start begins a configuration of key, with the given access and the first len bytes of
 * the near buffer as its layout. The caller then calls as many further setters as setters
 * says, and configured. */
void key_start(struct pair *p, struct mlx5dv_mkey *key, int setters, uint32_t access, uint32_t len);

/* poll_one waits for a completion and ends the program if its status is another
 * one. It returns the work request's id. */
uint64_t poll_one(struct ibv_cq *cq, enum ibv_wc_status want, const char *what);

/* receive posts a receive request for bytes at addr under key. */
void receive(struct side *s, uint64_t addr, uint32_t len, uint32_t key);

/* transfer posts a SEND, RDMA_WRITE or RDMA_READ and waits for its completion. */
void transfer(struct side *s, enum ibv_wr_opcode op, uint64_t addr, uint32_t len, uint32_t key, uint64_t raddr, uint32_t rkey);

/* configured waits until the requests behind ibv_wr_start have completed. */
void configured(struct pair *p);

/* The reference implementations, one bit at a time. */
uint32_t crc32_msb(const uint8_t *p, size_t n); /* as adapters compute it: most significant bit first */
uint16_t crc16_t10dif(const uint8_t *p, size_t n);
void put_be32(uint8_t *p, uint32_t v);
void put_dif(uint8_t *p, uint16_t guard, uint16_t app, uint32_t ref);

/* The T10-DIF fields of the examples have a CRC guard, the application tag APP_TAG, and
 * reference tags that count up from REF_TAG. */
enum { APP_TAG = 0x5678, REF_TAG = 0xabcdef90 };

/* protect writes blocks of data, each followed by its field. */
void protect(uint8_t *whole, const uint8_t *data, int blocks, int size);

/* wire_dif is the signature attribute of a key with such fields on the wire and none in
 * memory, and the structures to which it points. */
struct wire_dif {
	struct mlx5dv_sig_t10dif dif;
	struct mlx5dv_sig_block_domain wire;
	struct mlx5dv_sig_block_attr attr;
};
void wire_dif_init(struct wire_dif *w, enum mlx5dv_block_size size);

/* written_bad lets the far side write len bytes to key, and checks that the near side
 * finds a bad guard. */
struct mlx5dv_mkey_err written_bad(struct pair *p, struct mlx5dv_mkey *key, uint32_t len);

/* pattern fills a buffer with bytes that do not repeat within a block. */
void pattern(uint8_t *p, size_t n, uint32_t seed);

/* equal ends the program if two buffers differ, and names the first byte that does. same does the
 * same, and prints a line if they are equal. */
void equal(const char *what, const uint8_t *got, const uint8_t *want, size_t n);
void same(const char *what, const uint8_t *got, const uint8_t *want, size_t n);

#endif
