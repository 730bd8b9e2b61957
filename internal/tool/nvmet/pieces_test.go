package nvmet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/sig"
)

// pieces is a namespace whose commands of all blocks take several pieces, the last of them a short one.
type pieces struct {
	t      *testing.T
	ns     *Namespace
	store  *badMedium
	format sig.Format // of the fields, which count from 0
	q      *Queue
}

// badMedium is a medium of which one block cannot be read or written.
type badMedium struct {
	medium
	from int64 // offset of that block; -1: all are good
}

var errMedium = errors.New("a block that is worn out")

func (m *badMedium) ReadAt(p []byte, off int64) (int, error) {
	return m.move(p, m.medium[off:], p, off)
}
func (m *badMedium) WriteAt(p []byte, off int64) (int, error) {
	return m.move(m.medium[off:], p, p, off)
}

func (m *badMedium) move(dst, src, p []byte, off int64) (int, error) {
	if good := m.from - off; m.from >= 0 && good >= 0 && good < int64(len(p)) {
		return copy(dst, src[:good]), errMedium
	}
	return copy(dst, src[:min(len(src), len(p))]), nil
}

// newPieces returns a namespace with protection information of a type: three pieces of 256 KiB and some blocks.
func newPieces(t *testing.T, pi uint8) *pieces {
	t.Helper()
	const blocks = 3*256<<10/512 + 100
	p := &pieces{t: t, store: &badMedium{from: -1}, ns: &Namespace{Blocks: blocks, BlockSize: 512, PI: pi}}
	p.ns.Store = p.store
	prot, status := p.ns.protection(nvme.RW{})
	if status != nvme.Success {
		t.Fatal(status)
	}
	p.format = prot.format
	p.store.medium = make(medium, blocks*p.ns.stride())
	target, err := New(Options{NQN: "t", Namespaces: []*Namespace{p.ns}})
	fatal.If(t, err)
	for id := range uint16(2) {
		q := target.NewQueue(id, 32, Peer{Local: netip.MustParseAddrPort("192.0.2.1:4420"), End: func(error) {}})
		t.Cleanup(q.Close)
		data := make([]byte, nvme.ConnectDataSize)
		binary.LittleEndian.PutUint16(data[16:], 0xffff)
		if id > 0 {
			binary.LittleEndian.PutUint16(data[16:], p.q.controller().id)
		}
		copy(data[256:], "t")
		copy(data[512:], "h")
		must(t, q, nvme.Command{Opcode: nvme.FabricsClass, Flags: 1 << 6, NSID: nvme.Connect, DW: [6]uint32{uint32(id) << 16, 31}}, &local{host: data})
		if id == 0 {
			must(t, q, nvme.Command{Opcode: nvme.FabricsClass, Flags: 1 << 6, NSID: nvme.PropertySet, DW: [6]uint32{0, nvme.CC, ccRightSizes | ccEnable}}, &local{})
		}
		p.q = q
	}
	p.fill()
	return p
}

// fill writes other data than zeros to all blocks, with right fields.
func (p *pieces) fill() {
	for i := range p.store.medium {
		p.store.medium[i] = byte(i*7>>3) | 1
	}
	if p.ns.PI > 0 {
		fatal.If(p.t, p.format.Generate(p.store.medium))
	}
}

// block returns a block of the medium with its field.
func (p *pieces) block(lba int) []byte { return p.store.medium[lba*p.ns.stride():][:p.ns.stride()] }

// run executes a command on blocks, with all checks that the type has. It returns the status and, of a failure of
// the medium or of a check, the block that the target names, otherwise -1.
func (p *pieces) run(op nvme.Opcode, lba, blocks int, host []byte) (status nvme.Status, bad int) {
	p.t.Helper()
	info := uint32(0)
	switch {
	case op == nvme.WriteZeroes:
		info = nvme.PRAct
	case p.ns.PI == 3:
		info = nvme.PRGuard | nvme.PRApp
	case p.ns.PI > 0:
		info = nvme.PRGuard | nvme.PRApp | nvme.PRRef
	}
	c := nvme.Command{Opcode: op, Flags: 1 << 6, NSID: 1, DW: [6]uint32{uint32(lba), 0, uint32(blocks-1) | info<<26, 0, uint32(lba), 0xffff << 16}}
	if op == nvme.DatasetManagement {
		c.DW = [6]uint32{uint32(len(host)/nvme.RangeSize - 1), 1 << 2}
	}
	bad = -1
	h := &p.q.controller().health
	before := h.Errors
	fatal.If(p.t, p.q.Execute(&c, &local{host: host}, func(d nvme.Completion) { status = d.Status &^ nvme.DNR }))
	if h.Errors > before {
		bad = int(h.entries[0].LBA)
	}
	return status, bad
}

