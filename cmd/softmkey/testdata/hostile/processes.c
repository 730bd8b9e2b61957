/* Processes that are killed, fork, call execve, and pass their descriptors to others. */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static void work(struct pair *p, int n)
{
	for (int i = 0; i < n; i++)
		transfer(&p->near, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, (uintptr_t)p->near.buf, ROOM, p->near.mr->lkey,
			 (uintptr_t)p->far.buf, p->far.mr->rkey);
}

static void work_for_ever(void)
{
	struct pair p;
	pair_open(&p, 0);
	work(&p, 1 << 30);
}

static void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&t, NULL);
}

/* killed kills a process at a random moment while it starts or works. */
static void killed(void)
{
	pid_t pid = fork();
	if (pid == 0)
		work_for_ever();
	sleep_us(rnd() % 60000);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* stopped stops a process while it works, lets it continue in half of the rounds, and kills it. */
static void stopped(void)
{
	pid_t pid = fork();
	if (pid == 0)
		work_for_ever();
	sleep_us(20000 + rnd() % 30000);
	kill(pid, SIGSTOP);
	sleep_us(20000);
	if (rnd() % 2) {
		kill(pid, SIGCONT);
		sleep_us(5000);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void a_call(int fd)
{
	struct { struct ib_uverbs_ioctl_hdr h; struct ib_uverbs_attr a[2]; } c;
	memset(&c, 0, sizeof c);
	uint8_t out[64];
	c.h.length = sizeof c;
	c.h.method_id = 2; /* QUERY_PORT */
	c.h.num_attrs = 2;
	c.h.driver_id = 1;
	c.a[0] = (struct ib_uverbs_attr){ .attr_id = 0, .len = 1, .data = 1 };
	c.a[1] = (struct ib_uverbs_attr){ .attr_id = 1, .len = sizeof out, .data = (uintptr_t)out };
	ioctl(fd, RDMA_VERBS_IOCTL, &c);
}

/* forks forks children that use the parent's device, open their own, become
 * another program, or do nothing, while the parent works. */
static void forks(void)
{
	struct pair p;
	pair_open(&p, 0);
	int children = 0;
	for (int i = 0; i < 12; i++) {
		pid_t pid = fork();
		if (pid > 0) {
			children++;
			work(&p, 5);
			continue;
		}
		if (pid < 0)
			break;
		char *args[] = { "true", NULL };
		switch (rnd() % 6 + i % 2) {
		case 0: a_call(p.ctx->cmd_fd); break;
		case 1: { struct pair own; pair_open(&own, 0); work(&own, 3); break; }
		case 2: execv("/bin/true", args); break;
		case 3: posix_spawn(NULL, "/bin/true", NULL, NULL, args, environ); break;
		case 4: if (vfork() == 0) _exit(0); break;
		case 5: if (fork() == 0) { a_call(p.ctx->cmd_fd); sleep_us(3000); _exit(0); } break;
		case 6: ibv_close_device(p.ctx); break;
		}
		_exit(0);
	}
	work(&p, 20);
	while (children-- > 0)
		wait(NULL);
	work(&p, 5); /* the parent's device must still work */
	_exit(0);
}

/* becomes_another keeps the descriptor open across execve. */
static void becomes_another(void)
{
	struct pair p;
	pair_open(&p, 0);
	fcntl(p.ctx->cmd_fd, F_SETFD, 0);
	int copy = dup(p.ctx->cmd_fd);
	(void)copy;
	struct ibv_sge sge = { (uintptr_t)p.near.buf, ROOM, p.near.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p.far.buf;
	wr.wr.rdma.rkey = p.far.mr->rkey;
	for (int i = 0; i < 50; i++)
		ibv_post_send(p.near.qp, &wr, &bad);
	char *args[] = { "sleep", "0.05", NULL };
	execvp("sleep", args);
}

/* passed hands the device over a socket to a process that outlives its owner. */
static void passed(void)
{
	int pair_of[2];
	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair_of), "socketpair");
	pid_t owner = fork();
	if (owner == 0) {
		struct pair p;
		pair_open(&p, 0);
		char room[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
		struct iovec iov = { &byte, 1 };
		struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
		struct cmsghdr *c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &p.ctx->cmd_fd, sizeof(int));
		must(sendmsg(pair_of[0], &m, 0) == 1, "sendmsg");
		work(&p, rnd() % 20);
		_exit(0);
	}
	char room[CMSG_SPACE(sizeof(int))], byte;
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	must(recvmsg(pair_of[1], &m, 0) == 1, "recvmsg");
	int fd;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	for (int i = 0; i < 50; i++)
		a_call(fd);
	waitpid(owner, NULL, 0);
	for (int i = 0; i < 50; i++)
		a_call(fd);
}

static volatile int closing;

static void *calls(void *arg)
{
	while (!closing)
		a_call((int)(intptr_t)arg);
	a_call((int)(intptr_t)arg);
	return NULL;
}

static void *opens(void *arg)
{
	struct ibv_device **list = arg;
	while (!closing) {
		struct ibv_context *ctx = ibv_open_device(list[0]);
		if (ctx)
			ibv_close_device(ctx);
	}
	return NULL;
}

/* closed closes the device in one thread while others use it. */
static void closed(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct pair p;
	pair_open(&p, 0);
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, i ? calls : opens, i ? (void *)(intptr_t)p.ctx->cmd_fd : list);
	work(&p, 3);
	sleep_us(rnd() % 5000);
	if (rnd() % 2)
		close(p.ctx->cmd_fd);
	else
		pair_close(&p);
	sleep_us(rnd() % 2000);
	closing = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static void *wait_for_event(void *arg)
{
	struct rdma_cm_event *e;
	rdma_get_cm_event(arg, &e);
	return NULL;
}

/* waits ends while threads are in calls that wait for events. */
static void waits(void)
{
	pthread_t t;
	for (int i = 0; i < 8; i++)
		pthread_create(&t, NULL, wait_for_event, rdma_create_event_channel());
	sleep_us(10000);
	pthread_cancel(t);
	pthread_join(t, NULL);
	if (rnd() % 2)
		kill(getpid(), SIGKILL);
}

/* hoard creates objects until it gets no more, and keeps them while another program opens
 * the device. */
static void hoard(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx[500];
	int n = 0;
	while (n < 150 && (ctx[n] = ibv_open_device(list[0])))
		n++;
	must(n > 0, "ibv_open_device");
	for (int i = 0; i < 3000 && ibv_create_comp_channel(ctx[i % n]); i++)
		;
	for (int i = 0; i < 600 && ibv_create_cq(ctx[i % n], 1, NULL, NULL, 0); i++)
		;
	struct ibv_pd *pd = ibv_alloc_pd(ctx[0]);
	struct ibv_cq *cq = ibv_create_cq(ctx[0], 1, NULL, NULL, 0);
	if (pd && cq) {
		struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
		for (int i = 0; i < 200 && ibv_create_qp(pd, &init); i++)
			;
	}
	if (system("ibv_devinfo >/dev/null"))
		_exit(1);
}

const struct mode process_modes[] = {
	{ "killed", killed }, { "stopped", stopped }, { "forks", forks }, { "becomes_another", becomes_another },
	{ "passed", passed }, { "closed", closed }, { "waits", waits }, { "hoard", hoard }, { 0 },
};
