package keyplan

import (
	"errors"

	"github.com/softmkey/softmkey/internal/base/geometry"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// Stream is the layout of a [Domain]: blocks of data, each followed by its field if the domain has a signature.
type Stream = geometry.Stream[int64]

// Encryption is the part of a domain's stream that is encrypted.
type Encryption string

// The encryptions of a [Domain].
const (
	NotEncrypted    Encryption = "no"
	BlocksEncrypted Encryption = "data"            // the fields protect encrypted data
	StreamEncrypted Encryption = "data and fields" // everything
)

// Domain describes the content of one of the three domains.
type Domain struct {
	Format    *sig.Format // nil: no signature
	Encrypted Encryption
	Stream
}

// newDomain returns the domain of a format, which is nil without a signature.
func newDomain(f *sig.Format, e Encryption) Domain { return Domain{f, e, geometry.Of[int64](f)} }

// Signature returns the signature of the domain in words, "none" without one.
func (d *Domain) Signature() string {
	if d.Format == nil {
		return sig.NoSignature.String()
	}
	return d.Format.String()
}

// EncryptedWords returns the part of the domain that is encrypted, in words. Without a
// signature there are no fields, so that all of the stream is data.
func (d *Domain) EncryptedWords() string {
	if d.Encrypted == StreamEncrypted && d.Format == nil {
		return string(BlocksEncrypted)
	}
	return string(d.Encrypted)
}

// Holds returns the bytes of data in a stream of n bytes. A stream that ends with a
// field missing or cut was truncated, which is an error.
func (d *Domain) Holds(n int64) (int64, error) {
	if err := d.Truncated("copy", n); err != nil {
		return 0, errors.New(err.Reason)
	}
	return d.Data(n), nil
}

// Blocks returns the number of whole blocks in n bytes of data.
func (d *Domain) Blocks(n int64) int64 { return n / d.Block }

// Key describes the work of one side's key. With neither signature nor crypto the side has
// a plain region, and its memory holds the bytes of the wire.
type Key struct {
	Signature *mkey.Signature
	Crypto    *mkey.Crypto // without a DEK: a plan has no secrets
}

// Plain reports whether the side uses a plain region.
func (k *Key) Plain() bool { return k.Signature == nil && k.Crypto == nil }

// Make makes a verbs key that can have the attributes of k.
func (k *Key) Make(pd *verbs.PD) (*verbs.MKey, error) {
	attr := verbs.MKeyAttr{MaxEntries: 1}
	if k.Signature != nil {
		attr.Flags |= mkey.BlockSignature
	}
	if k.Crypto != nil {
		attr.Flags |= mkey.CryptoOffload
	}
	return pd.NewMKey(attr)
}

// Configure adds the configuration of a verbs key, with the attributes of k over memory, to a
// chain.
func (k *Key) Configure(c verbs.Chain, key *verbs.MKey, access rdma.Access, memory rdma.SGE) {
	c.Configure(key).Access(access | rdma.LocalWrite).List(memory)
	if k.Signature != nil {
		c.Signature(*k.Signature)
	}
	if k.Crypto != nil {
		c.Crypto(*k.Crypto)
	}
}

// Side is the key of one side between its two domains.
type Side struct {
	Key    *Key
	Memory *Domain
	Wire   *Domain
}

// Units returns the domain that is divided into the key's data units, and the other domain.
func (s *Side) Units() (units, other *Domain) {
	if s.Key.Crypto.OnMemory(s.Key.Signature) {
		return s.Memory, s.Wire
	}
	return s.Wire, s.Memory
}

// At returns the side's key for chunk number k of a plan, whose blocks and data units
// continue where the previous chunk ended.
func (s *Side) At(p *Plan, k uint64) (key Key) {
	data := int64(k) * p.Chunk
	if s.Key.Signature != nil {
		own := *s.Key.Signature
		own.Memory, own.Wire = from(own.Memory, s.Memory.Blocks(data)), from(own.Wire, s.Wire.Blocks(data))
		key.Signature = &own
	}
	if s.Key.Crypto != nil {
		own := *s.Key.Crypto
		units, _ := s.Units()
		own.InitialTweak = own.InitialTweak.Add(uint64(units.Len(data) / int64(own.DataUnitSize)))
		key.Crypto = &own
	}
	return key
}

// from returns the format of the part of a stream that begins after some blocks. The format
// may be nil.
func from(f *sig.Format, blocks int64) *sig.Format {
	if f == nil {
		return nil
	}
	own := f.From(uint64(blocks))
	return &own
}

// Whole returns a bad block that a key found in chunk k, with its block and offset counted
// from the beginning of the file. It returns nil for nil.
func (s *Side) Whole(p *Plan, k uint64, b *mkey.BadBlock) *mkey.BadBlock {
	if b == nil {
		return nil
	}
	input := s.Memory
	if b.Domain == mkey.WireDomain {
		input = s.Wire
	}
	data := int64(k) * p.Chunk
	own := *b
	own.Sig.Block += uint64(input.Blocks(data))
	own.Sig.Offset += uint64(input.Len(data))
	return &own
}
