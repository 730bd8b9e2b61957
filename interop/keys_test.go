package interop

import (
	"bytes"
	"crypto/aes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	refxts "golang.org/x/crypto/xts"

	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// blockSize is the block size of all signatures here, and the data unit of all
// encryption.
const blockSize = 512

// A form computes the stream of a domain from data, without the project's own packages.
type form func(plain []byte) []byte

func plainForm(plain []byte) []byte { return plain }

// t10difForm adds a T10-DIF after every block: a CRC started at 0, an application tag,
// and a rising reference tag.
func t10difForm(app uint16, ref uint32) form {
	return func(plain []byte) (stream []byte) {
		tag := ref
		for ; len(plain) > 0; plain = plain[blockSize:] {
			stream = append(stream, plain[:blockSize]...)
			stream = binary.BigEndian.AppendUint16(stream, crc16T10DIF(plain[:blockSize]))
			stream = binary.BigEndian.AppendUint16(stream, app)
			stream = binary.BigEndian.AppendUint32(stream, tag)
			tag++
		}
		return stream
	}
}

// crc16T10DIF computes the CRC of the T10 SBC standard bit by bit.
func crc16T10DIF(p []byte) (crc uint16) {
	for _, b := range p {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc & 0x8000
			if crc <<= 1; carry != 0 {
				crc ^= 0x8bb7
			}
		}
	}
	return crc
}

// crc32cForm adds a CRC32C after every block.
func crc32cForm(plain []byte) (stream []byte) {
	table := crc32.MakeTable(crc32.Castagnoli)
	for ; len(plain) > 0; plain = plain[blockSize:] {
		stream = append(stream, plain[:blockSize]...)
		stream = binary.LittleEndian.AppendUint32(stream, crc32.Checksum(plain[:blockSize], table))
	}
	return stream
}

// encrypted encrypts a form with AES-XTS of golang.org/x/crypto.
func encrypted(inner form, tweak uint64) form {
	return func(plain []byte) []byte {
		cipher, err := refxts.NewCipher(aes.NewCipher, dekBytes())
		if err != nil {
			panic(err)
		}
		stream := bytes.Clone(inner(plain))
		for unit := 0; unit*blockSize < len(stream); unit++ {
			part := stream[unit*blockSize : (unit+1)*blockSize]
			cipher.Encrypt(part, part, tweak+uint64(unit))
		}
		return stream
	}
}

// dekBytes is a key of 256 bits with its tweak key.
func dekBytes() []byte { return pattern(64, 99) }

// keyCase is a configuration of a memory key with the expected form of both domains.
type keyCase struct {
	name         string
	memory, wire form
	signature    *mkey.Signature
	crypto       *mkey.Crypto // the test sets the DEK
}

const (
	appTag = 0x5678
	refTag = 0xfffffff0 // soon wraps
	tweak  = 1 << 40
)

func keyCases() []keyCase {
	dif := &sig.Format{Type: sig.T10DIF, BlockSize: blockSize, AppTag: appTag, RefTag: refTag}
	crc := &sig.Format{Type: sig.CRC32C, BlockSize: blockSize}
	difForm := t10difForm(appTag, refTag)
	signed := func(mem, wire *sig.Format) *mkey.Signature {
		return &mkey.Signature{Memory: mem, Wire: wire}
	}
	crypto := func(encrypt bool, order mkey.Order) *mkey.Crypto {
		return &mkey.Crypto{EncryptOnTX: encrypt, Order: order, DataUnitSize: blockSize, InitialTweak: xts.Tweak{Lo: tweak}}
	}
	return []keyCase{
		{name: "T10-DIF on the wire", memory: plainForm, wire: difForm, signature: signed(nil, dif)},
		{name: "T10-DIF in memory", memory: difForm, wire: plainForm, signature: signed(dif, nil)},
		{name: "CRC32C in memory, T10-DIF on the wire", memory: crc32cForm, wire: difForm, signature: signed(crc, dif)},
		{name: "T10-DIF in memory and on the wire", memory: difForm, wire: difForm, signature: signed(dif, dif)},
		{name: "row A: encrypted wire", memory: plainForm, wire: encrypted(plainForm, tweak), crypto: crypto(true, mkey.SignatureAfterCrypto)},
		{name: "row F: encrypted memory", memory: encrypted(plainForm, tweak), wire: plainForm, crypto: crypto(false, mkey.SignatureAfterCrypto)},
		{name: "row C: signed, then encrypted wire", memory: plainForm, wire: encrypted(difForm, tweak), signature: signed(nil, dif), crypto: crypto(true, mkey.SignatureBeforeCrypto)},
		{name: "row G: encrypted memory, T10-DIF on the wire", memory: encrypted(plainForm, tweak), wire: difForm, signature: signed(nil, dif), crypto: crypto(false, mkey.SignatureAfterCrypto)},
		{name: "row H: signed and encrypted memory", memory: encrypted(difForm, tweak), wire: plainForm, signature: signed(dif, nil), crypto: crypto(false, mkey.SignatureAfterCrypto)},
	}
}

