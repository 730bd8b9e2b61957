package sig

import (
	"math"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/kernel/crc"
)

// TransformConfig configures a [Transform]: one direction of a memory key's block
// signature.
type TransformConfig struct {
	// In is the format of the input, whose fields are checked. Out is the
	// format of the output, whose fields are generated. One of them may be of
	// type NoSignature, but not both. A side of type NoSignature has the block size of the
	// other side; two signatures must have one block size.
	In, Out Format

	// CheckMask has a bit for every byte of the input's field that is checked: see
	// MaskGuard and its neighbours. nil checks every byte, 0 nothing. The NVMe types take parts
	// whole: MaskGuard, MaskApp and MaskRef, which is storage and reference tag.
	CheckMask *Mask

	// CopyMask has a bit for every byte of the output's field that is copied
	// from the input's instead of generated. It
	// requires that both sides have the same type. nil is the rule of mlx5 hardware:
	// nothing is copied unless type and block size are the same on both sides; then a T10-DIF
	// copies its guard if guard type and seed agree, the application tag if the application tags
	// agree and the reference tag if the reference tags agree; a CRC is copied whole, whatever its
	// seed. The NVMe types follow the rule of T10-DIF; storage and reference tag are one part, and
	// the guard is copied if the metadata is.
	CopyMask *Mask

	// KeepEscapes is for blocks that an escape of In exempts from the check. If Out
	// has an escape, it exempts such a block, too; otherwise the block gets a
	// field that is generated whole. Without KeepEscapes, as in adapters, only the
	// copy mask decides, and such a block may be bad under Out. It has no effect
	// unless both formats have tags.
	KeepEscapes bool
}

// A Transform moves runs of blocks from one format to another: it checks the
// fields of the input, copies the data, and generates or copies the fields of the
// output. It never changes, and may be used by any number of goroutines at once.
type Transform struct {
	in, out Format
	size    int // bytes of data in a block, of both sides

	inSide, outSide side

	check, generate crc.Plan // nil for a side without a signature
	again           bool     // the guards of input and output differ, so both are computed

	checkWire uint64 // bits of the input's field that are compared, if that is no NVMe type
	compared  Field  // bits of the parts of the input's field that are compared
	copyWire  uint64 // bits of the output's field that are copied
	guardWire uint64 // bits of the output's field that hold the guard or CRC

	keepEscapes bool // TransformConfig.KeepEscapes, if it has an effect

	nvmeIn, nvmeOut nvmeField // of a side with an NVMe type
	copied          Mask      // parts of NVMe fields that are copied, of MaskGuard, MaskApp, MaskRef
	sameMetadata    bool      // the metadata beside the field is copied with the block
}

// side has the parts of a format that each run needs.
type side struct {
	field int    // bytes of a field, with its metadata
	first uint64 // tag of block 0, as the kernels take it
	step  uint32 // increment of the reference tag
}

func sideOf(f *Format) side { return side{f.FieldSize(), f.tag(0), f.step()} }

// tag returns the tag of a block.
func (s *side) tag(block uint64) uint64 {
	return s.first&^0xFFFFFFFF | uint64(uint32(s.first)+uint32(block)*s.step)
}

const opTransform = "sig transform"

