// Network runs a device over a network that the program implements. It wraps a UDP socket,
// counts its packets and loses every tenth. The message arrives all the same.
//
//	go run ./examples/network
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/packetconn/udpconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// lossy is a network that loses every tenth datagram that it sends. It embeds the socket,
// so it has only the methods that it changes.
type lossy struct {
	packetconn.Conn
	sent, lost atomic.Int64
}

// Unwrap lets a device use the abilities of the socket, such as multicast.
func (l *lossy) Unwrap() packetconn.Conn { return l.Conn }

// Send sends the datagrams of a train one by one, so that it can lose a single one.
func (l *lossy) Send(trains []packetconn.Train) (int, error) {
	for i := range trains {
		for k := range trains[i].Count() {
			if l.sent.Add(1)%10 == 0 {
				l.lost.Add(1)
				continue
			}
			one := trains[i]
			one.Buf, one.Seg, one.Swap = trains[i].At(k), 0, false
			if _, err := l.Conn.Send([]packetconn.Train{one}); err != nil {
				return i, err
			}
		}
	}
	return len(trains), nil
}

// ID returns the IPv4 identification of a datagram. It is that of the first datagram of a train
// for all of them, because each is sent alone.
func (l *lossy) ID(int) uint16 { return l.Conn.(packetconn.Identifier).ID(0) }

func main() {
	log.SetFlags(0)
	addr := netip.MustParseAddr("127.0.0.1")
	socket, err := udpconn.Listen(netip.AddrPortFrom(addr, 0))
	if err != nil {
		log.Fatal(err)
	}
	network := &lossy{Conn: socket}
	dev, err := verbs.Open(addr, &verbs.DeviceOptions{Conn: network})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	if err := send(dev, 1<<20); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("1 MiB arrived; packets were lost: %v; packets were repeated: %v\n",
		network.lost.Load() > 0, dev.Counters().Retransmitted > 0)
}

// send sends n bytes from a queue pair to itself.
func send(dev *verbs.Device, n int) error {
	pd, err := dev.NewPD()
	if err != nil {
		return err
	}
	defer pd.Close()
	buf := bytes.Repeat([]byte{1, 2, 3, 4}, n/4)
	mr, err := pd.Register(append(buf, make([]byte, n)...), rdma.LocalWrite)
	if err != nil {
		return err
	}
	defer mr.Close()
	cq, err := dev.NewCQ(16)
	if err != nil {
		return err
	}
	defer cq.Close()
	qp, err := pd.NewQP(verbs.QPAttr{SendCQ: cq})
	if err != nil {
		return err
	}
	defer qp.Close()
	if err := qp.Connect(qp.Endpoint(), nil); err != nil {
		return err
	}
	if _, err := qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{mr.SGE(n, n)}}); err != nil {
		return err
	}
	if err := qp.Start().Signaled().Send().SGE(mr.SGE(0, n)).Complete(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 { // the SEND and its receive request
		var wc [1]rdma.WC
		if _, err := cq.Wait(ctx, wc[:]); err != nil {
			return err
		}
		if wc[0].Err != nil {
			return wc[0].Err
		}
	}
	if !bytes.Equal(mr.Bytes()[:n], mr.Bytes()[n:]) {
		return fmt.Errorf("the message differs")
	}
	return nil
}
