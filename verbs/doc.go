// Package verbs is a software RDMA device. It gives a Go program the objects that
// libibverbs and libmlx5 give a C program on a ConnectX, as far as memory keys need them.
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
// Completions report when requests finish ([CQ.Poll], [CQ.Wait]), events report failures of
// objects ([Device.NextEvent]), and [MKey.Check] reports bad signatures. WC.Err of a failed
// completion gives the reason in words.
//
// # Bad signatures
//
// A bad signature is not an error of the transfer: the data flows on, the completion is a
// success, and the key remembers the first bad block. A program that answers a request with
// data and a status must not send a good status before it has asked the key. It either
// waits for the completion of the data, or creates its QP with [QPAttr.SignaturePipelining]
// and posts the good status behind a fence. If the signature of the data was bad, the QP
// stops before the fence, goes to SQD and raises [EventSQDrained]. The program cancels the
// good status ([QP.Cancel]), posts a bad one and resumes with [QP.Modify]. The examples show
// both.
//
// # Names and numbers
//
// Names are those of the manual pages in Go's casing. The values of statuses, opcodes,
// events, states and flags are those of <infiniband/verbs.h> and <infiniband/mlx5dv.h>. They
// are defined in package rdma, which packages share that do not need this one. Errors are
// [operr.Error] with the errno that the pages name.
//
// # Concurrency
//
// Everything but a [Chain] is safe for concurrent use. Objects are closed in any order; an
// object with users returns EBUSY. When the Close of a region or of a memory key returns,
// nothing touches its memory any more.
//
// # What is not emulated
//
// QPs are of type RC, UC or UD. Addresses are the real addresses of slices, without virtual
// memory in between: a slice that is registered is used in place. The device has one port
// with one GID, and no memory windows.
package verbs
