package filecopy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// units settles the size of a data unit, which both keys share.
func (p *planner) units() error {
	for _, side := range p.plan.sides() {
		if side.key.Crypto == nil {
			continue
		}
		if p.unit == 0 {
			n, err := side.defaultUnit()
			if err != nil {
				return err
			}
			p.unit = n
		}
		side.key.Crypto.DataUnitSize, side.key.Crypto.InitialTweak = p.unit, p.tweak
	}
	return nil
}

// side is the key of one side between its two domains.
type side struct {
	key    *Key
	memory *Domain
	wire   *Domain
}

func (p *Plan) sides() [2]side {
	return [2]side{{&p.Sender, &p.Memory, &p.Wire}, {&p.Receiver, &p.Peer, &p.Wire}}
}

// encrypted returns the domain that the key's data units are cut from, and the
// other.
func (s *side) encrypted() (units, other *Domain) {
	if s.key.Signature == nil || s.key.Crypto.Order == mkey.SignatureAfterCrypto {
		return s.memory, s.wire
	}
	return s.wire, s.memory
}

// defaultUnit returns the length that a block has in the encrypted stream.
func (s *side) defaultUnit() (int, error) {
	units, other := s.encrypted()
	switch {
	case s.key.Signature == nil:
		return sig.DefaultBlockSize, nil
	case units.Format == nil:
		return other.Format.BlockSize, nil
	}
	n := units.Format.Stride()
	if !slices.Contains(sig.KeyBlockSizes(), n) {
		return 0, fmt.Errorf("--unit is missing: the %d bytes of a block and its field cannot be a data unit; choose one of %v", n, sig.KeyBlockSizes())
	}
	return n, nil
}

// cut chooses the size of a chunk: bytes of data that are whole blocks and whole
// data units of both keys.
func (p *planner) cut() error {
	plan := p.plan
	align := int64(1)
	for _, s := range plan.sides() {
		// The table of allowed combinations is the key's own.
		if err := s.try(); err != nil {
			return err
		}
		align = lcm(align, lcm(s.memory.block, s.wire.block))
		if s.key.Crypto == nil {
			continue
		}
		units, _ := s.encrypted()
		block := lcm(s.memory.block, s.wire.block)
		// A multiple of 16 bytes too: then the rule for the size of an encrypted
		// job comes to the same for the last chunk as for the whole stream.
		unit, length := lcm(int64(p.unit), 16), units.length(block)
		align = lcm(align, block*(unit/gcd(unit, length)))
	}
	if align > ChunkLimit {
		return fmt.Errorf("blocks and data units of these sizes have a common boundary only every %d bytes of data: a chunk would be longer than %d bytes", align, ChunkLimit)
	}
	plan.Chunk = max(p.chunk/align, 1) * align
	plan.Slots = int(min(max(maxSlots*ChunkSize/plan.Chunk, 2), maxSlots))
	return nil
}

// try makes a key as the side will, to hear what is wrong with it.
func (s *side) try() error {
	c := mkey.Config{Signature: s.key.Signature}
	if s.key.Crypto != nil {
		own := *s.key.Crypto
		own.DEK = noDEK{}
		c.Crypto = &own
	}
	_, err := mkey.New(c)
	return err
}

// noDEK stands for a key that a side has, in a plan.
type noDEK struct{}

func (noDEK) Acquire([8]byte) (*xts.Cipher, error) { return nil, errors.New("a plan has no key") }
func (noDEK) Hold() error                          { return nil }
func (noDEK) Release()                             {}

// maxMemory returns how many bytes a whole chunk has in a side's memory.
func (p *Plan) maxMemory(s side) int { return int(s.memory.length(p.Chunk)) }

// maxWire returns how many bytes a whole chunk has on the wire.
func (p *Plan) maxWire() int { return int(p.Wire.length(p.Chunk)) }

// Check reports whether a file of size bytes can be copied: SRC must not be
// truncated, and AES-XTS must be able to do its length.
func (p *Plan) Check(size int64) error {
	n, err := p.Memory.data(size)
	if err != nil {
		return fmt.Errorf("SRC has %w", err)
	}
	return p.CheckData(n)
}

