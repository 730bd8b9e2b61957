/* waits MODE FILE [MAPPED] posts a request that needs a page which is not there before the file FILE.go
 * exists. The program creates FILE.started when the kernel has asked for the page.
 *
 *   source, target  the page is the source or the target of an RDMA WRITE
 *   read            the page is the remote source of an RDMA READ
 *   file            the page is of the file MAPPED, in a FUSE file system whose server was stopped
 *                   before the request
 *   register        as file, but the server was stopped before the registration, which reads the first
 *                   and the last page of the region
 *
 * In the first three modes this program supplies the page itself, by userfaultfd. */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 65536, AT = 16384, PAGE = 4096 };

static void nap(void)
{
	struct timespec t = { 0, 1000000 };
	nanosleep(&t, NULL);
}

/* touch makes an empty file. */
static void touch(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0644);
	must(fd >= 0, "%s: %s", path, strerror(errno));
	close(fd);
}

/* stop_server asks the test to stop the server of the mapped file, by creating FILE.stop, and waits until
 * the test has done so and removed that file. */
static void stop_server(const char *file)
{
	char stop[4096];
	snprintf(stop, sizeof stop, "%s.stop", file);
	touch(stop);
	while (!access(stop, F_OK))
		nap();
}

/* from_file writes a page of a mapped file to the peer. */
static void from_file(struct pair *p, int registers, const char *file, const char *mapped, const char *started, const char *go)
{
	/* The page is in the middle of the file, so far from the ends that the kernel's read-ahead does not
	 * reach it. */
	enum { MAPPED = 2 << 20, MIDDLE = MAPPED / 2 };
	int fd = open(mapped, O_RDONLY);
	must(fd >= 0, "%s: %s", mapped, strerror(errno));
	uint8_t *r = mmap(NULL, MAPPED, PROT_READ, MAP_SHARED, fd, 0);
	must(r != MAP_FAILED, "mmap: %s", strerror(errno));
	if (registers) {
		stop_server(file);
		touch(started);
	}
	struct ibv_mr *mr = ibv_reg_mr(p->pd, r, MAPPED, 0);
	must(mr, "ibv_reg_mr: %s", strerror(errno));
	must(!registers || !access(go, F_OK), "the registration ended although its file's server has stopped");
	if (!registers)
		stop_server(file);

	struct ibv_sge sge = { (uintptr_t)r + MIDDLE, PAGE, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p->far.buf;
	wr.wr.rdma.rkey = p->far.mr->rkey;
	must(!ibv_post_send(p->near.qp, &wr, &bad), "ibv_post_send");
	if (!registers) {
		struct ibv_wc wc;
		for (int i = 0; i < 20; i++, nap())
			must(!ibv_poll_cq(p->near.cq, 1, &wc), "the request ended although its page's server has stopped");
		touch(started);
		while (access(go, F_OK))
			nap();
	}
	poll_one(p->near.cq, IBV_WC_SUCCESS, "the request whose page waited");
	equal("the page", p->far.buf, r + MIDDLE, PAGE);
	ibv_dereg_mr(mr);
}

int main(int argc, char **argv)
{
	struct pair p;
	char started[4096], go[4096];
	must(argc >= 3, "usage: waits MODE FILE [MAPPED]");
	int target = !strcmp(argv[1], "target"), isread = !strcmp(argv[1], "read");
	snprintf(started, sizeof started, "%s.started", argv[2]);
	snprintf(go, sizeof go, "%s.go", argv[2]);
	pair_open(&p, 0);
	if (argc == 4) {
		from_file(&p, !strcmp(argv[1], "register"), argv[2], argv[3], started, go);
		pair_close(&p);
		return 0;
	}
	uint8_t *r = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(r != MAP_FAILED, "mmap");
	struct ibv_mr *mr = ibv_reg_mr(p.pd, r, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	must(mr, "ibv_reg_mr");

	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = { .api = UFFD_API };
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) {
		printf("NOT RUN: userfaultfd: %s\n", strerror(errno));
		return 77;
	}
	struct uffdio_register reg = { .range = { (uintptr_t)r, SIZE }, .mode = UFFDIO_REGISTER_MODE_MISSING };
	must(!ioctl(fd, UFFDIO_REGISTER, &reg), "UFFDIO_REGISTER: %s", strerror(errno));

	uint8_t page[PAGE];
	pattern(page, PAGE, 5);
	pattern(p.near.buf, PAGE, 6);
	struct ibv_sge sge = { (uintptr_t)r + AT, PAGE, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p.far.buf;
	wr.wr.rdma.rkey = p.far.mr->rkey;
	if (target || isread) {
		sge.addr = (uintptr_t)p.near.buf;
		sge.lkey = p.near.mr->lkey;
		wr.wr.rdma.remote_addr = (uintptr_t)r + AT;
		wr.wr.rdma.rkey = mr->rkey;
		if (isread)
			wr.opcode = IBV_WR_RDMA_READ;
	}
	must(!ibv_post_send(p.near.qp, &wr, &bad), "ibv_post_send");

	struct uffd_msg msg;
	must(read(fd, &msg, sizeof msg) == sizeof msg && msg.event == UFFD_EVENT_PAGEFAULT, "no fault");
	must(msg.arg.pagefault.address / PAGE == ((uintptr_t)r + AT) / PAGE, "a fault of another page");
	touch(started);
	while (access(go, F_OK))
		nap();
	struct uffdio_copy copy = { .dst = (uintptr_t)r + AT, .src = (uintptr_t)page, .len = PAGE };
	must(!ioctl(fd, UFFDIO_COPY, &copy), "UFFDIO_COPY: %s", strerror(errno));
	poll_one(p.near.cq, IBV_WC_SUCCESS, "the request whose page waited");
	if (target)
		equal("the page", r + AT, p.near.buf, PAGE);
	else
		equal("the page", isread ? p.near.buf : p.far.buf, page, PAGE);
	ibv_dereg_mr(mr);
	pair_close(&p);
	return 0;
}
