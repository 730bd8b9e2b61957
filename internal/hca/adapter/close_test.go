package adapter_test

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestProgramEnds makes an object of every kind and closes the context, as the end of a program
// does: the device has no user left, and its address is free for the next one.
func TestProgramEnds(t *testing.T) {
	network := inproc.NewNetwork(nil)
	addr := netip.AddrPortFrom(testAddr, 4791)
	conn, err := network.Listen(addr)
	fatal.If(t, err)
	dev, err := adapter.Open(adapter.Config{Addr: testAddr, Conn: conn})
	fatal.If(t, err)
	p := open(t, dev, options{})
	c := p.cq(16, nil)
	for range 2 {
		q := c.loopback()
		q.postRecv()
	}
	p.datagrams(c, c)
	p.mr(4096, allAccess)
	p.srq(8)
	for typ := 1; typ <= 2; typ++ {
		if _, err := p.ctx.AllocMW(p.pd, typ); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // three address handles on one PD are the case of a fault report
		if _, err := p.ctx.CreateAH(p.pd, adapter.AHAttr{DGID: dev.GIDs()[3].GID, SGIDIndex: 3, IsGlobal: true, Port: 1}); err != nil {
			t.Fatal(err)
		}
	}
	p.newKey(keyKind{entries: 4, signature: true, crypto: true})
	p.dek(pattern(64, 3))
	x, err := p.ctx.OpenXRCD()
	fatal.If(t, err)
	if _, err := p.ctx.CreateQP(adapter.QPAttr{Type: ibv.XRCRecv, XRCD: x}); err != nil {
		t.Fatal(err)
	}
	if err := p.ctx.Close(); err != nil {
		t.Errorf("closing the context: %v", err)
	}
	if err := x.Close(); err != nil { // an XRC domain outlives contexts
		t.Errorf("closing the XRC domain: %v", err)
	}
	if err := dev.Close(); err != nil {
		t.Errorf("closing the device: %v", err)
	}
	if conn, err := network.Listen(addr); err != nil {
		t.Errorf("the address of the closed device: %v", err)
	} else {
		conn.Close()
	}
}

// TestAHCloses frees an address twice, and creates one in a context that is closed.
func TestAHCloses(t *testing.T) {
	p := start(t, inproc.NewNetwork(nil), testAddr, options{})
	to := adapter.AHAttr{DGID: p.dev.GIDs()[3].GID, SGIDIndex: 3, IsGlobal: true, Port: 1}
	ah, err := p.ctx.CreateAH(p.pd, to)
	fatal.If(t, err)
	if err := p.pd.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing the PD of an address: %v, want EBUSY", err)
	}
	for range 2 {
		if err := ah.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := p.ctx.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.ctx.CreateAH(p.pd, to); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an address in a closed context: %v, want EINVAL", err)
	}
}

// TestAddressWithoutGID makes an address as programs for InfiniBand do, without a GID. The error names
// the attributes that are missing, because it is the first one that such a program meets.
func TestAddressWithoutGID(t *testing.T) {
	p := newPair(t, options{}).a
	_, err := p.ctx.CreateAH(p.pd, adapter.AHAttr{Port: 1})
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "is_global and sgid_index") {
		t.Errorf("%v", err)
	}
}