// CheckData applies the rule for the size of an encrypted job to n bytes of data
// (mlx5dv_wr_set_mkey_crypto(3)).
func (p *Plan) CheckData(n int64) error {
	for _, s := range p.sides() {
		if s.key.Crypto == nil {
			continue
		}
		units, _ := s.encrypted()
		unit, job := int64(s.key.Crypto.DataUnitSize), units.length(n)
		if rest := job % unit; rest != 0 && (job%16 != 0 || rest > unit-16 || rest < 16) {
			return fmt.Errorf("%d bytes of encrypted stream in data units of %d: the last unit must be whole, or the bytes a multiple of 16 and the last unit 16 to %d", job, unit, unit-16)
		}
	}
	return nil
}

// PeerSize returns how long DST will be if SRC has size bytes; -1 if SRC is not what
// it should be.
func (p *Plan) PeerSize(size int64) int64 {
	n, err := p.Memory.data(size)
	if size < 0 || err != nil {
		return -1
	}
	return p.Peer.length(n)
}

// CheckFlip reports whether a byte of the wire can be flipped so that the
// receiver finds it, in a file of size bytes; -1 if that is not known.
func (p *Plan) CheckFlip(offset, size int64) error {
	if _, receiver := p.checks(); !receiver {
		return errors.New("--flip: nobody could find the byte, for the receiver checks no signature: give --wire one, and --peer-crypto decrypt if it is encrypted")
	}
	n, err := p.Memory.data(size)
	if size < 0 || err != nil {
		return nil
	}
	switch wire, whole := p.Wire.length(n), p.Wire.blocks(n)*p.Wire.stride(); {
	case offset >= wire:
		return fmt.Errorf("--flip %d: the wire has only %d bytes", offset, wire)
	case offset >= whole:
		return fmt.Errorf("--flip %d: nobody could find the byte, for the last %d bytes of the wire are a part of a block, which has no field", offset, wire-whole)
	}
	return nil
}

// at returns the attributes of the side's key for chunk number k, whose blocks and
// data units go on where the chunk before ended.
func (s *side) at(p *Plan, k uint64) (*mkey.Signature, *mkey.Crypto) {
	data := int64(k) * p.Chunk
	var signature *mkey.Signature
	if s.key.Signature != nil {
		own := *s.key.Signature
		own.Memory, own.Wire = advance(own.Memory, s.memory.blocks(data)), advance(own.Wire, s.wire.blocks(data))
		signature = &own
	}
	var crypto *mkey.Crypto
	if s.key.Crypto != nil {
		own := *s.key.Crypto
		units, _ := s.encrypted()
		own.InitialTweak = own.InitialTweak.Add(uint64(units.length(data) / int64(own.DataUnitSize)))
		crypto = &own
	}
	return signature, crypto
}

// advance returns the format for a stream that begins some blocks further on.
func advance(f *sig.Format, blocks int64) *sig.Format {
	if f == nil || f.Type != sig.T10DIF || !remaps(f) {
		return f
	}
	own := *f
	own.RefTag += uint32(blocks)
	return &own
}

// remaps reports whether the reference tag rises: the default of a format without
// any rule.
func remaps(f *sig.Format) bool {
	const rules = sig.RefRemap | sig.AppEscape | sig.AppRefEscape | sig.NoFlags
	return f.Flags&rules == 0 || f.Flags&sig.RefRemap != 0
}

// whole returns what a key found in chunk k with the block and the offset counted
// from the beginning of the file.
func (s *side) whole(p *Plan, k uint64, b *mkey.BadBlock) *mkey.BadBlock {
	if b == nil {
		return nil
	}
	input := s.memory
	if b.Domain == mkey.WireDomain {
		input = s.wire
	}
	data := int64(k) * p.Chunk
	own := *b
	own.Sig.Block += uint64(input.blocks(data))
	own.Sig.Offset += uint64(input.length(data))
	return &own
}
