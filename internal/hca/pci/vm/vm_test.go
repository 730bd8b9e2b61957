//go:build linux

package vm

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/pci"
	"github.com/softmkey/softmkey/internal/hca/pci/recorded"
)

// TestResetsUnderDriver resets the adapter of a guest by DEVICE_RESET, and by a client that leaves and comes back, with
// the driver's queue set. The interface is disabled each time until the next boot, which succeeds.
func TestResetsUnderDriver(t *testing.T) {
	record, err := recorded.Linux612()
	fatal.If(t, err)
	dir := t.TempDir()
	s := startHere(t, filepath.Join(dir, "vm"), filepath.Join(dir, "net"))
	m, err := connect(s.path)
	fatal.If(t, err)
	defer func() { m.close() }()
	disabled := func() bool {
		t.Helper()
		v, err := m.read32(regQueueLow)
		fatal.If(t, err)
		return v>>8&7 == 1
	}
	for _, reset := range []func() error{
		func() error { _, err := m.call(msgReset, nil); return err },
		func() error { m.close(); m, err = connect(s.path); return err },
	} {
		fatal.If(t, m.boot(record))
		if disabled() {
			t.Error("the interface is disabled after a boot")
		}
		fatal.If(t, reset())
		if !disabled() {
			t.Error("the driver does not find out about the reset")
		}
	}
	fatal.If(t, m.boot(record))
}

// TestServe connects two clients, one after the other. Both find the adapter, and the end of the
// context ends the server.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vm")
	l, link := listen(t, path, filepath.Join(dir, "net"))
	mac, err := MAC(path)
	fatal.If(t, err)
	if mac[0]&3 != 2 {
		t.Errorf("MAC address %v is not a locally administered one of a single host", mac)
	}
	cause := errors.New("the end")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, Options{Link: link, Device: pci.Config{MAC: mac}}) }()
	for range 2 {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		fatal.If(t, err)
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
