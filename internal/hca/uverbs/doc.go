// Package uverbs answers what programs ask of the kernel's RDMA subsystem: the
// ioctls of /dev/infiniband/uverbsN with mlx5's driver data, the pages that are
// mapped from it, and the files of /sys that lead libraries there.
//
// A [Device] is one adapter as programs see it. Each open of its node is a [File]
// with a table of objects, from handles to those of package adapter, which does
// what the commands ask. Package intercept brings the system calls; here is only
// what they mean, so that everything is tested on byte slices ([Caller]).
//
// The layouts are those of <rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_cmds.h>,
// <rdma/mlx5-abi.h> and <rdma/mlx5_user_ioctl_cmds.h>. A method that is not here
// is refused with EPROTONOSUPPORT, upon which libraries fall back to another one
// or report that the device cannot do it.
package uverbs
