/* reused: a process registers memory and ends, while a helper still has its descriptor. A new process
 * gets the same process ID and has memory at the same address. The keys of the first process must not
 * reach that memory. */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 8192, QPS = 2 };
static uint8_t *const place = (uint8_t *)0x200000000;

struct card { uint32_t rkey, qpn[QPS]; pid_t helper; };

static void put(int fd, const void *p, size_t n) { must(write(fd, p, n) == (ssize_t)n, "write"); }
static void get(int fd, void *p, size_t n) { must(read(fd, p, n) == (ssize_t)n, "read"); }

static struct ibv_qp *qp(struct pair *p)
{
	struct ibv_qp_init_attr a = { .send_cq = p->near.cq, .recv_cq = p->near.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *q = ibv_create_qp(p->pd, &a);
	must(q, "ibv_create_qp: %s", strerror(errno));
	return q;
}

static void map_place(uint8_t fill)
{
	must(mmap(place, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place, "mmap");
	memset(place, fill, SIZE);
}

/* first is the process that registers memory. */
static void first(int in, int out)
{
	struct pair p;
	struct ibv_qp *q[QPS];
	struct card mine, theirs;
	pair_open(&p, 0);
	map_place('A');
	struct ibv_mr *mr = ibv_reg_mr(p.pd, place, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	must(mr, "ibv_reg_mr: %s", strerror(errno));
	mine.rkey = mr->rkey;
	for (int i = 0; i < QPS; i++)
		mine.qpn[i] = (q[i] = qp(&p))->qp_num;
	mine.helper = fork();
	if (mine.helper == 0)
		for (;;)
			pause();
	put(out, &mine, sizeof mine);
	get(in, &theirs, sizeof theirs);
	for (int i = 0; i < QPS; i++)
		qp_connect(&p, q[i], theirs.qpn[i]);
	put(out, "c", 1);
	char go;
	get(in, &go, 1);
	_exit(0);
}

/* again starts a process with the process ID pid, whose memory at place has other bytes. When that
 * process can read from in, it checks that its memory is unchanged, and exits with 1 otherwise. again
 * returns 0 if the system does not let it choose the process ID. */
static pid_t again(pid_t pid, int in, int out)
{
	for (int try = 0; try < 2000; try++) {
		char text[32];
		int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY);
		int n = snprintf(text, sizeof text, "%d", pid - 1);
		if (fd < 0 || write(fd, text, n) != n)
			return 0;
		close(fd);
		pid_t got = fork();
		if (got == 0) {
			char go;
			if (getpid() != pid)
				_exit(0);
			map_place('S');
			put(out, "r", 1);
			get(in, &go, 1);
			for (int i = 0; i < SIZE; i++)
				if (place[i] != 'S')
					_exit(1);
			_exit(0);
		}
		if (got == pid)
			return got;
		waitpid(got, NULL, 0);
	}
	return 0;
}

int main(void)
{
	int to[2], from[2], to2[2], from2[2];
	struct pair p;
	struct ibv_qp *q[QPS];
	struct card mine, theirs;
	char c;
	must(!pipe(to) && !pipe(from) && !pipe(to2) && !pipe(from2), "pipe");
	pid_t pid = fork();
	if (pid == 0)
		first(to[0], from[1]);
	pair_open(&p, 0);
	for (int i = 0; i < QPS; i++)
		mine.qpn[i] = (q[i] = qp(&p))->qp_num;
	get(from[0], &theirs, sizeof theirs);
	put(to[1], &mine, sizeof mine);
	for (int i = 0; i < QPS; i++)
		qp_connect(&p, q[i], theirs.qpn[i]);
	get(from[0], &c, 1);

	struct side s = p.near;
	uint8_t *buf = p.near.buf;
	s.qp = q[0];
	transfer(&s, IBV_WR_RDMA_READ, (uintptr_t)buf, SIZE, p.near.mr->lkey, (uintptr_t)place, theirs.rkey);
	must(buf[0] == 'A' && buf[SIZE - 1] == 'A', "the first process cannot be read");

	put(to[1], "g", 1);
	waitpid(pid, NULL, 0);
	pid_t second = again(pid, to2[0], from2[1]);
	if (second)
		get(from2[0], &c, 1);
	for (int i = 0; i < QPS; i++) {
		struct ibv_sge sge = { (uintptr_t)buf, SIZE, p.near.mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
			.opcode = i ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ }, *bad;
		struct ibv_wc wc;
		wr.wr.rdma.remote_addr = (uintptr_t)place;
		wr.wr.rdma.rkey = theirs.rkey;
		memset(buf, 'P', SIZE);
		must(!ibv_post_send(q[i], &wr, &bad), "ibv_post_send");
		while (!ibv_poll_cq(p.near.cq, 1, &wc))
			;
		printf("%s with the key of an ended process: %s\n", i ? "WRITE" : "READ", ibv_wc_status_str(wc.status));
		must(wc.status == IBV_WC_RETRY_EXC_ERR, "an ended process must not answer");
		for (int j = 0; j < SIZE; j++)
			must(buf[j] != 'S', "byte %d of the new process was read", j);
	}
	if (second) {
		int status;
		put(to2[1], "g", 1);
		waitpid(second, &status, 0);
		must(!status, "MEMORY CHANGED");
	}
	kill(theirs.helper, SIGKILL);
	printf("%s\n", second ? "the number was used again" : "NOT RUN: the number was not used again");
	return 0;
}
