package mkey_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// TestFree: a fresh key, one without a layout and one that was invalidated cannot be used.
func TestFree(t *testing.T) {
	mem := make([]byte, 64)
	refused := func(t *testing.T, k *mkey.Key, word string) {
		t.Helper()
		_, err := k.TX(0, 1)
		wantErr(t, err, syscall.EINVAL, word, "0x77")
		_, err = k.RX(0, 1)
		wantErr(t, err, syscall.EINVAL, word)
		_, err = k.RXUpTo(0, 0)
		wantErr(t, err, syscall.EINVAL, word)
		_, err = k.RemoteTX(0, 1)
		wantErr(t, err, syscall.EINVAL, word)
		_, err = k.RemoteRX(0, 1)
		wantErr(t, err, syscall.EINVAL, word)
		_, err = k.At(0, 1, 0)
		wantErr(t, err, syscall.EINVAL, word)
		wantErr(t, k.Reach(0, 1, 0), syscall.EINVAL, word)
		_, err = k.WireLen()
		wantErr(t, err, syscall.EINVAL, word)
	}
	k := must(mkey.Create(mkey.Attr{Flags: mkey.Indirect | mkey.RemoteInvalidate, MaxEntries: 1, Number: 0x77}))
	refused(t, k, "free")
	rights := mkey.Access(mkey.LocalWrite | mkey.RemoteRead | mkey.RemoteWrite)
	if err := k.Configure(mkey.Conf{Access: &rights}); err != nil {
		t.Fatal(err)
	}
	refused(t, k, "no layout")

	configure := func() {
		t.Helper()
		if err := k.Configure(mkey.Conf{Access: &rights, Layout: over(mem)}); err != nil {
			t.Fatal(err)
		}
		send(t, k, 0, 64)
		receive(t, k, 0, mem)
	}
	configure()
	k.StageInvalidate()
	send(t, k, 0, 64) // not its turn yet
	k.Invalidate()
	refused(t, k, "free")

	configure()
	if err := k.InvalidateRemote(); err != nil {
		t.Fatal(err)
	}
	refused(t, k, "free")
	wantErr(t, k.InvalidateRemote(), syscall.EINVAL, "free")

	// What it had is gone: a configuration of access flags alone brings no layout back.
	if err := k.Configure(mkey.Conf{Access: &rights}); err != nil {
		t.Fatal(err)
	}
	refused(t, k, "no layout")

	plain := newKey(t, mkey.Config{Layout: over(mem)})
	wantErr(t, plain.InvalidateRemote(), syscall.EACCES, "RemoteInvalidate")
}

// TestOverrideAndKeep: a configuration sets what it holds and keeps the rest.
func TestOverrideAndKeep(t *testing.T) {
	data := pattern(1024)
	k := must(mkey.Create(mkey.Attr{Flags: mkey.Indirect | mkey.BlockSignature, MaxEntries: 4}))
	conf := func(c mkey.Conf) {
		t.Helper()
		if err := k.Configure(c); err != nil {
			t.Fatal(err)
		}
	}
	conf(mkey.Conf{Layout: over(data), Access: ptr(mkey.RemoteRead)})
	equal(t, "plain", send(t, k, 0, 1024), data)

	// Access: the second overrides the first (mlx5dv_wr_mkey_configure(3)).
	if _, err := k.RemoteRX(0, 8); err == nil {
		t.Error("RemoteWrite was not granted")
	}
	conf(mkey.Conf{Access: ptr(mkey.RemoteWrite)})
	_, err := k.RemoteTX(0, 8)
	wantErr(t, err, syscall.EACCES, "0x2", "0x4")
	must(k.RemoteRX(0, 8)).Close()

	// A signature is added, kept beside a new layout, and overridden.
	conf(mkey.Conf{Signature: &mkey.Signature{Wire: t10, CheckMask: 0xFF}})
	withT10 := send(t, k, 0, 1040)
	conf(mkey.Conf{Layout: over(data[512:])})
	if got := send(t, k, 0, 520); string(got[:514]) != string(withT10[520:1034]) {
		t.Error("the signature was not kept beside a new layout")
	}
	conf(mkey.Conf{Signature: &mkey.Signature{Wire: crc32}})
	if got := send(t, k, 0, 516); string(got[512:]) == string(withT10[1032:1036]) {
		t.Error("the signature was not overridden")
	}
	conf(mkey.Conf{})
	send(t, k, 0, 516)

	// Reset drops it; reset beside a new one leaves the new one.
	conf(mkey.Conf{Flags: mkey.ResetSignature})
	equal(t, "after reset", send(t, k, 0, 512), data[512:])
	conf(mkey.Conf{Flags: mkey.ResetSignature, Signature: &mkey.Signature{Wire: t10}})
	send(t, k, 0, 520)

	// List and pattern replace each other.
	conf(mkey.Conf{Flags: mkey.ResetSignature, Layout: &mkey.Interleaved{Repeat: 2, Entries: []mkey.Strided{{Memory: mkey.Bytes(data), Count: 2, Skip: 2}}}})
	equal(t, "interleaved", send(t, k, 0, 4), []byte{data[0], data[1], data[4], data[5]})
	conf(mkey.Conf{Layout: &mkey.List{{Memory: mkey.Bytes(data), Addr: 7, Length: 3}}})
	equal(t, "list", send(t, k, 0, 3), data[7:10])
	_, err = k.TX(0, 4)
	wantErr(t, err, syscall.EFAULT, "0+4", "3 bytes")
}