// TestPieces executes commands that take several pieces, and has bad blocks on both sides of the borders between them.
func TestPieces(t *testing.T) {
	const piece = 256 << 10 / 512
	for pi := range uint8(4) {
		t.Run(fmt.Sprintf("type %d", pi), func(t *testing.T) {
			p := newPieces(t, pi)
			n := int(p.ns.Blocks)
			for _, op := range []nvme.Opcode{nvme.Verify, nvme.Compare, nvme.Read, nvme.Write} {
				if status, bad := p.run(op, 0, n, bytes.Clone(p.store.medium)); status != nvme.Success {
					t.Errorf("command %#x of good blocks: %v at block %d", op, status, bad)
				}
			}
			for _, at := range []int{0, piece - 1, piece, 2*piece + 1, 3 * piece, n - 1} {
				p.store.from = int64(at * p.ns.stride())
				for op, want := range map[nvme.Opcode]nvme.Status{
					nvme.Verify: nvme.UnrecoveredRead, nvme.Compare: nvme.UnrecoveredRead, nvme.Read: nvme.UnrecoveredRead,
					nvme.Write: nvme.WriteFault, nvme.WriteZeroes: nvme.WriteFault,
				} {
					p.fill()
					if status, bad := p.run(op, 0, n, bytes.Clone(p.store.medium)); status != want || bad != at {
						t.Errorf("command %#x, block %d is worn out: %v at block %d, want %v", op, at, status, bad, want)
					}
				}
				p.store.from = -1
				p.fill()
				host := bytes.Clone(p.store.medium)
				p.block(at)[100] ^= 1
				if pi > 0 {
					for _, op := range []nvme.Opcode{nvme.Verify, nvme.Read, nvme.Compare} {
						if status, bad := p.run(op, 0, n, bytes.Clone(host)); status != nvme.GuardCheck || bad != at {
							t.Errorf("command %#x, block %d is damaged: %v at block %d", op, at, status, bad)
						}
					}
					fatal.If(t, p.format.From(uint64(at)).Generate(p.block(at)))
				}
				if status, bad := p.run(nvme.Compare, 0, n, host); status != nvme.CompareFailure || bad != at {
					t.Errorf("block %d differs: %v at block %d", at, status, bad)
				}
			}
			for op, ranges := range map[nvme.Opcode][][2]int{
				nvme.WriteZeroes:       {{10, n - 20}},
				nvme.DatasetManagement: {{10, piece}, {10 + piece, n - 20 - piece}},
			} {
				p.fill()
				want := bytes.Clone(p.store.medium)
				var host []byte
				for _, r := range ranges {
					host = binary.LittleEndian.AppendUint32(append(host, 0, 0, 0, 0), uint32(r[1]))
					host = binary.LittleEndian.AppendUint64(host, uint64(r[0]))
					zeros := want[r[0]*p.ns.stride():][:r[1]*p.ns.stride()]
					clear(zeros)
					if f := p.format; pi > 0 && op == nvme.WriteZeroes {
						f.RefTag = uint64(r[0])
						fatal.If(t, f.Generate(zeros))
					}
				}
				if status, bad := p.run(op, ranges[0][0], ranges[0][1], host); status != nvme.Success {
					t.Errorf("command %#x: %v at block %d", op, status, bad)
				}
				if !bytes.Equal(p.store.medium, want) {
					t.Errorf("command %#x: the medium has other blocks than zeros within, or others than before outside", op)
				}
			}
		})
	}
}
