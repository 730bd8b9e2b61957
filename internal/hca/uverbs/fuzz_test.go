//go:build linux

package uverbs

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/softmkey/softmkey/rdma"
)

// FuzzIoctl makes random ioctls: known and unknown methods and commands, with handles that
// exist and that do not, and with structures of random bytes inside and outside of the
// program's memory. Nothing may panic, hang, or harm another program.
func FuzzIoctl(f *testing.F) {
	for seed := range uint64(4) {
		f.Add([]byte{}, seed)
	}
	f.Fuzz(ioctls)
}

// TestIoctls runs the fuzz target on random input.
func TestIoctls(t *testing.T) {
	for seed := range uint64(20) {
		ioctls(t, nil, seed)
	}
}

func ioctls(t *testing.T, input []byte, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	d := newDevice(t)
	p := newProgram(t, d)
	// One object of each kind, so that some of the random handles are valid.
	pd, u := p.pd(), p.uar()
	c := p.cq(u, 16)
	p.qp(u, c, pd)
	p.region(pd, 4096)
	p.openXRCD(-1, 0o100)
	dm, _, _ := p.deviceMemory(5000)
	p.registerDM(pd, dm, 0, 5000, rdma.ZeroBased)
	handles := uint32(len(p.file.objects.objects))

	var methods []method
	for m := range handlers {
		methods = append(methods, m)
	}
	slices.SortFunc(methods, func(a, b method) int {
		return int(a.object)<<16 + int(a.method) - int(b.object)<<16 - int(b.method)
	})
	var commands []uint32
	for cmd := range writeHandlers {
		commands = append(commands, cmd)
	}
	slices.Sort(commands)

	next := func(n int) []byte {
		b := make([]byte, n)
		input = input[copy(b, input):]
		for i := range b {
			if b[i] == 0 && rng.IntN(4) == 0 {
				b[i] = byte(rng.Uint32())
			}
		}
		return b
	}
	number := func() uint64 {
		switch rng.IntN(8) {
		case 0:
			return rng.Uint64()
		case 1:
			return uint64(rng.Uint32())
		}
		return rng.Uint64N(uint64(handles) + 4)
	}
	// structure returns bytes with small numbers and addresses in them, as structures have.
	structure := func() []byte {
		b := next(8 * (1 + rng.IntN(20)))
		for i := 0; i+8 <= len(b); i += 4 {
			switch rng.IntN(4) {
			case 0:
				le.PutUint32(b[i:], uint32(number()))
			case 1:
				le.PutUint64(b[i:], c.buf&^63+uint64(rng.IntN(1<<14)))
			}
		}
		return b
	}
	value := func(id uint16) attr {
		switch rng.IntN(5) {
		case 0:
			return num(id, number())
		case 1:
			return p.in(id, next(8))
		case 2:
			return p.out(id, rng.IntN(600))
		case 3:
			return attr{id: id, len: uint16(rng.Uint32()), flags: uint16(rng.Uint32()), data: number()}
		}
		return p.in(id, structure())
	}
	for range 60 {
		if p.next > len(p.mem)/2 {
			break
		}
		m := methods[rng.IntN(len(methods))]
		if rng.IntN(20) == 0 {
			m = method{uint16(rng.Uint32()), uint16(rng.Uint32())}
		}
		if rng.IntN(2) == 0 {
			cmd := commands[rng.IntN(len(commands))]
			if rng.IntN(20) == 0 {
				cmd = rng.Uint32()
			}
			p.write(cmd, structure(), rng.IntN(200), p.in(uhwIn, structure()), p.out(uhwOut, rng.IntN(100)))
			continue
		}
		switch rng.IntN(4) {
		case 0: // the shape of most methods on an object
			p.ioctl(m.object, m.method, num(0, number()), p.out(1, 8))
			continue
		case 1: // and of DEVX
			p.ioctl(m.object, m.method, num(driver, number()), p.in(driver+1, structure()), p.out(driver+2, 300))
			continue
		}
		var attrs []attr
		for id := range uint16(15) {
			if rng.IntN(2) == 0 {
				attrs = append(attrs, value(id))
			}
		}
		for id := range uint16(5) {
			if rng.IntN(2) == 0 {
				attrs = append(attrs, value(driver+id))
			}
		}
		p.ioctl(m.object, m.method, attrs...)
	}
	p.file.Close()
	loop(t, d, 2).file.Close() // the device serves another program
	d.Close()
}
