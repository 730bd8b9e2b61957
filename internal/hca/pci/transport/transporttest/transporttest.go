//go:build linux

// Package transporttest has what the tests of protocols between virtual machine monitors and
// devices have in common.
package transporttest

import (
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/pci/guestmem"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
)

// Device is a device with registers that keep what is written.
type Device struct {
	Config [transport.ConfigSize]byte // what the test writes before it serves the device

	mu     sync.Mutex // the test and the server use the device
	bar    [1 << 16]byte
	resets int
	mem    *guestmem.Map
	irq    transport.Interrupts
}

func (d *Device) do(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// Attached returns the arguments of Attach, and the number of resets.
func (d *Device) Attached() (mem *guestmem.Map, irq transport.Interrupts, resets int) {
	d.do(func() { mem, irq, resets = d.mem, d.irq, d.resets })
	return mem, irq, resets
}

// The methods of transport.Device.

func (d *Device) ReadConfig(off int, b []byte)  { d.do(func() { copy(b, d.Config[off:]) }) }
func (d *Device) WriteConfig(off int, b []byte) { d.do(func() { copy(d.Config[off:], b) }) }
func (d *Device) ReadBAR(off uint64, b []byte)  { d.do(func() { copy(b, d.bar[off:]) }) }
func (d *Device) WriteBAR(off uint64, b []byte) { d.do(func() { copy(d.bar[off:], b) }) }
func (d *Device) BARSize() uint64               { return uint64(len(d.bar)) }
func (d *Device) Vectors() int                  { return 4 }
func (d *Device) Reset()                        { d.do(func() { d.resets++ }) }
func (d *Device) Attach(m *guestmem.Map, irq transport.Interrupts) {
	d.do(func() { d.mem, d.irq = m, irq })
}

// Sockets returns the two ends of a connection.
func Sockets(t testing.TB) (client, server *net.UnixConn) {
	t.Helper()
	at := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"}
	l, err := net.ListenUnix("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.DialUnix("unix", nil, at); err != nil {
		t.Fatal(err)
	}
	if server, err = l.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	return client, server
}
