package keyplan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// units sets the size of a data unit, which both keys share.
func (p *planner) units() error {
	for _, side := range p.plan.Sides() {
		if side.Key.Crypto == nil {
			continue
		}
		if p.unit == 0 {
			n, err := side.defaultUnit()
			if err != nil {
				return err
			}
			p.unit = n
		}
		side.Key.Crypto.DataUnitSize, side.Key.Crypto.InitialTweak = p.unit, p.tweak
	}
	return nil
}

// Sides returns the sending and the receiving side.
func (p *Plan) Sides() [2]Side {
	return [2]Side{{&p.Sender, &p.Memory, &p.Wire}, {&p.Receiver, &p.Peer, &p.Wire}}
}

// defaultUnit returns the data unit that fits a block of the encrypted stream.
func (s *Side) defaultUnit() (int, error) {
	units, other := s.Units()
	n := int(geometry.DefaultUnit(units.Stream, other.Stream))
	if !slices.Contains(sig.KeyBlockSizes(), n) {
		return 0, fmt.Errorf("--unit is missing: the %d bytes of a block and its field cannot be a data unit; choose one of %v", n, sig.KeyBlockSizes())
	}
	return n, nil
}

// cut chooses the size of a chunk: bytes of data that are whole blocks and whole data
// units of both keys.
func (p *planner) cut() error {
	plan := p.plan
	align := int64(1)
	for _, s := range plan.Sides() {
		// Package mkey decides which combinations a key allows.
		if err := s.try(); err != nil {
			return err
		}
		block := geometry.LCM(s.Memory.Block, s.Wire.Block)
		if s.Key.Crypto != nil {
			units, _ := s.Units()
			block = units.Boundary(block, int64(p.unit))
		}
		align = geometry.LCM(align, block)
	}
	if align > ChunkLimit {
		return fmt.Errorf("blocks and data units of these sizes have a common boundary only every %d bytes of data: a chunk would be longer than %d bytes", align, ChunkLimit)
	}
	plan.Chunk = max(p.chunk/align, 1) * align
	plan.Slots = int(min(max(MaxSlots*ChunkSize/plan.Chunk, 2), MaxSlots))
	return nil
}

// try makes a key with the attributes of the side, and returns the error of mkey.New.
func (s *Side) try() error {
	c := mkey.KeyConfig{Signature: s.Key.Signature}
	if s.Key.Crypto != nil {
		own := *s.Key.Crypto
		own.DEK = noDEK{}
		c.Crypto = &own
	}
	_, err := mkey.New(c)
	return err
}

// noDEK takes the place of the data encryption key, which a plan does not have.
type noDEK struct{}

func (noDEK) Acquire([8]byte) (*xts.Cipher, error) { return nil, errors.New("a plan has no key") }
func (noDEK) Hold() error                          { return nil }
func (noDEK) Release()                             {}

// ChunkWire returns the length of a whole chunk on the wire, in bytes.
func (p *Plan) ChunkWire() int { return int(p.Wire.Len(p.Chunk)) }

// Check returns an error if a file of size bytes cannot be copied, because it was truncated
// or because AES-XTS cannot encrypt data of its length.
func (p *Plan) Check(size int64) error {
	n, err := p.Memory.Holds(size)
	if err != nil {
		return fmt.Errorf("SRC has %w", err)
	}
	return p.CheckData(n)
}

// CheckData returns an error if n bytes of data do not fit the rule for the size of an
// encrypted job (mlx5dv_wr_set_mkey_crypto(3)).
func (p *Plan) CheckData(n int64) error {
	for _, s := range p.Sides() {
		if s.Key.Crypto == nil {
			continue
		}
		units, _ := s.Units()
		if err := geometry.CheckJob(units.Len(n), int64(s.Key.Crypto.DataUnitSize)); err != nil {
			var refused *operr.Error
			if errors.As(err, &refused) {
				return errors.New(refused.Reason)
			}
			return err
		}
	}
	return nil
}

// PeerSize returns the length of DST if SRC has size bytes; -1 if that is unknown or
// SRC is truncated.
func (p *Plan) PeerSize(size int64) int64 {
	n, err := p.Memory.Holds(size)
	if size < 0 || err != nil {
		return -1
	}
	return p.Peer.Len(n)
}

// CheckFlip returns an error if the receiver could not find a flipped byte at an offset of
// the wire, for a file of size bytes. A size of -1 means that it is not known.
func (p *Plan) CheckFlip(offset, size int64) error {
	if _, receiver := p.Checks(); !receiver {
		return errors.New("--flip: the receiver checks no signature and cannot find the byte: give --wire a signature, and --peer-crypto decrypt if the wire is encrypted")
	}
	n, err := p.Memory.Holds(size)
	if size < 0 || err != nil {
		return nil
	}
	switch wire, whole := p.Wire.Len(n), p.Wire.Blocks(n)*p.Wire.Stride(); {
	case offset >= wire:
		return fmt.Errorf("--flip %d: the wire has only %d bytes", offset, wire)
	case offset >= whole:
		return fmt.Errorf("--flip %d: the receiver cannot find the byte: the last %d bytes of the wire are a part of a block, which has no field", offset, wire-whole)
	}
	return nil
}

// Decrypts reports whether DST is plain data that was encrypted in SRC or on the wire.
func (p *Plan) Decrypts() bool {
	return p.Peer.Encrypted == NotEncrypted && (p.Memory.Encrypted != NotEncrypted || p.Wire.Encrypted != NotEncrypted)
}

// Checks reports which keys check something: those with a signature in the domain that
// they read, of whose fields the masks leave something.
func (p *Plan) Checks() (sender, receiver bool) {
	if s := p.Sender.Signature; s != nil {
		sender = checks(s.Memory, s.Checked(mkey.MemoryDomain))
	}
	if r := p.Receiver.Signature; r != nil {
		receiver = checks(r.Wire, r.Checked(mkey.WireDomain))
	}
	return sender, receiver
}

func checks(f *sig.Format, mask sig.Mask) bool {
	if f == nil {
		return false
	}
	t, err := sig.NewTransform(sig.TransformConfig{In: *f, CheckMask: &mask})
	return err == nil && t.Checks()
}
