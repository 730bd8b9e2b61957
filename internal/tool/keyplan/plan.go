package keyplan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/internal/base/number"
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

// ChunkSize is the default size of a chunk in bytes of data, ChunkLimit the largest.
const (
	ChunkSize  = 1 << 20
	ChunkLimit = 64 << 20
)

// MaxSlots is the largest number of chunks in flight. Large chunks have fewer slots,
// at least two.
const MaxSlots = 8

// Plan is the result of Terms: two keys, three domains and the size of a chunk. It is
// the same on both sides.
type Plan struct {
	Op       string
	MTU      int   // path MTU in bytes; 0: the largest that both devices can do
	Chunk    int64 // bytes of data in every chunk but the last
	Slots    int
	Sender   Key
	Receiver Key

	Memory, Wire, Peer Domain
}

// planner makes a plan from terms.
type planner struct {
	t               Terms
	mem, wire, peer *sig.Format
	unit            int
	tweak           xts.Tweak
	chunk           int64 // wanted bytes of data in a chunk
	plan            *Plan
}

// New returns the plan for terms, with chunks of about chunk bytes of data; 0 means
// ChunkSize. Its errors name the flags of the command line.
func New(t Terms, chunk int64) (*Plan, error) {
	p := planner{t: t, chunk: cmp.Or(chunk, ChunkSize), plan: &Plan{Op: cmp.Or(t.Op, Write)}}
	for _, step := range []func() error{p.parse, p.sender, p.receiver, p.units, p.cut} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p.plan, nil
}

func (p *planner) parse() (err error) {
	t := &p.t
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
	case f.Type == sig.NoSignature:
		return nil, nil
	}
	f.BlockSize = f.Block()
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
		if p.tweak, err = xts.ParseTweak(t.Tweak); err != nil {
			return fmt.Errorf("--tweak %s: must be a number of at most 128 bits, in decimal or in hexadecimal after 0x", jsonline.Clean(t.Tweak))
		}
	}
	return nil
}

// sender sets the domains of the sender's memory and of the wire, and the sender's
// key.
func (p *planner) sender() error {
	t := &p.t
	mem, wire := newDomain(p.mem, NotEncrypted), newDomain(p.wire, NotEncrypted)
	signed := p.mem != nil || p.wire != nil
	switch {
	case t.Crypto == "" && t.PeerCrypto == decrypt:
		return p.senderOfCiphertext()
	case t.Crypto == "":
	case signed && t.Order == "":
		return errors.New("--order is missing: from SRC to the wire, does the signature work come before the crypto or after it?")
	case t.Crypto == encrypt && t.Order == after && p.mem != nil && p.wire != nil:
		return errors.New("--crypto encrypt --order after with --mem and --wire: a key that encrypts first has a signature in one domain only; use --order before, or --mem none")
	case t.Crypto == decrypt && t.Order == before && p.mem != nil && p.wire != nil:
		return errors.New("--crypto decrypt --order before with --mem and --wire: a key that decrypts last has a signature in one domain only; use --order after, or --wire none")
	case t.Crypto == encrypt && t.Order == after && p.wire != nil: // row B
		wire.Encrypted = BlocksEncrypted
	case t.Crypto == encrypt: // rows A, C, D, E, and the combination that equals D
		wire.Encrypted = StreamEncrypted
	case t.Order == before && p.mem != nil: // row J
		mem.Encrypted = BlocksEncrypted
	default: // rows F, G, H, I, and the combination that equals G
		mem.Encrypted = StreamEncrypted
	}
	p.plan.Memory, p.plan.Wire = mem, wire
	var err error
	if p.plan.Sender.Signature, err = attributes(p.mem, p.wire, "", t.CheckMask, t.CopyMask); err != nil {
		return err
	}
	if t.Crypto != "" {
		// --order describes the direction from memory to the wire, which is TX.
		p.plan.Sender.Crypto = &mkey.Crypto{EncryptOnTX: t.Crypto == encrypt, Order: keyOrder(t.Order == before)}
	}
	return nil
}

// senderOfCiphertext does the work of sender if SRC holds ciphertext that the receiver
// decrypts.
func (p *planner) senderOfCiphertext() error {
	t := &p.t
	switch {
	case p.wire == nil || t.PeerOrder == before:
		// The sender's key treats the ciphertext as data.
		enc := BlocksEncrypted
		if p.mem == nil {
			enc = StreamEncrypted
		}
		p.plan.Memory = newDomain(p.mem, enc)
		p.plan.Wire = newDomain(p.wire, BlocksEncrypted)
		if p.wire == nil {
			p.plan.Wire.Encrypted = StreamEncrypted
		}
		var err error
		p.plan.Sender.Signature, err = attributes(p.mem, p.wire, "", t.CheckMask, t.CopyMask)
		return err
	case t.PeerOrder == "":
		return errors.New("--peer-order is missing: from the wire to DST, does the signature work come before the crypto or after it?")
	case p.mem != nil:
		return errors.New("--mem with --peer-crypto decrypt --peer-order after: SRC holds the wire's encrypted blocks and fields, which the sender cannot read; use --mem none")
	case t.CopyMask != "":
		return errors.New("--copy-mask: the sender sends the encrypted stream as it is, and has no key")
	}
	p.plan.Memory = newDomain(p.wire, StreamEncrypted)
	p.plan.Wire = p.plan.Memory
	return nil
}

