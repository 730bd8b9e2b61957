package pitable

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
)

// Sizes. A command has 8 blocks, of which one may be damaged.
const (
	Block  = 512
	Stride = Block + 8
	count  = 8
	bad    = 5
	app    = 0x1234 // application tag of the blocks
)

// Command is a command on blocks with protection information.
type Command struct {
	Op       nvme.Opcode
	PRInfo   uint8
	LBA, Ref uint32 // the first block and its reference tag
	App      uint16
	Mask     uint16 // of the application tag
}

// Act reports whether the fields are not transferred (PRACT).
func (c *Command) Act() bool { return c.PRInfo&nvme.PRAct != 0 }

func (c *Command) encode() nvme.Command {
	return nvme.Command{Opcode: c.Op, NSID: 1, DW: [6]uint32{c.LBA, 0, count - 1 | uint32(c.PRInfo)<<26, 0, c.Ref, uint32(c.Mask)<<16 | uint32(c.App)}}
}

// Check returns the status of a check of blocks with fields. PRCHK says which parts are checked, and escape whether a
// field with application tag 0xffff is left out. The specification has no order of the parts; that of docs/target.md
// is guard, application tag, reference tag.
func (c *Command) Check(blocks []byte, escape bool) nvme.Status {
	for i := range uint32(len(blocks) / Stride) {
		b := blocks[i*Stride:][:Stride]
		field := b[Block:]
		tag := binary.BigEndian.Uint16(field[2:])
		switch {
		case escape && tag == 0xffff:
		case c.PRInfo&nvme.PRGuard != 0 && binary.BigEndian.Uint16(field) != guard(b[:Block]):
			return nvme.GuardCheck
		case c.PRInfo&nvme.PRApp != 0 && (tag^c.App)&c.Mask != 0:
			return nvme.AppTagCheck
		case c.PRInfo&nvme.PRRef != 0 && binary.BigEndian.Uint32(field[4:]) != c.Ref+i:
			return nvme.RefTagCheck
		}
	}
	return nvme.Success
}

// Status returns the status of the specification for the blocks that the host sends and those on the medium.
func (c *Command) Status(wire, medium []byte) nvme.Status {
	checked := wire
	switch {
	case c.PRInfo&nvme.PRRef != 0 && c.Ref != c.LBA:
		return nvme.InvalidPI
	case c.Op == nvme.Read:
		return c.Check(medium, true)
	case c.Op == nvme.Write && c.Act():
		return nvme.Success
	case c.Op == nvme.Compare && c.Act():
		return nvme.InvalidPI
	case c.Op == nvme.Compare:
		checked = append(bytes.Clone(wire), medium...)
	}
	for ; len(checked) > 0; checked = checked[count*Stride:] {
		if s := c.Check(checked[:count*Stride], true); s != nvme.Success {
			return s
		}
	}
	if c.Op == nvme.Compare && !bytes.Equal(data(wire), data(medium)) {
		return nvme.CompareFailure
	}
	return nvme.Success
}

// guard computes the CRC of the T10 SBC standard bit by bit.
func guard(b []byte) (crc uint16) {
	for i := range 8 * len(b) {
		top := crc>>15 ^ uint16(b[i/8]>>(7-i%8))&1
		crc = crc<<1 ^ top*0x8bb7
	}
	return crc
}

// data returns blocks without their fields.
func data(blocks []byte) (b []byte) {
	for ; len(blocks) > 0; blocks = blocks[Stride:] {
		b = append(b, blocks[:Block]...)
	}
	return b
}

// protect adds right fields to blocks.
func protect(data []byte, ref uint32, app uint16) (blocks []byte) {
	for ; len(data) > 0; data, ref = data[Block:], ref+1 {
		blocks = append(blocks, data[:Block]...)
		blocks = binary.BigEndian.AppendUint16(blocks, guard(data[:Block]))
		blocks = binary.BigEndian.AppendUint16(blocks, app)
		blocks = binary.BigEndian.AppendUint32(blocks, ref)
	}
	return blocks
}

// text returns the data of blocks.
func text(line string) []byte {
	return bytes.Repeat([]byte(line), count*Block/len(line)+1)[:count*Block]
}

// fault is what is wrong with a block, or with the tags of the command.
type fault struct {
	name   string
	damage map[int]byte // what is added to bytes of the block and its field
	ref    uint32       // what is added to the command's reference tag
	app    uint16       // the command's
	mask   uint16
}

