// Package rdmacm answers the commands of /dev/infiniband/rdma_cm, the kernel's
// interface under librdmacm, with the connection manager of package cmcore.
//
// A program opens the device and writes commands to it. Each open is a [File] of
// the [Manager]; [File.Write] executes one command. The package is pure: it knows
// system calls, descriptors and other processes through the interface [Process]
// only, and queue pairs by number.
//
// The commands on IP addresses are there: RDMA_PS_TCP, RDMA_PS_UDP and
// RDMA_PS_IPOIB ids, and multicast groups. Attaching a QP to a group is a command
// of uverbs, not of rdma_cm. BIND and RESOLVE_ADDR, which take InfiniBand
// addresses, fail with EINVAL, which librdmacm takes for a kernel that has IP
// addresses only; QUERY fails alike.
//
// Sources: <rdma/rdma_user_cm.h>, <rdma/ib_user_sa.h> and
// <rdma/ib_user_verbs.h> of Linux, ABI version 4.
package rdmacm