// NewTransform returns the transform of a configuration. These are an *operr.Error with
// EINVAL: an invalid format, two formats of type NoSignature, two signatures of different block
// size, and a CopyMask with different types.
func NewTransform(c TransformConfig) (*Transform, error) {
	t := new(Transform)
	if err := t.compile(c); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Transform) compile(c TransformConfig) error {
	if err := c.In.Validate(); err != nil {
		return err
	}
	if err := c.Out.Validate(); err != nil {
		return err
	}
	refuse := func(format string, args ...any) error {
		return failure.New(opTransform, syscall.EINVAL, format, args...)
	}
	in, out := c.In, c.Out
	check, copied := MaskAll, defaultCopyMask(in, out)
	if c.CheckMask != nil {
		check = *c.CheckMask
	}
	if c.CopyMask != nil {
		copied = *c.CopyMask
	}
	switch {
	case in.Type == NoSignature && out.Type == NoSignature:
		return refuse("both sides are without a signature")
	case in.Type == NoSignature:
		in.BlockSize = out.Block()
	case out.Type == NoSignature:
		out.BlockSize = in.Block()
	case in.Block() != out.Block():
		return refuse("block sizes %d and %d differ", in.Block(), out.Block())
	}
	if c.CopyMask != nil && in.Type != out.Type {
		return refuse("copy mask with the different types %v and %v", in.Type, out.Type)
	}
	if in.nvme() && !wholeParts(check) || out.nvme() && c.CopyMask != nil && !wholeParts(copied) {
		return refuse("check mask %#x, copy mask %#x: of an NVMe type whole parts are checked and copied, which are %#x, %#x and %#x", check, copied, MaskGuard, MaskApp, MaskRef)
	}

	*t = Transform{in: in, out: out, size: in.Block(), inSide: sideOf(&in), outSide: sideOf(&out)}
	if in.Type != NoSignature {
		t.check = crc.NewPlan(in.kind(), t.size, in.ones())
		t.nvmeIn = in.nvmeField()
		t.checkWire = wireMask(in.Type, check) & comparable(in)
		t.compared = in.parts(t.checkWire)
		if in.nvme() {
			t.compared = in.comparedParts(check)
		}
	}
	if out.Type != NoSignature {
		t.generate = crc.NewPlan(out.kind(), t.size, out.ones())
		t.guardWire = wireMask(out.Type, MaskAll)
		if out.Type == T10DIF {
			t.guardWire = wireMask(out.Type, MaskGuard)
		}
		t.copyWire = wireMask(out.Type, copied)
		t.nvmeOut, t.copied = out.nvmeField(), copied
	}
	if in.Type != NoSignature && out.Type != NoSignature {
		t.again = in.Type != out.Type || in.Guard != out.Guard || in.ones() != out.ones()
		t.sameMetadata = in.nvme() && sameMetadata(in, out)
		t.keepEscapes = c.KeepEscapes && in.escape() != 0 && out.tagged()
	}
	return nil
}

// Checks reports whether the transform compares any bit of the input's fields. It does not if the input has no
// signature, and if CheckMask and the format's flags leave nothing of its fields.
func (t *Transform) Checks() bool { return t.compared != Field{} }

// comparedParts returns the bits of the parts of an NVMe type's field that a mask and the format's flags allow to
// compare.
func (f Format) comparedParts(check Mask) (all Field) {
	if check&MaskGuard != 0 && f.Flags&IgnoreGuard == 0 {
		all.Guard = math.MaxUint64
	}
	if check&MaskApp != 0 {
		all.AppTag = f.appMask()
	}
	if check&MaskRef != 0 && f.Flags&IgnoreStorage == 0 {
		all.StorageTag = 1<<f.storageBits() - 1
	}
	if check&MaskRef != 0 && f.Flags&IgnoreRef == 0 {
		all.RefTag = f.refMask()
	}
	return all
}

// comparable returns the bits of f's field that the format allows to compare: the mask of
// application tag bits and the Ignore flags belong to the format, not to the byte mask.
func comparable(f Format) uint64 {
	all := wireMask(f.Type, MaskAll)
	if f.Type != T10DIF {
		return all
	}
	all = all&^wireMask(T10DIF, MaskApp) | tagWire(uint64(f.appMask())<<32)
	if f.Flags&IgnoreGuard != 0 {
		all &^= wireMask(T10DIF, MaskGuard)
	}
	if f.Flags&IgnoreRef != 0 {
		all &^= wireMask(T10DIF, MaskRef)
	}
	return all
}

// appMask returns the bits of the application tag that are compared.
func (f Format) appMask() uint16 {
	switch {
	case f.Flags&IgnoreApp != 0:
		return 0
	case f.AppMask == 0:
		return 0xFFFF
	}
	return f.AppMask
}

// BlockSize returns the bytes of data in a block, the same on both sides.
func (t *Transform) BlockSize() int { return t.size }

// In returns the input's format, with the block size filled in.
func (t *Transform) In() Format { return t.in }

// Out returns the output's format, with the block size filled in.
func (t *Transform) Out() Format { return t.out }
