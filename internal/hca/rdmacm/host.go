package rdmacm

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Host is the host of the devices. Its methods are called without the lock of the Manager.
type Host interface {
	// Source returns the address from which the host sends to dst, or the invalid
	// address if it has no route to dst.
	Source(dst netip.Addr) netip.Addr

	// Neighbors returns the addresses of the network interface that has an address of the host.
	Neighbors(netip.Addr) []netip.Addr

	// Local reports whether an address is one of the host's.
	Local(netip.Addr) bool

	// Attach opens a device on an address that none of the Manager's devices has. The
	// error says why the address cannot have one.
	Attach(netip.Addr) (Device, error)
}

// way is how the host reaches the addresses that a command names.
type way struct {
	from, to netip.AddrPort // the addresses; invalid: the command names none

	src  netip.Addr // address from which the host sends; invalid: not known
	here bool       // the address is one of the host's
	err  error      // reason for which src has no device; nil: it has one, or needs none
}

// addresses reads the addresses that a command names, and reports whether the kernel accepts them.
func addresses(cmd uint32, in []byte) (w way, ok bool) {
	var from, to uint16 // sizes
	switch cmd {
	case cmdBindIP:
		w.from, from = parseSockaddr(in[8:])
		return w, from > 0
	case cmdBind:
		w.from, from = parseSockaddr(in[8:])
		return w, from > 0 && ne.Uint16(in[4:]) == from && ne.Uint16(in[6:]) == 0
	case cmdResolveIP:
		w.from, from = parseSockaddr(in)
		w.to, to = parseSockaddr(in[sockaddrLen:])
		return w, to > 0 && (from > 0 || ne.Uint16(in) == 0)
	case cmdResolveAddr:
		w.from, from = parseSockaddr(in[16:])
		w.to, to = parseSockaddr(in[16+storageLen:])
		size := ne.Uint16(in[8:])
		return w, to > 0 && ne.Uint16(in[10:]) == to && (size == 0 || size == from) && ne.Uint32(in[12:]) == 0
	}
	return w, true
}

// find finds out how the host reaches the address that a command names, and attaches a device
// to the host's address on that way: that of BIND, or the one from which the host sends
// to the destination of RESOLVE. The lock is not held.
func (f *File) find(w *way, id uint32) {
	m := f.m
	switch {
	case m.host == nil || !w.from.IsValid() && !w.to.IsValid():
	case w.from.IsValid() && (!w.to.IsValid() || !w.from.Addr().IsUnspecified()):
		m.attachLocal(w)
	default:
		m.mu.Lock()
		i := f.ids[id]
		bound := i == nil || i.dev != nil
		m.mu.Unlock()
		if !bound {
			m.attachTowards(w)
		}
	}
}

// attachLocal attaches a device to an address that a program gives to an id.
func (m *Manager) attachLocal(w *way) {
	local := w.from.Addr().Unmap()
	if local.IsUnspecified() || local.IsLoopback() && w.from.Port() == 0 {
		return // see [id.bind]
	}
	w.src, w.err = local, m.attach(local)
}

// attachTowards attaches a device to the address from which the host sends to w.to.
func (m *Manager) attachTowards(w *way) {
	dst := w.to.Addr().Unmap()
	if dst.IsUnspecified() || m.has(dst) {
		return
	}
	w.src, w.here = m.host.Source(dst), m.host.Local(dst)
	switch {
	case w.here && m.hasFamily(dst): // every device of the host reaches it
	case w.here:
		w.src = netip.IPv6Loopback()
		if dst.Is4() {
			w.src = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		w.err = m.attach(w.src)
	case !w.src.IsValid():
		w.err = failure.New("resolve address", syscall.ENETUNREACH, "the host has no route to %v", dst)
	default:
		if w.err = m.attach(w.src); w.err == nil {
			return
		}
		near := m.host.Neighbors(w.src)
		if i := slices.IndexFunc(near, m.has); i >= 0 {
			w.src, w.err = near[i], nil
		}
	}
}

// has reports whether a device has an address.
func (m *Manager) has(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, _ := m.device(a)
	return d != nil
}

// hasFamily reports whether a device has an address of a's family.
func (m *Manager) hasFamily(a netip.Addr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.firstAddr(func(b netip.Addr) bool { return a.Is4() == b.Is4() }).IsValid()
}

// attach makes sure that a device has an address of the host.
func (m *Manager) attach(a netip.Addr) error {
	m.attaching.Lock()
	defer m.attaching.Unlock()
	if m.has(a) {
		return nil
	}
	d, err := m.host.Attach(a)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.devices = append(m.devices, &d)
	for _, i := range m.ids {
		i.extend(&d)
	}
	return nil
}

// extend lets an id that is bound to every address use a new device, as the kernel does. If
// another id has the port there, that id keeps it. The lock is held.
func (i *id) extend(d *Device) {
	if i.dev != nil || i.state != stateBound && i.state != stateListen {
		return
	}
	local := i.wildcard(i.src.Addr())
	p, err := d.Service.Bind(i.space, local, i.src.Port(), i.reuse)
	if err != nil {
		return
	}
	i.ports = append(i.ports, p)
	if i.state == stateListen {
		_ = i.listenOn(d, local) // fails if another id listens there
	}
}

// device returns the device with an address and its GID index there.
func (m *Manager) device(a netip.Addr) (*Device, int) {
	for _, d := range m.devices {
		if i := d.gid(a); i >= 0 {
			return d, i
		}
	}
	return nil, -1
}

// route returns the address that packets to dst leave from: dst if a device has it, the
// address from which the host sends to dst if a device has that, and none if it sends from another
// one. If that is not known, or dst is on the host, it is the first address of the family that reaches
// dst. A loopback address reaches the host itself only.
func (m *Manager) route(dst netip.Addr, w way) (src netip.Addr) {
	for _, a := range []netip.Addr{dst, w.src} {
		if d, _ := m.device(a); d != nil {
			return a
		}
	}
	if w.src.IsValid() && !w.here {
		return netip.Addr{}
	}
	return m.firstAddr(func(a netip.Addr) bool {
		return a.Is4() == dst.Is4() && a.IsLinkLocalUnicast() == dst.IsLinkLocalUnicast() &&
			(a.IsLoopback() == dst.IsLoopback() || w.here && a.IsLoopback())
	})
}

// firstAddr returns the first address of the devices that is accepted.
func (m *Manager) firstAddr(accepted func(netip.Addr) bool) netip.Addr {
	for _, d := range m.devices {
		for _, g := range d.GIDs {
			if g.IsValid() && accepted(g.Unmap()) {
				return g.Unmap()
			}
		}
	}
	return netip.Addr{}
}
