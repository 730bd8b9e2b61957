/* Regions of a dma-buf: memory that a driver shares by a descriptor, here udmabuf's. A peer writes to it and
 * reads from it, and the program sees the bytes in the file that is behind the dma-buf. */
#define _GNU_SOURCE
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 16384, ALL = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };

/* refused checks that a registration fails with an errno. */
static void refused(struct pair *p, uint64_t offset, uint64_t length, uint64_t iova, int fd, int want)
{
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(p->pd, offset, length, iova, fd, ALL);
	must(!mr && errno == want, "%llu bytes from %llu of descriptor %d: %s, not %s", (unsigned long long)length, (unsigned long long)offset, fd, mr ? "registered" : strerror(errno), strerror(want));
}

int main(void)
{
	struct pair p;
	pair_open(&p, 0);
	int mem = memfd_create("dma-buf", MFD_ALLOW_SEALING), dev = open("/dev/udmabuf", O_RDWR);
	must(dev >= 0, "/dev/udmabuf: %m");
	must(mem >= 0 && !ftruncate(mem, SIZE) && !fcntl(mem, F_ADD_SEALS, F_SEAL_SHRINK), "memfd: %m");
	uint8_t *view = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, mem, 0);
	must(view != MAP_FAILED, "mmap: %m");
	struct udmabuf_create create = { .memfd = mem, .size = SIZE };
	int buf = ioctl(dev, UDMABUF_CREATE, &create);
	must(buf >= 0, "UDMABUF_CREATE: %m");

	/* Offset and address must be at the same place of a page. */
	const uint64_t iova = 0x7000000a00, offset = 0x1a00, length = 8192;
	struct ibv_mr *mr = ibv_reg_dmabuf_mr(p.pd, offset, length, iova, buf, ALL);
	must(mr, "ibv_reg_dmabuf_mr: %m");
	pattern(p.far.buf, length, 1);
	transfer(&p.far, IBV_WR_RDMA_WRITE, (uintptr_t)p.far.buf, length, p.far.mr->lkey, iova, mr->rkey);
	same("WRITE to a dma-buf", view + offset, p.far.buf, length);
	pattern(view + offset, length, 2);
	transfer(&p.far, IBV_WR_RDMA_READ, (uintptr_t)p.far.buf, length, p.far.mr->lkey, iova, mr->rkey);
	same("READ from a dma-buf", p.far.buf, view + offset, length);
	/* The region keeps the memory after the descriptor is closed. */
	int again = dup(buf);
	must(!close(buf), "close: %m");
	pattern(p.far.buf, 64, 3);
	transfer(&p.far, IBV_WR_RDMA_WRITE, (uintptr_t)p.far.buf, 64, p.far.mr->lkey, iova + length - 64, mr->rkey);
	same("WRITE to its end", view + offset + length - 64, p.far.buf, 64);
	must(!ibv_dereg_mr(mr), "ibv_dereg_mr: %m");

	refused(&p, 0, 4096, 8, again, EINVAL);
	refused(&p, 0, SIZE + 1, 0, again, EINVAL);
	refused(&p, 4096, -4096ull, 4096, again, EINVAL);
	refused(&p, 0, 4096, 0, mem, EINVAL);
	refused(&p, 0, 4096, 0, 9999, EBADF);
	printf("ok: registrations that the kernel refuses\n");
	pair_close(&p);
	return 0;
}
