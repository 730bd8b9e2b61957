/*
 * Prints how many doorbell records of its queue pair, its SRQ and five CQs lie in memory that was mapped from the device. More
 * CQs come and go, so that libmlx5 frees pages of records.
 */
#include <infiniband/mlx5dv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(x) do { if (!(x)) { perror(#x); exit(1); } } while (0)

/* Whether an address lies in a mapping of a queue. */
static int shared(const void *p)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long from, to;
	int found = 0;

	MUST(maps);
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && (unsigned long)p >= from && (unsigned long)p < to)
			found = strstr(line, "softmkey-queue") != NULL;
	fclose(maps);
	return found;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cqs[200];
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct mlx5dv_cq cq;
	struct mlx5dv_qp dq = {0};
	struct mlx5dv_srq ds = {0};
	struct mlx5dv_obj o = {0};
	int n = 0;

	MUST(list && list[0] && (context = ibv_open_device(list[0])) && (pd = ibv_alloc_pd(context)));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 200; i++)
			MUST(cqs[i] = ibv_create_cq(context, 16, NULL, NULL, 0));
		for (int i = 5 * round; i < 200; i++)
			MUST(ibv_destroy_cq(cqs[i]) == 0);
	}
	MUST(srq = ibv_create_srq(pd, &(struct ibv_srq_init_attr){.attr = {.max_wr = 16, .max_sge = 1}}));
	struct ibv_qp_init_attr a = {.send_cq = cqs[0], .recv_cq = cqs[0], .cap = {16, 16, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	MUST(qp = ibv_create_qp(pd, &a));
	o.qp.in = qp, o.qp.out = &dq, o.srq.in = srq, o.srq.out = &ds;
	MUST(mlx5dv_init_obj(&o, MLX5DV_OBJ_QP | MLX5DV_OBJ_SRQ) == 0);
	n = shared(dq.dbrec) + shared(ds.dbrec);
	for (int i = 0; i < 5; i++) {
		o.cq.in = cqs[i], o.cq.out = &cq;
		MUST(mlx5dv_init_obj(&o, MLX5DV_OBJ_CQ) == 0);
		n += shared(cq.dbrec);
	}
	printf("%d of 7 shared\n", n);
	return 0;
}
