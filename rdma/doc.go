// Package rdma is the vocabulary of RDMA programs: states, opcodes, statuses, flags,
// attributes and completions, with the numeric values of <infiniband/verbs.h>.
//
// Package verbs gives every name of this package under the same name, so a program
// that uses verbs needs no second import. Packages that speak of queue pairs without
// the Go front (the connection manager, the adapter for unmodified programs) import
// this one.
//
// The package has no behaviour: a value of it can be printed, compared and sent.
package rdma
