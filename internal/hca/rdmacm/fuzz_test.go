package rdmacm

import (
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/device/cmcore"
)

// FuzzWrite writes sequences of arbitrary commands to two files of one device, which can
// also connect to itself. Every command must be answered once, nothing may panic, and no
// state may remain when the files are closed.
func FuzzWrite(f *testing.F) {
	id := make([]byte, 24)
	ne.PutUint64(id[8:], memStart)
	ne.PutUint16(id[16:], 0x0106)
	f.Add(append([]byte{cmdCreateID, 24, 4}, id...))
	bind := append(make([]byte, 8), append(sockaddr("192.0.2.1:7"), 0, 0, 0, 0)...)
	f.Add(append(append([]byte{cmdCreateID, 24, 4}, id...), append([]byte{cmdBindIP, 40, 0}, bind...)...))
	resolve := append(sockaddr(""), append(sockaddr("192.0.2.1:7"), make([]byte, 8)...)...)
	f.Add(append(append([]byte{cmdCreateID, 24, 4}, id...), append([]byte{cmdResolveIP, 64, 0}, resolve...)...))
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) {
			n := &network{services: make(map[netip.Addr]*cmcore.Service)}
			s := cmcore.New(n, cmcore.Options{})
			n.services[addrA] = s
			p := &program{t: t, m: New(Config{Devices: []Device{{Service: s, Port: 1, MTU: 4096, GIDs: []netip.Addr{addrA}}}}), mem: make([]byte, 1<<12)}
			p.channel()
			p.channel()
			asked, answered := 0, 0
			var cancels []func() bool
			for i := 0; len(script) >= 3; i++ {
				cmd, size, out := script[0], int(script[1]), uint16(script[2])*4
				script = script[3:]
				in := make([]byte, size+size/2)
				script = script[copy(in, script):]
				b := append(words(uint32(cmd&31), uint16(len(in)), out), in...)
				if cmd&64 != 0 {
					b = b[:len(b)/2]
				}
				asked++
				cancels = append(cancels, p.files[i&1].Write(p, b, cmd&32 != 0, func(int, syscall.Errno) {
					p.mu.Lock()
					answered++
					p.mu.Unlock()
				}))
				time.Sleep(time.Millisecond)
			}
			for _, f := range p.files {
				f.Close()
			}
			for _, cancel := range cancels {
				if cancel() {
					answered++
				}
			}
			synctest.Wait()
			if answered != asked || len(p.m.ids)+len(p.m.groups) != 0 {
				t.Errorf("%d of %d commands answered, %d ids", answered, asked, len(p.m.ids))
			}
			p.m.Close()
			s.Close()
		})
	})
}
