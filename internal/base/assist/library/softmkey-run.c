/*
 * libsoftmkey-run.so is loaded into the programs of softmkey run (LD_PRELOAD). A program that waits for the
 * device spins, and the device's thread gets no processor from it. So the library gives the device the
 * processor of the program: after the program has rung a doorbell, it wakes a thread of the device that waits
 * on the program's own processor and runs at once. A program without the library gets the same results
 * later, because the device's thread looks by itself.
 *
 * The library changes no data. Where anything is missing (another device, another version of libibverbs, no
 * page), the program's calls go to libibverbs unchanged. It is linked with nothing, so that it loads
 * everywhere; the functions that it calls are weak.
 *
 * The protocol of the page is that of package assist.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "abi.h"

#pragma weak dladdr
#pragma weak dlclose
#pragma weak dlerror
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlvsym
#pragma weak dl_iterate_phdr
#pragma weak ioctl
#pragma weak mmap
#pragma weak munmap
#pragma weak close
#pragma weak sched_getcpu
#pragma weak syscall
#pragma weak pthread_mutex_lock
#pragma weak pthread_mutex_unlock
#pragma weak clock_gettime
#pragma weak __errno_location

/* The page: see package assist. */
enum { PAGE = 4096, LINE = 64, PROCESSORS = PAGE / LINE - 1, DOZING = 1 };

/*
 * How many doorbells are rung without a look into the queue before the device is woken, and how many of them, as a
 * mean, are a stream, for which the device's own thread does better than its helpers.
 */
enum { MANY = 16, STREAM = 4 };

/*
 * A program that has rung so many times MANY doorbells without a call of ibv_poll_cq looks for completions in
 * another way. The device is then woken for each of its doorbells.
 */
enum { BLIND = 16 };

/* How often the device is told that a stream, or a thread that sleeps, goes on. Times are in nanoseconds. */
enum { REMIND = 5000000 };

/*
 * A thread that polls and finds nothing sleeps if other threads want its processor: the kernel then runs it soon
 * after the completion, and not after the slices of all others. Others want it if the clock, which is read at every
 * EVERYth empty poll, has jumped by GAP twice within GAPS. For the next CROWDED the thread then sleeps after PATIENCE
 * of empty polls, for NAP at most. It does not sleep if EVERY polls take longer than CLOSE: it has other work. Nor does
 * it with a doorbell of which the device has not been told.
 */
enum { EVERY = 16, GAP = 2000000, GAPS = 100000000, CROWDED = 250000000, PATIENCE = 20000, NAP = 200000, CLOSE = 32000 };

static _Thread_local __attribute__((tls_model("initial-exec"))) struct {
	unsigned empty;   /* polls in a row that found nothing */
	uint64_t since;   /* when the clock was read first during these */
	uint64_t read;    /* when it was read last */
	uint64_t gap;     /* when it had jumped last */
	uint64_t crowded; /* until when the thread sleeps */
} poller;

/* An open device. */
struct device {
	_Atomic(struct context *) context;
	struct operations ops; /* of the provider */
	void *opener;          /* the function that opened it */
	_Atomic(int (*)(struct qp_ex *)) wr_complete; /* of the provider, for queue pairs that can send */
	_Atomic(char *) page;
	atomic_uint posted; /* doorbells since the device was woken last */
	atomic_uint mean;   /* of posted when the device was woken, times 8 */
	_Atomic uint64_t told; /* when the device was told of a stream */
	_Atomic uint64_t slept; /* when the device was told of a thread that sleeps */
	atomic_uint unpolled; /* how often MANY doorbells came without a call of ibv_poll_cq */
	atomic_bool armed;  /* the program has asked for an event, and has found no completion since: it sleeps, and helps nobody */
};

enum { DEVICES = 64 };
static struct device devices[DEVICES];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* The device of a context; NULL if it was not wrapped. Wrappers are called for contexts that were. */
static struct device *device_of(struct context *c)
{
	for (int i = 0; i < DEVICES; i++)
		if (atomic_load_explicit(&devices[i].context, memory_order_acquire) == c)
			return &devices[i];
	return NULL;
}

