/* hold measures how many programs one device carries, and how many queue pairs one program.
 *
 *   hold PROGRAMS [QPS [THREADS]]
 *
 * starts PROGRAMS processes. Each opens the first RDMA device and creates a PD, a CQ, a region and
 * QPS connected RC queue pairs (default 1), and has THREADS further threads, which sleep. When all are
 * ready it prints the seconds that this took, and then medians of one process, in microseconds: an RDMA
 * WRITE of 64 bytes to itself, the same after a pause of 5 ms, the registration of a region with its end,
 * and a queue pair from its creation to its end. It waits until its standard input ends, ends the processes, and prints the seconds that this took. */
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define die(...) (fprintf(stderr, "hold: " __VA_ARGS__), fprintf(stderr, "\n"), exit(1))
#define must(cond, ...) do { if (!(cond)) die(__VA_ARGS__); } while (0)

enum { TIMES = 2000, FEW = 100 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp; /* the last one that was created */
	char *buf;
};

/* connected creates a queue pair that is connected to itself. */
static struct ibv_qp *connected(struct end *e)
{
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(e->pd, &init);
	must(qp, "ibv_create_qp");
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = rights };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num, .rq_psn = 7,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = 3, .hop_limit = 64 } } };
	must(!ibv_query_gid(e->ctx, 1, 3, &a.ah_attr.grh.dgid), "ibv_query_gid");
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 17, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
	return qp;
}

/* open_end creates the objects. */
static void open_end(struct end *e, int qps)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	must(list && n > 0, "no RDMA device");
	must(e->ctx = ibv_open_device(list[0]), "ibv_open_device");
	ibv_free_device_list(list);
	must(e->pd = ibv_alloc_pd(e->ctx), "ibv_alloc_pd");
	must(e->cq = ibv_create_cq(e->ctx, 16, NULL, NULL, 0), "ibv_create_cq");
	must(e->buf = aligned_alloc(4096, 4096), "no memory");
	memset(e->buf, 1, 4096);
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	must(e->mr = ibv_reg_mr(e->pd, e->buf, 4096, rights), "ibv_reg_mr");
	while (qps--)
		e->qp = connected(e);
}

/* write_once writes 64 bytes and waits for the completion. */
static void write_once(struct end *e)
{
	struct ibv_sge sge = { .addr = (uintptr_t)e->buf, .length = 64, .lkey = e->mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = (uintptr_t)e->buf + 2048, .rkey = e->mr->rkey } }, *bad;
	must(!ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(e->cq, 1, &wc)))
		;
	must(n == 1 && wc.status == IBV_WC_SUCCESS, "WRITE: %s", ibv_wc_status_str(wc.status));
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void register_once(struct end *e)
{
	struct ibv_mr *mr = ibv_reg_mr(e->pd, e->buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	must(mr && !ibv_dereg_mr(mr), "ibv_reg_mr");
}

static void connect_once(struct end *e) { must(!ibv_destroy_qp(connected(e)), "ibv_destroy_qp"); }

/* median_of returns the median of n calls, before each of which it sleeps. */
static double median_of(void (*call)(struct end *), struct end *e, int n, int sleep_us)
{
	static double took[TIMES];
	for (int i = 0; i < n; i++) {
		if (sleep_us)
			usleep(sleep_us);
		double t = now();
		call(e);
		took[i] = now() - t;
	}
	qsort(took, n, sizeof *took, by_size);
	return took[n / 2] * 1e6;
}

static void *asleep(void *x)
{
	pause();
	return x;
}

/* hold_one creates the objects, tells so, and keeps them until a byte or the end comes. The one that
 * gets a byte measures. */
static int hold_one(int qps, int threads, int tell, int until)
{
	struct end e;
	open_end(&e, qps);
	for (pthread_t t; threads--;)
		must(!pthread_create(&t, NULL, asleep, NULL), "pthread_create");
	must(write(tell, "r", 1) == 1, "the parent is gone");
	char c;
	if (read(until, &c, 1) != 1)
		return 0;
	double medians[] = { median_of(write_once, &e, TIMES, 0), median_of(write_once, &e, FEW, 5000),
		median_of(register_once, &e, TIMES, 0), median_of(connect_once, &e, FEW, 0) };
	must(write(tell, medians, sizeof medians) == sizeof medians, "the parent is gone");
	return read(until, &c, 1) > 0;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 0, qps = argc > 2 ? atoi(argv[2]) : 1, threads = argc > 3 ? atoi(argv[3]) : 0, tell[2], until[2];
	must(n > 0 && qps > 0, "usage: hold PROGRAMS [QPS [THREADS]]");
	must(!pipe(tell) && !pipe(until), "pipe");
	double t = now();
	for (int i = 0; i < n; i++) {
		pid_t p = fork();
		must(p >= 0, "fork");
		if (!p) {
			close(until[1]);
			close(tell[0]);
			_exit(hold_one(qps, threads, tell[1], until[0]));
		}
	}
	close(until[0]);
	close(tell[1]);
	for (int i = 0; i < n; i++) {
		char c;
		must(read(tell[0], &c, 1) == 1, "%d of %d processes are ready, and no more will be", i, n);
	}
	printf("ready %f\n", now() - t);
	must(write(until[1], "m", 1) == 1, "write");
	double medians[4];
	must(read(tell[0], medians, sizeof medians) == sizeof medians, "no measurement");
	printf("write %f\npaused %f\nregister %f\nconnect %f\n", medians[0], medians[1], medians[2], medians[3]);
	fflush(stdout);
	while (getchar() != EOF)
		;
	t = now();
	close(until[1]);
	for (int i = 0, status; i < n; i++)
		must(wait(&status) > 0 && WIFEXITED(status) && !WEXITSTATUS(status), "a process failed");
	printf("ended %f\n", now() - t);
	return 0;
}
