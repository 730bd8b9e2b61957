package overrdma

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

const testBlocks = 4096

// namespace returns a namespace in memory whose blocks are random, with right fields whose application
// tags are 0x1234.
func namespace(t *testing.T, block int, pi uint8) (*nvmet.Namespace, *memory) {
	t.Helper()
	data := make([]byte, testBlocks*block)
	r := rand.NewChaCha8([32]byte{byte(pi)})
	r.Read(data)
	m := &memory{b: data}
	if pi > 0 {
		m.b = protect(t, data, block, pi, 0, 0x1234)
	}
	return &nvmet.Namespace{Store: m, Blocks: testBlocks, BlockSize: block, PI: pi, ID: [16]byte{1, 2, 3}}, m
}

func protect(t *testing.T, data []byte, block int, pi uint8, ref uint64, app uint16) []byte {
	t.Helper()
	f := sig.Format{Type: sig.T10DIF, BlockSize: block, AppTag: app, RefTag: ref, Flags: sig.Type1}
	if pi == 3 {
		f.Flags = sig.Type3
	}
	out := make([]byte, f.StreamLen(int64(len(data))))
	if _, err := f.Protect(out, data); err != nil {
		t.Fatal(err)
	}
	return out
}

// strip leaves out the fields, which are not checked.
func strip(b []byte, block int) (data []byte) {
	for ; len(b) > 0; b = b[block+8:] {
		data = append(data, b[:block]...)
	}
	return data
}

// wantStatus is the status of NVM 5.2 for blocks with right fields of which one has a damaged part.
func wantStatus(pi, prinfo uint8, part string, write bool) nvme.Status {
	switch {
	case pi == 3 && prinfo&nvme.PRRef != 0:
		return nvme.InvalidPI
	case write && prinfo&nvme.PRAct != 0:
		return nvme.Success
	case prinfo&nvme.PRGuard != 0 && (part == "guard" || part == "data"):
		return nvme.GuardCheck
	case prinfo&nvme.PRApp != 0 && part == "app":
		return nvme.AppTagCheck
	case prinfo&nvme.PRRef != 0 && part == "ref":
		return nvme.RefTagCheck
	}
	return nvme.Success
}

// TestProtection reads, verifies and writes blocks of which one is damaged, on the medium or on its way, with
// all combinations of PRACT and PRCHK, and protection information of each type.
func TestProtection(t *testing.T) {
	const lba, n, bad = 100, 8, 5
	for _, block := range []int{512, 4096} {
		for pi := uint8(1); pi <= 3; pi++ {
			t.Run(fmt.Sprintf("%d type %d", block, pi), func(t *testing.T) {
				ns, m := namespace(t, block, pi)
				_, io := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}}).both()
				stride := block + 8
				parts := map[string]int{"": -1, "data": 7, "guard": block, "app": block + 3, "ref": block + 6}
				medium := m.b[lba*stride:][:n*stride]
				good := bytes.Clone(medium)
				for prinfo := uint8(0); prinfo < 16; prinfo++ {
					size := stride
					if prinfo&nvme.PRAct != 0 {
						size = block
					}
					for part, off := range parts {
						name := fmt.Sprintf("PRINFO %04b, %q damaged", prinfo, part)
						ref := uint32(lba)
						if pi == 3 {
							ref = 0
						}
						// From the medium.
						copy(medium, good)
						if off >= 0 {
							medium[bad*stride+off] ^= 1
						}
						want := wantStatus(pi, prinfo, part, false)
						got := make([]byte, n*size)
						if s := io.exec(rw(nvme.Read, lba, n, prinfo, ref, 0x1234, 0xffff), got).Status &^ nvme.DNR; s != want {
							t.Fatalf("read, %s: status %v, want %v", name, s, want)
						}
						expect := medium
						if size == block {
							expect = strip(medium, block)
						}
						if want == nvme.Success && !bytes.Equal(got, expect) {
							t.Fatalf("read, %s: other bytes", name)
						}
						if s := io.exec(rw(nvme.Verify, lba, n, prinfo, ref, 0x1234, 0xffff), nil).Status &^ nvme.DNR; s != want {
							t.Fatalf("verify, %s: status %v, want %v", name, s, want)
						}
						// To the medium.
						copy(medium, good)
						data := make([]byte, n*block)
						rand.NewChaCha8([32]byte{prinfo, byte(off)}).Read(data)
						wire := protect(t, data, block, pi, uint64(ref), 0x1234)
						expect = bytes.Clone(wire)
						if size == block {
							wire = data
						} else if off >= 0 {
							wire[bad*stride+off] ^= 1
							expect = bytes.Clone(wire)
						}
						want = wantStatus(pi, prinfo, part, true)
						if want != nvme.Success {
							expect = good
						}
						if s := io.exec(rw(nvme.Write, lba, n, prinfo, ref, 0x1234, 0xffff), wire).Status &^ nvme.DNR; s != want {
							t.Fatalf("write, %s: status %v, want %v", name, s, want)
						}
						if !bytes.Equal(medium, expect) {
							t.Fatalf("write, %s: other bytes on the medium", name)
						}
					}
				}
			})
		}
	}
}

// TestTags has commands whose tags are not those of the blocks.
func TestTags(t *testing.T) {
	const lba = 100
	for _, c := range []struct {
		name    string
		pi      uint8
		prinfo  uint8
		ref     uint32
		app     uint16
		mask    uint16
		want    nvme.Status
		escaped bool // the medium's application tags are 0xffff
	}{
		{"type 1, other reference tag", 1, nvme.PRRef, lba + 1, 0, 0, nvme.InvalidPI, false},
		{"type 1, other reference tag without the check", 1, nvme.PRGuard, lba + 1, 0, 0, nvme.Success, false},
		{"type 2, other reference tag", 2, nvme.PRRef, lba + 1, 0, 0, nvme.RefTagCheck, false},
		{"other application tag", 1, nvme.PRApp, lba, 0x1235, 0xffff, nvme.AppTagCheck, false},
		{"other application tag outside of the mask", 1, nvme.PRApp, lba, 0xff34, 0x00ff, nvme.Success, false},
		{"other application tag, no mask", 1, nvme.PRApp, lba, 0xffff, 0, nvme.Success, false},
		{"escape", 1, 7, lba, 0, 0xffff, nvme.Success, true},
		{"type 3, application tag alone is no escape", 3, nvme.PRApp, 0, 0, 0xffff, nvme.AppTagCheck, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns, m := namespace(t, 512, c.pi)
			if c.escaped {
				m.b = protect(t, make([]byte, testBlocks*512), 512, c.pi, 0, 0xffff)
			}
			_, io := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}}).both()
			io.want("read", rw(nvme.Read, lba, 8, c.prinfo, c.ref, c.app, c.mask), make([]byte, 8*520), c.want)
		})
	}
}

