package udpconn_test

import (
	"fmt"
	"log"
	"net/netip"
	"sync/atomic"

	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/packetconn/udpconn"
	"github.com/softmkey/softmkey/verbs"
)

// counted counts the datagrams that a device sends.
type counted struct {
	packetconn.Conn
	sent atomic.Int64
}

func (c *counted) Unwrap() packetconn.Conn { return c.Conn }

func (c *counted) Send(trains []packetconn.Train) (int, error) {
	n, err := c.Conn.Send(trains)
	for i := range trains[:n] {
		c.sent.Add(int64(trains[i].Count()))
	}
	return n, err
}

// A device whose packets are counted: a message of 3 packets, and its acknowledgement.
func Example() {
	addr := netip.MustParseAddr("127.0.0.1")
	conn, err := udpconn.Listen(netip.AddrPortFrom(addr, 0))
	if err != nil {
		log.Fatal(err)
	}
	network := &counted{Conn: conn}
	dev, err := verbs.Open(addr, &verbs.DeviceOptions{Conn: network})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	sendTo(dev, 20000)
	fmt.Println(network.sent.Load() >= 4)
	// Output: true
}
