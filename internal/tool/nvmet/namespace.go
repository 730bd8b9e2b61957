package nvmet

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// fieldSize is the size of the protection information of a block.
const fieldSize = 8

// Namespace is a namespace of the subsystem.
type Namespace struct {
	Store     Store // blocks, each followed by its protection information if PI is not 0
	Blocks    uint64
	BlockSize int
	PI        uint8 // type of the protection information, 1 to 3; 0: none
	ReadOnly  bool
	ID        [16]byte // NGUID and UUID

	// Checked is whether Store checks blocks that have no protection information here. Damage of a block is then an
	// error of the medium.
	Checked bool

	// Holes, if not nil, yields the ranges of n bytes from off on that Store has no data of. Off and the ranges count the
	// bytes of blocks without their fields. Blocks in a hole are deallocated.
	Holes func(off, n int64) iter.Seq2[int64, int64]

	Damage []*Damage // of what hosts get and send; the medium has none
	Delay  []*Delay
}

// check returns an error for a namespace that hosts cannot use.
func (ns *Namespace) check() error {
	switch {
	case ns.BlockSize != 512 && ns.BlockSize != 4096:
		return fmt.Errorf("blocks of %d bytes: a namespace has blocks of 512 or 4096", ns.BlockSize)
	case ns.Blocks == 0:
		return errors.New("not one whole block")
	case ns.PI > 3:
		return fmt.Errorf("protection information of type %d: must be 0 to 3", ns.PI)
	}
	return nil
}

// stride returns the number of bytes from one block to the next in the store, and on the wire if the
// protection information is transferred.
func (ns *Namespace) stride() int {
	if ns.PI > 0 {
		return ns.BlockSize + fieldSize
	}
	return ns.BlockSize
}

// identify returns the data structure of Identify.
func (ns *Namespace) identify() nvme.Namespace {
	return nvme.Namespace{
		Blocks: ns.Blocks, BlockBits: uint8(bits.TrailingZeros(uint(ns.BlockSize))), Metadata: uint16(ns.stride() - ns.BlockSize),
		PIType: ns.PI, ReadOnly: ns.ReadOnly, NGUID: ns.ID,
	}
}

// contains reports whether a range of blocks is in the namespace.
func (ns *Namespace) contains(lba uint64, n uint32) bool {
	return lba <= ns.Blocks && uint64(n) <= ns.Blocks-lba
}

// deallocated gives those of n blocks in buf that are deallocated tags of all ones, so that they are not checked; their
// guards are right (NVM 3.2.3.2.1, DLFEAT). A block with damage is not deallocated, so that the damage is found.
func (ns *Namespace) deallocated(buf []byte, lba uint64, n uint32) {
	if ns.Holes == nil {
		return
	}
	size := int64(ns.BlockSize)
	for from, to := range ns.Holes(int64(lba)*size, int64(n)*size) {
		for b := uint64((from + size - 1) / size); b < uint64(to/size); b++ {
			if !slices.ContainsFunc(ns.Damage, func(d *Damage) bool { return b >= d.First && b-d.First < d.Count }) {
				copy(buf[int(b-lba)*ns.stride()+ns.BlockSize+2:], "\xff\xff\xff\xff\xff\xff")
			}
		}
	}
}

// protection is how a command handles protection information (NVM 5.2).
type protection struct {
	format sig.Format
	mask   sig.Mask // parts of a field that are checked, as sig's masks; 0: none
	act    bool     // PRACT: it is not transferred
	absent bool     // the namespace has none
}

// protection returns the handling that a command asks for. It is an error to ask for checks that the type does
// not have, or for a reference tag that is not that of the block.
func (ns *Namespace) protection(rw nvme.RW) (p protection, status nvme.Status) {
	p = protection{
		format: sig.Format{Type: sig.T10DIF, BlockSize: ns.BlockSize, AppTag: rw.AppTag, AppMask: rw.AppMask, RefTag: uint64(rw.RefTag), Flags: sig.Type1},
		act:    rw.PRInfo&nvme.PRAct != 0, absent: ns.PI == 0,
	}
	if p.absent {
		return p, nvme.Success
	}
	if ns.PI == 3 {
		p.format.Flags = sig.Type3
	}
	if rw.PRInfo&nvme.PRGuard != 0 {
		p.mask |= sig.MaskGuard
	}
	if rw.PRInfo&nvme.PRApp != 0 && rw.AppMask != 0 {
		p.mask |= sig.MaskApp
	}
	if rw.PRInfo&nvme.PRRef != 0 {
		p.mask |= sig.MaskRef
		if ns.PI == 3 || ns.PI == 1 && rw.RefTag != uint32(rw.SLBA) {
			return p, nvme.InvalidPI | nvme.DNR
		}
	}
	return p, nvme.Success
}

// onWire reports whether the protection information is transferred.
func (p *protection) onWire() bool { return !p.absent && !p.act }

// signature returns the signature of a transfer: fields in memory, and on the wire too without PRACT.
// It checks the parts in mask. A field that is transferred is not changed.
func (p *protection) signature(mask sig.Mask) *mkey.Signature {
	if p.absent {
		return nil
	}
	s := &mkey.Signature{Memory: &p.format}
	if p.onWire() {
		s.Wire, s.CopyMask = &p.format, new(sig.MaskAll)
	}
	s.CheckMask = &mask
	return s
}

// check checks the parts in p.mask of blocks with fields in memory.
func (p *protection) check(buf []byte, n int) (*mkey.BadBlock, error) {
	if p.absent || p.mask == 0 {
		return nil, nil
	}
	return Sign(&mkey.Signature{Memory: &p.format, Wire: &p.format, CheckMask: &p.mask, CopyMask: new(sig.MaskAll)}, mkey.MemoryDomain, buf, buf, n)
}

// Sign applies a signature to n blocks of src, which are in the domain from, and writes those of the other
// domain to dst. It returns the first bad block. It is what a memory key does on the way of a transfer.
func Sign(s *mkey.Signature, from mkey.Domain, dst, src []byte, n int) (*mkey.BadBlock, error) {
	c := sig.TransformConfig{CheckMask: new(s.Checked(from)), CopyMask: s.CopyMask}
	in, out := s.Memory, s.Wire
	if from == mkey.WireDomain {
		in, out = out, in
	}
	if in != nil {
		c.In = *in
	}
	if out != nil {
		c.Out = *out
	}
	t, err := sig.NewTransform(c)
	if err != nil {
		return nil, err
	}
	var bad *sig.Error
	if errors.As(t.Run(sig.Interleaved(t.Out(), dst), sig.Interleaved(t.In(), src), n, 0, nil), &bad) {
		return &mkey.BadBlock{Sig: *bad, Domain: from}, nil
	}
	return nil, nil
}

// statusOf returns the status for a bad block.
func statusOf(kind sig.Kind) nvme.Status {
	switch kind {
	case sig.BadAppTag:
		return nvme.AppTagCheck
	case sig.BadRefTag:
		return nvme.RefTagCheck
	}
	return nvme.GuardCheck
}