// TestCommands executes the I/O commands on namespaces with protection information and without.
func TestCommands(t *testing.T) {
	for _, pi := range []uint8{0, 1} {
		t.Run(fmt.Sprint("type ", pi), func(t *testing.T) {
			ns, m := namespace(t, 512, pi)
			stride := len(m.b) / testBlocks
			ro, _ := namespace(t, 4096, 0)
			ro.ReadOnly = true
			admin, io := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns, ro}}).both()
			check := uint8(0)
			if pi > 0 {
				check = 5
			}
			big := make([]byte, 2048*stride) // 1 MiB of data
			io.want("read of 1 MiB", rw(nvme.Read, 0, 2048, check, 0, 0, 0), big, nvme.Success)
			if !bytes.Equal(big, m.b[:len(big)]) {
				t.Error("1 MiB: other bytes")
			}
			io.want("write of 1 MiB", rw(nvme.Write, 0, 2048, check, 0, 0, 0), big, nvme.Success)
			io.want("more than MDTS", rw(nvme.Read, 0, 2049, check, 0, 0, 0), make([]byte, 2049*stride), nvme.InvalidField)
			block := bytes.Clone(m.b[7*stride:][:2*stride])
			io.want("compare", rw(nvme.Compare, 7, 2, check, 7, 0, 0), block, nvme.Success)
			block[stride+5] ^= 1
			io.want("compare of other data", rw(nvme.Compare, 7, 2, 0, 7, 0, 0), block, nvme.CompareFailure)
			if pi > 0 {
				io.want("compare with PRACT", rw(nvme.Compare, 7, 2, nvme.PRAct, 7, 0, 0), block, nvme.InvalidPI)
			}

			io.want("write zeroes", rw(nvme.WriteZeroes, 10, 1000, nvme.PRAct, 10, 0x77, 0), nil, nvme.Success)
			want := make([]byte, 1000*512)
			if pi > 0 {
				want = protect(t, want, 512, pi, 10, 0x77)
			}
			if !bytes.Equal(m.b[10*stride:][:len(want)], want) {
				t.Error("write zeroes: other bytes")
			}
			io.want("write zeroes without PRACT", rw(nvme.WriteZeroes, 10, 3, 0, 10, 0, 0), nil, nvme.Success)
			if !bytes.Equal(m.b[10*stride:][:3*stride], make([]byte, 3*stride)) {
				t.Error("write zeroes without PRACT: other bytes")
			}

			ranges := make([]byte, 2*nvme.RangeSize)
			for i, g := range []nvme.Range{{Blocks: 3, SLBA: 20}, {Blocks: 700, SLBA: 2000}} {
				le.PutUint32(ranges[i*nvme.RangeSize+4:], g.Blocks)
				le.PutUint64(ranges[i*nvme.RangeSize+8:], g.SLBA)
			}
			dsm := nvme.Command{Opcode: nvme.DatasetManagement, NSID: 1, DW: [6]uint32{1, 4}}
			io.want("deallocate", dsm, ranges, nvme.Success)
			if s := int64(stride); !slices.Equal(m.trimmed, []int64{20 * s, 3 * s, 2000 * s, 700 * s}) {
				t.Errorf("trimmed %d", m.trimmed)
			}
			le.PutUint64(ranges[8:], testBlocks-2)
			io.want("deallocate beyond the end", dsm, ranges, nvme.OutOfRange)

			io.want("flush", nvme.Command{Opcode: nvme.Flush, NSID: 1}, nil, nvme.Success)
			fua := rw(nvme.Write, 0, 1, check, 0, 0, 0)
			fua.DW[2] |= 1 << 30
			io.want("write with FUA", fua, bytes.Clone(m.b[:stride]), nvme.Success)
			if m.flushes != 2 {
				t.Errorf("%d flushes of the medium, want 2", m.flushes)
			}
			for _, c := range []struct {
				lba    uint64
				blocks int
			}{{testBlocks, 1}, {testBlocks - 1, 2}, {1<<64 - 1, 2}, {1<<64 - 1, 1}} {
				for _, op := range []nvme.Opcode{nvme.Read, nvme.Write, nvme.WriteZeroes, nvme.Verify, nvme.Compare} {
					io.want(fmt.Sprintf("%#x at %d", op, c.lba), rw(op, c.lba, c.blocks, 0, uint32(c.lba), 0, 0), make([]byte, 4*stride), nvme.OutOfRange)
				}
			}
			for _, op := range []nvme.Opcode{nvme.Write, nvme.WriteZeroes} {
				c := rw(op, 0, 1, 0, 0, 0, 0)
				c.NSID = 2
				io.want("write to a read-only namespace", c, make([]byte, 4096), nvme.WriteProtected)
				c.NSID = 3
				io.want("no namespace", c, make([]byte, 4096), nvme.InvalidNamespace)
			}
			io.want("too little room", rw(nvme.Read, 0, 2, check, 0, 0, 0), make([]byte, 2*stride-1), nvme.DataLengthInvalid)
			io.want("an opcode that does not exist", nvme.Command{Opcode: 0x91, NSID: 1}, nil, nvme.InvalidOpcode)
			m.err = syscall.EIO
			io.want("a medium that fails", rw(nvme.Write, 9, 1, check, 9, 0, 0), bytes.Clone(m.b[9*stride:][:stride]), nvme.WriteFault)
			io.want("a flush that fails", nvme.Command{Opcode: nvme.Flush, NSID: nvme.AllNamespaces}, nil, nvme.WriteFault)

			// The error log has the failed write with its block, after the flush.
			log := make([]byte, 2*64)
			admin.must(nvme.Command{Opcode: nvme.GetLogPage, DW: [6]uint32{31<<16 | nvme.ErrorLog}}, log)
			if lba, s := le.Uint64(log[64+16:]), nvme.Status(le.Uint16(log[64+12:])>>1)&^nvme.DNR; lba != 9 || s != nvme.WriteFault {
				t.Errorf("the error log has block %d, status %v", lba, s)
			}
			health := make([]byte, 512)
			admin.must(nvme.Command{Opcode: nvme.GetLogPage, NSID: nvme.AllNamespaces, DW: [6]uint32{127<<16 | nvme.HealthLog}}, health)
			if n := le.Uint64(health[160:]); n != 2 {
				t.Errorf("%d media errors, want 2", n)
			}
		})
	}
}

