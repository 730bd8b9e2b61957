package nvme

import (
	"bytes"
	"testing"
)

// FuzzCommand parses a capsule, and all that commands may have in it. What is written of it must be read
// as the same.
func FuzzCommand(f *testing.F) {
	c := Command{Opcode: Read, Flags: 1 << 6, ID: 7, NSID: 1, SGL: SGL{Type: KeyedBlock, Subtype: Invalidate, Addr: 1 << 40, Length: 1<<24 - 1, Key: 0x89abcdef}, DW: [6]uint32{1, 2, 3, 4, 5, 6}}
	f.Add(c.Append(nil))
	c.SGL = SGL{Type: DataBlock, Subtype: Offset, Addr: 8, Length: 1 << 31}
	f.Add(c.Append(nil))
	f.Add(make([]byte, CommandSize-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ParseCommand(b)
		if (err == nil) != (len(b) >= CommandSize) {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		if err != nil {
			return
		}
		again, err := ParseCommand(c.Append(nil))
		if err != nil || again != c {
			t.Fatalf("%+v is read as %+v: %v", c, again, err)
		}
		rw, page, p := c.RW(), c.LogPage(), c.Property()
		if rw.Blocks == 0 || rw.Blocks > 1<<16 || page.Length == 0 || page.Length > 1<<34 || page.Length%4 != 0 {
			t.Fatalf("%+v %+v", rw, page)
		}
		if p.Value != uint64(c.DW[3])<<32|uint64(c.DW[2]) || c.Connect().QID != uint16(c.DW[0]>>16) {
			t.Fatalf("%+v %+v", p, c.Connect())
		}
	})
}

// FuzzConnect reads the data of Connect and the private data of a connection.
func FuzzConnect(f *testing.F) {
	b := make([]byte, ConnectDataSize)
	copy(b[256:], DiscoveryNQN)
	copy(b[512:], "nqn.host")
	f.Add(b)
	f.Add(bytes.Repeat([]byte{0xff}, ConnectDataSize))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, err := ParseConnectData(b); err == nil {
			if len(d.Subsystem) > 256 || len(d.Host) > 256 || !bytes.HasPrefix(b[256:], []byte(d.Subsystem)) || !bytes.HasPrefix(b[512:], []byte(d.Host)) {
				t.Fatalf("%+v", d)
			}
		} else if len(b) >= ConnectDataSize {
			t.Fatal(err)
		}
		if r, err := ParseCMRequest(b); err == nil {
			if r != (CMRequest{le.Uint16(b), le.Uint16(b[2:]), le.Uint16(b[4:]), le.Uint16(b[6:]), le.Uint16(b[8:])}) {
				t.Fatalf("%x is read as %+v", b[:10], r)
			}
		} else if len(b) >= 32 {
			t.Fatal(err)
		}
	})
}

// FuzzIdentify writes the structures of Identify and of log pages. They must have their length, and their
// fields where the specifications have them.
func FuzzIdentify(f *testing.F) {
	f.Add("serial", DiscoveryNQN, uint64(1000), uint16(1), uint8(1), uint32(3))
	f.Add("a serial number that is too long for its field", "x", uint64(1<<64-1), uint16(0xffff), uint8(3), uint32(1<<32-1))
	f.Fuzz(func(t *testing.T, serial, nqn string, n uint64, id uint16, pi uint8, nsid uint32) {
		pi %= 4
		c := Controller{Serial: serial, Subsystem: nqn, ID: id, MaxEvents: 4, ErrorEntries: 64, MaxCommands: id, Namespaces: nsid, CapsuleData: 4160}
		b := c.Append(nil)
		if len(b) != IdentifySize || le.Uint16(b[78:]) != id || le.Uint32(b[516:]) != nsid || le.Uint32(b[1792:]) != (64+4160)/16 || b[512] != 0x66 || b[513] != 0x44 {
			t.Fatalf("controller: %d bytes % x", len(b), b[:128])
		}
		ns := Namespace{Blocks: n, BlockBits: 9, Metadata: 8, PIType: pi}
		b = ns.Append(nil)
		if len(b) != IdentifySize || le.Uint64(b) != n || b[29] != pi || le.Uint16(b[128:]) != 8 || b[130] != 9 || pi > 0 && b[28]>>(pi-1)&1 != 1 {
			t.Fatalf("namespace: %d bytes % x", len(b), b[:136])
		}
		ids := []uint32{1, 2, 3, 1 << 31}
		b = AppendList(nil, ids, nsid)
		for i := 0; i < 4 && le.Uint32(b[4*i:]) != 0; i++ {
			if le.Uint32(b[4*i:]) <= nsid {
				t.Fatalf("list above %d: % x", nsid, b[:16])
			}
		}
		if b = AppendDescriptors(nil, [16]byte{1}); len(b) != IdentifySize || b[0] != 2 || b[20] != 3 || b[40] != 4 {
			t.Fatalf("descriptors: %d bytes % x", len(b), b[:48])
		}
		e := ErrorEntry{Count: n, SQID: id, Status: GuardCheck, LBA: n, NSID: nsid}
		if b = e.Append(nil); len(b) != 64 || le.Uint64(b[16:]) != n || le.Uint16(b[12:]) != 0x282<<1 {
			t.Fatalf("error: % x", b)
		}
		h := Health{BytesRead: n, MediaErrors: n}
		if b = h.Append(nil); len(b) != 512 || le.Uint64(b[160:]) != n || le.Uint64(b[32:]) < n/512000 {
			t.Fatalf("health: % x", b[:192])
		}
		if b = AppendEffects(nil, []Effect{{Identify, false}}, []Effect{{Write, true}}); len(b) != 4096 || le.Uint32(b[4*int(Identify):]) != 1 || le.Uint32(b[1024+4*int(Write):]) != 3 {
			t.Fatal("effects")
		}
		if b = AppendDiscovery(nil, 1, []DiscoveryEntry{{nqn, serial, serial, false, id}}); len(b) != 2048 || le.Uint64(b[8:]) != 1 {
			t.Fatal("discovery")
		}
		if b = AppendFirmware(nil, serial); len(b) != 512 {
			t.Fatal("firmware")
		}
	})
}