/* The time; 0 if it is not known. */
static uint64_t now_ns(void)
{
	struct timespec t;

	if (!clock_gettime || clock_gettime(CLOCK_MONOTONIC, &t) != 0)
		return 0;
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

/* Tells the device, by a word of its page, that something begins, or that it goes on. told is when it was told last. */
static void tell(volatile uint32_t *word, _Atomic uint64_t *told)
{
	uint64_t now;

	if (*word != DOZING || (now = now_ns()) - atomic_load_explicit(told, memory_order_relaxed) < REMIND)
		return;
	atomic_store_explicit(told, now, memory_order_relaxed);
	syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Wakes the device's thread on this processor, if it sleeps. */
static void kick(struct device *d)
{
	char *page = atomic_load_explicit(&d->page, memory_order_relaxed);
	int cpu = sched_getcpu ? sched_getcpu() : -1;
	int saved = errno;
	unsigned n = atomic_load_explicit(&d->posted, memory_order_relaxed);

	if (!page || cpu < 0 || cpu >= PROCESSORS) {
		atomic_store_explicit(&d->posted, 0, memory_order_relaxed);
		return;
	}
	/* The doorbell is written before the line is read. The thread writes the line before it reads doorbells. */
	atomic_thread_fence(memory_order_seq_cst);
	volatile uint32_t *polls = (uint32_t *)page, *streams = polls + 1, *line = (uint32_t *)(page + LINE * (1 + cpu));
	unsigned mean = atomic_load_explicit(&d->mean, memory_order_relaxed);
	mean += n - mean / 8;
	atomic_store_explicit(&d->mean, mean, memory_order_relaxed);
	if (mean >= 8 * STREAM)
		tell(streams, &d->told);
	if (!*polls && *line == DOZING && syscall(SYS_futex, line, FUTEX_WAKE, 1, NULL, NULL, 0) == 0)
		goto out; /* it is about to sleep, or to work: once more at the next poll */
	atomic_compare_exchange_strong_explicit(&d->posted, &n, 0, memory_order_relaxed, memory_order_relaxed);
out:
	errno = saved;
}

static void rang(struct device *d)
{
	unsigned n = atomic_fetch_add_explicit(&d->posted, 1, memory_order_relaxed) + 1;
	if (n >= MANY)
		atomic_fetch_add_explicit(&d->unpolled, 1, memory_order_relaxed);
	if (n >= MANY || atomic_load_explicit(&d->unpolled, memory_order_relaxed) >= BLIND)
		kick(d);
}

static int post_send(struct qp *qp, void *wr, void **bad)
{
	struct device *d = device_of(qp->context);
	int r = d->ops.post_send(qp, wr, bad);
	rang(d);
	return r;
}

/* Reads the clock, after EVERY empty polls, and sleeps if others want the processor. It returns what it finds then. */
static int idle(struct device *d, struct cq *cq, int n, void *wc)
{
	uint64_t now = now_ns(), past = now - poller.read;
	char *page = atomic_load_explicit(&d->page, memory_order_relaxed);

	poller.read = now;
	if (poller.empty == EVERY) {
		poller.since = now;
		return 0;
	}
	if (past >= GAP) {
		if (now - poller.gap < GAPS)
			poller.crowded = now + CROWDED;
		poller.gap = now;
	}
	if (now >= poller.crowded || now - poller.since < PATIENCE || past > CLOSE || !page || atomic_load(&d->posted))
		return 0;
	volatile uint32_t *sleepers = (uint32_t *)page + 3, *completions = sleepers + 1;
	uint32_t seen = *completions;
	/* The device writes completions before it counts, and this counts before it looks. */
	atomic_thread_fence(memory_order_seq_cst);
	int r = d->ops.poll_cq(cq, n, wc), saved = errno;
	if (r == 0) {
		struct timespec most = {.tv_nsec = NAP};
		tell(sleepers, &d->slept);
		syscall(SYS_futex, completions, FUTEX_WAIT, seen, &most, NULL, 0);
		errno = saved;
		r = d->ops.poll_cq(cq, n, wc);
	}
	poller.empty = 0;
	return r;
}

static int poll_cq(struct cq *cq, int n, void *wc)
{
	struct device *d = device_of(cq->context);
	int r = d->ops.poll_cq(cq, n, wc);
	if (atomic_load_explicit(&d->unpolled, memory_order_relaxed))
		atomic_store_explicit(&d->unpolled, 0, memory_order_relaxed);
	if (r != 0) {
		if (atomic_load_explicit(&d->armed, memory_order_relaxed))
			atomic_store_explicit(&d->armed, 0, memory_order_relaxed);
		poller.empty = 0;
		return r;
	}
	if (atomic_load_explicit(&d->posted, memory_order_relaxed) && !atomic_load_explicit(&d->armed, memory_order_relaxed)) {
		kick(d);
		r = d->ops.poll_cq(cq, n, wc);
	}
	if (r == 0 && ++poller.empty % EVERY == 0)
		r = idle(d, cq, n, wc);
	return r;
}

static int req_notify_cq(struct cq *cq, int solicited)
{
	struct device *d = device_of(cq->context);
	int r = d->ops.req_notify_cq(cq, solicited);
	atomic_store_explicit(&d->armed, 1, memory_order_relaxed);
	return r;
}

/* Some libraries have several versions of a function, others have none, and so has musl. */
static void *symbol(void *handle, const char *name, const char *version)
{
	void *f = dlvsym ? dlvsym(handle, name, version) : NULL;
	return f ? f : dlsym(handle, name);
}

/* The function that an object (a file that is loaded) would call without this library. */
static void *symbol_of(const char *object, const char *name, const char *version)
{
	Dl_info own, found;
	void *f, *h = object && *object ? dlopen(object, RTLD_LAZY | RTLD_NOLOAD) : NULL;

	if (!h)
		return NULL;
	f = symbol(h, name, version);
	if (f && dladdr(&devices, &own) && dladdr(f, &found) && own.dli_fbase == found.dli_fbase)
		f = NULL;
	dlclose(h);
	return f;
}

struct object { int before; char name[1024]; };

static int name_object(struct dl_phdr_info *info, size_t size, void *result)
{
	struct object *o = result;
	int n = 0;

	(void)size;
	if (o->before-- > 0)
		return 0;
	for (; info->dlpi_name && info->dlpi_name[n] && n < (int)sizeof o->name - 1; n++)
		o->name[n] = info->dlpi_name[n];
	o->name[n] = 0;
	return 1;
}

/*
 * The next definition of a function of this library: the one that the dynamic linker would find for the caller if this
 * library was not there. First come the program's libraries, then those of the object from which the call comes
 * (a plugin has libraries of its own). The return address may be in another object (a tail call), and so the last ones
 * are those of the function by which the context was opened, and all others.
 */
static void *next(const char *name, const char *version, void *caller, void *opener)
{
	void *near[] = {caller, opener}, *f;
	Dl_info info;
	struct object o;

	if (!dladdr || !dlclose || !dlerror || !dlopen || !dlsym || !dl_iterate_phdr)
		return NULL;
	f = symbol(RTLD_NEXT, name, version);
	for (int i = 0; i < 2 && !f; i++)
		if (near[i] && dladdr(near[i], &info))
			f = symbol_of(info.dli_fname, name, version);
	for (int i = 0; !f && (o.before = i, dl_iterate_phdr(name_object, &o)); i++)
		f = symbol_of(o.name, name, version);
	dlerror(); /* the program sees no error of this library's */
	return f;
}

static int wr_complete(struct qp_ex *q)
{
	struct device *d = device_of(q->qp.context);
	int r = atomic_load_explicit(&d->wr_complete, memory_order_relaxed)(q);
	rang(d);
	return r;
}

/* The provider gives wr_complete to queue pairs when they become RTS. */
static void wrap_complete(struct device *d, struct qp *qp, void *caller)
{
	struct qp_ex *(*extended)(struct qp *) = next("ibv_qp_to_qp_ex", "IBVERBS_1.6", caller, d->opener);
	struct qp_ex *q = extended ? extended(qp) : NULL;
	int (*none)(struct qp_ex *) = NULL;

	if (!q || !q->wr_complete || q->wr_complete == wr_complete)
		return;
	atomic_compare_exchange_strong(&d->wr_complete, &none, q->wr_complete);
	if (q->wr_complete == atomic_load(&d->wr_complete))
		q->wr_complete = wr_complete;
}

/* The ioctl of uverbs that gives a descriptor of the page: an object of the driver's own. */
struct page_request {
	uint16_t length, object, method, attributes;
	uint64_t reserved1;
	uint32_t driver, reserved2;
	struct { uint16_t id, len, flags, data; int64_t value; } descriptor;
};

static char *page_of(struct context *c)
{
	struct page_request r = {.length = sizeof r, .object = 0x10f0, .method = 0x1000, .attributes = 1, .driver = 1 /* RDMA_DRIVER_MLX5 */,
		.descriptor = {.id = 0x1000, .flags = 1, .value = -1}};
	char *page;

	if (!ioctl || !mmap || !munmap || !close || !syscall || !__errno_location || !pthread_mutex_lock || !pthread_mutex_unlock)
		return NULL;
	if (ioctl(c->cmd_fd, 0xc0181b01 /* RDMA_VERBS_IOCTL */, &r) != 0)
		return NULL;
	page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, (int)r.descriptor.value, 0);
	close((int)r.descriptor.value);
	return page == MAP_FAILED ? NULL : page;
}

/*
 * Memory of queues and doorbell records that the device has mapped, too: it reads records in other memory with system
 * calls. The size is in a page before it. If the device has no more, the memory is the program's alone. libmlx5 calls
 * both functions.
 */
static void *allocate(size_t size, void *fd)
{
	size_t all = PAGE + (size + PAGE - 1) / PAGE * PAGE;
	char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	*(size_t *)p = all;
	mmap(p + PAGE, all - PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)(intptr_t)fd, CONTIGUOUS);
	return p + PAGE;
}