// TestDamage has damage on the wire, and damage that happens once.
func TestDamage(t *testing.T) {
	damage := func(v string) *nvmet.Damage {
		d, err := nvmet.ParseDamage(v)
		fatal.If(t, err)
		return d
	}
	ns, m := namespace(t, 512, 1)
	ns.Damage = []*nvmet.Damage{damage("wire:guard@3"), damage("wire:ref@20+2,once"), damage("wire:data@40"), damage("app@60"), damage("data@70+1000,once")}
	_, io := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}}).both()

	read := func(lba uint64, act uint8) ([]byte, nvme.Status) {
		b := make([]byte, 8*520)
		s := io.exec(rw(nvme.Read, lba, 8, 7|act, uint32(lba), 0x1234, 0xffff), b).Status &^ nvme.DNR
		return b, s
	}
	differs := func(lba uint64, b []byte) (at []int) {
		for i := range b {
			if b[i] != m.b[int(lba)*520+i] {
				at = append(at, i)
			}
		}
		return at
	}
	for range 2 { // always: the host gets a bad guard, and the target does not notice
		b, s := read(0, 0)
		if at := differs(0, b); s != nvme.Success || !slices.Equal(at, []int{3*520 + 513}) {
			t.Errorf("guard on the wire: status %v, bytes %v differ", s, at)
		}
	}
	if b, s := read(16, 0); s != nvme.Success || len(differs(16, b)) != 2 {
		t.Errorf("reference tags on the wire: status %v, bytes %v differ", s, differs(16, b))
	}
	if b, s := read(16, 0); s != nvme.Success || differs(16, b) != nil {
		t.Errorf("once: damaged again: status %v", s)
	}
	before := bytes.Clone(m.b)
	if s := io.exec(rw(nvme.Write, 40, 8, 7, 40, 0x1234, 0xffff), bytes.Clone(m.b[40*520:][:8*520])).Status; s != nvme.GuardCheck {
		t.Errorf("write of data that is damaged on the wire: status %v", s)
	}
	if !bytes.Equal(before, m.b) {
		t.Error("the medium has changed")
	}
	// With PRACT nothing protects the wire: the damaged data gets a right field.
	io.want("write with PRACT of data that is damaged on the wire", rw(nvme.Write, 40, 1, nvme.PRAct, 40, 0x1234, 0), bytes.Clone(m.b[40*520:][:512]), nvme.Success)
	f := sig.Format{Type: sig.T10DIF, AppTag: 0x1234, RefTag: 40}
	if bytes.Equal(before, m.b) || f.Verify(m.b[40*520:][:520]) != nil {
		t.Error("the medium has the old data, or a bad field")
	}
	for range 2 {
		if _, s := read(56, nvme.PRAct); s != nvme.AppTagCheck {
			t.Errorf("application tag on the medium: status %v", s)
		}
	}
	if _, s := read(100, 0); s != nvme.GuardCheck {
		t.Errorf("data on the medium: status %v", s)
	}
	if _, s := read(100, 0); s != nvme.Success {
		t.Errorf("data on the medium, the second time: status %v", s)
	}
}

// TestCapsule has data in command capsules, and keys that the response invalidates.
func TestCapsule(t *testing.T) {
	ns, m := namespace(t, 512, 1)
	_, io := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}}).both()
	send := func(c nvme.Command, data []byte) (nvme.Completion, rdma.WC) {
		t.Helper()
		fatal.If(t, io.post(&c, data))
		done, wc, ok := io.answer()
		if !ok {
			t.Fatal("the connection has ended")
		}
		return done, wc
	}
	inCapsule := func(c nvme.Command, off uint64, n int) nvme.Command {
		c.SGL = nvme.SGL{Type: nvme.DataBlock, Subtype: nvme.Offset, Addr: off, Length: uint32(n)}
		return c
	}
	data := protect(t, bytes.Repeat([]byte("capsule."), 8*64), 512, 1, 16, 0)
	if done, _ := send(inCapsule(rw(nvme.Write, 16, 8, 7, 16, 0, 0xffff), 0, len(data)), data); done.Status != nvme.Success || !bytes.Equal(m.b[16*520:][:len(data)], data) {
		t.Errorf("status %v, or other bytes", done.Status)
	}
	plain := strip(data, 512)
	if done, _ := send(inCapsule(rw(nvme.Write, 32, 8, nvme.PRAct|7, 32, 0x99, 0xffff), 0, len(plain)), plain); done.Status != nvme.Success || !bytes.Equal(m.b[32*520:][:len(data)], protect(t, plain, 512, 1, 32, 0x99)) {
		t.Errorf("PRACT: status %v, or other bytes", done.Status)
	}
	bad := bytes.Clone(data)
	bad[5*520+7] ^= 1
	if done, _ := send(inCapsule(rw(nvme.Write, 16, 8, 4, 16, 0, 0), 0, len(bad)), bad); done.Status != nvme.GuardCheck || !bytes.Equal(m.b[16*520:][:len(data)], data) {
		t.Errorf("a bad guard: status %v, or other bytes", done.Status)
	}
	for _, c := range []struct {
		name string
		sgl  nvme.SGL
		want nvme.Status
	}{
		{"beyond the capsule", nvme.SGL{Subtype: nvme.Offset, Length: uint32(len(data) + 1)}, nvme.DataLengthInvalid},
		{"offset beyond the capsule", nvme.SGL{Subtype: nvme.Offset, Addr: 1 << 40, Length: 520}, nvme.OffsetInvalid},
		{"4 GiB", nvme.SGL{Subtype: nvme.Offset, Addr: 8, Length: 0xffffffff}, nvme.DataLengthInvalid},
		{"an address without a key", nvme.SGL{Length: 520}, nvme.DescriptorTypeInvalid},
		{"a segment", nvme.SGL{Type: 3, Length: 520}, nvme.DescriptorTypeInvalid},
	} {
		w := rw(nvme.Write, 16, 1, 7, 16, 0, 0)
		w.SGL = c.sgl
		if done, _ := send(w, data); done.Status&^nvme.DNR != c.want {
			t.Errorf("%s: status %v, want %v", c.name, done.Status, c.want)
		}
	}
	if done, _ := send(inCapsule(rw(nvme.Read, 16, 1, 7, 16, 0, 0), 0, 520), data); done.Status == nvme.Success {
		t.Error("a read into a capsule succeeded")
	}

	mr := io.h.register(make([]byte, 520), rdma.LocalWrite|rdma.RemoteWrite)
	defer mr.Close()
	key := must(t, func() (*verbs.MKey, error) {
		return io.h.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.RemoteInvalidate, MaxEntries: 1})
	})
	defer key.Close()
	fatal.If(t, io.qp.Start().Configure(key).Access(rdma.LocalWrite|rdma.RemoteWrite).List(mr.SGE(0, 520)).Complete())
	r := rw(nvme.Read, 16, 1, 7, 16, 0, 0)
	r.SGL = nvme.SGL{Type: nvme.KeyedBlock, Subtype: nvme.Invalidate, Length: 520, Key: key.RKey()}
	if done, wc := send(r, nil); done.Status != nvme.Success || wc.Flags&rdma.WithInv == 0 || !bytes.Equal(mr.Bytes(), data[:520]) {
		t.Errorf("status %v, flags %v, or other bytes", done.Status, wc.Flags)
	}
}

