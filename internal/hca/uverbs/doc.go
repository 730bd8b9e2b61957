// Package uverbs implements the kernel's RDMA interface for programs: the ioctls of
// /dev/infiniband/uverbsN with mlx5's driver data, the pages that are mapped from it, and
// the files of /sys by which libraries find it.
//
// A [Device] is an adapter as seen by programs. Each open of its node is a [File] with a
// table that maps handles to objects of package adapter, which execute the commands.
// Package intercept delivers the system calls through the interface [Caller], so tests of
// this package need only byte slices.
//
// The layouts are those of <rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_cmds.h>,
// <rdma/mlx5-abi.h> and <rdma/mlx5_user_ioctl_cmds.h>. An unknown method returns
// EPROTONOSUPPORT, after which libraries use another method or report that the device
// lacks the feature.
package uverbs
