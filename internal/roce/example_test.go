package roce_test

import (
	"fmt"
	"log"
	"net/netip"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
)

// text is a Source of its bytes, and a Sink that appends to them.
type text []byte

func (t *text) ReadAt(p []byte, off uint64) error { copy(p, (*t)[off:]); return nil }
func (t *text) Write(p []byte) error              { *t = append(*t, p...); return nil }

// end is the Handler of one end of a connection, with a queue of work and one receive
// buffer. Package verbs provides both for programs.
type end struct {
	roce.Handler // the methods that this example does not use
	work         []*roce.Work
	buf          text
	done         chan string
}

func (e *end) Next() *roce.Work {
	if len(e.work) == 0 {
		return nil
	}
	w := e.work[0]
	e.work = e.work[1:]
	return w
}

func (e *end) Completed(w *roce.Work, st rdma.Status) rdma.Status {
	e.done <- fmt.Sprintf("sent %d bytes: %v", w.Length, st)
	return st
}

func (e *end) BeginRecv() (roce.Sink, roce.NAK) { return &e.buf, roce.NAKNone }
func (e *end) ReturnRecv()                      {}

func (e *end) Received(ev roce.RecvEvent) roce.NAK {
	e.done <- fmt.Sprintf("received %q with immediate %d", e.buf, ev.Imm)
	return roce.NAKNone
}

// A SEND with immediate from one device to another.
func Example() {
	network := inproc.NewNetwork(nil)
	var ends [2]*end
	var qps [2]*roce.QP
	for i, addr := range []string{"192.0.2.1:4791", "192.0.2.2:4791"} {
		conn, err := network.Listen(netip.MustParseAddrPort(addr))
		if err != nil {
			log.Fatal(err)
		}
		port := roce.NewPort(conn, nil)
		defer port.Close()
		ends[i] = &end{done: make(chan string, 1)}
		if qps[i], err = port.NewQP(ends[i], rdma.RC); err != nil {
			log.Fatal(err)
		}
	}
	hello := text("hello")
	ends[0].work = []*roce.Work{{Op: ibv.WRSendImm, Src: &hello, Length: 5, Imm: 42}}

	for i, q := range qps {
		peer := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(2 - i)}), roce.UDPPort)
		if err := q.RTR(roce.RecvConfig{Peer: peer, DestQPN: qps[1-i].Num(), MTU: 4096, PSN: 1000}); err != nil {
			log.Fatal(err)
		}
	}
	for _, q := range qps {
		if err := q.RTS(roce.SendConfig{PSN: 1000, Timeout: 14, RetryCount: 7, RNRRetry: 7}); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(<-ends[1].done)
	fmt.Println(<-ends[0].done)
	// Output:
	// received "hello" with immediate 42
	// sent 5 bytes: success
}