// keyed is an end on our device whose messages pass a memory key over scattered memory.
type keyed struct {
	*deviceEnd
	key    *verbs.MKey
	pieces []rdma.SGE // of the memory domain
}

// newKeyed configures a key for memory of the given length.
func newKeyed(t *testing.T, e *deviceEnd, k keyCase, memory int) *keyed {
	t.Helper()
	var flags mkey.Flags
	if k.signature != nil {
		flags |= mkey.BlockSignature
	}
	if k.crypto != nil {
		flags |= mkey.CryptoOffload
	}
	key, err := e.pd.NewMKey(verbs.MKeyAttr{Flags: flags, MaxEntries: 4})
	check(t, err)
	e.keys = append(e.keys, key)
	// Three pieces that are not aligned to blocks, units or pages.
	first, second := memory/3+1, memory/7+5
	pieces := []rdma.SGE{
		e.mr.SGE(3, first),
		e.mr.SGE(8<<20+1, second),
		e.mr.SGE(4<<20+7, memory-first-second),
	}
	chain := e.qp.Start()
	chain.ID(0).Signaled().Configure(key).Access(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead).List(pieces...)
	if k.signature != nil {
		chain.Signature(*k.signature)
	}
	if k.crypto != nil {
		chain.Crypto(*k.crypto)
	}
	check(t, chain.Complete())
	if _, err := e.wait(1); err != nil {
		t.Fatal(err)
	}
	return &keyed{deviceEnd: e, key: key, pieces: pieces}
}

// memory returns the bytes of the memory domain.
func (k *keyed) memory() (all []byte) {
	k.order()
	for _, p := range k.pieces {
		off := p.Addr - k.mr.Addr()
		all = append(all, k.mr.Bytes()[off:off+uint64(p.Length)]...)
	}
	return all
}

func (k *keyed) setMemory(all []byte) {
	k.order()
	defer k.order()
	for _, p := range k.pieces {
		off := p.Addr - k.mr.Addr()
		n := copy(k.mr.Bytes()[off:off+uint64(p.Length)], all)
		all = all[n:]
	}
}

// mustBeClean fails the test if the key has recorded a bad block.
func (k *keyed) mustBeClean(t *testing.T, c keyCase) {
	t.Helper()
	if c.signature == nil {
		return
	}
	if bad, err := k.key.Check(); err != nil || bad != nil {
		t.Errorf("the key says %v, %v", bad, err)
	}
}

// TestKeys transfers data between the kernel and our memory keys. The kernel sees
// signatures and encryption on the wire as plain bytes, which are compared with an
// independent computation. It does not see those of our memory.
func TestKeys(t *testing.T) {
	n := newNetwork(t)
	device := n.device(false)
	key, err := device.Crypto().NewDEK(dekBytes(), nil)
	check(t, err)
	closeLater(t, key)
	blocks, mtus := 64, []int{1024}
	if !testing.Short() {
		blocks, mtus = 2048, []int{256, 1024, 4096}
	}
	for _, c := range keyCases() {
		if c.crypto != nil {
			c.crypto.DEK = key
		}
		for _, mtu := range mtus {
			t.Run(fmt.Sprintf("%s/mtu=%d", c.name, mtu), func(t *testing.T) {
				a, b := n.open(t, false)
				config := peer.Defaults()
				config.MTU = mtu
				join(t, a, b, false, config)
				transfers(t, a, b, c, blocks)
			})
		}
	}
}

