/* A test compiles this file where libibverbs-dev is installed: abi.h has the offsets of <infiniband/verbs.h>. */
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <stddef.h>

#include "abi.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a " is not " #b)

SAME(offsetof(struct operations, poll_cq), offsetof(struct ibv_context_ops, poll_cq));
SAME(offsetof(struct operations, req_notify_cq), offsetof(struct ibv_context_ops, req_notify_cq));
SAME(offsetof(struct operations, post_send), offsetof(struct ibv_context_ops, post_send));
SAME(sizeof(struct operations), sizeof(struct ibv_context_ops));
SAME(offsetof(struct context, ops), offsetof(struct ibv_context, ops));
SAME(offsetof(struct context, cmd_fd), offsetof(struct ibv_context, cmd_fd));
SAME(offsetof(struct cq, context), offsetof(struct ibv_cq, context));
SAME(offsetof(struct qp, context), offsetof(struct ibv_qp, context));
SAME(sizeof(struct qp), sizeof(struct ibv_qp));
SAME(offsetof(struct qp_ex, wr_complete), offsetof(struct ibv_qp_ex, wr_complete));
SAME(offsetof(struct qp_attr, state), offsetof(struct ibv_qp_attr, qp_state));
SAME(QP_STATE, IBV_QP_STATE);
SAME(RTS, IBV_QPS_RTS);
SAME(offsetof(struct allocators, alloc), offsetof(struct mlx5dv_ctx_allocators, alloc));
SAME(offsetof(struct allocators, free), offsetof(struct mlx5dv_ctx_allocators, free));
SAME(offsetof(struct allocators, data), offsetof(struct mlx5dv_ctx_allocators, data));
SAME(BUF_ALLOCATORS, MLX5DV_CTX_ATTR_BUF_ALLOCATORS);
