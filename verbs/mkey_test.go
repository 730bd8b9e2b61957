package verbs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// dif is the T10-DIF that rdma-core's tests use with real hardware.
var dif = sig.Format{
	Type: sig.T10DIF, BlockSize: 512, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xF0DEBC9A, Flags: sig.RefRemap | sig.AppEscape,
}

func signature(mem, wire *sig.Format) mkey.Signature {
	return mkey.Signature{Memory: mem, Wire: wire}
}

// configure posts a configuration of key over the whole of mr.
func (s *side) configure(key *verbs.MKey, mr *verbs.MR, more func(verbs.Chain)) {
	s.t.Helper()
	c := s.qp.Start().ID(1000).Signaled().Configure(key).
		Access(rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead).
		List(mr.SGE(0, mr.Len()))
	if more != nil {
		more(c)
	}
	s.complete(c)
	s.completion(1000, rdma.OpMKeyConfigure, rdma.StatusSuccess)
}

func (s *side) noError(key *verbs.MKey) {
	s.t.Helper()
	if bad, err := key.Check(); bad != nil || err != nil {
		s.t.Fatalf("key check: %v, %v", bad, err)
	}
}

// TestKeyAtOffsets reads and writes the middle of a key, where reference tags
// and tweaks must continue.
func TestKeyAtOffsets(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	mr, key := b.register(8*512, rdma.LocalWrite), b.mkey(mkey.BlockSignature)
	fill(mr.Bytes(), 6)
	b.configure(key, mr, func(c verbs.Chain) { c.Signature(signature(nil, &dif)) })
	want := make([]byte, 8*520)
	if _, err := dif.Protect(want, mr.Bytes()); err != nil {
		t.Fatal(err)
	}
	local := a.register(8*520, rdma.LocalWrite)
	a.complete(a.qp.Start().ID(1).Signaled().Read(key.RKey(), 3*520).SGE(local.SGE(0, 2*520)))
	a.completion(1, rdma.OpRDMARead, rdma.StatusSuccess)
	if !bytes.Equal(local.Bytes()[:2*520], want[3*520:5*520]) {
		t.Error("READ at block 3: wrong bytes")
	}
	clear(mr.Bytes()[5*512:])
	copy(local.Bytes(), want)
	a.complete(a.qp.Start().ID(2).Signaled().Write(key.RKey(), 5*520).SGE(local.SGE(5*520, 3*520)))
	a.completion(2, rdma.OpRDMAWrite, rdma.StatusSuccess)
	got := make([]byte, 8*520)
	if _, err := dif.Protect(got, mr.Bytes()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("WRITE at block 5: wrong bytes, %v", err)
	}
	b.noError(key)
	a.complete(a.qp.Start().ID(3).Read(key.RKey(), 100).SGE(local.SGE(0, 520)))
	a.completion(3, 0, rdma.StatusRemAccessErr) // offset inside a block
}

// TestJobSize checks that lengths which AES-XTS cannot process fail and write nothing.
func TestJobSize(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	src := a.register(1024, 0)
	mr, key := b.register(1024, rdma.LocalWrite), b.mkey(mkey.CryptoOffload)
	b.configure(key, mr, func(c verbs.Chain) { c.Crypto(cryptoOf(t, b, 512, true)) })
	a.complete(a.qp.Start().ID(1).Signaled().Write(key.RKey(), 0).SGE(src.SGE(0, 528)))
	a.completion(1, rdma.OpRDMAWrite, rdma.StatusSuccess)
	clear(mr.Bytes())
	a.complete(a.qp.Start().ID(2).Write(key.RKey(), 0).SGE(src.SGE(0, 520)))
	a.completion(2, 0, rdma.StatusRemOpErr)
	if !bytes.Equal(mr.Bytes(), make([]byte, 1024)) {
		t.Error("memory was written")
	}
}

