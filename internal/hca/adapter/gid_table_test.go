package adapter_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/packetconn"
)

// TestGIDTable adds and removes addresses: as in a kernel each has the two first entries that are empty, and
// none moves by a change of another.
func TestGIDTable(t *testing.T) {
	d, err := adapter.Open(adapter.Config{Addr: netip.MustParseAddr("127.30.1.1")})
	fatal.If(t, err)
	defer d.Close()
	opened := 0
	add := func(n int) error {
		addr := netip.AddrFrom4([4]byte{127, 30, 1, byte(n)})
		return d.AddAddress(addr, func() (packetconn.Conn, error) {
			opened++
			return udp.Listen(netip.AddrPortFrom(addr, 0), nil)
		})
	}
	check := func(want string) {
		t.Helper()
		var got strings.Builder
		for i, e := range d.GIDs()[2:] {
			if e.RoCEv2 != (i%2 == 1) && e.GID != [16]byte{} {
				t.Errorf("entry %d: RoCE v2 %v", i+2, e.RoCEv2)
			}
			fmt.Fprint(&got, e.GID[15], " ")
		}
		if got.String() != want {
			t.Fatalf("%q, want %q", got.String(), want)
		}
	}
	check("1 1 ")
	for n := 2; n <= 4; n++ {
		fatal.If(t, add(n))
	}
	check("1 1 2 2 3 3 4 4 ")
	d.RemoveAddress(netip.MustParseAddr("127.30.1.3"))
	d.RemoveAddress(netip.MustParseAddr("127.30.1.1"))
	check("0 0 2 2 0 0 4 4 ")
	if d.MoveGIDs(false) {
		t.Error("an address that has left was moved")
	}
	fatal.If(t, errors.Join(add(5), add(1), add(3)))
	check("5 5 2 2 1 1 4 4 3 3 ")
	if opened != 4 {
		t.Errorf("%d sockets for 4 addresses", opened)
	}
	for _, n := range []int{5, 3, 2, 4, 1} {
		d.RemoveAddress(netip.AddrFrom4([4]byte{127, 30, 1, byte(n)}))
	}
	check("")
	fatal.If(t, errors.Join(add(1), add(2)))
	check("1 1 2 2 ")
	d.MoveGIDs(true)
	check("1 1 2 2 ")
	d.MoveGIDs(false)
	check("0 0 2 2 1 1 ")
	if want := []netip.Addr{netip.MustParseAddr("127.30.1.2"), netip.MustParseAddr("127.30.1.1")}; !slices.Equal(d.Addresses(), want) {
		t.Errorf("addresses %v", d.Addresses())
	}
	d.MoveGIDs(true)
	check("1 1 2 2 ")
	for n := 3; n <= 7; n++ {
		fatal.If(t, add(n))
	}
	if err := add(8); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("an address beyond the table: %v", err)
	}
}
