/* Random system calls on all descriptors and paths that the supervisor serves. */
#include "hostile.h"

#include <dirent.h>
#include <fcntl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static struct ibv_context *open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	must(list && list[0], "no device");
	struct ibv_context *ctx = ibv_open_device(list[0]);
	must(ctx, "ibv_open_device");
	return ctx;
}

/* random_ioctl calls ioctl with random attributes, many of which have plausible values. */
static void random_ioctl(int fd)
{
	static const uint16_t objects[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 16, 0x1000, 0x1001, 0x1002, 0x1008, 0x1009 };
	struct { struct ib_uverbs_ioctl_hdr h; struct ib_uverbs_attr a[80]; } c;
	memset(&c, 0, sizeof c);
	int n = rnd() % 32 ? rnd() % 14 : rnd() % 80;
	c.h.length = sizeof c.h + n * sizeof c.a[0];
	c.h.object_id = objects[rnd() % (sizeof objects / sizeof objects[0])];
	c.h.method_id = (rnd() & 1 ? 0x1000 : 0) + rnd() % 8;
	c.h.num_attrs = n;
	c.h.driver_id = 1;
	switch (rnd() % 32) {
	case 0: c.h.length = rnd(); break;
	case 1: c.h.num_attrs = rnd(); break;
	case 2: c.h.reserved1 = rnd(); break;
	case 3: c.h.driver_id = rnd() % 32; break;
	}
	uint16_t first = rnd() % 2 ? 0x1000 : 0;
	for (int i = 0; i < n; i++) {
		c.a[i].attr_id = rnd() % 64 ? first + i : rnd() % 3 * 0x1000 + rnd() % 16;
		c.a[i].flags = rnd() % 2;
		switch (rnd() % 4) {
		case 0: c.a[i].len = rnd() % 9; c.a[i].data = rnd() % 3 ? rnd() % 40 : some_pointer(); break;
		case 1: c.a[i].len = rnd(); c.a[i].data = some_pointer(); break;
		default: c.a[i].len = rnd() % 512; c.a[i].data = some_pointer(); break;
		}
	}
	if (c.h.object_id == 0 && c.h.method_id == 0 && n >= 3) { /* an ioctl that holds a command of write() */
		static uint32_t words[128];
		for (int i = 0; i < 128; i++)
			words[i] = rnd() % 3 ? rnd() % 20 : rnd();
		c.a[0] = (struct ib_uverbs_attr){ .attr_id = 0, .len = rnd() % 512, .data = (uintptr_t)words };
		c.a[1] = (struct ib_uverbs_attr){ .attr_id = 1, .len = rnd() % 512, .data = some_pointer() };
		c.a[2] = (struct ib_uverbs_attr){ .attr_id = 2, .len = 4, .data = rnd() % 60 | (rnd() % 4 ? 0 : 0x80000000) };
	}
	ioctl(fd, RDMA_VERBS_IOCTL, rnd() % 16 ? (void *)&c : (void *)some_pointer());
}

/* changing makes ioctl send changed copies of the libraries' calls. */
static int changing;