// receiver sets the domain of the receiver's memory and the receiver's key.
func (p *planner) receiver() error {
	t, wire := &p.t, &p.plan.Wire
	peer := newDomain(p.peer, NotEncrypted)
	crypto := &mkey.Crypto{}
	switch t.PeerCrypto {
	case "":
		if wire.Encrypted == StreamEncrypted && wire.Signed() {
			if p.peer != nil {
				return errors.New("--peer-mem: blocks and fields on the wire are encrypted, and the receiver cannot read them; use --peer-crypto decrypt, or --peer-mem none to keep the ciphertext")
			}
			if t.PeerCopyMask != "" || t.PeerCheckMask != "" {
				return errors.New("--peer-check-mask, --peer-copy-mask: blocks and fields on the wire are encrypted, and the receiver has no key to read them; use --peer-crypto decrypt")
			}
			p.plan.Peer = *wire // the receiver's plain region takes the wire as it is
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
		// first: the receiver checks signatures before it decrypts. If the wire has no
		// signatures, both orders mean row D.
		first := wire.Encrypted == BlocksEncrypted
		if order := map[bool]string{true: before, false: after}[first]; t.PeerOrder != "" && t.PeerOrder != order && p.wire != nil {
			return fmt.Errorf("--peer-order %s: the data on the wire needs --peer-order %s", t.PeerOrder, order)
		}
		if first && p.peer != nil {
			return errors.New("--peer-mem with data that is decrypted after the signature work: it has no signature in memory; use --peer-mem none")
		}
		crypto.EncryptOnTX, crypto.Order = true, keyOrder(!first && (p.wire != nil || t.PeerOrder != before))
	case encrypt:
		if wire.Encrypted != NotEncrypted {
			return errors.New("--peer-crypto encrypt with --crypto encrypt: the data on the wire is encrypted already; use --peer-crypto decrypt, or none to keep the ciphertext")
		}
		peer.Encrypted = StreamEncrypted
		switch {
		case p.peer != nil && p.wire == nil && t.PeerOrder == "":
			return errors.New("--peer-order is missing: from the wire to DST, does the signature work come before the crypto or after it?")
		case t.PeerOrder == after && p.wire != nil && p.peer != nil:
			return errors.New("--peer-crypto encrypt --peer-order after with --wire and --peer-mem: a key that encrypts first has a signature in one domain only; use --peer-order before, or --wire none")
		case t.PeerOrder == after && p.peer != nil: // row J
			peer.Encrypted, crypto.Order = BlocksEncrypted, mkey.SignatureBeforeCrypto
		case t.PeerOrder == after && p.wire != nil: // the combination that equals row G
			crypto.Order = mkey.SignatureBeforeCrypto
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

// keyOrder returns the order of a key whose signature work precedes its crypto on TX, or
// follows it.
func keyOrder(signatureFirst bool) mkey.Order {
	if signatureFirst {
		return mkey.SignatureBeforeCrypto
	}
	return mkey.SignatureAfterCrypto
}

// attributes returns the signature attributes of a key, or nil if there are none.
func attributes(mem, wire *sig.Format, prefix, check, copies string) (*mkey.Signature, error) {
	a := &mkey.Signature{Memory: mem, Wire: wire}
	if mem == nil && wire == nil {
		if copies != "" {
			return nil, fmt.Errorf("--%scopy-mask without signatures", prefix)
		}
		return nil, nil
	}
	if check != "" {
		mask, err := parseMask(prefix+"check-mask", check)
		if err != nil {
			return nil, err
		}
		a.CheckMask = &mask
	}
	if copies != "" {
		if mem == nil || wire == nil || mem.Block() != wire.Block() || mem.Type != wire.Type {
			return nil, fmt.Errorf("--%scopy-mask needs signatures of one type and block size in both domains of the key", prefix)
		}
		mask, err := parseMask(prefix+"copy-mask", copies)
		if err != nil {
			return nil, err
		}
		a.CopyMask = &mask
	}
	return a, nil
}

// parseMask reads the value of a mask's flag.
func parseMask(flag, value string) (sig.Mask, error) {
	n, err := number.Parse(value, 8)
	if err != nil {
		return 0, fmt.Errorf("--%s %s: must be a byte, such as 0xC0", flag, jsonline.Clean(value))
	}
	return sig.Mask(n), nil
}
