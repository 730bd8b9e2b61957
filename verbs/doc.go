// Package verbs is a software RDMA device: what libibverbs and libmlx5 give a
// program on a ConnectX, for the part that memory keys need.
//
// [Open] opens a device on a local IP address. On it a program makes a protection
// domain ([Device.NewPD]), registers memory ([PD.Register]), creates memory keys
// ([PD.NewMKey]), completion queues ([Device.NewCQ]) and queue pairs ([PD.NewQP]).
// [Exchange] and [QP.Connect] join two queue pairs, of this process, another one,
// another host, Linux's soft-RoCE or a real adapter: the packets are RoCEv2.
//
// Requests are posted in chains, as with ibv_wr_start(3):
//
//	wr := qp.Start()
//	wr.Configure(key).Access(verbs.RemoteRead).List(mr.SGE(0, 4096)).Signature(attr)
//	wr.ID(7).Write(peerKey, 0).SGE(key.SGE(0, 4160))
//	wr.ID(8).Signaled().Fence().Send().Inline(response)
//	err := wr.Complete()
//
// Their ends are told by completions ([CQ.Poll], [CQ.Wait]), failures of objects by
// events ([Device.NextEvent]), and what memory keys found by [MKey.Check].
//
// # Bad signatures
//
// A bad signature is not an error of the transfer: the data flows on, the completion
// is a success, and the key remembers the first bad block. A program that answers
// a request with data and a status must not send a good status before it has
// asked. It either waits for the data's completion, or creates its QP with
// [QPAttr.SignaturePipelining] and posts the good status behind a fence: when
// the data's signature was bad, the QP stops before the fence, goes to SQD and
// raises [EventSQDrained]; the program cancels the good status ([QP.Cancel]), posts a bad
// one and resumes with [QP.Modify]. The examples show both.
//
// # Names and numbers
//
// Names are those of the manual pages in Go's casing. Status, opcode, event, state and
// access-flag values are those of <infiniband/verbs.h> and <infiniband/mlx5dv.h>. Errors
// are [operr.Error] with the errno that the pages name.
//
// # Concurrency
//
// Everything but a [Chain] is safe for concurrent use. Objects are closed in any
// order; one that is still in use says so with EBUSY. When closing a region or a
// memory key returns, nothing touches its memory any more.
//
// # What is not emulated
//
// Only reliable connections exist. Addresses are the real addresses of slices, but there
// is no virtual memory between: a slice that is registered is used as it is. There are no
// memory windows, no address handles beside those of a connection, and one port with one GID.
package verbs
