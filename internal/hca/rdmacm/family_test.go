package rdmacm

import (
	"bytes"
	"syscall"
	"testing"
)

// storage is an address in a __kernel_sockaddr_storage.
func storage(addr []byte) []byte { return append(addr, make([]byte, storageLen-len(addr))...) }

// TestFamilies sends each command that has addresses with each family, size and reserved field, as
// the kernel's ucma.c checks them. Threads of one program send both forms of a command: librdmacm
// has no lock around its search for AF_IB.
func TestFamilies(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		fd := a.channel()
		raw := func(family uint16) []byte { return words(family, make([]byte, sockaddrLen-2)) }
		families := []struct {
			name string
			addr func(host, host6 string) []byte
			size uint16
			good bool
		}{
			{"none", func(string, string) []byte { return raw(0) }, sockaddrLen, false},
			{"IPv4", func(host, _ string) []byte { return sockaddr(host) }, 16, true},
			{"IPv6", func(_, host6 string) []byte { return sockaddr(host6) }, 28, true},
			{"InfiniBand", func(string, string) []byte { return raw(27) }, 48, false},
			{"another", func(string, string) []byte { return raw(77) }, 28, false},
		}
		check := func(name string, cmd uint32, want syscall.Errno, in []byte) {
			t.Helper()
			if _, errno := a.command(fd, cmd, 4, in); errno != want {
				t.Errorf("%s: %v, want %v", name, errno, want)
			}
		}
		errno := func(good bool) syscall.Errno {
			if good {
				return 0
			}
			return syscall.EINVAL
		}
		for _, f := range families {
			own, peer := f.addr("192.0.2.1:0", "[2001:db8::1]:0"), f.addr("192.0.2.2:7", "[2001:db8::2]:7")
			id := func() uint32 { return a.createID(fd, 1, 0x0106) }
			check(f.name+", BIND_IP", cmdBindIP, errno(f.good), words(uint64(0), own, id()))
			check(f.name+", RESOLVE_IP", cmdResolveIP, errno(f.good), words(own, peer, id(), uint32(1)))
			check(f.name+", RESOLVE_IP without source", cmdResolveIP, errno(f.good), words(raw(0), peer, id(), uint32(1)))
			for _, size := range []uint16{0, 16, 28, 48, 128} {
				for reserved := range uint16(2) {
					good := f.good && size == f.size && reserved == 0
					check(f.name+", BIND", cmdBind, errno(good), words(id(), size, reserved, storage(own)))
					check(f.name+", RESOLVE_ADDR", cmdResolveAddr, errno(f.good && reserved == 0 && (size == 0 || size == f.size)), words(id(), uint32(1), size, f.size, uint32(reserved), storage(own), storage(peer)))
					check(f.name+", RESOLVE_ADDR to a size", cmdResolveAddr, errno(good), words(id(), uint32(1), uint16(0), size, uint32(reserved), storage(raw(0)), storage(peer)))
				}
			}
			group := f.addr("239.1.1.1:0", "[ff12::5]:0")
			member := a.createID(fd, 1, 0x0111)
			a.must(fd, cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.1:0"), member))
			check(f.name+", JOIN_IP_MCAST", cmdJoinIPMcast, errno(f.good), words(uint64(memStart), uint64(5), group, member))
			for flags := range uint16(3) {
				member := a.createID(fd, 1, 0x0111)
				a.must(fd, cmdBindIP, 0, words(uint64(0), sockaddr("192.0.2.1:0"), member))
				check(f.name+", JOIN_MCAST", cmdJoinMcast, errno(f.good && flags < 2), words(uint64(memStart), uint64(5), member, f.size, flags, storage(group)))
				check(f.name+", JOIN_MCAST with another size", cmdJoinMcast, syscall.EINVAL, words(uint64(memStart), uint64(5), member, f.size+1, uint16(0), storage(group)))
			}
		}
		// librdmacm's search is no refusal that a user should read about.
		before := len(a.records)
		check("search", cmdBind, syscall.EINVAL, words(uint32(1), uint16(48), uint16(0), storage(raw(27))))
		if len(a.records) != before {
			t.Errorf("records: %+v", a.records[before:])
		}
	})
}

