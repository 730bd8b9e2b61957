/* Registers memory as a kernel pins it, and transfers after the first thread has ended. */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, LOCAL = IBV_ACCESS_LOCAL_WRITE, ALL = LOCAL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

static struct pair p;

static void reg(const char *what, void *addr, size_t length, int access, int want)
{
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr(p.pd, addr, length, access);
	must(mr ? !want : errno == want, "%s: %s, want %s", what, mr ? "registered" : strerror(errno), want ? strerror(want) : "success");
	if (mr)
		ibv_dereg_mr(mr);
}

static char *pages(int n, int prot)
{
	char *m = mmap(0, n * PAGE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(m != MAP_FAILED, "mmap: %s", strerror(errno));
	return m;
}

static void write_to_far(const char *what)
{
	struct ibv_sge s = { (uintptr_t)p.near.buf, 64, p.near.mr->lkey };
	struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)p.far.buf, p.far.mr->rkey } }, *bad;
	must(!ibv_post_send(p.near.qp, &w, &bad), "ibv_post_send: %s", strerror(errno));
	poll_one(p.near.cq, IBV_WC_SUCCESS, what);
}

static void *rest(void *leader)
{
	must(!pthread_join(*(pthread_t *)leader, NULL), "the first thread does not end");
	write_to_far("a write after the end of the first thread");
	struct pair own = p;
	pair_open(&p, 0); /* by a thread that is not the first */
	write_to_far("a write on a device that was opened after its end");
	pair_close(&p);
	pair_close(&own);
	puts("memory is as a kernel pins it");
	exit(0);
}

int main(void)
{
	static pthread_t leader, other;

	pair_open(&p, 0);
	char *hole = pages(3, PROT_READ | PROT_WRITE), *guard = pages(3, PROT_READ | PROT_WRITE), *constant = pages(3, PROT_READ);
	munmap(hole + PAGE, PAGE);
	mprotect(guard + PAGE, PAGE, PROT_NONE);
	reg("a hole", hole, 3 * PAGE, ALL, EFAULT);
	reg("up to the hole", hole, PAGE, ALL, 0);
	reg("a page without rights", guard, 3 * PAGE, ALL, EFAULT);
	reg("a page without rights, for reading", guard, 3 * PAGE, 0, EFAULT);
	reg("read-only memory with local writing", constant, 3 * PAGE, LOCAL, EFAULT);
	reg("read-only memory with a window", constant, 3 * PAGE, LOCAL | IBV_ACCESS_MW_BIND, EFAULT);
	reg("read-only memory for a peer's READs", constant, 3 * PAGE, IBV_ACCESS_REMOTE_READ, 0);
	reg("constants of the program", (void *)((uintptr_t)"constant" & -PAGE), 1, LOCAL, EFAULT);
	reg("memory that can be written only", pages(1, PROT_WRITE), PAGE, LOCAL, 0);
	reg("no bytes", hole, 0, ALL, EINVAL);
	reg("read-only memory with on-demand paging", constant, PAGE, LOCAL | IBV_ACCESS_ON_DEMAND, 0);

	int fd = memfd_create("short", 0);
	must(!ftruncate(fd, 2 * PAGE), "ftruncate");
	char *file = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	reg("a file", file, 2 * PAGE, ALL, 0);
	reg("beyond the end of a file", file, 3 * PAGE, ALL, EFAULT);

	/* Another registration of a region follows the same rules, and so does a umem. */
	struct ibv_mr *mr = ibv_reg_mr(p.pd, constant, PAGE, 0);
	must(mr, "ibv_reg_mr: %s", strerror(errno));
	must(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, LOCAL), "read-only memory got local writing");
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	errno = 0;
	must(!mlx5dv_devx_umem_reg(p.ctx, guard, 3 * PAGE, LOCAL) && errno == EFAULT, "a umem with a page without rights: errno %d", errno);
	must(!mlx5dv_devx_umem_reg(p.ctx, constant, PAGE, LOCAL) && errno == EFAULT, "a read-only umem: errno %d", errno);
	must(mlx5dv_devx_umem_reg(p.ctx, constant, PAGE, IBV_ACCESS_REMOTE_READ), "a umem for reading: %s", strerror(errno));

	write_to_far("a write");
	leader = pthread_self();
	must(!pthread_create(&other, NULL, rest, &leader), "pthread_create");
	pthread_exit(NULL);
}
