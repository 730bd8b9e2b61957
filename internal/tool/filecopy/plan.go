package filecopy

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/xts"
)

// The ways to move data.
const (
	Write = "write"
	Send  = "send"
	Read  = "read"
)

const (
	encrypt = "encrypt"
	decrypt = "decrypt"
	before  = "before"
	after   = "after"
)

// ChunkSize is about how many bytes of data a chunk has, ChunkLimit the most that
// it may have.
const (
	ChunkSize  = 1 << 20
	ChunkLimit = 64 << 20
)

// maxSlots is how many chunks may be under way; large chunks have fewer, down to
// two.
const maxSlots = 8

// Plan is what Terms come to: two keys, three domains and the size of a chunk. It
// is the same on both sides.
type Plan struct {
	Op       string
	MTU      int   // 0: what both devices can
	Chunk    int64 // bytes of data in every chunk but the last
	Slots    int
	Sender   Key
	Receiver Key

	Memory, Wire, Peer Domain
}

// Key is what the key of one side does. With neither signature nor crypto it is a
// plain region, and what is in memory is what is on the wire.
type Key struct {
	Signature *mkey.Signature
	Crypto    *mkey.Crypto // without a DEK: a plan has no secrets
}

// Plain reports whether the side uses a plain region.
func (k *Key) Plain() bool { return k.Signature == nil && k.Crypto == nil }

// Encryption is what of a domain's stream is encrypted.
type Encryption string

// The encryptions of a [Domain].
const (
	NotEncrypted    Encryption = "no"
	BlocksEncrypted Encryption = "data"            // the fields are over what is encrypted
	StreamEncrypted Encryption = "data and fields" // all of it, as far as there are fields
)

// Domain is what stands in one of the three domains.
type Domain struct {
	Format    *sig.Format // nil: no signature
	Encrypted Encryption
	stream
}

// Signature returns the signature of the domain in words, "none" without one.
func (d *Domain) Signature() string {
	if d.Format == nil {
		return sig.None.String()
	}
	return d.Format.String()
}

// Len returns the length of the domain's stream that holds n bytes of data.
func (d *Domain) Len(n int64) int64 { return d.length(n) }

// EncryptedWords returns what of the domain is encrypted.
func (d *Domain) EncryptedWords() string {
	if d.Encrypted == StreamEncrypted && d.Format == nil {
		return string(BlocksEncrypted) // there is nothing else
	}
	return string(d.Encrypted)
}

// planner is the terms, parsed.
type planner struct {
	t               Terms
	mem, wire, peer *sig.Format
	unit            int
	tweak           xts.Tweak
	chunk           int64 // about so many bytes of data
	plan            *Plan
}

// NewPlan returns what the terms come to. Its errors are in the words of the
// command line.
func NewPlan(t Terms) (*Plan, error) { return newPlan(t, ChunkSize) }

func newPlan(t Terms, chunk int64) (*Plan, error) {
	p := planner{t: t, chunk: chunk, plan: &Plan{Op: t.Op}}
	for _, step := range []func() error{p.parse, p.sender, p.receiver, p.units, p.cut} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p.plan, nil
}

