//go:build linux

package vm

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/frames"
	"github.com/softmkey/softmkey/internal/hca/pci"
)

// TestServe connects two clients, one after the other. Both find the adapter, and the end of the
// context ends the server.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "vm")
	l, err := unixsocket.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	link, err := frames.Open("unix:" + filepath.Join(dir, "net"))
	if err != nil {
		t.Fatal(err)
	}
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
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		// REGION_READ of the vendor in the configuration space.
		le := binary.LittleEndian
		b := le.AppendUint32(nil, 9<<16|1)
		b = append(le.AppendUint32(b, 32), make([]byte, 16)...)
		b = le.AppendUint32(le.AppendUint32(b, 7), 4)
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 36)
		if _, err := io.ReadFull(c, answer); err != nil || le.Uint32(answer[32:]) != pci.DeviceVF<<16|pci.VendorID {
			t.Errorf("answer %x, %v", answer, err)
		}
		c.Close()
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
