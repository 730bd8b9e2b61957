// Package nldev answers the requests of NETLINK_RDMA with which programs look for RDMA devices: the
// rdma tool of iproute2, libibverbs and librdmacm. It knows bytes and devices; the sockets are
// those of package intercept.
//
// [Answer] handles four commands of RDMA_NL_NLDEV (<rdma/rdma_netlink.h> of Linux): the list of
// devices, that of their ports, the settings of the system, and the character device of a
// client. Other commands, such as those that list queue pairs or change something, are
// EOPNOTSUPP.
package nldev