/* ioctl replaces that of libc, also for calls by libraries. While changing is set, it sends six
 * copies with changed bytes before half of the calls. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	va_start(list, request);
	void *arg = va_arg(list, void *);
	va_end(list);
	if (!changing || request != RDMA_VERBS_IOCTL || rnd() % 2)
		return syscall(SYS_ioctl, fd, request, arg);
	const struct ib_uverbs_ioctl_hdr *h = arg;
	const struct ib_uverbs_attr *attrs = (void *)(h + 1);
	static struct { struct ib_uverbs_ioctl_hdr h; struct ib_uverbs_attr a[64]; } c;
	static uint8_t rooms[64][4096];
	int n = h->num_attrs;
	for (int copy = 0; copy < 6; copy++) {
		memcpy(&c, arg, h->length);
		for (int i = 0; i < n; i++) { /* copy the attributes' data, and change a few bytes */
			if (c.a[i].len <= 8 || c.a[i].len > sizeof rooms[i])
				continue;
			memcpy(rooms[i], (void *)(uintptr_t)attrs[i].data, attrs[i].len);
			c.a[i].data = (uintptr_t)rooms[i];
			for (int k = rnd() % 3; k > 0; k--)
				rooms[i][rnd() % c.a[i].len] = rnd() % 2 ? rnd() : 0xff;
		}
		for (int k = rnd() % 3; k > 0 && n > 0; k--) {
			struct ib_uverbs_attr *a = &c.a[rnd() % n];
			switch (rnd() % 5) {
			case 0: a->data = rnd() % 2 ? rnd() % 64 : some_pointer(); break;
			case 1: a->len = rnd() % 2 ? a->len + 1 - rnd() % 3 : rnd(); break;
			case 2: a->attr_id ^= 1 << rnd() % 3; break;
			case 3: *a = c.a[n - 1]; c.h.num_attrs = --n; c.h.length -= sizeof *a; break;
			case 4: c.h.method_id ^= rnd() % 4; break;
			}
		}
		syscall(SYS_ioctl, fd, request, &c);
		n = h->num_attrs;
	}
	return syscall(SYS_ioctl, fd, request, arg);
}

/* changed_ioctls calls many functions of the libraries, with changing set. */
static void changed_ioctls(void)
{
	changing = 1;
	for (int i = 0; i < 20; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL);
		struct ibv_context *ctx = ibv_open_device(list[0]);
		struct ibv_pd *pd = ctx ? ibv_alloc_pd(ctx) : NULL;
		struct ibv_comp_channel *ch = ctx ? ibv_create_comp_channel(ctx) : NULL;
		struct ibv_cq *cq = ctx ? ibv_create_cq(ctx, 1 + rnd() % 300, NULL, ch, 0) : NULL;
		if (!pd || !cq)
			continue;
		static uint8_t buf[8192];
		int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
		struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof buf, all);
		if (mr)
			ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, pd, buf, sizeof buf, all);
		struct ibv_mw *mw = ibv_alloc_mw(pd, rnd() % 2 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2);
		struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 16, .max_sge = 1 } };
		struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
		if (srq)
			ibv_modify_srq(srq, &(struct ibv_srq_attr){ .srq_limit = 3 }, IBV_SRQ_LIMIT), ibv_query_srq(srq, &srq_init.attr);
		struct ibv_xrcd_init_attr xrcd_init = { .comp_mask = 3, .fd = -1, .oflags = 0100 };
		struct ibv_xrcd *xrcd = ibv_open_xrcd(ctx, &xrcd_init);
		static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET };
		struct ibv_qp *qps[4];
		for (int k = 0; k < 4; k++) {
			struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 2, 2, 64 }, .qp_type = types[k], .srq = k == 0 ? srq : NULL };
			qps[k] = ibv_create_qp(pd, &init);
			struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 7 };
			if (qps[k]) {
				ibv_modify_qp(qps[k], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (k == 2 ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
				ibv_query_qp(qps[k], &attr, IBV_QP_STATE, &init);
			}
		}
		union ibv_gid gid;
		struct ibv_ah_attr route = { .is_global = 1, .port_num = 1, .grh.sgid_index = 3 };
		if (!ibv_query_gid(ctx, 1, 3, &gid))
			route.grh.dgid = gid;
		struct ibv_ah *ah = ibv_create_ah(pd, &route);
		ibv_resize_cq(cq, 1 + rnd() % 1000);
		struct mlx5dv_mkey_init_attr key_init = { .pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT | MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE, .max_entries = 4 };
		struct mlx5dv_mkey *key = mlx5dv_create_mkey(&key_init);
		struct mlx5dv_dek_init_attr dek_init = { .key_size = MLX5DV_CRYPTO_KEY_SIZE_128, .key_purpose = MLX5DV_CRYPTO_KEY_PURPOSE_AES_XTS, .pd = pd };
		struct mlx5dv_dek *dek = mlx5dv_dek_create(ctx, &dek_init);
		if (rnd() % 2)
			continue; /* destroy nothing */
		if (dek)
			mlx5dv_dek_destroy(dek);
		if (key)
			mlx5dv_destroy_mkey(key);
		if (ah)
			ibv_destroy_ah(ah);
		for (int k = 0; k < 4; k++)
			if (qps[k])
				ibv_destroy_qp(qps[k]);
		if (xrcd)
			ibv_close_xrcd(xrcd);
		if (srq)
			ibv_destroy_srq(srq);
		if (mw)
			ibv_dealloc_mw(mw);
		if (mr)
			ibv_dereg_mr(mr);
		ibv_destroy_cq(cq);
		ibv_dealloc_pd(pd);
		ibv_close_device(ctx);
	}
}

