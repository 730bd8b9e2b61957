package mkey

import (
	"reflect"
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

const opConfigure = "mkey configure"

// prepared is a copy of an update that passed the checks which do not depend on the state
// of a key.
type prepared struct {
	key    *Key
	reset  bool         // drop the signature attributes in force
	access *rdma.Access // nil, as each of the next four: keep the attribute in force
	start  *uint64
	layout *layout
	sig    *signature
	crypto *Crypto

	transaction *keydoor.Transaction
}

// plan is a configuration that is, or was, in force. It never changes.
type plan struct {
	tenure *tenure
	access rdma.Access
	start  uint64 // keydoor.Update.Start
	layout *layout
	sig    *signature
	crypto *Crypto

	transaction *keydoor.Transaction // in place of sig

	geo streams
}

// signature holds the signature attributes and their transforms.
type signature struct {
	Signature
	masks  [2]sig.Mask // those that CheckMask and CopyMask point to
	tx, rx direction
}

// direction is the signature work of one direction: one transform where blocks
// map to blocks, or a strip followed by a protection where the sizes differ.
type direction struct {
	strip   *sig.Transform // or the only transform
	protect *sig.Transform
}

// prepare checks and copies an update.
func (k *Key) prepare(u *update) (*prepared, error) {
	if u.Access != nil && *u.Access&^accessAll != 0 {
		return nil, failure.New(opConfigure, syscall.EINVAL, "access %v: a memory key has only %v", *u.Access, accessAll)
	}
	p := &prepared{key: k, reset: u.ResetSignature}
	if u.Access != nil {
		p.access = new(*u.Access)
	}
	if u.Start != nil {
		p.start = new(*u.Start)
	}
	var err error
	if u.Signature != nil {
		if p.sig, err = k.prepareSignature(u.Signature); err != nil {
			return nil, err
		}
	}
	if u.Crypto != nil {
		if p.crypto, err = k.prepareCrypto(u.Crypto); err != nil {
			return nil, err
		}
	}
	if u.Transaction != nil {
		if p.transaction, err = k.prepareTransaction(u); err != nil {
			return nil, err
		}
	}
	entries := 0
	if u.Layout != nil {
		if p.layout, entries, err = k.prepareLayout(u.Layout); err != nil {
			return nil, err
		}
	}
	if err := fits(u, entries); err != nil {
		return nil, err
	}
	if p.sig != nil && p.crypto != nil {
		return p, checkRow(p.sig, p.crypto)
	}
	return p, nil
}

// merge returns the plan that results from applying p to base, the plan in
// force. base is nil if the key is free.
func (p *prepared) merge(base *plan) (*plan, error) {
	var n plan
	if base != nil {
		n = *base
	} else {
		n.tenure, n.access = newTenure(), p.key.access
	}
	if p.access != nil {
		n.access = *p.access
	}
	if p.start != nil {
		n.start = *p.start
	}
	if p.layout != nil {
		if err := p.layout.checkNesting(p.key); err != nil {
			return nil, err
		}
		n.layout = p.layout
	}
	if p.reset {
		n.sig, n.transaction = nil, nil
	}
	if p.sig != nil {
		n.sig, n.transaction = p.sig, nil
	}
	if p.transaction != nil {
		n.sig, n.transaction = nil, p.transaction
	}
	if p.crypto != nil {
		n.crypto = p.crypto
	}
	if err := checkRow(n.sig, n.crypto); err != nil {
		return nil, err
	}
	if err := n.checkTransaction(); err != nil {
		return nil, err
	}
	if n.layout != nil && n.start+n.layout.total < n.start {
		return nil, failure.New(opConfigure, syscall.EINVAL, "%d bytes from address %#x go beyond the last address", n.layout.total, n.start)
	}
	n.geo = newStreams(n.sig, n.crypto)
	return &n, nil
}

// fits reports ENOMEM if the work request has too little room for the setters.
func fits(u *update, entries int) error {
	if u.Space == 0 {
		return nil
	}
	need := 16 * entries
	if u.Signature != nil || u.Transaction != nil {
		need += 64
	}
	if u.Crypto != nil {
		need += 64
	}
	if need > u.Space {
		return failure.New(opConfigure, syscall.ENOMEM, "the attributes take %d bytes of the work request, which has %d: create the QP with a larger max_inline_data", need, u.Space)
	}
	return nil
}

func (k *Key) prepareLayout(l Layout) (*layout, int, error) {
	if err := dereference(&l); err != nil {
		return nil, 0, err
	}
	n := l.entries()
	if n > k.MaxEntries() {
		return nil, 0, failure.New(opConfigure, syscall.ENOMEM, "the layout takes %d entries, the key has %d", n, k.maxEntries)
	}
	c, err := l.compile()
	if err != nil {
		return nil, 0, err
	}
	return c, n, c.checkKinds(k)
}

func (k *Key) prepareSignature(s *Signature) (*signature, error) {
	if k.flags&BlockSignature == 0 {
		return nil, failure.New(opConfigure, syscall.EINVAL, "signature attributes on a key created without BlockSignature")
	}
	c := &signature{Signature: *s}
	for i, mask := range []**sig.Mask{&c.CheckMask, &c.CopyMask} {
		if *mask != nil {
			c.masks[i] = **mask
			*mask = &c.masks[i]
		}
	}
	if c.Memory == nil && c.Wire == nil {
		return nil, failure.New(opConfigure, syscall.EINVAL, "signature attributes with neither a memory nor a wire domain")
	}
	for _, d := range []struct {
		format **sig.Format
		check  **sig.Mask
		domain Domain
	}{{&c.Memory, &c.MemoryCheckMask, MemoryDomain}, {&c.Wire, &c.WireCheckMask, WireDomain}} {
		if mask := *d.check; mask != nil {
			if *d.format == nil {
				return nil, failure.New(opConfigure, syscall.EINVAL, "check mask %#x of the %v domain, which has no signature", *mask, d.domain)
			}
			*d.check = new(*mask)
		}
		if *d.format == nil {
			continue
		}
		f := **d.format
		if f.BlockSize == 0 {
			f.BlockSize = sig.DefaultBlockSize
		}
		if f.Type == sig.NoSignature {
			return nil, failure.New(opConfigure, syscall.EINVAL, "a domain without a signature is nil, not a format of type none")
		}
		if err := f.Validate(); err != nil {
			return nil, err
		}
		if !f.Type.OfKey() {
			return nil, failure.New(opConfigure, syscall.EINVAL, "signature %v: a memory key has only t10dif, crc32, crc32c and crc64", f.Type)
		}
		if err := checkBlockSize("block size", f.BlockSize); err != nil {
			return nil, err
		}
		*d.format = &f
	}
	return c, c.compile()
}

func (k *Key) prepareCrypto(c *Crypto) (*Crypto, error) {
	switch {
	case k.flags&CryptoOffload == 0:
		return nil, failure.New(opConfigure, syscall.EINVAL, "crypto attributes on a key created without CryptoOffload")
	case c.Order > SignatureBeforeCrypto:
		return nil, failure.New(opConfigure, syscall.EINVAL, "signature_crypto_order %d: must be 0 or 1", c.Order)
	case isNil(c.DEK):
		return nil, failure.New(opConfigure, syscall.EINVAL, "crypto attributes without a DEK")
	}
	if err := checkBlockSize("data unit size", c.DataUnitSize); err != nil {
		return nil, err
	}
	return new(*c), nil
}

// isNil reports whether an interface is nil or contains a nil pointer.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

func checkBlockSize(name string, n int) error {
	if sizes := sig.KeyBlockSizes(); !slices.Contains(sizes, n) {
		return failure.New(opConfigure, syscall.EINVAL, "%s %d: must be one of %v", name, n, sizes)
	}
	return nil
}

// checkRow refuses combinations that are no row of the table in
// mlx5dv_wr_set_mkey_crypto(3). Two combinations beside the table are accepted, because
// libmlx5 and the adapter accept them: the adapter has four orders of the two signatures
// and the two raw streams, and each of these combinations has one. That they equal rows D
// and G is inferred from those orders, not measured.
func checkRow(s *signature, c *Crypto) error {
	if s == nil || c == nil {
		return nil // rows A and F, or no crypto at all
	}
	mem, wire := s.Memory != nil, s.Wire != nil
	after := c.Order == SignatureAfterCrypto
	// Of rows with both signatures there are only E, which encrypts after them on TX, and I, which decrypts before
	// them. Each combination with one signature is a row, or equals one.
	if mem && wire && c.EncryptOnTX == after {
		return failure.New(opConfigure, syscall.EINVAL,
			"encrypt_on_tx=%t, signature after crypto=%t, signature in memory=%t, on the wire=%t: no row A to J of the table allows it",
			c.EncryptOnTX, after, mem, wire)
	}
	return nil
}

// compile prepares the signature work of both directions.
func (s *signature) compile() (err error) {
	var none sig.Format
	mem, wire := &none, &none
	if s.Memory != nil {
		mem = s.Memory
	}
	if s.Wire != nil {
		wire = s.Wire
	}
	if s.tx, err = s.direction(*mem, *wire, s.Checked(MemoryDomain)); err != nil {
		return err
	}
	s.rx, err = s.direction(*wire, *mem, s.Checked(WireDomain))
	return err
}

func (s *Signature) direction(in, out sig.Format, check sig.Mask) (d direction, err error) {
	c := sig.TransformConfig{In: in, Out: out, CheckMask: &check, CopyMask: s.CopyMask}
	if in.Type != sig.NoSignature && out.Type != sig.NoSignature && in.BlockSize != out.BlockSize {
		if c.CopyMask != nil {
			return d, failure.New(opConfigure, syscall.EINVAL, "a copy mask with blocks of %d bytes on one side and %d on the other: both sides must have the same structure", in.BlockSize, out.BlockSize)
		}
		c.Out = sig.Format{}
		if d.strip, err = sig.NewTransform(c); err != nil {
			return d, err
		}
		d.protect, err = sig.NewTransform(sig.TransformConfig{Out: out})
		return d, err
	}
	d.strip, err = sig.NewTransform(c)
	return d, err
}