var faults = []fault{
	{"nothing", nil, 0, app, 0xffff},
	{"data", map[int]byte{100: 1}, 0, app, 0xffff},
	{"guard", map[int]byte{Block: 1}, 0, app, 0xffff},
	{"application tag", map[int]byte{Block + 2: 1}, 0, app, 0xffff},
	{"reference tag", map[int]byte{Block + 7: 1}, 0, app, 0xffff},
	{"application and reference tag", map[int]byte{Block + 2: 1, Block + 7: 1}, 0, app, 0xffff},
	{"guard and reference tag", map[int]byte{Block: 1, Block + 7: 1}, 0, app, 0xffff},
	{"all parts", map[int]byte{Block: 1, Block + 2: 1, Block + 7: 1}, 0, app, 0xffff},
	{"all parts, escaped", map[int]byte{Block: 1, Block + 2: 0xff - app>>8, Block + 3: 0xff - app&0xff, Block + 7: 1}, 0, app, 0xffff},
	{"command's application tag", nil, 0, app + 1, 0xffff},
	{"command's application tag outside of the mask", nil, 0, app + 1, 0xff00},
	{"command's application tag without a mask", nil, 0, app + 1, 0},
	{"command's reference tag", nil, 1, app, 0xffff},
}

func (f *fault) apply(blocks []byte) []byte {
	blocks = bytes.Clone(blocks)
	for at, v := range f.damage {
		blocks[bad*Stride+at] += v
	}
	return blocks
}

// Row is a command that was executed.
type Row struct {
	What string // what is wrong, and where
	Command
	Wire, Medium []byte // the blocks that the host has sent, and those on the medium, with fields
	Got          nvme.Status
}

// Target is a target whose medium the test changes.
type Target struct {
	*Queue
	Put func(n int, block []byte) // changes block n and its field
}

// Prepare writes blocks 0 to 7 with right fields, and returns them.
func (p *Target) Prepare() (blocks []byte) {
	blocks = protect(text("a block on the medium. "), 0, app)
	all := Command{nvme.Write, 7, 0, 0, app, 0xffff}
	p.Must(all.encode(), bytes.Clone(blocks))
	return blocks
}

// Run executes the commands of the table after Prepare, and checks the bytes that they move. It reads and compares
// blocks 0 to 7, and writes blocks 8 to 15.
func (p *Target) Run(t testing.TB) (rows []Row) {
	good, old := p.Prepare(), protect(text("an older block. "), count, app)
	exec := func(what string, c Command, wire, medium []byte) nvme.Status {
		t.Helper()
		got := bytes.Clone(wire)
		if c.Act() && c.Op != nvme.Compare {
			got, medium = data(wire), data(medium)
		}
		_, status := p.Exec(c.encode(), got)
		if c.Op == nvme.Read && status == nvme.Success && !bytes.Equal(got, medium) {
			t.Errorf("%s, PRINFO %04b: other bytes", what, c.PRInfo)
		}
		return status
	}
	row := func(what string, c Command, wire, medium []byte) nvme.Status {
		t.Helper()
		rows = append(rows, Row{what, c, wire, medium, exec(what, c, wire, medium)})
		return rows[len(rows)-1].Got
	}
	for _, f := range faults {
		damaged := f.apply(good)
		p.Put(bad, damaged[bad*Stride:][:Stride])
		for prinfo := range uint8(16) {
			row("read, medium: "+f.name, Command{nvme.Read, prinfo, 0, f.ref, f.app, f.mask}, make([]byte, len(good)), damaged)
			row("compare, medium: "+f.name, Command{nvme.Compare, prinfo, 0, f.ref, f.app, f.mask}, good, damaged)
		}
		p.Put(bad, good[bad*Stride:][:Stride])
		for prinfo := range uint8(16) {
			row("compare, wire: "+f.name, Command{nvme.Compare, prinfo, 0, f.ref, f.app, f.mask}, damaged, good)

			exec("", Command{nvme.Write, 7, count, count, app, 0xffff}, old, nil)
			c := Command{nvme.Write, prinfo, count, count + f.ref, f.app, f.mask}
			wire := f.apply(protect(text("a newer block. "), count, app))
			want := old
			if row("write, wire: "+f.name, c, wire, old) == nvme.Success {
				if want = wire; c.Act() {
					want = protect(data(wire), c.Ref, c.App)
				}
			}
			if s := exec("write, wire: "+f.name+", read back", Command{nvme.Read, 0, count, count, 0, 0}, make([]byte, len(old)), want); s != nvme.Success {
				t.Errorf("%s, PRINFO %04b: the blocks cannot be read: %v", f.name, prinfo, s)
			}
		}
	}
	return rows
}