// TestDiscovery asks the discovery controller, and what controllers say of themselves and of namespaces.
func TestDiscovery(t *testing.T) {
	ns, _ := namespace(t, 512, 1)
	plain, _ := namespace(t, 4096, 0)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns, plain}})
	h := l.host(hostAddr)
	q, id := h.admin(nvme.DiscoveryNQN)
	page := make([]byte, 2048)
	q.must(nvme.Command{Opcode: nvme.GetLogPage, DW: [6]uint32{511<<16 | nvme.DiscoveryLog}}, page)
	e := page[1024:]
	if le.Uint64(page[8:]) != 1 || e[0] != 1 || e[1] != 1 || e[2] != 2 || string(bytes.TrimRight(e[32:64], " ")) != "4420" ||
		string(bytes.TrimRight(e[256:512], "\x00")) != testNQN || string(bytes.TrimRight(e[512:768], " ")) != "192.0.2.1" {
		t.Errorf("the discovery log is % x", bytes.TrimRight(page, "\x00"))
	}
	page = make([]byte, 4096)
	q.must(nvme.Command{Opcode: nvme.Identify, DW: [6]uint32{nvme.CNSController}}, page)
	if page[111] != 2 || le.Uint16(page[78:]) != id {
		t.Errorf("the discovery controller is of type %d, controller %d", page[111], le.Uint16(page[78:]))
	}
	q.want("a namespace of the discovery controller", nvme.Command{Opcode: nvme.Identify, NSID: 1}, page, nvme.InvalidField)
	if _, err := h.dial(nvme.CMRequest{QID: 1, HRQSize: 8, HSQSize: 7}); err != nil { // Connect finds no controller
		t.Fatal(err)
	}
	admin, id := h.admin(testNQN)
	admin.must(nvme.Command{Opcode: nvme.Identify, DW: [6]uint32{nvme.CNSController}}, page)
	if le.Uint16(page[78:]) != id || le.Uint32(page[536:])&(1<<2|1<<20) != 1<<2|1<<20 || le.Uint32(page[1792:])*16 != slotSize || le.Uint16(page[320:]) == 0 || le.Uint32(page[516:]) != 2 {
		t.Errorf("controller %d: SGLS %#x, IOCCSZ %d", le.Uint16(page[78:]), le.Uint32(page[536:]), le.Uint32(page[1792:]))
	}
	for i, want := range []struct {
		bits, flbas, dps byte
		metadata         uint16
	}{{9, 0x10, 1, 8}, {12, 0, 0, 0}} {
		admin.must(nvme.Command{Opcode: nvme.Identify, NSID: uint32(i + 1)}, page)
		if le.Uint64(page) != testBlocks || page[130] != want.bits || page[26] != want.flbas || page[29] != want.dps || le.Uint16(page[128:]) != want.metadata {
			t.Errorf("namespace %d: %d blocks, LBADS %d, FLBAS %#x, DPS %d, MS %d", i+1, le.Uint64(page), page[130], page[26], page[29], le.Uint16(page[128:]))
		}
	}
	admin.must(nvme.Command{Opcode: nvme.Identify, NSID: 1, DW: [6]uint32{nvme.CNSActiveList}}, page)
	if le.Uint32(page) != 2 || le.Uint32(page[4:]) != 0 {
		t.Errorf("the namespaces above 1 are % x", page[:8])
	}
	admin.must(nvme.Command{Opcode: nvme.Identify, NSID: 1, DW: [6]uint32{nvme.CNSDescriptors}}, page)
	if page[0] != 2 || page[1] != 16 || page[4] != 1 {
		t.Errorf("the descriptors are % x", page[:24])
	}
	if v := admin.must(nvme.Command{Opcode: nvme.SetFeatures, DW: [6]uint32{uint32(nvme.NumberOfQueues), 7<<16 | 7}}, nil); v != 63<<16|63 {
		t.Errorf("number of queues: %#x", v)
	}
	for _, c := range []nvme.Command{
		{Opcode: nvme.KeepAlive}, {Opcode: nvme.GetFeatures, DW: [6]uint32{uint32(nvme.VolatileWriteCache)}},
		{Opcode: nvme.SetFeatures, DW: [6]uint32{uint32(nvme.AsyncEventConfig), 0x900}}, {Opcode: nvme.SetFeatures, DW: [6]uint32{uint32(nvme.KeepAliveTimer), 60000}},
	} {
		admin.must(c, nil)
	}
	if v := admin.must(nvme.Command{Opcode: nvme.GetFeatures, DW: [6]uint32{uint32(nvme.AsyncEventConfig)}}, nil); v != 0x900 {
		t.Errorf("asynchronous event configuration: %#x", v)
	}
	// Asynchronous Event Requests wait.
	for i := range 5 {
		c := nvme.Command{Opcode: nvme.AsyncEvent, ID: uint16(1000 + i), SGL: nvme.SGL{Type: nvme.KeyedBlock}}
		fatal.If(t, admin.post(&c, nil))
	}
	// Commands run at the same time: the one too many is any of them.
	done, _, _ := admin.answer()
	if done.ID < 1000 || done.ID > 1004 || done.Status&^nvme.DNR != nvme.TooManyEvents {
		t.Errorf("the fifth event request: command %d, %v", done.ID, done.Status)
	}
	if v := admin.must(nvme.Command{Opcode: nvme.Abort, DW: [6]uint32{1001 << 16}}, nil); v != 1 {
		t.Errorf("abort: %#x", v)
	}
}

