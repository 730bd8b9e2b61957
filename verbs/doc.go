// Package verbs is a software RDMA device. It gives Go programs the objects that libibverbs
// and libmlx5 give C programs on a ConnectX adapter: protection domains, memory regions,
// memory keys, completion queues and queue pairs. Its packets are RoCEv2, so the peer may be
// another program with this package, Linux's soft-RoCE, or an adapter.
//
// [Open] opens a device on a local IP address. Further addresses (DeviceOptions.Addrs) are entries
// of its GID table ([Device.GIDTable]); SGIDIndex in [ConnectOptions] and [rdma.AH] selects one
// of them as the source of packets. On the device a program creates a protection
// domain ([Device.NewPD]), registers memory ([PD.Register]), and creates memory keys
// ([PD.NewMKey]), completion queues ([Device.NewCQ]) and queue pairs ([PD.NewQP]). The
// programs at both ends exchange the addresses of their queue pairs ([QP.Endpoint]) and
// connect them ([QP.Connect]), or package cm does both.
//
// Send requests are posted in chains, as with ibv_wr_start(3):
//
//	wr := qp.Start()
//	wr.Configure(key).Access(rdma.RemoteRead).List(mr.SGE(0, 4096)).Signature(attr)
//	wr.ID(7).Write(peerKey, 0).SGE(key.SGE(0, 4160))
//	wr.ID(8).Signaled().Fence().Send().Inline(response)
//	err := wr.Complete()
//
// Completions report when requests finish ([CQ.Poll], [CQ.Wait]). The field Err of a failed
// completion ([rdma.WC]) gives the reason in words. Events report failures of objects
// ([Device.NextEvent]), and [MKey.Check] reports bad signatures.
//
// # Bad signatures
//
// A bad signature is not an error of the transfer: the transfer continues, its completion
// reports success, and the key records the first bad block. A program that answers a request
// with data and a status must therefore call MKey.Check before it sends a good status. There
// are two ways to do this:
//
//   - The program waits for the completion of the data, calls MKey.Check, and posts the
//     status.
//   - The program creates its QP with [QPAttr].SignaturePipelining and posts the good status
//     with a fence, together with the data. If the data has a bad signature, the QP stops
//     before the status, enters SQD and raises [rdma.EventSQDrained]. The program then cancels
//     the good status ([QP.Cancel]), posts a bad one and resumes with [QP.SetState].
//
// The examples show both.
//
// # Names and numbers
//
// Names are those of the manual pages in Go's casing. The values of statuses,
// opcodes, events, states and flags are those of <infiniband/verbs.h> and
// <infiniband/mlx5dv.h>; they are defined in package rdma. Each error is an
// *operr.Error with the errno that the manual pages name.
//
// # Concurrency
//
// Everything but a [Chain] is safe for concurrent use. An object is closed after those that
// use it; before that, Close returns EBUSY and names them, QPs by number. When the Close of a region or of a memory
// key returns, no request accesses its memory.
//
// # What is not emulated
//
// QPs are of type RC, UC or UD. Addresses are the real addresses of slices,
// without virtual memory: a registered slice is used in place. The device has
// one port and no memory windows.
package verbs