func (p *planner) parse() (err error) {
	t := &p.t
	if t.Op == "" {
		p.plan.Op = Write
	}
	for _, c := range []struct {
		flag, value string
		choices     []string
	}{
		{"op", p.plan.Op, []string{Write, Send, Read}},
		{"crypto", t.Crypto, []string{"", encrypt, decrypt}},
		{"order", t.Order, []string{"", before, after}},
		{"peer-crypto", t.PeerCrypto, []string{"", "none", encrypt, decrypt}},
		{"peer-order", t.PeerOrder, []string{"", before, after}},
	} {
		if !slices.Contains(c.choices, c.value) {
			return fmt.Errorf("--%s %s: must be one of %s", c.flag, jsonline.Clean(c.value), strings.TrimPrefix(strings.Join(c.choices, ", "), ", "))
		}
	}
	if t.PeerCrypto == "none" {
		t.PeerCrypto = ""
	}
	for _, f := range []struct {
		flag, value string
		format      **sig.Format
	}{{"mem", t.Mem, &p.mem}, {"wire", t.Wire, &p.wire}, {"peer-mem", t.PeerMem, &p.peer}} {
		if *f.format, err = parseFormat(f.value); err != nil {
			return fmt.Errorf("--%s %s: %w", f.flag, jsonline.Clean(f.value), err)
		}
	}
	if t.MTU != "" {
		if p.plan.MTU, err = strconv.Atoi(t.MTU); err != nil || !slices.Contains([]int{256, 512, 1024, 2048, 4096}, p.plan.MTU) {
			return fmt.Errorf("--mtu %s: must be 256, 512, 1024, 2048 or 4096", jsonline.Clean(t.MTU))
		}
	}
	return p.parseCrypto()
}

func parseFormat(s string) (*sig.Format, error) {
	if s == "" {
		return nil, nil
	}
	f, err := sig.ParseFormat(s)
	var refused *operr.Error
	switch {
	case errors.As(err, &refused):
		return nil, errors.New(strings.TrimPrefix(refused.Reason, strconv.Quote(s)+": "))
	case err != nil:
		return nil, err
	case f.Type == sig.None:
		return nil, nil
	}
	f.BlockSize = f.Stride() - f.FieldSize()
	if sizes := sig.KeyBlockSizes(); !slices.Contains(sizes, f.BlockSize) {
		return nil, fmt.Errorf("block size %d: must be one of %v", f.BlockSize, sizes)
	}
	return &f, nil
}

func (p *planner) parseCrypto() (err error) {
	t := &p.t
	switch {
	case t.Crypto == "" && t.Order != "":
		return errors.New("--order without --crypto: add --crypto encrypt or --crypto decrypt")
	case t.PeerCrypto == "" && t.PeerOrder != "":
		return errors.New("--peer-order without --peer-crypto: add --peer-crypto encrypt or --peer-crypto decrypt")
	case t.Crypto == "" && t.PeerCrypto == "":
		for _, f := range []struct{ flag, value string }{{"unit", t.Unit}, {"tweak", t.Tweak}} {
			if f.value != "" {
				return fmt.Errorf("--%s without --crypto or --peer-crypto", f.flag)
			}
		}
	}
	if t.Unit != "" {
		if p.unit, err = strconv.Atoi(t.Unit); err != nil || !slices.Contains(sig.KeyBlockSizes(), p.unit) {
			return fmt.Errorf("--unit %s: must be one of %v", jsonline.Clean(t.Unit), sig.KeyBlockSizes())
		}
	}
	if t.Tweak != "" {
		p.tweak, err = parseTweak(t.Tweak)
	}
	return err
}

func parseTweak(s string) (xts.Tweak, error) {
	digits, base := s, 10
	if strings.HasPrefix(s, "0x") {
		digits, base = s[2:], 16
	}
	n, ok := new(big.Int).SetString(digits, base)
	if !ok || n.Sign() < 0 || n.BitLen() > 128 || strings.ContainsAny(digits, "+-_") {
		return xts.Tweak{}, fmt.Errorf("--tweak %s: must be a number of at most 128 bits, in decimal or in hexadecimal behind 0x", jsonline.Clean(s))
	}
	var b [16]byte
	n.FillBytes(b[:])
	slices.Reverse(b[:])
	return xts.TweakFromBytes(b), nil
}

