// Package ibv is the part of libibverbs' vocabulary that the engine and the adapter need and programs of package
// verbs do not: operations and flags of requests, attributes of QPs with their masks, and what only adapters have.
// The values are those of <infiniband/verbs.h>.
package ibv