// TestResetMakesRowLegal: whether a combination is one of the rows counts for what
// results from a configuration.
func TestResetMakesRowLegal(t *testing.T) {
	k := must(mkey.Create(mkey.Attr{Flags: allFlags, MaxEntries: 4}))
	if err := k.Configure(mkey.Conf{Signature: &mkey.Signature{Memory: t10}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 512)}); err != nil {
		t.Fatal(err)
	}
	after := crypto(true, mkey.SignatureAfterCrypto, 512)
	wantErr(t, k.Configure(mkey.Conf{Crypto: after}), syscall.EINVAL, "A to J")
	if err := k.Configure(mkey.Conf{Crypto: after, Flags: mkey.ResetSignature}); err != nil {
		t.Errorf("row A after the signature was dropped: %v", err)
	}
}

// TestConfigurationIsCopied: what the caller does to its structures afterwards
// changes nothing.
func TestConfigurationIsCopied(t *testing.T) {
	data := pattern(1024)
	layout := over(data)
	f := &sig.Format{Type: sig.T10DIF, RefTag: 5}
	s := &mkey.Signature{Wire: f, CheckMask: 0xFF}
	c := crypto(true, mkey.SignatureBeforeCrypto, 520)
	k := newKey(t, mkey.Config{Layout: layout, Signature: s, Crypto: c})
	want := send(t, k, 0, 520)
	layout[0] = mkey.Segment{}
	f.RefTag, f.Type, s.Wire = 6, sig.CRC32, nil
	c.DEK, c.InitialTweak.Lo = nil, 9
	equal(t, "after the caller changed its structures", send(t, k, 0, 520), want)
}

