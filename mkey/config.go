package mkey

import (
	"slices"
	"syscall"

	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// Flags say what a key is made for. The values are those of enum
// mlx5dv_mkey_init_attr_flags.
type Flags uint32

// The flags of [Attr].
const (
	Indirect         Flags = 1 << 0 // the key has a layout of its own; required
	BlockSignature   Flags = 1 << 1 // signature attributes may be set
	CryptoOffload    Flags = 1 << 2 // crypto attributes must be set before use
	UpdateTag        Flags = 1 << 3 // the tag, the key's low byte, may be changed
	RemoteInvalidate Flags = 1 << 4 // an incoming SEND with invalidate may free the key

	flagsAll = Indirect | BlockSignature | CryptoOffload | UpdateTag | RemoteInvalidate
)

// Attr is what a key is created with (mlx5dv_create_mkey(3)).
type Attr struct {
	Flags      Flags
	MaxEntries int    // entries that a layout may have; rounded up to a multiple of 4
	Number     uint32 // the lkey and rkey, repeated in reports of bad blocks
}

// ConfFlags are the flags of a configuration, as in struct mlx5dv_mkey_conf_attr.
type ConfFlags uint32

// ResetSignature drops the signature attributes that the key has
// (MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR).
const ResetSignature ConfFlags = 1 << 0

// Conf is one configuration of a key: what is not nil is set, the rest is kept
// (mlx5dv_wr_mkey_configure(3)).
type Conf struct {
	Flags     ConfFlags
	Access    *Access
	Layout    Layout
	Signature *Signature
	Crypto    *Crypto

	// Space is how many bytes of the work request are free for the layout's
	// entries (16 bytes each) and the attributes (64 bytes each); 0 means that
	// nothing but the key limits them.
	Space int
}

// Config is a whole configuration for [New].
type Config struct {
	Access    Access
	Layout    Layout
	Signature *Signature // nil: none
	Crypto    *Crypto    // nil: none
	Number    uint32     // repeated in reports of bad blocks
}

// SigFlags are the flags of [Signature].
type SigFlags uint32

// UseCopyMask makes Signature.CopyMask rule which bytes of a field are copied
// (MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK).
const UseCopyMask SigFlags = 1 << 0

// Signature is the block signature attributes of a key
// (mlx5dv_wr_set_mkey_sig_block(3)).
type Signature struct {
	Memory *sig.Format // nil: the memory domain has data only
	Wire   *sig.Format // nil: the wire domain has data only
	Flags  SigFlags

	// CheckMask and CopyMask have a bit for each byte of a field: bit 7 for the
	// most significant byte of a guard or CRC. See the masks of package sig.
	// A CheckMask of zero checks nothing.
	CheckMask uint8
	CopyMask  uint8
}

// Order is the order of crypto and signature work on TX; RX has the opposite
// order. The values are those of enum mlx5dv_signature_crypto_order.
type Order uint8

// The orders of [Crypto].
const (
	SignatureAfterCrypto  Order = 0 // on TX, crypto first
	SignatureBeforeCrypto Order = 1 // on TX, signature first
)

// DEK is the data encryption key of [Crypto]. A dek.DEK is one.
type DEK interface {
	// Acquire returns the cipher for one transfer if the key may be used with
	// the keytag configured on the memory key, and holds it until Release.
	Acquire(keytag [8]byte) (*xts.Cipher, error)
	Release()
}

// Crypto is the AES-XTS attributes of a key (mlx5dv_wr_set_mkey_crypto(3)).
type Crypto struct {
	EncryptOnTX  bool // true: memory → wire encrypts; false: it decrypts
	Order        Order
	DataUnitSize int       // 512, 520, 4048, 4096 or 4160 bytes
	InitialTweak xts.Tweak // of the first data unit of the stream
	DEK          DEK
	KeyTag       [8]byte // must equal the DEK's, if that has one
}

const opConfigure = "mkey configure"

// Plan is a checked configuration. It cannot be wrong later and never changes.
type Plan struct {
	key    *Key
	access Access
	layout *layout
	sig    *Signature // a copy of the caller's, formats included
	crypto *Crypto
	geo    geometry
	tx, rx direction
	fuse   *fusion // nil: signature and crypto are done one after the other
}

// direction is the signature work of one direction: one transform where blocks
// map to blocks, or a strip followed by a protection where the sizes differ.
type direction struct {
	strip   *sig.Transform // or the only one
	protect *sig.Transform
}

// compile merges conf into base, which may be nil, and checks the result.
func compile(k *Key, base *Plan, conf Conf) (*Plan, error) {
	if bad := conf.Flags &^ ResetSignature; bad != 0 {
		return nil, operr.New(opConfigure, syscall.EOPNOTSUPP, "conf_flags %#x: only %#x is known", uint32(conf.Flags), uint32(ResetSignature))
	}
	if err := plain(&conf.Layout); err != nil {
		return nil, err
	}
	p := &Plan{key: k}
	if base != nil {
		p.access, p.layout, p.sig, p.crypto = base.access, base.layout, base.sig, base.crypto
	}
	if conf.Flags&ResetSignature != 0 {
		p.sig = nil
	}
	if err := p.setSignature(conf.Signature); err != nil {
		return nil, err
	}
	if err := p.setCrypto(conf.Crypto); err != nil {
		return nil, err
	}
	if conf.Access != nil {
		if bad := *conf.Access &^ accessAll; bad != 0 {
			return nil, operr.New(opConfigure, syscall.EINVAL, "access flags %#x: a memory key has only %#x", uint32(*conf.Access), uint32(accessAll))
		}
		p.access = *conf.Access
	}
	if err := p.setLayout(conf.Layout); err != nil {
		return nil, err
	}
	if err := conf.fits(); err != nil {
		return nil, err
	}
	if err := p.checkRow(); err != nil {
		return nil, err
	}
	p.geo = newGeometry(p.sig, p.crypto)
	p.fuse = newFusion(p.sig, p.crypto)
	return p, p.compileTransforms()
}

// fits reports ENOMEM where the work request has no room for the setters.
func (c *Conf) fits() error {
	if c.Space == 0 {
		return nil
	}
	need := 0
	if c.Layout != nil {
		need += 16 * c.Layout.entries()
	}
	if c.Signature != nil {
		need += 64
	}
	if c.Crypto != nil {
		need += 64
	}
	if need > c.Space {
		return operr.New(opConfigure, syscall.ENOMEM, "the attributes take %d bytes of the work request, which has %d: create the QP with a larger max_inline_data", need, c.Space)
	}
	return nil
}

func (p *Plan) setLayout(l Layout) error {
	if l == nil {
		return nil
	}
	if n := l.entries(); n > p.key.maxEntries {
		return operr.New(opConfigure, syscall.ENOMEM, "the layout takes %d entries, the key has %d", n, p.key.maxEntries)
	}
	c, err := l.compile()
	if err != nil {
		return err
	}
	if err := c.checkNesting(p.key); err != nil {
		return err
	}
	p.layout = c
	return nil
}

func (p *Plan) setSignature(s *Signature) error {
	if s == nil {
		return nil
	}
	if p.key.flags&BlockSignature == 0 {
		return operr.New(opConfigure, syscall.EINVAL, "signature attributes on a key created without BlockSignature")
	}
	if s.Flags&^UseCopyMask != 0 {
		return operr.New(opConfigure, syscall.EINVAL, "signature flags %#x: only %#x is known", uint32(s.Flags), uint32(UseCopyMask))
	}
	c := *s
	if c.Memory == nil && c.Wire == nil {
		return operr.New(opConfigure, syscall.EINVAL, "signature attributes with neither a memory nor a wire domain")
	}
	for _, d := range []**sig.Format{&c.Memory, &c.Wire} {
		if *d == nil {
			continue
		}
		f := **d
		if f.BlockSize == 0 {
			f.BlockSize = sig.DefaultBlockSize
		}
		if f.Type == sig.None {
			return operr.New(opConfigure, syscall.EINVAL, "a domain without a signature is nil, not a format of type none")
		}
		if err := f.Validate(); err != nil {
			return err
		}
		if err := checkBlockSize("block size", f.BlockSize); err != nil {
			return err
		}
		*d = &f
	}
	p.sig = &c
	return nil
}

func (p *Plan) setCrypto(c *Crypto) error {
	if c == nil {
		return nil
	}
	switch {
	case p.key.flags&CryptoOffload == 0:
		return operr.New(opConfigure, syscall.EINVAL, "crypto attributes on a key created without CryptoOffload")
	case c.Order > SignatureBeforeCrypto:
		return operr.New(opConfigure, syscall.EINVAL, "signature_crypto_order %d: must be 0 or 1", c.Order)
	case c.DEK == nil:
		return operr.New(opConfigure, syscall.EINVAL, "crypto attributes without a DEK")
	}
	if err := checkBlockSize("data unit size", c.DataUnitSize); err != nil {
		return err
	}
	own := *c
	p.crypto = &own
	return nil
}

func checkBlockSize(what string, n int) error {
	if sizes := sig.KeyBlockSizes(); !slices.Contains(sizes, n) {
		return operr.New(opConfigure, syscall.EINVAL, "%s %d: must be one of %v", what, n, sizes)
	}
	return nil
}

// checkRow holds a key with both attributes to the rows of the table in
// mlx5dv_wr_set_mkey_crypto(3).
func (p *Plan) checkRow() error {
	if p.sig == nil || p.crypto == nil {
		return nil // rows A and F, or no crypto at all
	}
	mem, wire := p.sig.Memory != nil, p.sig.Wire != nil
	after := p.crypto.Order == SignatureAfterCrypto
	switch {
	case p.crypto.EncryptOnTX && after && !mem: // B
	case p.crypto.EncryptOnTX && !after: // C, D, E
	case !p.crypto.EncryptOnTX && after: // G, H, I
	case !p.crypto.EncryptOnTX && !after && !wire: // J
	default:
		return operr.New(opConfigure, syscall.EINVAL,
			"encrypt_on_tx=%t, signature after crypto=%t, signature in memory=%t, on the wire=%t: no row A to J of the table allows it",
			p.crypto.EncryptOnTX, after, mem, wire)
	}
	return nil
}

// compileTransforms prepares the signature work of both directions.
func (p *Plan) compileTransforms() (err error) {
	if p.sig == nil {
		return nil
	}
	var none sig.Format
	mem, wire := &none, &none
	if p.sig.Memory != nil {
		mem = p.sig.Memory
	}
	if p.sig.Wire != nil {
		wire = p.sig.Wire
	}
	if p.tx, err = p.sig.direction(*mem, *wire); err != nil {
		return err
	}
	p.rx, err = p.sig.direction(*wire, *mem)
	return err
}

func (s *Signature) direction(in, out sig.Format) (d direction, err error) {
	c := sig.TransformConfig{In: in, Out: out, CheckMask: s.CheckMask, CopyMask: s.CopyMask, UseCopyMask: s.Flags&UseCopyMask != 0}
	if in.Type != sig.None && out.Type != sig.None && in.BlockSize != out.BlockSize {
		if c.UseCopyMask {
			return d, operr.New(opConfigure, syscall.EINVAL, "a copy mask with blocks of %d bytes on one side and %d on the other: both sides must have the same structure", in.BlockSize, out.BlockSize)
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
