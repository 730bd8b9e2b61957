//go:build linux

package vm

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/pci"
)

// TestServe connects two clients, one after the other. Both find the adapter, and the end of the
// context ends the server.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vm")
	l, link := listen(t, path, filepath.Join(dir, "net"))
	mac, err := MAC(path)
	if err != nil {
		t.Fatal(err)
	}
	if mac[0]&3 != 2 {
		t.Errorf("MAC address %v is not a locally administered one of a single host", mac)
	}
	cause := errors.New("the end")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Options{Link: link, Device: pci.Config{MAC: mac}}) }()
	for range 2 {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		m := &monitor{conn: c, file: -1} // it reads the vendor in the configuration space
		answer, err := m.call(msgRegionRead, region(0, configuration, 4, nil))
		if err != nil || len(answer) != 20 || le.Uint32(answer[16:]) != pci.DeviceVF<<16|pci.VendorID {
			t.Errorf("answer %x, %v", answer, err)
		}
		m.close()
	}
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("Serve returned %v", err)
	}
	if l, err := unixsocket.Listen("unix", path); err != nil {
		t.Errorf("listening after the end: %v", err)
	} else {
		l.Close()
	}
}