static void ioctls(void)
{
	struct ibv_context *ctx = open_device();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct rdma_event_channel *cm = rdma_create_event_channel();
	struct pair p;
	pair_open(&p, 0);
	const int fresh = open("/dev/infiniband/uverbs0", O_RDWR);
	const int fds[] = { ctx->cmd_fd, ctx->cmd_fd, ctx->cmd_fd, p.ctx->cmd_fd, ctx->async_fd, ch->fd, cm->fd, fresh, 0, 999, -1, rnd() % 1000 };
	for (int i = 0; i < 1500; i++)
		random_ioctl(fds[rnd() % (sizeof fds / sizeof fds[0])]);
}

/* cm_writes writes random commands to the connection manager. Its descriptor is non-blocking,
 * because a command that waits for an event would never return. */
static void cm_writes(void)
{
	int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
	must(fd >= 0, "rdma_cm");
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	for (int i = 0; i < 1500; i++) {
		struct { struct { uint32_t cmd; uint16_t in, out; } h; uint8_t b[600]; } c;
		for (unsigned k = 0; k < sizeof c.b; k++)
			c.b[k] = rnd() % 4 ? 0 : rnd();
		uint64_t response = some_pointer();
		memcpy(c.b + (rnd() % 2 ? 0 : 8), &response, 8);
		uint32_t id = rnd() % 8;
		memcpy(c.b + 8, &id, 4);
		c.h.cmd = rnd() % 26;
		c.h.in = rnd() % 3 ? rnd() % 400 : rnd();
		c.h.out = rnd() % 400;
		size_t len = rnd() % 16 ? sizeof c.h + c.h.in % 500 : rnd() % 70000;
		syscall(SYS_write, fd, rnd() % 16 ? (void *)&c : (void *)some_pointer(), len);
	}
}

static void maps(void)
{
	struct ibv_context *ctx = open_device();
	for (int i = 0; i < 400; i++) {
		uint64_t page = rnd() % 4 ? rnd() % 9000 : (1 << 8 | rnd() % 20);
		size_t len = 4096 * (rnd() % 5);
		if (rnd() % 32 == 0) {
			page = (uint64_t)rnd() << 20;
			len = (size_t)rnd() << 12;
		}
		void *m = mmap(NULL, len, rnd() % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, ctx->cmd_fd, page << 12);
		if (m != MAP_FAILED && rnd() % 3)
			munmap(m, len);
	}
	/* The descriptor is a file in memory: damage it in the ways that such files permit. */
	ftruncate(ctx->cmd_fd, 0);
	ftruncate(ctx->cmd_fd, rnd());
	fallocate(ctx->cmd_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 25);
	pwrite(ctx->cmd_fd, ctx, 64, 0x100800);
	fcntl(ctx->cmd_fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL);
	struct pair p;
	pair_open(&p, 0);
	fallocate(p.ctx->cmd_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 25);
	transfer(&p.near, IBV_WR_RDMA_WRITE, (uintptr_t)p.near.buf, 100, p.near.mr->lkey, (uintptr_t)p.far.buf, p.far.mr->rkey);
}