func cryptoOf(t *testing.T, s *side, unit int, encrypt bool) mkey.Crypto {
	t.Helper()
	raw := make([]byte, 64)
	fill(raw, 99)
	d, err := s.dev.Crypto().NewDEK(raw, nil)
	fatal.If(t, err)
	return mkey.Crypto{EncryptOnTX: encrypt, Order: mkey.SignatureBeforeCrypto, DataUnitSize: unit, InitialTweak: xts.Tweak{Lo: 42}, DEK: d}
}

// TestCiphertextKeptInMemory writes data that is signed and encrypted on the
// wire to memory that keeps the ciphertext, and compares the result with the
// oracle.
func TestCiphertextKeptInMemory(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	const blocks = 300
	mr, key := a.register(blocks*512, rdma.LocalWrite), a.mkey(mkey.BlockSignature|mkey.CryptoOffload)
	fill(mr.Bytes(), 7)
	s, c := signature(nil, &dif), cryptoOf(t, a, 520, true)
	a.configure(key, mr, func(ch verbs.Chain) { ch.Signature(s).Crypto(c) })
	dst := b.register(blocks*520, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	a.complete(a.qp.Start().ID(1).Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, blocks*520)))
	a.completion(1, rdma.OpRDMAWrite, rdma.StatusSuccess)
	raw := make([]byte, 64)
	fill(raw, 99)
	cipher := must[*xts.Cipher](t)(xts.New(raw))
	oracle := mkeytest.Oracle{Signature: &s, Crypto: &c, Cipher: cipher}
	want, _, _ := oracle.TX(mr.Bytes())
	if !bytes.Equal(dst.Bytes(), want) {
		t.Fatal("wire differs from the oracle")
	}
	plain := append([]byte(nil), mr.Bytes()...)
	clear(mr.Bytes())
	a.complete(a.qp.Start().ID(2).Signaled().Read(dst.RKey(), dst.Addr()).SGE(key.SGE(0, blocks*520)))
	a.completion(2, rdma.OpRDMARead, rdma.StatusSuccess)
	if !bytes.Equal(mr.Bytes(), plain) {
		t.Fatal("the way back gives other data")
	}
	a.noError(key)
}

// TestConfigureInOrder posts a configuration and its use in one chain, and then a new
// configuration after a use.
func TestConfigureInOrder(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	m1, m2, key := a.register(64, 0), a.register(64, 0), a.mkey(0)
	copy(m1.Bytes(), bytes.Repeat([]byte{1}, 64))
	copy(m2.Bytes(), bytes.Repeat([]byte{2}, 64))
	dst := b.register(256, rdma.LocalWrite|rdma.RemoteWrite)
	c := a.qp.Start()
	c.Configure(key).List(m1.SGE(0, 64))
	c.Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 64))
	c.Configure(key).List(m2.SGE(0, 64))
	c.Write(dst.RKey(), dst.Addr()+64).SGE(key.SGE(0, 64))
	c.Configure(key).List(m1.SGE(0, 32), m2.SGE(32, 32))
	c.Write(dst.RKey(), dst.Addr()+128).SGE(key.SGE(0, 64))
	c.ID(5).Signaled().Configure(key).Interleaved(16,
		rdma.Strided{Addr: m1.Addr(), BytesCount: 2, BytesSkip: 1, LKey: m1.LKey()},
		rdma.Strided{Addr: m2.Addr(), BytesCount: 2, BytesSkip: 0, LKey: m2.LKey()})
	c.ID(6).Signaled().Write(dst.RKey(), dst.Addr()+192).SGE(key.SGE(0, 64))
	a.complete(c)
	a.completion(5, rdma.OpMKeyConfigure, rdma.StatusSuccess)
	a.completion(6, rdma.OpRDMAWrite, rdma.StatusSuccess)
	want := bytes.Join([][]byte{
		bytes.Repeat([]byte{1}, 64), bytes.Repeat([]byte{2}, 64),
		bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32),
		bytes.Repeat([]byte{1, 1, 2, 2}, 16),
	}, nil)
	if !bytes.Equal(dst.Bytes(), want) {
		t.Errorf("got %x", dst.Bytes())
	}
}