// TestRefused has connections that the target refuses, with the reasons of RDMA 6.2, and Connect commands
// that it refuses.
func TestRefused(t *testing.T) {
	ns, _ := namespace(t, 512, 0)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	h := l.host(hostAddr)
	for _, c := range []struct {
		r    nvme.CMRequest
		want uint16
	}{
		{nvme.CMRequest{Format: 1, HRQSize: 32, HSQSize: 31}, nvme.CMInvalidFormat},
		{nvme.CMRequest{QID: 65, HRQSize: 32, HSQSize: 31}, nvme.CMInvalidQID},
		{nvme.CMRequest{HRQSize: 32, HSQSize: 32}, nvme.CMInvalidHSQSize},
		{nvme.CMRequest{QID: 1, HRQSize: 32, HSQSize: 0xffff}, nvme.CMInvalidHSQSize},
		{nvme.CMRequest{QID: 1, HRQSize: 32}, nvme.CMInvalidHSQSize},
		{nvme.CMRequest{QID: 1, HSQSize: 31}, nvme.CMInvalidHRQSize},
	} {
		_, err := h.dial(c.r)
		var reject *cm.RejectError
		if !errors.As(err, &reject) || le.Uint16(reject.PrivateData[2:]) != c.want {
			t.Errorf("%+v: %v, want reason %d", c.r, err, c.want)
		}
	}
	dial := func(qid uint16) *queue {
		return must(t, func() (*queue, error) { return h.dial(nvme.CMRequest{QID: qid, HRQSize: 32, HSQSize: 31}) })
	}
	for _, c := range []struct {
		name    string
		qid     uint16
		command nvme.Command
		data    []byte
		want    nvme.Status
	}{
		{"other queue", 1, connectCommand(2, 32, 0), connectData(1, testNQN), nvme.InvalidParameters},
		{"no controller", 1, connectCommand(1, 32, 0), connectData(99, testNQN), nvme.InvalidParameters},
		{"other subsystem", 0, connectCommand(0, 32, 0), connectData(nvme.AnyController, "nqn.other"), nvme.InvalidParameters},
		{"one entry", 0, connectCommand(0, 1, 0), connectData(nvme.AnyController, testNQN), nvme.InvalidParameters},
		{"chosen controller", 0, connectCommand(0, 32, 0), connectData(5, testNQN), nvme.InvalidParameters},
		{"short data", 0, connectCommand(0, 32, 0), connectData(nvme.AnyController, testNQN)[:1000], nvme.DataLengthInvalid},
	} {
		q := dial(c.qid)
		q.want(c.name, c.command, c.data, c.want)
		<-q.conn.Done()
		q.close()
	}
	admin, id := h.admin(testNQN)
	io, _ := h.queue(1, 32, id, testNQN, 0)
	dial(1).want("a second queue 1", connectCommand(1, 32, 0), connectData(id, testNQN), nvme.InvalidParameters)
	io.must(nvme.Command{Opcode: nvme.FabricsClass, NSID: nvme.Disconnect}, nil)
	<-io.conn.Done()
	h.queue(1, 32, id, testNQN, 0) // its number is free again
	admin.must(nvme.Command{Opcode: nvme.KeepAlive}, nil)

	nameless := connectDataOf("", testNQN)
	dial(0).must(connectCommand(0, 32, 0), nameless)

	l = newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}, Hosts: []string{"another"}})
	h = l.host(hostAddr)
	dial(0).want("a host without a name that may not connect", connectCommand(0, 32, 0), nameless, nvme.InvalidHost)
	dial(0).want("a host that may not connect", connectCommand(0, 32, 0), connectData(nvme.AnyController, testNQN), nvme.InvalidHost)
	h.admin(nvme.DiscoveryNQN)
}

// TestHostile has hosts that break the rules. Each loses its own connection, and another one works on.
func TestHostile(t *testing.T) {
	ns, _ := namespace(t, 512, 1)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	_, io := l.both()
	h := l.host("192.0.2.3")
	for name, send := range map[string]func(q *queue) error{
		"a command before Connect": func(q *queue) error { return q.post(&nvme.Command{Opcode: nvme.Identify}, nil) },
		"a short capsule":          func(q *queue) error { return q.qp.Start().Send().Inline(make([]byte, 63)).Complete() },
		"an empty capsule":         func(q *queue) error { return q.qp.Start().Send().Complete() },
		"a long capsule":           func(q *queue) error { return q.post(&nvme.Command{}, make([]byte, CapsuleData+1)) },
		"a key that does not exist": func(q *queue) error {
			c := connectCommand(0, 32, 0)
			c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: 1 << 40, Length: 1024, Key: 0x12345678}
			return q.post(&c, nil)
		},
	} {
		q := must(t, func() (*queue, error) { return h.dial(nvme.CMRequest{HRQSize: 32, HSQSize: 31}) })
		if name == "a long capsule" {
			q.close()
			q = must(t, func() (*queue, error) { return h.dial(nvme.CMRequest{HRQSize: 32, HSQSize: 31}) })
			big := h.register(make([]byte, slotSize+1), rdma.LocalWrite)
			send = func(q *queue) error { return q.qp.Start().Send().SGE(big.SGE(0, slotSize+1)).Complete() }
		}
		if err := send(q); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		<-q.conn.Done()
		q.close()
		io.want(name+": another host", rw(nvme.Read, 0, 8, 7, 0, 0x1234, 0xffff), make([]byte, 8*520), nvme.Success)
	}
	// A read to a key that does not exist, on a queue with 100 good reads in flight.
	admin, id := h.admin(testNQN)
	q, _ := h.queue(1, 128, id, testNQN, 0)
	mr := h.register(make([]byte, 8*520), rdma.LocalWrite|rdma.RemoteWrite)
	for i := range 101 {
		c := rw(nvme.Read, 0, 8, 7, 0, 0x1234, 0xffff)
		c.ID = uint16(i)
		c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: mr.Addr(), Length: 8 * 520, Key: mr.RKey()}
		if i == 50 {
			c.SGL.Key ^= 1 << 20
		}
		if err := q.post(&c, nil); err != nil {
			break // the connection has ended already
		}
	}
	<-q.conn.Done()
	admin.must(nvme.Command{Opcode: nvme.KeepAlive}, nil)
	io.want("another host", rw(nvme.Read, 0, 8, 7, 0, 0x1234, 0xffff), make([]byte, 8*520), nvme.Success)
}

