package netem_test

import (
	"fmt"
	"net/netip"

	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/packetconn"
)

// A filter instead of chance: the second datagram is lost and the third arrives twice.
func ExampleOptions() {
	a, b := netem.Pair(1, netem.Faults{}, &netem.Options{
		Filter: func(n uint64, _ netip.AddrPort, _ []byte) netem.Action {
			switch n {
			case 1:
				return netem.Lose
			case 2:
				return netem.Duplicate
			}
			return netem.Pass
		},
	})
	defer a.Close()
	defer b.Close()

	train := packetconn.Train{Addr: b.LocalAddr(), Buf: []byte("one two thr"), Seg: 4}
	if _, err := a.Send([]packetconn.Train{train}); err != nil {
		fmt.Println(err)
	}
	in := make([]packetconn.Train, 8)
	for i := range in {
		in[i].Buf = make([]byte, packetconn.RecvSize)
	}
	n, err := b.Recv(in)
	for i := range in[:n] {
		fmt.Printf("%q\n", in[i].Buf)
	}
	fmt.Println(err, "/", a.Counters())
	// Output:
	// "one "
	// "thr"
	// "thr"
	// <nil> / 3 datagrams, 1 passed, 1 lost, 1 duplicated
}
