/* neighbour moves random bytes between two queue pairs until SIGTERM, and checks
 * every one of them. */
#include "pair.h"

#include <signal.h>

static volatile sig_atomic_t ending;

static void end(int sig) { (void)sig; ending = 1; }

int main(int argc, char **argv)
{
	struct pair p;
	uint8_t want[ROOM / 2];
	long rounds = argc > 1 ? atol(argv[1]) : -1;
	long n;

	signal(SIGTERM, end);
	pair_open(&p, 0);
	const uint64_t near = (uintptr_t)p.near.buf, far = (uintptr_t)p.far.buf, half = ROOM / 2;
	for (n = 0; !ending && n != rounds; n++) {
		uint32_t len = 1 + (n * 7919) % (ROOM / 2);
		pattern(want, len, n);
		memcpy(p.near.buf, want, len);
		memset(p.far.buf, 0xee, len);
		transfer(&p.near, IBV_WR_RDMA_WRITE, near, len, p.near.mr->lkey, far, p.far.mr->rkey);
		must(!memcmp(p.far.buf, want, len), "round %ld: %u bytes were not written as they are", n, len);
		transfer(&p.near, IBV_WR_RDMA_READ, near + half, len, p.near.mr->lkey, far, p.far.mr->rkey);
		must(!memcmp(p.near.buf + half, want, len), "round %ld: %u bytes were not read as they are", n, len);
	}
	must(n > 0, "no round was done");
	if (!getenv("NEIGHBOUR_LEAVES")) /* with it, the objects are destroyed only by the end of the process */
		pair_close(&p);
	printf("neighbour: %ld rounds\n", n);
	return 0;
}