func TestInvalidate(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	mr := a.register(64, rdma.LocalWrite)
	key := a.mkey(mkey.RemoteInvalidate)
	a.configure(key, mr, nil)
	// The peer frees the key; the receive completion reports it.
	a.recv(1)
	b.complete(b.qp.Start().SendInv(key.RKey()))
	if wc := a.completion(1, rdma.OpRecv, rdma.StatusSuccess); wc.Flags != rdma.WithInv || wc.InvalidatedKey != key.RKey() {
		t.Fatalf("completion %+v", wc)
	}
	// The owner can configure and free the key again; using it then fails.
	a.configure(key, mr, nil)
	a.complete(a.qp.Start().ID(2).Signaled().LocalInv(key.LKey()).ID(3).Signaled().Send().SGE(key.SGE(0, 64)))
	a.completion(2, rdma.OpLocalInv, rdma.StatusSuccess)
	a.completion(3, 0, rdma.StatusLocProtErr)
}

func TestInvalidateFree(t *testing.T) {
	a, _ := pair(t, verbs.QPAttr{}, nil)
	a.complete(a.qp.Start().ID(1).LocalInv(a.mkey(0).LKey()))
	a.completion(1, 0, rdma.StatusMWBindErr)
}

// TestPipelining answers a storage read with data and a good status with a
// fence, in one chain. When the data is bad, the good status is cancelled.
func TestPipelining(t *testing.T) {
	for _, how := range []string{"good", "cancel"} {
		t.Run(how, func(t *testing.T) {
			a, b := pair(t, verbs.QPAttr{SignaturePipelining: true, MaxInlineData: 512}, nil)
			disk, key := a.register(4*520, rdma.LocalWrite), a.mkey(mkey.BlockSignature)
			data := make([]byte, 4*512)
			fill(data, 8)
			if _, err := dif.Protect(disk.Bytes(), data); err != nil {
				t.Fatal(err)
			}
			if how != "good" {
				disk.Bytes()[520+512+3] ^= 1 // the application tag of block 1
			}
			a.configure(key, disk, func(c verbs.Chain) { c.Signature(signature(&dif, nil)) })
			dst, status := b.register(4*512, rdma.LocalWrite|rdma.RemoteWrite), b.register(8, rdma.LocalWrite)
			b.recv(1, status.SGE(0, 8))
			c := a.qp.Start()
			c.ID(10).Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 4*512))
			c.ID(11).Signaled().Fence().Send().Inline([]byte("good"))
			a.complete(c)
			a.completion(10, rdma.OpRDMAWrite, rdma.StatusSuccess)
			if how == "good" {
				b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
				a.completion(11, rdma.OpSend, rdma.StatusSuccess)
				a.noError(key)
				return
			}
			a.event(rdma.EventSQDrained)
			if st := a.qp.State(); st != rdma.StateSQD {
				t.Fatalf("state %v", st)
			}
			b.noCompletion()
			bad, err := key.Check()
			if err != nil || bad == nil || bad.Sig.Kind != sig.BadAppTag || bad.Sig.Block != 1 {
				t.Fatalf("check: %v, %v", bad, err)
			}
			if n, err := a.qp.Cancel(11); n != 1 || err != nil {
				t.Fatalf("cancelled %d, %v", n, err)
			}
			// A second Cancel finds no request. A later request with the same
			// id is not cancelled.
			if n, err := a.qp.Cancel(11); n != 0 || err != nil {
				t.Errorf("cancelled again: %d, %v", n, err)
			}
			a.complete(a.qp.Start().ID(11).Signaled().Send())
			if n, err := a.qp.Cancel(11); n != 1 || err != nil {
				t.Errorf("cancelled a later request: %d, %v", n, err)
			}
			a.complete(a.qp.Start().ID(12).Signaled().Send().Inline([]byte("bad!")))
			a.modify(rdma.StateRTS)
			a.completion(11, rdma.OpSend, rdma.StatusSuccess) // the no-ops
			a.completion(11, rdma.OpSend, rdma.StatusSuccess)
			a.completion(12, rdma.OpSend, rdma.StatusSuccess)
			b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
			if string(status.Bytes()[:4]) != "bad!" {
				t.Errorf("status %q", status.Bytes()[:4])
			}
			if _, err := a.qp.Cancel(11); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("cancelling outside of SQD: %v", err)
			}
		})
	}
}