// TestSilent connects a queue that sends no command. The target ends the connection.
func TestSilent(t *testing.T) {
	was := patience
	t.Cleanup(func() { patience = was })
	patience = 100 * time.Millisecond
	ns, _ := namespace(t, 512, 1)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	h := l.host(hostAddr)
	q := must(t, func() (*queue, error) { return h.dial(nvme.CMRequest{HRQSize: 32, HSQSize: 31}) })
	defer q.close()
	<-q.conn.Done()
}

// TestVanish ends hosts in the middle of commands, without a message.
func TestVanish(t *testing.T) {
	defer func(was time.Duration) { farewell = was }(farewell)
	farewell = 100 * time.Millisecond
	ns, m := namespace(t, 512, 1)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	before := bytes.Clone(m.b)
	rounds := 3
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		h := l.host(hostAddr)
		h.timeout = 134 * time.Millisecond
		_, id := h.admin(testNQN)
		q, _ := h.queue(1, 128, id, testNQN, 0)
		data := h.register(bytes.Clone(before[:1024*520]), rdma.LocalWrite|rdma.RemoteRead)
		for i := range 20 {
			c := rw(nvme.Write, uint64(i), 1000, 7, uint32(i), 0x1234, 0xffff)
			c.ID = uint16(i)
			c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: data.Addr() + uint64(i*520), Length: 1000 * 520, Key: data.RKey()}
			fatal.If(t, q.post(&c, nil))
		}
		for range round { // in different moments
			q.answer()
		}
		engine.PortOf(h.dev).Close() // as if its power had failed
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !bytes.Equal(before, m.b) {
		t.Error("the medium has other blocks")
	}
}

// TestMemory has a host with more commands in flight than its share of memory.
func TestMemory(t *testing.T) {
	ns, m := namespace(t, 512, 0)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	h := l.host(hostAddr)
	admin, id := h.admin(testNQN)
	defer admin.close()
	mr := h.register(make([]byte, nvmet.MaxTransfer), rdma.LocalWrite|rdma.RemoteWrite)
	var wg sync.WaitGroup
	for qid := uint16(1); qid <= 4; qid++ {
		q, _ := h.queue(qid, 128, id, testNQN, 0)
		defer q.close()
		wg.Go(func() {
			for i := range 60 {
				c := rw(nvme.Read, 0, nvmet.MaxTransfer/512, 0, 0, 0, 0)
				c.ID = uint16(i)
				c.SGL = nvme.SGL{Type: nvme.KeyedBlock, Addr: mr.Addr(), Length: nvmet.MaxTransfer, Key: mr.RKey()}
				if err := q.post(&c, nil); err != nil {
					t.Error(err)
					return
				}
			}
			for range 60 {
				if done, _, ok := q.answer(); !ok || done.Status != nvme.Success {
					t.Errorf("status %v", done.Status)
					return
				}
			}
		})
	}
	l.server.mu.Lock()
	share := l.server.hosts[h.dev.Addr()]
	l.server.mu.Unlock()
	var over atomic.Bool
	go func() {
		wg.Wait()
		over.Store(true)
	}()
	most := 0
	for !over.Load() {
		share.mu.Lock()
		most = max(most, share.used)
		share.mu.Unlock()
		runtime.Gosched()
	}
	if !bytes.Equal(mr.Bytes(), m.b[:len(mr.Bytes())]) {
		t.Error("other bytes")
	}
	if most > MaxData || most < MaxData/4 {
		t.Errorf("the host's commands had %d bytes at a time: must be at most %d, and the test must come near", most, MaxData)
	}
}