// sender settles what stands in the sender's memory and, as far as the sender
// makes it, on the wire.
func (p *planner) sender() error {
	t := &p.t
	mem, wire := Domain{p.mem, NotEncrypted, streamOf(p.mem)}, Domain{p.wire, NotEncrypted, streamOf(p.wire)}
	signed := p.mem != nil || p.wire != nil
	switch {
	case t.Crypto == "" && t.PeerCrypto == decrypt:
		return p.senderOfCiphertext()
	case t.Crypto == "":
	case signed && t.Order == "":
		return errors.New("--order is missing: from SRC to the wire, does the signature work come before the crypto or after it?")
	case t.Crypto == encrypt && t.Order == after && p.mem != nil:
		return errors.New("--crypto encrypt --order after with --mem: data that is encrypted before the signature work has no signature in memory; use --order before, or --mem none")
	case t.Crypto == decrypt && t.Order == before && p.wire != nil:
		return errors.New("--crypto decrypt --order before with --wire: data that is decrypted after the signature work has no signature on the wire; use --order after, or --wire none")
	case t.Crypto == encrypt && t.Order == after && signed: // row B
		wire.Encrypted = BlocksEncrypted
	case t.Crypto == encrypt: // rows A, C, D, E
		wire.Encrypted = StreamEncrypted
	case t.Order == before && signed: // row J
		mem.Encrypted = BlocksEncrypted
	default: // rows F, G, H, I
		mem.Encrypted = StreamEncrypted
	}
	p.plan.Memory, p.plan.Wire = mem, wire
	var err error
	if p.plan.Sender.Signature, err = attributes(p.mem, p.wire, "", t.CheckMask, t.CopyMask); err != nil {
		return err
	}
	if t.Crypto != "" {
		// TX is the way that the order names.
		p.plan.Sender.Crypto = &mkey.Crypto{EncryptOnTX: t.Crypto == encrypt, Order: keyOrder(t.Order == before)}
	}
	return nil
}

// senderOfCiphertext settles the same where SRC holds what the receiver decrypts.
func (p *planner) senderOfCiphertext() error {
	t := &p.t
	switch {
	case p.wire == nil || t.PeerOrder == before:
		// The sender's key works on ciphertext as on any data.
		enc := BlocksEncrypted
		if p.mem == nil {
			enc = StreamEncrypted
		}
		p.plan.Memory = Domain{p.mem, enc, streamOf(p.mem)}
		p.plan.Wire = Domain{p.wire, BlocksEncrypted, streamOf(p.wire)}
		if p.wire == nil {
			p.plan.Wire.Encrypted = StreamEncrypted
		}
		var err error
		p.plan.Sender.Signature, err = attributes(p.mem, p.wire, "", t.CheckMask, t.CopyMask)
		return err
	case t.PeerOrder == "":
		return errors.New("--peer-order is missing: from the wire to DST, does the signature work come before the crypto or after it?")
	case p.mem != nil:
		return errors.New("--mem with --peer-crypto decrypt --peer-order after: SRC holds the wire's encrypted blocks and fields, which the sender cannot look into; use --mem none")
	case t.CopyMask != "":
		return errors.New("--copy-mask: the sender sends what is encrypted as it is, and has no key")
	}
	p.plan.Memory = Domain{p.wire, StreamEncrypted, streamOf(p.wire)}
	p.plan.Wire = p.plan.Memory
	return nil
}