// TestPipeliningOff checks that without SignaturePipelining the queue does not
// stop, and the key only records the error.
func TestPipeliningOff(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	disk, key := a.register(520, rdma.LocalWrite), a.mkey(mkey.BlockSignature)
	a.configure(key, disk, func(c verbs.Chain) { c.Signature(signature(&dif, nil)) })
	dst := b.register(512, rdma.LocalWrite|rdma.RemoteWrite)
	c := a.qp.Start()
	c.ID(1).Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 512))
	c.ID(2).Signaled().Fence().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 512))
	a.complete(c)
	a.completion(1, rdma.OpRDMAWrite, rdma.StatusSuccess)
	a.completion(2, rdma.OpRDMAWrite, rdma.StatusSuccess)
	if bad, _ := key.Check(); bad == nil {
		t.Error("the key remembers nothing")
	}
}

// TestPostedRequestsWaitInSQD moves a QP to SQD, in which posted requests wait.
func TestPostedRequestsWaitInSQD(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	fatal.If(t, engine.QPOf(a.qp).Modify(ibv.QPModify{State: rdma.StateSQD, SQDAsyncNotify: true}, ibv.AttrState|ibv.AttrSQDAsyncNotify))
	a.event(rdma.EventSQDrained)
	b.recv(1)
	a.complete(a.qp.Start().Send())
	a.modify(rdma.StateRTS)
	b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
}

