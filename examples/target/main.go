// Target is a storage initiator and a storage target with T10-DIF on the wire. The target
// answers a read with the data and a good status in one chain. Its key checks the fields of
// its disk on the way; if one is bad, the queue stops before the good status, and the target
// sends a bad one (signature pipelining). The initiator's key checks the fields of the wire
// and leaves them out of its memory.
//
//	go run ./examples/target
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"net/netip"
	"sync"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

const (
	blocks = 8            // blocks of a read
	plain  = blocks * 512 // bytes of data
	signed = blocks * 520 // bytes with fields

	idData, idGood, idBad = 1, 2, 3 // IDs of the target's work requests
)

func dif(lba uint64) *sig.Format { return &sig.Format{Type: sig.T10DIF, RefTag: lba} }

// end is one side, the initiator or the target: a device with a queue pair, a memory key, and
// a buffer for messages.
type end struct {
	dev  *verbs.Device
	pd   *verbs.PD
	send *verbs.CQ
	recv *verbs.CQ
	qp   *verbs.QP
	key  *verbs.MKey
	msg  *verbs.MR
}

func open(addr string) *end {
	e := &end{dev: must(verbs.Open(netip.MustParseAddr(addr), nil))}
	e.pd, e.send, e.recv = must(e.dev.NewPD()), must(e.dev.NewCQ(16)), must(e.dev.NewCQ(16))
	e.qp = must(e.pd.NewQP(verbs.QPAttr{SendCQ: e.send, RecvCQ: e.recv, SignaturePipelining: true}))
	e.key = must(e.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 1}))
	e.msg = must(e.pd.Register(make([]byte, 32), rdma.LocalWrite))
	check(e.qp.Init(rdma.LocalWrite | rdma.RemoteWrite))
	e.receive()
	return e
}

func (e *end) receive() { must(e.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{e.msg.SGE(0, 32)}})) }

// next returns the next completion of a queue, nil if ctx ends first.
func next(ctx context.Context, cq *verbs.CQ) *rdma.WC {
	var wc [1]rdma.WC
	if _, err := cq.Wait(ctx, wc[:]); err != nil {
		return nil
	}
	check(wc[0].Err)
	return &wc[0]
}

// serve answers n reads.
func (e *end) serve(disk *verbs.MR, n int) {
	for range n {
		next(context.Background(), e.recv)
		lba := binary.BigEndian.Uint64(e.msg.Bytes())
		rkey := binary.BigEndian.Uint32(e.msg.Bytes()[8:])
		e.receive()
		wr := e.qp.Start()
		wr.Configure(e.key).List(disk.SGE(int(lba)*520, signed)).Signature(mkey.Signature{Memory: dif(lba), Wire: dif(lba)})
		wr.ID(idData).Write(rkey, 0).SGE(e.key.SGE(0, signed))
		wr.ID(idGood).Signaled().Fence().Send().Inline([]byte("good"))
		check(wr.Complete())

		sent, stopped := context.WithCancel(context.Background())
		var events sync.WaitGroup
		events.Go(func() {
			if ev, err := e.dev.NextEvent(sent); err == nil {
				ev.Ack() // EventSQDrained: the queue has stopped
				stopped()
			}
		})
		if next(sent, e.send) == nil {
			fmt.Println("target:", must(e.key.Check()))
			must(e.qp.Cancel(idGood))
			check(e.qp.Start().ID(idBad).Signaled().Send().Inline([]byte("bad!")).Complete())
			check(e.qp.SetState(rdma.StateRTS))
			for next(context.Background(), e.send).ID != idBad {
			}
		}
		stopped()
		events.Wait() // it must not take the event of the next read
	}
}

// read reads blocks from lba on into buf, which receives the data without the fields.
func (e *end) read(buf *verbs.MR, lba uint64) (status string, bad *mkey.BadBlock) {
	request := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, lba), e.key.RKey())
	wr := e.qp.Start()
	wr.Configure(e.key).Access(rdma.RemoteWrite | rdma.LocalWrite).List(buf.SGE(0, plain)).Signature(mkey.Signature{Wire: dif(lba)})
	wr.Signaled().Send().Inline(request)
	check(wr.Complete())
	next(context.Background(), e.send)
	wc := next(context.Background(), e.recv)
	status = string(e.msg.Bytes()[:wc.ByteLen])
	e.receive()
	return status, must(e.key.Check())
}

func main() {
	log.SetFlags(0)
	target, initiator := open("127.88.0.1"), open("127.88.0.2")
	disk := must(target.pd.Register(make([]byte, 4*signed), rdma.LocalWrite))
	must(dif(0).Protect(disk.Bytes(), make([]byte, 4*plain)))
	disk.Bytes()[19*520+7] ^= 1 // block 19 is bad

	ctx := context.Background()
	listener := must(cm.Listen(target.dev, 0, nil))
	done := make(chan struct{})
	go func() {
		defer close(done)
		must(must(listener.Accept(ctx)).Accept(ctx, target.qp, nil))
		target.serve(disk, 4)
	}()
	conn := must(cm.Dial(ctx, initiator.qp, listener.Addr().(cm.Addr).AddrPort(), nil))
	buf := must(initiator.pd.Register(make([]byte, plain), rdma.LocalWrite))
	for lba := uint64(0); lba < 4*blocks; lba += blocks {
		status, bad := initiator.read(buf, lba)
		fmt.Printf("initiator: blocks %d to %d: status %q, bad on the wire: %v\n", lba, lba+blocks-1, status, bad != nil)
	}
	<-done
	check(conn.Disconnect(ctx))
}

func must[T any](v T, err error) T { check(err); return v }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