// transfers transfers blocks with every operation.
func transfers(t *testing.T, a *deviceEnd, b *guestEnd, c keyCase, blocks int) {
	plain := func(seed uint64) []byte { return pattern(blocks*blockSize, seed) }
	memLen, wireLen := len(c.memory(plain(0))), len(c.wire(plain(0)))
	k := newKeyed(t, a, c, memLen)
	addr, rkey := b.region()
	completed := func(e end, n int) {
		t.Helper()
		got, err := e.wait(n)
		check(t, err)
		for _, wc := range got {
			if wc.Status != 0 {
				t.Fatalf("%v: %+v", e, wc)
			}
		}
	}
	outgoing := func(what string, seed uint64, move func()) {
		t.Helper()
		k.setMemory(c.memory(plain(seed)))
		check(t, b.fill(0, wireLen+guard, ^seed))
		move()
		want := pattern(wireLen+guard, ^seed)
		copy(want, c.wire(plain(seed)))
		got := make([]byte, len(want))
		check(t, b.read(0, got))
		if !bytes.Equal(got, want) {
			t.Errorf("%s: the kernel has other bytes, the first at %d", what, firstDifference(got, want))
		}
		k.mustBeClean(t, c)
	}
	incoming := func(what string, seed uint64, move func()) {
		t.Helper()
		k.setMemory(make([]byte, memLen))
		check(t, b.write(0, c.wire(plain(seed))))
		move()
		if got, want := k.memory(), c.memory(plain(seed)); !bytes.Equal(got, want) {
			t.Errorf("%s: memory has other bytes, the first at %d", what, firstDifference(got, want))
		}
		k.mustBeClean(t, c)
	}

	outgoing("SEND", 1, func() {
		check(t, b.post(peer.Work{Op: peer.Recv, Len: wireLen + guard/2}))
		check(t, a.qp.Start().Signaled().Send().SGE(k.key.SGE(0, wireLen)).Complete())
		completed(a, 1)
		completed(b, 1)
	})
	outgoing("WRITE", 2, func() {
		check(t, a.qp.Start().Signaled().Write(rkey, addr).SGE(k.key.SGE(0, wireLen)).Complete())
		completed(a, 1)
	})
	outgoing("READ of the peer", 3, func() {
		check(t, b.post(peer.Work{Op: peer.Read, Len: wireLen, RKey: k.key.RKey()}))
		completed(b, 1)
	})
	incoming("RECV", 4, func() {
		_, err := a.qp.PostRecv(verbs.RecvWR{SGEs: []rdma.SGE{k.key.SGE(0, wireLen)}})
		check(t, err)
		check(t, b.post(peer.Work{Op: peer.Send, Len: wireLen}))
		completed(b, 1)
		completed(a, 1)
	})
	incoming("READ", 5, func() {
		check(t, a.qp.Start().Signaled().Read(rkey, addr).SGE(k.key.SGE(0, wireLen)).Complete())
		completed(a, 1)
	})
	incoming("WRITE of the peer", 6, func() {
		_, err := a.qp.PostRecv(verbs.RecvWR{}) // its completion shows that the bytes have arrived
		check(t, err)
		check(t, b.post(peer.Work{Op: peer.WriteImm, Len: wireLen, RKey: k.key.RKey()}))
		completed(b, 1)
		completed(a, 1)
	})

	if c.signature == nil || c.signature.Wire == nil || c.crypto != nil {
		return
	}
	// A wrong bit in the peer's memory is reported with its block, and all data still
	// arrives.
	const badBlock = 17
	stream := c.wire(plain(7))
	at := badBlock*(wireLen/blocks) + 100
	check(t, b.write(0, stream))
	check(t, b.write(at, []byte{stream[at] ^ 4}))
	check(t, a.qp.Start().Signaled().Read(rkey, addr).SGE(k.key.SGE(0, wireLen)).Complete())
	completed(a, 1)
	bad, err := k.key.Check()
	check(t, err)
	var record *sig.Error
	if !errors.As(error(bad), &record) || record.Kind != sig.BadGuard || record.Block != badBlock ||
		record.Stored != uint64(crc16T10DIF(plain(7)[badBlock*blockSize:][:blockSize])) {
		t.Errorf("a flipped bit in block %d is reported as %v", badBlock, bad)
	}
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}