// TestShares has strangers that take all they can get. Other hosts, and one at the same address that may connect, get in.
func TestShares(t *testing.T) {
	ns, _ := namespace(t, 512, 0)
	one := nvme.CMRequest{HRQSize: 2, HSQSize: 1}
	connect := func(h *testHost, subsystem, host string) (*queue, nvme.Status) {
		t.Helper()
		q := must(t, func() (*queue, error) { return h.dial(one) })
		return q, q.exec(connectCommand(0, 2, 0), connectDataOf(host, subsystem)).Status
	}
	t.Run("connections", func(t *testing.T) {
		l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
		stranger := l.host("192.0.2.3")
		_, id := stranger.admin(testNQN)
		var open []*queue
		for len(open) < HostQueues+5 { // none of them sends a command
			if q, err := stranger.dial(one); err == nil {
				open = append(open, q)
			}
		}
		<-open[0].conn.Done()
		l.server.mu.Lock()
		if n := l.server.queues; n > HostQueues+maxLeaving {
			t.Errorf("%d connections of a host, of which at most %d may be there", n, HostQueues)
		}
		l.server.mu.Unlock()
		stranger.queue(1, 32, id, testNQN, 0)
	})
	t.Run("controllers", func(t *testing.T) {
		l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
		stranger, n := l.host("192.0.2.3"), 0
		for ; ; n++ {
			if _, s := connect(stranger, nvme.DiscoveryNQN, fmt.Sprint("nqn.", n)); s == nvme.ControllerBusy {
				break
			} else if s != nvme.Success || n > 100 {
				t.Fatalf("after %d: %v", n, s)
			}
		}
		if n != 16 {
			t.Errorf("an address has %d controllers, want 16", n)
		}
		l.host(hostAddr).admin(testNQN)
	})
	t.Run("dead", func(t *testing.T) {
		l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
		for range 4 { // each time 5 controllers without keep alive
			h := l.host("192.0.2.3")
			h.timeout = 17 * time.Millisecond
			for range 5 {
				for {
					q, s := connect(h, testNQN, "nqn.crashes")
					if s == nvme.Success {
						break
					} else if s != nvme.ControllerBusy {
						t.Fatal(s)
					}
					q.close()
				}
			}
			engine.PortOf(h.dev).Close() // as if its power had failed
		}
	})
	t.Run("permitted", func(t *testing.T) {
		l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}, Hosts: []string{hostNQN}})
		h := l.host("192.0.2.3")
		for range 16 {
			q, s := connect(h, nvme.DiscoveryNQN, "nqn.stranger")
			if s != nvme.Success {
				t.Fatal(s)
			}
			defer q.close()
		}
		if _, s := connect(h, nvme.DiscoveryNQN, "nqn.stranger"); s != nvme.ControllerBusy {
			t.Errorf("a controller too many: %v", s)
		}
		h.admin(testNQN)
	})
	t.Run("crowd", func(t *testing.T) {
		l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
		l.server.mu.Lock()
		l.server.most = 6
		l.server.mu.Unlock()
		greedy, modest := l.host("192.0.2.3"), l.host(hostAddr)
		var queues []*queue
		for range 6 {
			q, s := connect(greedy, testNQN, "nqn.greedy")
			if s != nvme.Success {
				t.Fatal(s)
			}
			queues = append(queues, q)
		}
		for i := range 3 { // then both have three
			modest.admin(testNQN)
			<-queues[5-i].conn.Done()
		}
		if _, err := modest.dial(one); err == nil {
			t.Error("a host with as many connections as the other got another one")
		}
		queues[2].must(property(nvme.PropertyGet, nvme.CSTS, false, 0), nil)
	})
	t.Run("memory", func(t *testing.T) {
		var all atomic.Int64
		all.Store(MaxAllData)
		h := newHost(&all)
		h.take(1000) // the only one of the host
		if h.countLocked(1) {
			t.Error("a host with a command got more memory than there is")
		}
		h.give(1000)
		if n := all.Load(); n != MaxAllData {
			t.Errorf("%d bytes are counted, want %d", n, MaxAllData)
		}
	})
}

// TestDiscoveryOfStrangers reads the discovery log as a host that may connect, and as one that may not.
func TestDiscoveryOfStrangers(t *testing.T) {
	ns, _ := namespace(t, 512, 0)
	for host, want := range map[string]uint64{hostNQN: 1, "nqn.other": 0} {
		h := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}, Hosts: []string{host}}).host(hostAddr)
		q, _ := h.admin(nvme.DiscoveryNQN)
		page := make([]byte, 2048)
		q.must(nvme.Command{Opcode: nvme.GetLogPage, DW: [6]uint32{511<<16 | nvme.DiscoveryLog}}, page)
		if n := le.Uint64(page[8:]); n != want || n == 0 && bytes.Contains(page, []byte(testNQN)) {
			t.Errorf("%s may connect: the log has %d subsystems, want %d", host, n, want)
		}
	}
}

// TestReset resets and shuts down a controller, and loses its I/O queue.
func TestReset(t *testing.T) {
	ns, m := namespace(t, 512, 0)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	h := l.host(hostAddr)
	admin, id := h.admin(testNQN)
	queues := nvme.Command{Opcode: nvme.SetFeatures, DW: [6]uint32{uint32(nvme.NumberOfQueues), 7<<16 | 7}}
	for range 3 {
		admin.must(queues, nil)
		io, _ := h.queue(1, 32, id, testNQN, 0)
		admin.want("the number of queues beside an I/O queue", queues, nil, nvme.CommandSequenceError)
		admin.must(property(nvme.PropertySet, nvme.CC, false, 4<<20|6<<16), nil)
		<-io.conn.Done()
		if v := admin.must(property(nvme.PropertyGet, nvme.CSTS, false, 0), nil); v != 0 {
			t.Errorf("CSTS is %#x after a reset", v)
		}
		admin.must(property(nvme.PropertySet, nvme.CC, false, 4<<20|6<<16|1), nil)
	}
	for range 20 { // the host ends the connection, and makes the same queue again
		io, _ := h.queue(1, 32, id, testNQN, 0)
		io.close()
	}
	if m.flushes != 0 {
		t.Errorf("%d flushes before the shutdown", m.flushes)
	}
	admin.must(property(nvme.PropertySet, nvme.CC, false, 4<<20|6<<16|1<<14|1), nil)
	if v := admin.must(property(nvme.PropertyGet, nvme.CSTS, false, 0), nil); v != 2<<2|1 || m.flushes != 1 {
		t.Errorf("CSTS is %#x after a shutdown with %d flushes", v, m.flushes)
	}
	m.err = syscall.EIO
	admin, _ = h.admin(testNQN)
	admin.must(property(nvme.PropertySet, nvme.CC, false, 4<<20|6<<16|1<<14|1), nil)
	if v := admin.must(property(nvme.PropertyGet, nvme.CSTS, false, 0), nil); v>>2&3 == 2 || v&2 == 0 {
		t.Errorf("CSTS is %#x after a shutdown whose flush has failed", v)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failed) > 0 {
		t.Errorf("reported: %v", l.failed)
	}
}

