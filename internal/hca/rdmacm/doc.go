// Package rdmacm answers the commands of /dev/infiniband/rdma_cm, the kernel's
// interface under librdmacm, with the connection manager of package cmcore.
//
// A program opens the device and writes commands to it. Each open is a [File] of
// the [Manager]; [File.Write] executes one command. The package itself makes no system
// calls: it accesses the program's memory and descriptors through the interface
// [Process], and knows queue pairs only by number.
//
// The commands for IP addresses are supported: RDMA_PS_TCP, RDMA_PS_UDP and
// RDMA_PS_IPOIB ids, and multicast groups. Attaching a QP to a group is a command
// of uverbs, not of rdma_cm. Addresses of AF_IB fail with EINVAL, from which librdmacm
// concludes that the kernel supports IP addresses only. While one thread finds that out,
// others send BIND, RESOLVE_ADDR and QUERY for IP addresses.
//
// Sources: <rdma/rdma_user_cm.h>, <rdma/ib_user_sa.h> and
// <rdma/ib_user_verbs.h> of Linux, ABI version 4.
package rdmacm
