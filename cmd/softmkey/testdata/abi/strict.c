/* Changes registered memory, under "softmkey run --strict-memory". */
#include "pair.h"

#include <errno.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE };

static struct pair p;

static char *pages(void)
{
	char *m = mmap(0, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(m != MAP_FAILED, "mmap: %s", strerror(errno));
	return m;
}

static void write_to(char *at, struct ibv_mr *mr, enum ibv_wc_status want, const char *what)
{
	struct ibv_sge s = { (uintptr_t)p.near.buf, 64, p.near.mr->lkey };
	struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)at, mr->rkey } }, *bad;
	must(!ibv_post_send(p.near.qp, &w, &bad), "ibv_post_send: %s", strerror(errno));
	poll_one(p.near.cq, want, what);
}

int main(void)
{
	pair_open(&p, 0);

	/* Rights that are taken and given back, and memory that is not registered any more. */
	char *m = pages();
	struct ibv_mr *mr = ibv_reg_mr(p.pd, m, 3 * PAGE, ALL);
	mprotect(m, 3 * PAGE, PROT_NONE);
	mprotect(m, 3 * PAGE, PROT_READ | PROT_WRITE);
	write_to(m, mr, IBV_WC_SUCCESS, "rights that came back");
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr");
	munmap(m, 3 * PAGE);

	/* The page in the middle is replaced: the others are reached, and so is a region on the new page. */
	m = pages();
	mr = ibv_reg_mr(p.pd, m, 3 * PAGE, ALL);
	munmap(m + PAGE, PAGE);
	must(mmap(m + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + PAGE, "mmap");
	struct ibv_mr *other = ibv_reg_mr(p.pd, m + PAGE, PAGE, ALL);
	write_to(m, mr, IBV_WC_SUCCESS, "the page before");
	write_to(m + 2 * PAGE, mr, IBV_WC_SUCCESS, "the page after");
	write_to(m + PAGE, other, IBV_WC_SUCCESS, "the new page by its own region");
	m[PAGE] = 42;
	must(!ibv_dereg_mr(other), "ibv_dereg_mr");
	write_to(m + PAGE, mr, IBV_WC_REM_ACCESS_ERR, "the new page by the old region");
	must(m[PAGE] == 42, "the new page was written to");
	puts("registered memory is watched");
	return 0;
}