// TestStage: what was staged counts for the next configuration at once, for
// transfers when it is committed, and not for a stream that is open.
func TestStage(t *testing.T) {
	a, b := []byte("aaaaaaaa"), []byte("bbbbbbbb")
	k := newKey(t, mkey.Config{Layout: over(a)})
	first, err := k.Stage(mkey.Conf{Layout: over(b)})
	if err != nil {
		t.Fatal(err)
	}
	second, err := k.Stage(mkey.Conf{Access: ptr(mkey.RemoteRead)})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "before commit", send(t, k, 0, 8), a)
	open := must(k.TX(0, 8))
	defer open.Close()
	k.Commit(first)
	equal(t, "after commit", send(t, k, 0, 8), b)
	if _, err := k.RemoteTX(0, 8); err == nil {
		t.Error("the second configuration is in force before its commit")
	}
	k.Commit(second)
	must(k.RemoteTX(0, 8)).Close()
	equal(t, "layout kept from what was staged before", send(t, k, 0, 8), b)

	p := make([]byte, 8)
	if err := open.ReadAt(p, 0); err != nil {
		t.Fatal(err)
	}
	equal(t, "an open stream keeps its configuration", p, a)

	// A configuration behind an invalidation starts from nothing.
	k.StageInvalidate()
	third, err := k.Stage(mkey.Conf{Layout: over(a)})
	if err != nil {
		t.Fatal(err)
	}
	k.Invalidate()
	k.Commit(third)
	_, err = k.RemoteTX(0, 8)
	wantErr(t, err, syscall.EACCES)

	// A peer's invalidation does not undo what was staged for later.
	r := must(mkey.Create(mkey.Attr{Flags: mkey.Indirect | mkey.RemoteInvalidate, MaxEntries: 4}))
	if err := r.Configure(mkey.Conf{Layout: over(a)}); err != nil {
		t.Fatal(err)
	}
	later, err := r.Stage(mkey.Conf{Layout: over(b)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.InvalidateRemote(); err != nil {
		t.Fatal(err)
	}
	r.Commit(later)
	equal(t, "after a peer's invalidation", send(t, r, 0, 8), b)

	defer func() {
		if recover() == nil {
			t.Error("a configuration was committed to another key")
		}
	}()
	k.Commit(later)
}

// TestLive: a stream knows whether its key was configured or freed since.
func TestLive(t *testing.T) {
	mem := make([]byte, 8)
	k := newKey(t, mkey.Config{Access: mkey.LocalWrite, Layout: over(mem)})
	tx, rx := must(k.TX(0, 8)), must(k.RX(0, 8))
	defer tx.Close()
	defer rx.Close()
	p := must(k.Stage(mkey.Conf{Access: ptr(mkey.RemoteRead)}))
	if !tx.Live() || !rx.Live() {
		t.Error("a configuration that is only staged ended the stream")
	}
	k.Commit(p)
	if tx.Live() || rx.Live() {
		t.Error("configured since")
	}
	if err := tx.ReadAt(make([]byte, 8), 0); err != nil {
		t.Errorf("it serves its owner all the same: %v", err)
	}
	tx2 := must(k.TX(0, 8))
	defer tx2.Close()
	k.Invalidate()
	if tx2.Live() {
		t.Error("freed since")
	}
}

// TestCheck: the first bad block is kept until it is asked for.
func TestCheck(t *testing.T) {
	mem := make([]byte, 4*520)
	k := newKey(t, mkey.Config{Layout: over(mem), Access: mkey.LocalWrite, Number: 0xABC01, Signature: &mkey.Signature{Memory: t10, CheckMask: sig.MaskAll}})
	if bad := check(t, k); bad != nil {
		t.Errorf("a key that was not used: %v", bad)
	}
	receive(t, k, 0, pattern(2048))
	send(t, k, 0, 2048)
	if bad := check(t, k); bad != nil {
		t.Errorf("sound memory: %v", bad)
	}
	mem[520+3]++
	mem[3*520+512+4] ^= 0x80
	send(t, k, 0, 2048)
	send(t, k, 1536, 512)
	k.SetNumber(0xABC02)
	bad := check(t, k)
	if bad == nil || bad.Sig.Kind != sig.BadGuard || bad.Sig.Block != 1 || bad.Sig.Offset != 520 || bad.Domain != mkey.MemoryDomain || bad.Key != 0xABC01 {
		t.Fatalf("the first bad block: %+v", bad)
	}
	var e *sig.Error
	if want := fmt.Sprintf("memory domain: bad guard: block 1 at offset 520: stored %#x, computed %#x", bad.Sig.Stored, bad.Sig.Computed); bad.Error() != want {
		t.Errorf("says %q, want %q", bad, want)
	}
	if e, _ = bad.Unwrap().(*sig.Error); e == nil || *e != bad.Sig {
		t.Errorf("unwraps to %v", e)
	}
	if again := check(t, k); again != nil {
		t.Errorf("asking did not clear it: %v", again)
	}
	send(t, k, 1536, 512)
	if bad := check(t, k); bad == nil || bad.Sig.Kind != sig.BadRefTag || bad.Sig.Block != 3 || bad.Sig.Stored != 0x80000003 || bad.Sig.Computed != 3 || bad.Key != 0xABC02 {
		t.Errorf("the next bad block: %+v", bad)
	}

	// Neither a new configuration nor freeing the key forgets it.
	send(t, k, 0, 2048)
	if err := k.Configure(mkey.Conf{Flags: mkey.ResetSignature}); err != nil {
		t.Fatal(err)
	}
	k.StageInvalidate()
	k.Invalidate()
	if bad := check(t, k); bad == nil || bad.Sig.Block != 1 {
		t.Errorf("after the key was freed: %+v", bad)
	}
}

// TestConcurrent uses one key from many goroutines. The race detector is the judge;
// what is seen must be of one configuration or another.
func TestConcurrent(t *testing.T) {
	data := pattern(8192)
	k := must(mkey.Create(mkey.Attr{Flags: allFlags, MaxEntries: 8}))
	a := mkey.Conf{Layout: over(data), Access: ptr(mkey.LocalWrite), Signature: &mkey.Signature{Wire: t10, CheckMask: 0xFF}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 520)}
	b := mkey.Conf{Layout: over(make([]byte, 8192)), Flags: mkey.ResetSignature, Crypto: crypto(true, mkey.SignatureAfterCrypto, 512)}
	if err := k.Configure(a); err != nil {
		t.Fatal(err)
	}
	rounds := 200
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p := make([]byte, 8320)
			for i := range rounds {
				tx, err := k.TX(0, 8320)
				if err != nil {
					if tx, err = k.TX(0, 8192); err != nil {
						t.Error(err)
						return
					}
				}
				if err := tx.ReadAt(p[:4000], uint64(i)); err != nil {
					t.Error(err)
				}
				tx.Close()
			}
		})
	}
	wg.Go(func() {
		for i := range rounds {
			c := a
			if i%2 == 0 {
				c = b
			}
			if err := k.Configure(c); err != nil {
				t.Error(err)
			}
			if i%5 == 0 {
				p, err := k.Stage(a)
				if err != nil {
					t.Error(err)
				}
				k.Commit(p)
			}
			if _, err := k.Check(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()

	// Configurations of two goroutines add up.
	k = must(mkey.Create(mkey.Attr{Flags: allFlags, MaxEntries: 8}))
	for _, c := range []mkey.Conf{{Layout: a.Layout}, {Access: a.Access}, {Signature: a.Signature}, {Crypto: a.Crypto}} {
		wg.Go(func() {
			if err := k.Configure(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	receive(t, k, 0, send(t, k, 0, 8320))
	if bad := check(t, k); bad != nil {
		t.Error(bad)
	}
}