// TestQueries compares the answers of the commands QUERY and QUERY_ROUTE about an rdma_cm id, before and after its
// address and its route are resolved, with IPv4 and IPv6: their fields lie in other places and have the same values.
func TestQueries(t *testing.T) {
	inBubble(t, func(t *testing.T, n *network, a, b *program) {
		fd := a.channel()
		for peer, size := range map[string]uint16{"192.0.2.2:7": 16, "[2001:db8::2]:7": 28} {
			id := a.createID(fd, 1, 0x0106)
			compare := func() {
				t.Helper()
				query := func(option uint32, out int) []byte {
					return a.must(fd, cmdQuery, out, words(uint64(memStart), id, option))[:out]
				}
				route := a.must(fd, cmdQueryRoute, routeLen, words(uint64(memStart), id, uint32(0)))
				old := a.must(fd, cmdQueryRoute, oldRouteLen, words(uint64(memStart), id, uint32(0)))
				if !bytes.Equal(route[:oldRouteLen], old) {
					t.Error("QUERY_ROUTE of an old library differs")
				}
				addrs, gids := query(0, addrsLen), query(2, addrsLen)
				if !bytes.Equal(query(0, oldAddrsLen), addrs[:oldAddrsLen]) {
					t.Error("QUERY of an old library differs")
				}
				paths := ne.Uint32(route[192:])
				for i, in := range [][]byte{addrs, gids} {
					if !bytes.Equal(in[:8], route[:8]) || in[8] != route[196] || ne.Uint32(in[264:]) != ne.Uint32(route[200:]) {
						t.Errorf("QUERY %d: device % x, QUERY_ROUTE % x", i, in[:12], route)
					}
				}
				for i, at := range []int{136, 164} {
					sa := route[at : at+sockaddrLen]
					x, size := parseSockaddr(sa)
					if got := ne.Uint16(addrs[12+2*i:]); got != size || !bytes.Equal(addrs[16+storageLen*i:][:sockaddrLen], sa) {
						t.Errorf("address %d: size %d, % x; QUERY_ROUTE: % x", i, got, addrs[16+storageLen*i:][:sockaddrLen], sa)
					}
					ib := gids[16+storageLen*i:][:sockaddrIBLen]
					if size == 0 {
						continue
					}
					gid := x.Addr().As16()
					sid := []byte{0, 0, 0, 0, 1, 6, byte(x.Port() >> 8), byte(x.Port())}
					if ne.Uint16(ib) != familyIB || !bytes.Equal(ib[8:24], gid[:]) || !bytes.Equal(ib[24:32], sid) {
						t.Errorf("GID %d: % x of %v", i, ib, x)
					}
				}
				path := query(1, 80)
				if ne.Uint32(path) != paths {
					t.Fatalf("%d paths, QUERY_ROUTE %d", ne.Uint32(path), paths)
				}
				if a.must(fd, cmdQuery, 8, words(uint64(memStart), id, uint32(1))); paths == 0 {
					return
				}
				// ib_path_rec_data holds the path of a MAD, IBA 15.2.5.16; QUERY_ROUTE has a byte for each field.
				mad, user := path[16:], route[8:]
				if ne.Uint32(path[8:]) != 43 || !bytes.Equal(mad[8:40], user[:32]) || mad[54]&63 != user[48] || mad[55]&63 != user[60] ||
					mad[56]&63 != user[62] || !bytes.Equal(mad[50:52], user[52:54]) || mad[47] != 64 || mad[49] != 0x80 {
					t.Errorf("path % x\nof QUERY_ROUTE % x", mad[:64], user[:64])
				}
			}
			compare()
			a.must(fd, cmdResolveAddr, 0, words(id, uint32(1), uint16(0), size, uint32(0), storage(nil), storage(sockaddr(peer))))
			a.expect(fd, eventAddrResolved)
			compare()
			a.must(fd, cmdResolveRoute, 0, words(id, uint32(1)))
			a.expect(fd, eventRouteResolved)
			compare()
		}
	})
}
