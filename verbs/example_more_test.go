package verbs_test

import (
	"encoding/binary"
	"fmt"
	"log"
	"net/netip"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// Numbers for a queue: each FETCH_ADD takes the next one from the peer's counter, and a
// compare and swap sets the counter back.
func ExampleChain_FetchAdd() {
	a, b := open("127.99.0.5"), open("127.99.0.6")
	connect(a, b)
	counter := check(b.pd.Register(make([]byte, 8), rdma.LocalWrite|rdma.RemoteAtomic))
	old := check(a.pd.Register(make([]byte, 8), rdma.LocalWrite))
	do := func(wr verbs.Chain) {
		if err := wr.SGE(old.SGE(0, 8)).Complete(); err != nil {
			log.Fatal(err)
		}
		wc := a.wait()
		fmt.Println(wc.Opcode, binary.NativeEndian.Uint64(old.Bytes()), wc.Err)
	}
	do(a.qp.Start().Signaled().FetchAdd(counter.RKey(), counter.Addr(), 1))
	do(a.qp.Start().Signaled().FetchAdd(counter.RKey(), counter.Addr(), 1))
	do(a.qp.Start().Signaled().CompareSwap(counter.RKey(), counter.Addr(), 2, 0))
	// Output:
	// FETCH_ADD 0 <nil>
	// FETCH_ADD 1 <nil>
	// COMP_SWAP 2 <nil>
}

// The receive requests of all connections of a server come from one queue.
func ExampleSRQ() {
	server, client := open("127.99.0.7"), open("127.99.0.8")
	srq := check(server.pd.NewSRQ(verbs.SRQAttr{MaxWR: 16}))
	server.qp = check(server.pd.NewQP(verbs.QPAttr{SendCQ: server.cq, SRQ: srq}))
	connect(server, client)
	buffers := check(server.pd.Register(make([]byte, 2*64), rdma.LocalWrite))
	for i := range 2 {
		check(srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []rdma.SGE{buffers.SGE(i*64, 64)}}))
	}
	if err := client.qp.Start().Send().Inline([]byte("hello")).Complete(); err != nil {
		log.Fatal(err)
	}
	wc := server.wait()
	at := int(wc.ID) * 64
	fmt.Printf("%s on the client's QP: %v\n", buffers.Bytes()[at:at+int(wc.ByteLen)], wc.QPNum == server.qp.Num())
	// Output: hello on the client's QP: true
}

// A datagram to a multicast group, which the sender is a member of.
func ExampleQP_AttachMulticast() {
	const qkey = 0x1234
	n := open("127.99.0.9")
	qp := check(n.pd.NewQP(verbs.QPAttr{Type: rdma.UD, SendCQ: n.cq}))
	if err := qp.Bind(qkey); err != nil {
		log.Fatal(err)
	}
	group := rdma.GIDOf(netip.MustParseAddr("239.77.9.9"))
	if err := qp.AttachMulticast(group); err != nil {
		log.Fatal(err)
	}
	buffer := check(n.pd.Register(make([]byte, verbs.GRHLen+64), rdma.LocalWrite))
	check(qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{buffer.SGE(0, buffer.Len())}}))
	ah := check(n.pd.NewAddressHandle(rdma.AH{DGID: group}))
	if err := qp.Start().Send().Inline([]byte("to everybody")).To(ah, rdma.MulticastQPN, qkey).Complete(); err != nil {
		log.Fatal(err)
	}
	wc := n.wait()
	fmt.Printf("%s\n", buffer.Bytes()[verbs.GRHLen:wc.ByteLen])
	// Output: to everybody
}

// A server gives a key another number before each use, so that a client's old number is refused.
func ExampleMKey_SetTag() {
	a, b := open("127.99.0.10"), open("127.99.0.11")
	connect(a, b)
	data := check(b.pd.Register(make([]byte, 64), rdma.LocalWrite))
	key := check(b.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.UpdateTag, MaxEntries: 4}))
	for tag := range 2 {
		if err := key.SetTag(uint8(tag)); err != nil {
			log.Fatal(err)
		}
		wr := b.qp.Start().Signaled().Configure(key).Access(rdma.RemoteRead).List(data.SGE(0, 64))
		if err := wr.Complete(); err != nil {
			log.Fatal(err)
		}
		b.wait()
	}
	into := check(a.pd.Register(make([]byte, 64), rdma.LocalWrite))
	if err := a.qp.Start().Signaled().Read(key.RKey()&^0xff, 0).SGE(into.SGE(0, 64)).Complete(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(a.wait().Status)
	// Output: remote access error
}
