// Package rdma is the vocabulary of RDMA programs: states, operations, statuses, flags,
// attributes and completions, with the numeric values of <infiniband/verbs.h>.
//
// Packages mkey, verbs and cm use its types.
//
// The package contains only values, which can be printed, compared and copied.
package rdma
