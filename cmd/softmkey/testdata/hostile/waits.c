/* waits MODE FILE: a request whose page waits, for userfaultfd, until FILE.go exists. FILE.started
 * says that the kernel has asked for the page. MODE is source, target, or read: whose page it is, and
 * of which request. */
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

int main(int argc, char **argv)
{
	struct pair p;
	char started[4096], go[4096];
	must(argc == 3, "usage: waits MODE FILE");
	int target = !strcmp(argv[1], "target"), isread = !strcmp(argv[1], "read");
	snprintf(started, sizeof started, "%s.started", argv[2]);
	snprintf(go, sizeof go, "%s.go", argv[2]);
	pair_open(&p, 0);
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
	close(open(started, O_CREAT | O_WRONLY, 0644));
	while (access(go, F_OK)) {
		struct timespec t = { 0, 1000000 };
		nanosleep(&t, NULL);
	}
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