// receiver settles what the receiver makes of the wire.
func (p *planner) receiver() error {
	t, wire := &p.t, &p.plan.Wire
	peer := Domain{p.peer, NotEncrypted, streamOf(p.peer)}
	crypto := &mkey.Crypto{}
	switch t.PeerCrypto {
	case "":
		if wire.Encrypted == StreamEncrypted && wire.signed() {
			if p.peer != nil {
				return errors.New("--peer-mem: blocks and fields on the wire are encrypted, and the receiver cannot look into them; use --peer-crypto decrypt, or --peer-mem none to keep the ciphertext")
			}
			if t.PeerCopyMask != "" || t.PeerCheckMask != "" {
				return errors.New("--peer-check-mask, --peer-copy-mask: blocks and fields on the wire are encrypted, and the receiver has no key to look into them; use --peer-crypto decrypt")
			}
			p.plan.Peer = *wire // a plain region that takes what comes
			return nil
		}
		crypto = nil
		if peer.Encrypted = wire.Encrypted; peer.Encrypted == StreamEncrypted && p.peer != nil {
			peer.Encrypted = BlocksEncrypted
		} else if peer.Encrypted == BlocksEncrypted && p.peer == nil {
			peer.Encrypted = StreamEncrypted
		}
	case decrypt:
		if t.Crypto == decrypt {
			return errors.New("--peer-crypto decrypt with --crypto decrypt: nothing on the wire is encrypted")
		}
		first := wire.Encrypted == BlocksEncrypted // the signature work, on this side
		if order := map[bool]string{true: before, false: after}[first]; t.PeerOrder != "" && t.PeerOrder != order && (p.wire != nil || p.peer != nil) {
			return fmt.Errorf("--peer-order %s: what arrives needs --peer-order %s", t.PeerOrder, order)
		}
		if first && p.peer != nil {
			return errors.New("--peer-mem with data that is decrypted after the signature work: it has no signature in memory; use --peer-mem none")
		}
		crypto.EncryptOnTX, crypto.Order = true, keyOrder(!first)
	case encrypt:
		if wire.Encrypted != NotEncrypted {
			return errors.New("--peer-crypto encrypt with --crypto encrypt: what arrives is encrypted already; use --peer-crypto decrypt, or none to keep the ciphertext")
		}
		peer.Encrypted = StreamEncrypted
		switch {
		case p.peer != nil && p.wire == nil && t.PeerOrder == "":
			return errors.New("--peer-order is missing: from the wire to DST, does the signature work come before the crypto or after it?")
		case t.PeerOrder == after && p.wire != nil:
			return errors.New("--peer-crypto encrypt --peer-order after with --wire: what is encrypted before the signature work has no signature on the wire; use --peer-order before, or --wire none")
		case t.PeerOrder == after && p.peer != nil: // row J
			peer.Encrypted, crypto.Order = BlocksEncrypted, mkey.SignatureBeforeCrypto
		}
	}
	p.plan.Peer = peer
	mask, flag := t.PeerCheckMask, "peer-"
	if mask == "" {
		mask, flag = t.CheckMask, ""
	}
	s, err := attributes(p.peer, p.wire, flag, mask, "")
	if err == nil && t.PeerCopyMask != "" {
		s, err = attributes(p.peer, p.wire, "peer-", mask, t.PeerCopyMask)
	}
	p.plan.Receiver = Key{s, crypto}
	return err
}

// keyOrder returns the order of a key by what comes first on TX.
func keyOrder(signatureFirst bool) mkey.Order {
	if signatureFirst {
		return mkey.SignatureBeforeCrypto
	}
	return mkey.SignatureAfterCrypto
}

// attributes returns the signature attributes of a key, or nil if there are none.
func attributes(mem, wire *sig.Format, prefix, check, copies string) (*mkey.Signature, error) {
	a := &mkey.Signature{Memory: mem, Wire: wire, CheckMask: sig.MaskAll}
	if mem == nil && wire == nil {
		if copies != "" {
			return nil, fmt.Errorf("--%scopy-mask without signatures", prefix)
		}
		return nil, nil
	}
	for _, m := range []struct {
		name, value string
		mask        *uint8
	}{{"check-mask", check, &a.CheckMask}, {"copy-mask", copies, &a.CopyMask}} {
		if m.value == "" {
			continue
		}
		n, err := strconv.ParseUint(m.value, 0, 8)
		if err != nil {
			return nil, fmt.Errorf("--%s%s %s: must be a byte, such as 0xC0", prefix, m.name, jsonline.Clean(m.value))
		}
		*m.mask = uint8(n)
	}
	a.SetCheckMask(a.CheckMask)
	if copies != "" {
		if mem == nil || wire == nil || streamOf(mem) != streamOf(wire) || mem.Type != wire.Type {
			return nil, fmt.Errorf("--%scopy-mask needs signatures of one type and block size in both domains of the key", prefix)
		}
		a.Flags |= mkey.UseCopyMask
	}
	return a, nil
}
