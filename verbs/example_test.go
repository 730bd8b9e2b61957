package verbs_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// node is a device with one connected queue pair.
type node struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
}

func open(addr string) *node {
	n := new(node)
	n.dev = check(verbs.Open(netip.MustParseAddr(addr), nil))
	n.pd = check(n.dev.NewPD())
	n.cq = check(n.dev.NewCQ(64))
	n.qp = check(n.pd.NewQP(verbs.QPAttr{SendCQ: n.cq, SignaturePipelining: true}))
	return n
}

func (n *node) wait() rdma.WC {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wc [1]rdma.WC
	check(n.cq.Wait(ctx, wc[:]))
	return wc[0]
}

func connect(a, b *node) {
	if err := a.qp.Connect(b.qp.Endpoint(), nil); err != nil {
		log.Fatal(err)
	}
	if err := b.qp.Connect(a.qp.Endpoint(), nil); err != nil {
		log.Fatal(err)
	}
}

func check[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// A memory key signs data that is sent to the peer: 4096 bytes of memory become 8 blocks,
// each followed by a T10-DIF.
func Example() {
	a, b := open("127.99.0.1"), open("127.99.0.2")
	connect(a, b)
	data := check(a.pd.Register(make([]byte, 4096), rdma.LocalWrite))
	remote := check(b.pd.Register(make([]byte, 8*520), rdma.LocalWrite|rdma.RemoteWrite))
	key := check(a.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 4}))

	wr := a.qp.Start()
	wr.Configure(key).List(data.SGE(0, 4096)).Signature(mkey.Signature{
		Wire: &sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 0x5678, RefTag: 100},
	})
	wr.ID(7).Signaled().Write(remote.RKey(), remote.Addr()).SGE(key.SGE(0, 8*520))
	if err := wr.Complete(); err != nil {
		log.Fatal(err)
	}
	wc := a.wait()
	fmt.Println(wc.ID, wc.Opcode, wc.Status.String())
	fmt.Printf("field of block 3 at the peer: % x\n", remote.Bytes()[3*520+512:4*520])
	bad, err := key.Check()
	fmt.Println("bad block:", bad, err)
	// Output:
	// 7 RDMA_WRITE success
	// field of block 3 at the peer: 00 00 56 78 00 00 00 67
	// bad block: <nil> <nil>
}

// A storage target answers a read with data and a good status in one chain. The key
// checks and strips the fields in memory. Block 2 is damaged, so the queue stops before
// the fence and the good status is not sent.
func Example_pipelinedRead() {
	target, initiator := open("127.99.0.3"), open("127.99.0.4")
	connect(target, initiator)
	dif := sig.Format{Type: sig.T10DIF, BlockSize: 512}
	disk := check(target.pd.Register(make([]byte, 8*520), rdma.LocalWrite))
	check(dif.Protect(disk.Bytes(), make([]byte, 4096)))
	disk.Bytes()[2*520+17] ^= 0x01

	buffer := check(initiator.pd.Register(make([]byte, 4096), rdma.LocalWrite|rdma.RemoteWrite))
	status := check(initiator.pd.Register(make([]byte, 4), rdma.LocalWrite))
	check(initiator.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{status.SGE(0, 4)}}))

	const goodStatus = 2
	key := check(target.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 4}))
	wr := target.qp.Start()
	wr.Configure(key).List(disk.SGE(0, 8*520)).Signature(mkey.Signature{Memory: &dif})
	wr.ID(1).Write(buffer.RKey(), buffer.Addr()).SGE(key.SGE(0, 4096))
	wr.ID(goodStatus).Fence().Send().Inline([]byte("good"))
	if err := wr.Complete(); err != nil {
		log.Fatal(err)
	}

	// A real program would wait for its next request at the same time.
	event := check(target.dev.NextEvent(context.Background()))
	fmt.Println("event:", event.Type)
	event.Ack()
	bad := check(key.Check())
	fmt.Println(bad)
	fmt.Println("cancelled:", check(target.qp.Cancel(goodStatus)))
	if err := target.qp.Start().ID(3).Send().Inline([]byte("bad!")).Complete(); err != nil {
		log.Fatal(err)
	}
	if err := target.qp.SetState(rdma.StateRTS); err != nil {
		log.Fatal(err)
	}
	initiator.wait()
	fmt.Printf("the initiator got %q\n", status.Bytes())
	// Output:
	// event: send queue drained
	// memory domain: bad guard: block 2 at offset 1040: stored 0x0, computed 0xc9dd
	// cancelled: 1
	// the initiator got "bad!"
}