static void release(void *p, void *fd)
{
	(void)fd;
	if (p)
		munmap((char *)p - PAGE, *(size_t *)((char *)p - PAGE));
}

static struct context *wrap(struct context *c, void *opener)
{
	int saved = __errno_location ? errno : 0;
	char *page = c ? page_of(c) : NULL;
	struct device *d;
	if (!page)
		goto out;
	struct allocators a = {allocate, release, (void *)(intptr_t)c->cmd_fd};
	int (*set)(struct context *, int, void *) = next("mlx5dv_set_context_attr", "MLX5_1.2", opener, NULL);
	if (set)
		set(c, BUF_ALLOCATORS, &a);
	pthread_mutex_lock(&opening);
	/* A context that was closed without this library may have had the address. */
	if (!(d = device_of(c)))
		d = device_of(NULL);
	if (d && c->ops.post_send != post_send) {
		d->ops = c->ops;
		d->opener = opener;
		page = atomic_exchange(&d->page, page);
		atomic_store(&d->wr_complete, NULL);
		atomic_store(&d->posted, 0);
		atomic_store(&d->mean, 0);
		atomic_store(&d->told, 0);
		atomic_store(&d->slept, 0);
		atomic_store(&d->unpolled, BLIND); /* until it polls */
		atomic_store(&d->armed, 0);
		atomic_store(&d->context, c);
		c->ops.post_send = post_send;
		c->ops.poll_cq = poll_cq;
		c->ops.req_notify_cq = req_notify_cq;
	}
	pthread_mutex_unlock(&opening);
	if (page)
		munmap(page, PAGE);
out:
	if (__errno_location)
		errno = saved;
	return c;
}