// TestTemperature has thresholds of both directions, and of sensors that do not exist.
func TestTemperature(t *testing.T) {
	ns, _ := namespace(t, 512, 0)
	admin, _ := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}}).both()
	feature := func(op nvme.Opcode, dw uint32, want nvme.Status) uint64 {
		t.Helper()
		done := admin.exec(nvme.Command{Opcode: op, DW: [6]uint32{uint32(nvme.TemperatureThreshold), dw}}, nil)
		if s := done.Status &^ nvme.DNR; s != want {
			t.Errorf("%#x of %#x: %v, want %v", op, dw, s, want)
		}
		return done.Result
	}
	const under, sensor1, all, reserved = 1 << 20, 1 << 16, 15 << 16, 9 << 16
	warns := func() bool {
		page := make([]byte, 512)
		admin.must(nvme.Command{Opcode: nvme.GetLogPage, DW: [6]uint32{127<<16 | nvme.HealthLog}}, page)
		return page[0]&2 != 0
	}
	page := make([]byte, nvme.IdentifySize)
	admin.must(nvme.Command{Opcode: nvme.Identify, DW: [6]uint32{nvme.CNSController}}, page)
	if v := feature(nvme.GetFeatures, 0, nvme.Success); v != uint64(le.Uint16(page[266:])) || v == 0 || warns() {
		t.Errorf("the threshold is %d, WCTEMP is %d", v, le.Uint16(page[266:]))
	}
	feature(nvme.SetFeatures, under|200, nvme.Success)
	feature(nvme.SetFeatures, sensor1|100, nvme.Success)
	feature(nvme.SetFeatures, all|250, nvme.Success)
	if over, below := feature(nvme.GetFeatures, 0, nvme.Success), feature(nvme.GetFeatures, under, nvme.Success); over != 250 || below != 200 || !warns() {
		t.Errorf("the thresholds are %d and %d, warning %v", over, below, warns())
	}
	if v := feature(nvme.GetFeatures, sensor1, nvme.Success); v != 0 {
		t.Errorf("a sensor that does not exist has threshold %d", v)
	}
	for _, dw := range []uint32{reserved, 2 << 20, 3 << 20} {
		feature(nvme.SetFeatures, dw, nvme.InvalidField)
		feature(nvme.GetFeatures, dw, nvme.InvalidField)
	}
	feature(nvme.GetFeatures, all, nvme.InvalidField)
}

// TestReports has connections that end as they should, and others whose reports must name host and field.
func TestReports(t *testing.T) {
	ns, m := namespace(t, 512, 0)
	var failures []nvmet.Failure
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}, Hosts: []string{hostNQN}, Failed: func(f nvmet.Failure) { failures = append(failures, f) }})
	h := l.host(hostAddr)
	_, id := h.admin(testNQN)
	io, _ := h.queue(1, 32, id, testNQN, 0)
	block := bytes.Clone(m.b[:512])
	block[3] ^= 1
	if s := io.exec(rw(nvme.Compare, 0, 1, 0, 0, 0, 0), block).Status; s != nvme.CompareFailure|nvme.DNR {
		t.Errorf("compare: %v", s)
	}
	m.err = syscall.ENOSPC
	copy(block, make([]byte, nvme.RangeSize))
	block[4] = 1 // Dataset Management deallocates block 0
	for _, c := range []nvme.Command{rw(nvme.Write, 0, 1, 0, 0, 0, 0), {Opcode: nvme.Flush, NSID: 1}, rw(nvme.WriteZeroes, 0, 1, 0, 0, 0, 0), {Opcode: nvme.DatasetManagement, NSID: 1, DW: [6]uint32{0, 1 << 2}}} {
		if s := io.exec(c, block).Status; s != nvme.CapacityExceeded|nvme.DNR {
			t.Errorf("a full disk, command %#x: %v", c.Opcode, s)
		}
	}
	if len(failures) > 0 {
		t.Errorf("media errors: %+v", failures)
	}
	io.must(nvme.Command{Opcode: nvme.FabricsClass, NSID: nvme.Disconnect}, nil)
	<-io.conn.Done()
	refused := func(qid uint16, c nvme.Command, data []byte, status nvme.Status, result uint64) {
		t.Helper()
		q := must(t, func() (*queue, error) { return h.dial(nvme.CMRequest{QID: qid, HRQSize: 32, HSQSize: 31}) })
		if done := q.exec(c, data); done.Status&^nvme.DNR != status || done.Result != result {
			t.Errorf("%v, result %#x, want %v, %#x", done.Status, done.Result, status, result)
		}
		<-q.conn.Done()
		q.close()
	}
	refused(0, connectCommand(0, 32, 0), connectDataOf("nqn.\xff", testNQN), nvme.InvalidParameters, nvme.Invalid(true, nvme.ConnectDataHOSTNQN))
	refused(0, connectCommand(0, 32, 0), connectDataOf("nqn.other\n", testNQN), nvme.InvalidHost, 0)
	refused(0, connectCommand(0, 32, 0), connectData(nvme.AnyController, "nqn.sub"), nvme.InvalidParameters, nvme.Invalid(true, nvme.ConnectDataSUBNQN))
	refused(1, connectCommand(1, 33, 0), connectData(id, testNQN), nvme.InvalidParameters, nvme.Invalid(false, nvme.ConnectSQSize))
	l.stop()
	l.server.running.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, want := range []string{`HOSTNQN "nqn.\xff"`, `0x184 (invalid host): host "nqn.other\n" (HOSTNQN)`, `asks for the subsystem "nqn.sub" (SUBNQN)`, "0x182 (invalid parameters): SQSIZE is 32, but HSQSIZE was 31"} {
		if !slices.ContainsFunc(l.failed, func(err error) bool { return strings.Contains(err.Error(), want) }) {
			t.Errorf("no report has %q: %q", want, l.failed)
		}
	}
	if len(l.failed) != 4 {
		t.Errorf("%d reports: %v", len(l.failed), l.failed)
	}
	if s := nvme.ControllerBusy.Of(nvme.FabricsSet); s != "0x181 (controller busy)" {
		t.Error(s)
	}
}

// TestKeepAlive has a host that does not keep its controller alive.
func TestKeepAlive(t *testing.T) {
	ns, _ := namespace(t, 512, 0)
	l := newLab(t, nvmet.Options{Namespaces: []*nvmet.Namespace{ns}})
	h := l.host(hostAddr)
	admin, id := h.queue(0, 32, nvme.AnyController, testNQN, 1)
	admin.must(property(nvme.PropertySet, nvme.CC, false, 4<<20|6<<16|1), nil)
	io, _ := h.queue(1, 32, id, testNQN, 0)
	<-admin.conn.Done()
	<-io.conn.Done()
}