static void paths(void)
{
	static const char *names[] = {
		"/sys/class/infiniband", "/sys/class/infiniband/../infiniband/./mlx5_0//", "/sys/class/infiniband/mlx5_0/ports/1/gids/3",
		"/sys/class/infiniband/../../../etc/passwd", "/dev/infiniband/../../etc/passwd", "/dev/infiniband/uverbs0",
		"/dev/infiniband/uverbs9", "/dev/infiniband/rdma_cm", "/sys/class/infiniband_verbs/uverbs0/device/../../../../../../etc",
		"/proc/self/root/sys/class/infiniband", "", "/", "/sys/class/infiniband\n", "/dev/infiniband/uverbs0/x",
	};
	struct stat st;
	char buf[4096];
	for (int i = 0; i < 1500; i++) {
		const char *name = names[rnd() % (sizeof names / sizeof names[0])];
		if (rnd() % 4 == 0)
			name = (char *)some_pointer();
		if (rnd() % 8 == 0) {
			memset(buf, 'x', sizeof buf);
			memcpy(buf, "/sys/class/infiniband/", 22);
			buf[20 + rnd() % 4076] = 0;
			name = buf;
		}
		int fd = -1;
		switch (rnd() % 8) {
		case 0: fd = syscall(SYS_openat, rnd() % 2 ? AT_FDCWD : (int)rnd(), name, rnd() & ~(O_CREAT | O_TRUNC | O_TMPFILE), 0644); break;
		case 1: fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY | O_DIRECTORY); break;
		case 2: syscall(SYS_newfstatat, AT_FDCWD, name, rnd() % 2 ? (void *)&st : (void *)some_pointer(), rnd() % 2 ? AT_EMPTY_PATH : rnd()); break;
		case 3: syscall(SYS_readlink, name, (void *)some_pointer(), (size_t)rnd() << (rnd() % 33)); break;
		case 4: access(name, rnd()); break;
		case 5: syscall(SYS_statx, AT_FDCWD, name, rnd(), rnd(), some_pointer()); break;
		case 6: syscall(SYS_openat2, AT_FDCWD, name, some_pointer(), 24); break;
		case 7: syscall(SYS_getxattr, name, "user.x", some_pointer(), 10); break;
		}
		if (fd >= 0) {
			if (rnd() % 2)
				getdents64(fd, buf, sizeof buf);
			close(fd);
		}
	}
}

/* descriptors opens, duplicates, reopens (through /proc) and closes descriptors. */
static void descriptors(void)
{
	int fds[64];
	memset(fds, -1, sizeof fds);
	for (int i = 0; i < 600; i++) {
		int *at = &fds[rnd() % 64], other = fds[rnd() % 64];
		char name[64];
		if (*at >= 0)
			close(*at);
		switch (rnd() % 6) {
		case 0: *at = open("/dev/infiniband/uverbs0", O_RDWR); break;
		case 1: *at = open("/dev/infiniband/rdma_cm", O_RDWR | O_NONBLOCK); break;
		case 2: *at = dup(other); break;
		case 3: *at = fcntl(other, F_DUPFD_CLOEXEC, rnd() % 1000); break;
		case 4:
			snprintf(name, sizeof name, "/proc/self/fd/%d", other);
			*at = open(name, rnd() % 2 ? O_RDWR : O_RDONLY);
			break;
		case 5: *at = -1; random_ioctl(other); break;
		}
	}
}

const struct mode call_modes[] = {
	{ "ioctls", ioctls }, { "changed_ioctls", changed_ioctls }, { "cm_writes", cm_writes }, { "maps", maps }, { "paths", paths }, { "descriptors", descriptors }, { 0 },
};