__attribute__((visibility("default"))) struct context *ibv_open_device(void *device)
{
	struct context *(*f)(void *) = next("ibv_open_device", "IBVERBS_1.1", __builtin_return_address(0), NULL);
	return f ? wrap(f(device), f) : NULL;
}

__attribute__((visibility("default"))) struct context *mlx5dv_open_device(void *device, void *attr)
{
	struct context *(*f)(void *, void *) = next("mlx5dv_open_device", "MLX5_1.7", __builtin_return_address(0), NULL);
	return f ? wrap(f(device, attr), f) : NULL;
}

__attribute__((visibility("default"))) int ibv_close_device(struct context *c)
{
	struct device *d = c ? device_of(c) : NULL;
	int (*f)(struct context *) = next("ibv_close_device", "IBVERBS_1.1", __builtin_return_address(0), d ? d->opener : NULL);
	int r;

	if (!f)
		return EINVAL;
	if (!d)
		return f(c);
	char *page = atomic_exchange(&d->page, NULL);
	if (c->ops.post_send == post_send)
		c->ops = d->ops;
	/* The provider may free the context and give its address to the next device. */
	atomic_store(&d->context, NULL);
	r = f(c);
	if (page)
		munmap(page, PAGE);
	return r;
}

__attribute__((visibility("default"))) int ibv_modify_qp(struct qp *qp, struct qp_attr *attr, int mask)
{
	struct device *d = qp ? device_of(qp->context) : NULL;
	void *caller = __builtin_return_address(0);
	int (*f)(struct qp *, struct qp_attr *, int) = next("ibv_modify_qp", "IBVERBS_1.1", caller, d ? d->opener : NULL);
	int r = f ? f(qp, attr, mask) : ENOSYS;

	if (r == 0 && d && mask & QP_STATE && attr->state == RTS)
		wrap_complete(d, qp, caller);
	return r;
}
