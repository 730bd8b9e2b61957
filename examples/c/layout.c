/* Memory layouts of mlx5dv_wr_mkey_configure(3) and mlx5dv_wr_mr_list(3). Data is gathered
 * from lists and interleaved layouts, and scattered to them. */
#include "pair.h"

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

/* Pieces of the near buffer in the order in which a key shows them. */
struct piece {
	uint32_t at, len;
};

/* check moves bytes through a configured key in both directions. The peer's READ and a SEND
 * gather. The peer's WRITE and a RECV scatter, and must not change any other byte. */
static void check(struct pair *p, const char *name, struct mlx5dv_mkey *key, const struct piece *pieces, int n)
{
	static uint8_t stream[ROOM], memory[ROOM], fresh[ROOM];
	char what[2][64];
	uint32_t len = 0;

	pattern(memory, ROOM, 1);
	for (int i = 0; i < n; i++) {
		memcpy(stream + len, memory + pieces[i].at, pieces[i].len);
		len += pieces[i].len;
	}
	pattern(fresh, len, 2);
	for (int scatter = 0; scatter < 2; scatter++) {
		uint8_t *far = p->far.buf;
		snprintf(what[0], sizeof what[0], "%s: %s", name, scatter ? "a WRITE scatters" : "a READ gathers");
		snprintf(what[1], sizeof what[1], "%s: %s", name, scatter ? "a RECV scatters" : "a SEND gathers");
		for (int local = 0; local < 2; local++) {
			pattern(p->near.buf, ROOM, 1);
			memset(far, 0xee, ROOM);
			if (scatter)
				memcpy(far, fresh, len);
			if (local && scatter) {
				receive(&p->near, 0, len, key->lkey);
				transfer(&p->far, IBV_WR_SEND, (uintptr_t)far, len, p->far.mr->lkey, 0, 0);
				poll_one(p->near.cq, IBV_WC_SUCCESS, "the receive");
			} else if (local) {
				receive(&p->far, (uintptr_t)far, ROOM, p->far.mr->lkey);
				transfer(&p->near, IBV_WR_SEND, 0, len, key->lkey, 0, 0);
				poll_one(p->far.cq, IBV_WC_SUCCESS, "the receive");
			} else {
				transfer(&p->far, scatter ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, (uintptr_t)far, len, p->far.mr->lkey, 0, key->rkey);
			}
			if (!scatter) {
				must(far[len] == 0xee, "%s: more than the data came", what[local]);
				same(what[local], far, stream, len);
				continue;
			}
			const uint8_t *from = fresh;
			pattern(memory, ROOM, 1);
			for (int i = 0; i < n; from += pieces[i++].len)
				memcpy(memory + pieces[i].at, from, pieces[i].len);
			same(what[local], p->near.buf, memory, ROOM);
		}
	}

	/* A READ from the middle of the key, over several pieces. */
	pattern(p->near.buf, ROOM, 1);
	transfer(&p->far, IBV_WR_RDMA_READ, (uintptr_t)p->far.buf, len - 111, p->far.mr->lkey, 77, key->rkey);
	snprintf(what[0], sizeof what[0], "%s: a READ from offset 77", name);
	same(what[0], p->far.buf, stream + 77, len - 111);
}

/* list: pieces of odd lengths, not in the order of their addresses. */
static void list(struct pair *p, bool setters)
{
	static const struct piece pieces[] = { { 9000, 1000 }, { 16, 4097 }, { 40000, 3 }, { 20001, 2500 } };
	enum { N = sizeof pieces / sizeof *pieces };
	struct mlx5dv_mkey *key = key_create(p, 0, N);
	struct mlx5dv_mkey_conf_attr conf = {};
	struct ibv_sge sge[N];

	for (int i = 0; i < N; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)p->near.buf + pieces[i].at, pieces[i].len, p->near.mr->lkey };
	ibv_wr_start(p->ex);
	p->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	if (setters) {
		mlx5dv_wr_mkey_configure(p->dv, key, 2, &conf);
		mlx5dv_wr_set_mkey_access_flags(p->dv, ALL_ACCESS);
		mlx5dv_wr_set_mkey_layout_list(p->dv, N, sge);
	} else {
		mlx5dv_wr_mr_list(p->dv, key, ALL_ACCESS, N, sge);
	}
	configured(p);
	check(p, setters ? "layout_list" : "mr_list", key, pieces, N);
	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
}

/* interleaved has a layout that alternates between 512 bytes of every 520 bytes of data, and 8
 * bytes from another place. */
static void interleaved(struct pair *p, bool setters)
{
	enum { REPEAT = 9, N = 2 };
	struct mlx5dv_mr_interleaved data[N] = {
		{ (uintptr_t)p->near.buf + 64, 512, 8, p->near.mr->lkey },
		{ (uintptr_t)p->near.buf + 30001, 8, 5, p->near.mr->lkey },
	};
	struct mlx5dv_mkey *key = key_create(p, 0, N + 1); /* one entry is the header */
	struct mlx5dv_mkey_conf_attr conf = {};
	struct piece pieces[REPEAT * N];

	for (uint32_t i = 0; i < REPEAT; i++) {
		pieces[2 * i] = (struct piece){ 64 + 520 * i, 512 };
		pieces[2 * i + 1] = (struct piece){ 30001 + 13 * i, 8 };
	}
	ibv_wr_start(p->ex);
	p->ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	if (setters) {
		mlx5dv_wr_mkey_configure(p->dv, key, 2, &conf);
		mlx5dv_wr_set_mkey_access_flags(p->dv, ALL_ACCESS);
		mlx5dv_wr_set_mkey_layout_interleaved(p->dv, REPEAT, N, data);
	} else {
		mlx5dv_wr_mr_interleaved(p->dv, key, ALL_ACCESS, REPEAT, N, data);
	}
	configured(p);
	check(p, setters ? "layout_interleaved" : "mr_interleaved", key, pieces, REPEAT * N);
	must(!mlx5dv_destroy_mkey(key), "mlx5dv_destroy_mkey");
}

int main(void)
{
	struct pair p;
	pair_open(&p, 0);
	for (int setters = 0; setters < 2; setters++) {
		list(&p, setters);
		interleaved(&p, setters);
	}
	pair_close(&p);
	return 0;
}
