package cm_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// A server sends a greeting with its acceptance, and then one message.
func Example() {
	network := inproc.NewNetwork(nil)
	server, client := open(network, "192.0.2.1"), open(network, "192.0.2.2")
	ctx := context.Background()

	l, err := cm.Listen(server.dev, 7471, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		req, err := l.Accept(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		greeting := append([]byte("hello "), req.PrivateData[:3]...)
		conn, err := req.Accept(ctx, server.qp, &cm.ConnOptions{PrivateData: greeting})
		if err != nil {
			log.Fatal(err)
		}
		server.send("one message")
		server.wait()
		conn.Close()
	}()

	if err := client.qp.Init(rdma.LocalWrite); err != nil {
		log.Fatal(err)
	}
	client.receive()
	conn, err := cm.Dial(ctx, client.qp, netip.MustParseAddrPort("192.0.2.1:7471"), &cm.ConnOptions{PrivateData: []byte("Ann")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("connected to %v: %s\n", conn.RemoteAddr(), conn.PrivateData()[:9])
	wc := client.wait()
	fmt.Printf("%v: %s\n", wc.Status, client.mr.Bytes()[:wc.ByteLen])
	<-conn.Done()
	fmt.Println("disconnected:", conn.Err())
	// Output:
	// connected to 192.0.2.1:7471: hello Ann
	// success: one message
	// disconnected: <nil>
}

// A listener that refuses gives the reason.
func ExampleRequest_Reject() {
	network := inproc.NewNetwork(nil)
	server, client := open(network, "192.0.2.1"), open(network, "192.0.2.2")
	l, err := cm.Listen(server.dev, 7471, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		req, err := l.Accept(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		req.Reject(cm.ReasonConsumer, []byte("closed on Mondays"))
	}()
	_, err = cm.Dial(context.Background(), client.qp, netip.MustParseAddrPort("192.0.2.1:7471"), nil)
	fmt.Println(err)
	// Output:
	// cm dial: 192.0.2.1:7471: the peer refused: rejected by the application (reason 28)
}

// A sender of datagrams asks the peer's port for the QP that receives them.
func ExampleResolve() {
	network := inproc.NewNetwork(nil)
	server, client := open(network, "192.0.2.1"), open(network, "192.0.2.2")
	for _, e := range []*end{server, client} {
		var err error
		if e.qp, err = e.pd.NewQP(verbs.QPAttr{Type: rdma.UD, SendCQ: e.cq}); err == nil {
			err = e.qp.Bind(cm.DefaultQKey)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	server.receive()
	l, err := cm.ListenDatagram(server.dev, 7471, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	go func() {
		query, err := l.Accept(context.Background())
		if err == nil {
			err = query.Reply(server.qp.Num(), cm.DefaultQKey, nil)
		}
		if err != nil {
			log.Fatal(err)
		}
	}()
	to, err := cm.Resolve(context.Background(), client.dev, netip.MustParseAddrPort("192.0.2.1:7471"), nil)
	if err != nil {
		log.Fatal(err)
	}
	ah, err := client.pd.NewAddressHandle(to.AH())
	if err != nil {
		log.Fatal(err)
	}
	if err := client.qp.Start().Send().Inline([]byte("hello")).To(ah, to.QPN, to.QKey).Complete(); err != nil {
		log.Fatal(err)
	}
	wc := server.wait()
	fmt.Printf("%s\n", server.mr.Bytes()[verbs.GRHLen:wc.ByteLen])
	// Output: hello
}

// end is a device with a QP and a buffer.
type end struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
}

func open(n *inproc.Network, addr string) *end {
	a := netip.MustParseAddr(addr)
	conn, err := n.Listen(netip.AddrPortFrom(a, 4791))
	e := new(end)
	if err == nil {
		e.dev, err = verbs.Open(a, &verbs.DeviceOptions{Conn: conn})
	}
	if err == nil {
		e.pd, err = e.dev.NewPD()
	}
	if err == nil {
		e.cq, err = e.dev.NewCQ(64)
	}
	if err == nil {
		e.qp, err = e.pd.NewQP(verbs.QPAttr{SendCQ: e.cq})
	}
	if err == nil {
		e.mr, err = e.pd.Register(make([]byte, 4096), rdma.LocalWrite)
	}
	if err != nil {
		log.Fatal(err)
	}
	return e
}

func (e *end) receive() {
	if _, err := e.qp.PostRecv(verbs.RecvWR{ID: 1, SGEs: []rdma.SGE{e.mr.SGE(0, 4096)}}); err != nil {
		log.Fatal(err)
	}
}

func (e *end) send(text string) {
	wr := e.qp.Start()
	wr.Signaled().Send().Inline([]byte(text))
	if err := wr.Complete(); err != nil {
		log.Fatal(err)
	}
}

func (e *end) wait() rdma.WC {
	var wc [1]rdma.WC
	if _, err := e.cq.Wait(context.Background(), wc[:]); err != nil {
		log.Fatal(err)
	}
	return wc[0]
}
