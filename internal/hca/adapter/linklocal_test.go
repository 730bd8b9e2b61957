package adapter_test

import (
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
)

// TestEveryGIDReaches connects two devices by each GID of their tables, with addresses of either
// family.
func TestEveryGIDReaches(t *testing.T) {
	for _, addrs := range [][2]string{{"10.0.0.1", "10.0.0.2"}, {"fd00:a::1", "fd00:a::2"}, {"fe80::1", "fe80::2"}, {"2001:db8::5054:ff:fe12:3456", "2001:db8::99"}} {
		n := inproc.NewNetwork(nil)
		o := options{}
		a, b := start(t, n, netip.MustParseAddr(addrs[0]), o), start(t, n, netip.MustParseAddr(addrs[1]), o)
		mr, at := b.mr(64, 0xf)
		for index := range a.dev.GIDs() {
			qa, qb := a.rc(), b.rc()
			for _, x := range [][2]*qp{{qa, qb}, {qb, qa}} {
				x[0].toRTR(x[1], uint8(index))
				x[0].toRTS(adapter.QPModify{Timeout: 18, RetryCnt: 7})
			}
			qa.post(newWQE(prm.OpWrite, 0, 0, prm.FlagCQUpdate).raddr(at, mr.RKey()).inline([]byte("x")))
			qa.done()
		}
		if a.dev.Attr().NodeGUID == b.dev.Attr().NodeGUID {
			t.Errorf("%s and %s have the same GUID", addrs[0], addrs[1])
		}
	}
}
