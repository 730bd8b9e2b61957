#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The structures of libibverbs that the library reads, as <infiniband/verbs.h> has them; the library is
 * built without this file. They are part of the binary interface of IBVERBS_1.1.
 */
struct context;
struct qp;

struct cq { struct context *context; }; /* struct ibv_cq */

struct operations { /* struct ibv_context_ops */
	void *before_poll_cq[11];
	int (*poll_cq)(struct cq *, int, void *);
	int (*req_notify_cq)(struct cq *, int);
	void *before_post_send[12];
	int (*post_send)(struct qp *, void *, void **);
	void *after_post_send[6];
};

struct context { /* struct ibv_context */
	void *device;
	struct operations ops;
	int cmd_fd;
};

struct qp { /* struct ibv_qp */
	struct context *context;
	void *objects[5];
	uint32_t handle, number, state, type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct qp_ex { /* struct ibv_qp_ex */
	struct qp qp;
	uint64_t comp_mask, wr_id;
	unsigned wr_flags;
	void *before_wr_complete[18];
	int (*wr_complete)(struct qp_ex *);
};

struct qp_attr { uint32_t state; }; /* struct ibv_qp_attr */

struct allocators { /* struct mlx5dv_ctx_allocators */
	void *(*alloc)(size_t, void *);
	void (*free)(void *, void *);
	void *data;
};

/* MLX5DV_CTX_ATTR_BUF_ALLOCATORS; the offset of a mapping of MLX5_IB_MMAP_GET_CONTIGUOUS_PAGES */
enum { BUF_ALLOCATORS = 1, CONTIGUOUS = 1 << 8 << 12 };

enum { QP_STATE = 1, RTS = 3 }; /* IBV_QP_STATE, IBV_QPS_RTS */
