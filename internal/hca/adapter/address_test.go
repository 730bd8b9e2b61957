package adapter

import (
	"testing"

	"github.com/softmkey/softmkey/internal/roce"
)

// TestAddressesKept keeps handles until the QP, or the context, has as many as it may, and forgets
// those of a QP that is reset.
func TestAddressesKept(t *testing.T) {
	c := &Context{dev: &Device{}}
	a, b := &QP{object: object{ctx: c}}, &QP{object: object{ctx: c}}
	keep := func(q *QP, n int) {
		for i := range n {
			q.keepAddress(addressKey{index: uint8(i), udp: uint16(i >> 8)}, &roce.AH{})
		}
	}
	keep(a, maxAddresses+1)
	if n := c.addresses.Load(); n != 1 || len(a.sq.addresses) != 1 {
		t.Errorf("%d handles of a QP with too many, %d are counted", len(a.sq.addresses), n)
	}
	c.addresses.Store(mostAddresses - 2)
	keep(b, 3)
	if n := c.addresses.Load(); n != mostAddresses-1 || len(b.sq.addresses) != 1 {
		t.Errorf("%d handles of a QP in a context with too many, %d are counted", len(b.sq.addresses), n)
	}
	(*front)(b).Reset()
	if n := c.addresses.Load(); n != mostAddresses-2 || len(b.sq.addresses) != 0 {
		t.Errorf("%d handles of a QP that was reset, %d are counted", len(b.sq.addresses), n)
	}
}
