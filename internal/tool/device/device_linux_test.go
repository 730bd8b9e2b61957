package device

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/internal/tool/pcap"
)

func TestOpen(t *testing.T) {
	addr := udptest.Addr(1)
	path := filepath.Join(t.TempDir(), "x.pcapng")
	rec, err := pcap.Create(path, nil)
	fatal.If(t, err)
	first, err := Open(addr, Options{Recorder: rec})
	fatal.If(t, err)
	defer first.Close()
	if _, err := Open(addr, Options{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("an address that is taken: %v, want EADDRINUSE", err)
	}
	second, err := Open(addr, Options{Search: true})
	fatal.If(t, err)
	defer second.Close()
	if second.Addr() != addr.Next() {
		t.Errorf("the search behind %v found %v, want the next address, %v", addr, second.Addr(), addr.Next())
	}
	if _, err := Open(netip.MustParseAddr("192.0.2.1"), Options{Search: true}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("an address that is not of this host: %v, want EADDRNOTAVAIL", err)
	}
	last := udptest.Addr(254)
	third, err := Open(last, Options{})
	fatal.If(t, err)
	defer third.Close()
	if _, err := Open(last, Options{Search: true}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a search that begins at the last address, which is taken: %v, want EADDRINUSE", err)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		t.Errorf("the recording does not begin with the mark of a pcapng file: %x, %v", b[:min(4, len(b))], err)
	}
}
