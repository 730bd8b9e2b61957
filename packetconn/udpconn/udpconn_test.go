package udpconn_test

import (
	"bytes"
	"context"
	"errors"
	"log"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/packetconn/udpconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// sendTo sends a message of n bytes from a QP of a device to itself, and checks it.
func sendTo(dev *verbs.Device, n int) {
	must := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	pd, err := dev.NewPD()
	must(err)
	defer pd.Close()
	buf := make([]byte, 2*n)
	for i := range buf[:n] {
		buf[i] = byte(i * 7)
	}
	mr, err := pd.Register(buf, rdma.LocalWrite)
	must(err)
	defer mr.Close()
	cq, err := dev.NewCQ(4)
	must(err)
	defer cq.Close()
	qp, err := pd.NewQP(verbs.QPAttr{SendCQ: cq})
	must(err)
	defer qp.Close()
	must(qp.Connect(qp.Endpoint(), nil))
	_, err = qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{mr.SGE(n, n)}})
	must(err)
	must(qp.Start().Signaled().Send().SGE(mr.SGE(0, n)).Complete())
	for range 2 {
		var wc [1]rdma.WC
		_, err := cq.Wait(context.Background(), wc[:])
		must(err)
		must(wc[0].Err)
	}
	if !bytes.Equal(buf[:n], buf[n:]) {
		log.Fatal("the message differs")
	}
}

func TestListenRefuses(t *testing.T) {
	if _, err := udpconn.Listen(netip.MustParseAddrPort("0.0.0.0:0")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a socket at the unspecified address: %v", err)
	}
}
