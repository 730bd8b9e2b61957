package rendezvous

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/tool/pcap"
)

func TestOpenDevice(t *testing.T) {
	addr := netip.MustParseAddr("127.72.0.1")
	path := filepath.Join(t.TempDir(), "x.pcapng")
	rec, err := pcap.Create(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, err := OpenDevice(addr, DeviceOptions{Recorder: rec})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := OpenDevice(addr, DeviceOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("taken: %v", err)
	}
	second, err := OpenDevice(addr, DeviceOptions{Search: true})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if second.Addr() != addr.Next() {
		t.Errorf("found %v", second.Addr())
	}
	if _, err := OpenDevice(netip.MustParseAddr("192.0.2.1"), DeviceOptions{Search: true}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("not ours: %v", err)
	}
	last := netip.MustParseAddr("127.72.0.254")
	third, err := OpenDevice(last, DeviceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if _, err := OpenDevice(last, DeviceOptions{Search: true}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("behind the last: %v", err)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(b, []byte{0x0a, 0x0d, 0x0d, 0x0a}) {
		t.Errorf("no recording: %v", err)
	}
}
