// Package rdma is the vocabulary of RDMA programs: states, operations, statuses, flags,
// attributes and completions, with the numeric values of <infiniband/verbs.h>.
//
// The package imports nothing of this module; mkey, verbs and cm use its types. Adapters have
// more than the devices of package verbs: memory windows, other types of queue pairs,
// alternate paths, and events of ports. Their names are here for programs that read them in
// traces.
//
// The package contains only values, which can be printed, compared and copied.
package rdma