// TestChainErrors posts chains that must be refused, each for one reason.
func TestChainErrors(t *testing.T) {
	a, _ := pair(t, verbs.QPAttr{MaxInlineData: 188, MaxSendSGE: 2, MaxSendWR: 4}, nil)
	mr := a.register(4096, rdma.LocalWrite)
	plain, signed := a.mkey(0), a.mkey(mkey.BlockSignature)
	s := signature(nil, &dif)
	bad := s
	bad.Wire = &sig.Format{Type: sig.T10DIF, BlockSize: 513}
	sge := mr.SGE(0, 8)
	for _, c := range []struct {
		name string
		want syscall.Errno
		post func(verbs.Chain) verbs.Chain
	}{
		{"data setter without builder", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.SGE(sge) }},
		{"key setter without builder", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Send().Access(0) }},
		{"data setter on a configuration", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(plain).SGE(sge) }},
		{"data twice", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Send().SGE(sge).SGE(sge) }},
		{"too many SGEs", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Send().SGE(sge, sge, sge) }},
		{"too much inline data", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Send().Inline(make([]byte, 189)) }},
		{"inline data of a READ", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Read(1, 0).Inline(nil) }},
		{"an atomic of 4 bytes", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.FetchAdd(1, 0, 1).SGE(mr.SGE(0, 4)) }},
		{"too many requests", syscall.ENOMEM, func(c verbs.Chain) verbs.Chain { return c.Send().Send().Send().Send().Send() }},
		{"reset twice", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(signed).ResetSignature().ResetSignature() }},
		{"setter twice", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(plain).Access(0).Access(0) }},
		{"two layouts", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(plain).List(sge).Interleaved(1) }},
		{"no key", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(nil).List(sge) }},
		{"signature on a key without the flag", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(plain).Signature(s) }},
		{"crypto on a key without the flag", syscall.EINVAL, func(c verbs.Chain) verbs.Chain {
			return c.Configure(plain).Crypto(mkey.Crypto{DataUnitSize: 512})
		}},
		{"bad block size", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(signed).Signature(bad) }},
		{"both domains absent", syscall.EINVAL, func(c verbs.Chain) verbs.Chain { return c.Configure(signed).Signature(mkey.Signature{}) }},
		// 192 bytes hold 12 entries, or 8 together with signature attributes.
		{"13 entries in the work request", syscall.ENOMEM, func(c verbs.Chain) verbs.Chain {
			return c.Configure(plain).List(make([]rdma.SGE, 13)...)
		}},
		{"9 entries beside a signature", syscall.ENOMEM, func(c verbs.Chain) verbs.Chain {
			return c.Configure(signed).Signature(s).List(make([]rdma.SGE, 9)...)
		}},
		{"12 interleaved entries", syscall.ENOMEM, func(c verbs.Chain) verbs.Chain {
			return c.Configure(plain).Interleaved(1, make([]rdma.Strided, 12)...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.post(a.qp.Start()).Complete()
			if !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	for _, ok := range []func(verbs.Chain) verbs.Chain{
		func(c verbs.Chain) verbs.Chain { return c.Configure(plain).List(make([]rdma.SGE, 12)...) },
		func(c verbs.Chain) verbs.Chain {
			return c.Configure(signed).Signature(s).List(make([]rdma.SGE, 8)...)
		},
		func(c verbs.Chain) verbs.Chain {
			return c.Configure(plain).Interleaved(1, make([]rdma.Strided, 11)...)
		},
	} {
		if err := ok(a.qp.Start()).Complete(); err != nil {
			t.Error(err)
		}
	}
}

// TestFreedInFlight frees a key and closes a region while the peer writes through them.
// After that the memory belongs to the program alone.
func TestFreedInFlight(t *testing.T) {
	for _, what := range []string{"key", "region"} {
		t.Run(what, func(t *testing.T) {
			a, b := pair(t, verbs.QPAttr{}, nil)
			const size = 64 << 20
			src, dst, key := a.register(size, 0), b.register(size, rdma.LocalWrite|rdma.RemoteWrite), b.mkey(0)
			fill(src.Bytes()[:4096], 1)
			b.configure(key, dst, nil)
			b.recv(1)
			c := a.qp.Start()
			c.WriteImm(key.RKey(), 0, 1).SGE(src.SGE(0, 8)) // the peer has started
			for range 20 {
				c.Write(key.RKey(), 0).SGE(src.SGE(0, size))
			}
			a.complete(c)
			b.completion(1, rdma.OpRecvRDMAWithImm, rdma.StatusSuccess)
			if what == "key" {
				fatal.If(t, key.Close())
			} else if err := dst.Close(); err != nil {
				t.Fatal(err)
			}
			// The race detector reports any later access to the memory.
			for i := range dst.Bytes() {
				dst.Bytes()[i] = 0xEE
			}
			if st := a.completions(1)[0].Status; st != rdma.StatusRemAccessErr {
				t.Errorf("the peer's WRITE ended with %v", st)
			}
			for _, v := range dst.Bytes() {
				if v != 0xEE {
					t.Fatal("memory was written after it was taken away")
				}
			}
		})
	}
}

func TestAtomicByteOrder(t *testing.T) {
	// Values of atomics are in native byte order.
	a, b := pair(t, verbs.QPAttr{}, nil)
	word, result := b.register(8, rdma.LocalWrite|rdma.RemoteAtomic|rdma.RemoteRead), a.register(8, rdma.LocalWrite)
	binary.NativeEndian.PutUint64(word.Bytes(), 1<<40)
	a.complete(a.qp.Start().Signaled().FetchAdd(word.RKey(), word.Addr(), 1).SGE(result.SGE(0, 8)))
	a.completions(1)
	if got := binary.NativeEndian.Uint64(result.Bytes()); got != 1<<40 {
		t.Errorf("got %#x", got)
	}
}
