package mkey_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// TestUnconfiguredKey checks that a new key, a key without a layout and an invalidated key cannot
// be used.
func TestUnconfiguredKey(t *testing.T) {
	mem := make([]byte, 64)
	refused := func(t *testing.T, k *mkey.Key, word string) {
		t.Helper()
		wantErr(t, second(k.NewReader(0, 1)), syscall.EINVAL, word, "0x77")
		wantErr(t, second(k.NewWriter(0, 1)), syscall.EINVAL, word)
		wantErr(t, second(k.NewWriter(0, 0)), syscall.EINVAL, word)
		wantErr(t, second(keydoor.Of(k).RemoteTX(0, 1, 0, false)), syscall.EINVAL, word)
		wantErr(t, second(keydoor.Of(k).RemoteRX(0, 1)), syscall.EINVAL, word)
		wantErr(t, second(k.At(0, 1, 0)), syscall.EINVAL, word)
		wantErr(t, k.Reach(0, 1, 0), syscall.EINVAL, word)
		wantErr(t, second(k.WireLen()), syscall.EINVAL, word)
	}
	k := must(created(keydoor.Attr{Flags: uint32(mkey.RemoteInvalidate), MaxEntries: 1, Number: 0x77}))
	refused(t, k, "free")
	rights := rdma.Access(rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite)
	noErr(t, configure(k, update{Access: &rights}))
	refused(t, k, "no layout")

	inUse := func() {
		t.Helper()
		noErr(t, configure(k, update{Access: &rights, Layout: over(mem)}))
		send(t, k, 0, 64)
		receive(t, k, 0, mem)
	}
	inUse()
	if d := keydoor.Of(k); !d.Invalidate() || d.Invalidate() {
		t.Error("whether the key was in use")
	}
	refused(t, k, "free")

	inUse()
	noErr(t, keydoor.Of(k).InvalidateRemote())
	refused(t, k, "free")
	wantErr(t, keydoor.Of(k).InvalidateRemote(), syscall.EINVAL, "free")

	// The old layout was removed: a configuration with access flags alone does
	// not restore it.
	noErr(t, configure(k, update{Access: &rights}))
	refused(t, k, "no layout")

	plain := newKey(t, mkey.KeyConfig{Layout: over(mem)})
	wantErr(t, keydoor.Of(plain).InvalidateRemote(), syscall.EACCES, "RemoteInvalidate")
}

// TestOverrideAndKeep checks that an update sets its attributes and keeps the others.
func TestOverrideAndKeep(t *testing.T) {
	data := pattern(1024)
	k := must(create(mkey.BlockSignature, 4))
	conf := func(c update) {
		t.Helper()
		noErr(t, configure(k, c))
	}
	conf(update{Layout: over(data), Access: new(rdma.RemoteRead)})
	equal(t, "plain", send(t, k, 0, 1024), data)

	// Access: the second overrides the first (mlx5dv_wr_mkey_configure(3)).
	d := keydoor.Of(k)
	if _, err := d.RemoteRX(0, 8); err == nil {
		t.Error("RemoteWrite was not granted")
	}
	conf(update{Access: new(rdma.RemoteWrite)})
	wantErr(t, second(d.RemoteTX(0, 8, 0, false)), syscall.EACCES, "REMOTE_WRITE", "REMOTE_READ")
	must(d.RemoteRX(0, 8)).Close()

	// A signature is added, kept beside a new layout, and overridden.
	conf(update{Signature: &mkey.Signature{Wire: t10}})
	withT10 := send(t, k, 0, 1040)
	conf(update{Layout: over(data[512:])})
	if got := send(t, k, 0, 520); string(got[:514]) != string(withT10[520:1034]) {
		t.Error("the signature was not kept beside a new layout")
	}
	conf(update{Signature: &mkey.Signature{Wire: crc32}})
	if got := send(t, k, 0, 516); string(got[512:]) == string(withT10[1032:1036]) {
		t.Error("the signature was not overridden")
	}
	conf(update{})
	send(t, k, 0, 516)

	// Reset removes it. Reset in an update with a new signature keeps the new one.
	conf(update{ResetSignature: true})
	equal(t, "after reset", send(t, k, 0, 512), data[512:])
	conf(update{ResetSignature: true, Signature: &mkey.Signature{Wire: t10}})
	send(t, k, 0, 520)

	// List and pattern replace each other.
	conf(update{ResetSignature: true, Layout: &mkey.Interleaved{Repeat: 2, Entries: []mkey.Entry{{Memory: mkey.Bytes(data), Count: 2, Skip: 2}}}})
	equal(t, "interleaved", send(t, k, 0, 4), []byte{data[0], data[1], data[4], data[5]})
	conf(update{Layout: &mkey.List{{Memory: mkey.Bytes(data), Addr: 7, Length: 3}}})
	equal(t, "list", send(t, k, 0, 3), data[7:10])
	wantErr(t, second(k.NewReader(0, 4)), syscall.EFAULT, "0+4", "3 bytes")
}

// TestResetMakesRowLegal checks that the combination after the update must be a row of
// the table, not the update alone.
func TestResetMakesRowLegal(t *testing.T) {
	k := must(create(allFlags, 4))
	noErr(t, configure(k, update{Signature: &mkey.Signature{Memory: t10, Wire: t10}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 512)}))
	after := crypto(true, mkey.SignatureAfterCrypto, 512)
	wantErr(t, configure(k, update{Crypto: after}), syscall.EINVAL, "A to J")
	if err := configure(k, update{Crypto: after, ResetSignature: true}); err != nil {
		t.Errorf("row A after the signature was dropped: %v", err)
	}
}

// TestConfigurationIsCopied checks that a caller may change its structures after
// Configure.
func TestConfigurationIsCopied(t *testing.T) {
	data := pattern(1024)
	layout := over(data)
	f := &sig.Format{Type: sig.T10DIF, RefTag: 5}
	s := &mkey.Signature{Wire: f, WireCheckMask: new(sig.Mask)}
	c := crypto(true, mkey.SignatureBeforeCrypto, 520)
	k := newKey(t, mkey.KeyConfig{Layout: layout, Signature: s, Crypto: c})
	want := send(t, k, 0, 520)
	layout[0] = mkey.Segment{}
	f.RefTag, f.Type, s.Wire = 6, sig.CRC32, nil
	c.DEK, c.InitialTweak.Lo = nil, 9
	*s.WireCheckMask = 0xFF
	equal(t, "after the caller changed its structures", send(t, k, 0, 520), want)
	s = &mkey.Signature{Wire: crc32, WireCheckMask: new(sig.Mask)}
	k = newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(data), Signature: s})
	*s.WireCheckMask = 0xFF
	receive(t, k, 0, make([]byte, 516))
	sound(t, k, "after the caller changed its mask")
}

// TestPrepare checks that a prepared update changes nothing until it is applied, is then
// merged with the current configuration, and has no effect if it is never applied.
func TestPrepare(t *testing.T) {
	a, b := []byte("aaaaaaaa"), []byte("bbbbbbbb")
	k := newKey(t, mkey.KeyConfig{Layout: over(a)})
	d := keydoor.Of(k)
	layout := over(b)
	first := must(d.Prepare(&update{Layout: layout}))
	layout[0] = mkey.Segment{} // the prepared layout is a copy
	other := must(d.Prepare(&update{Access: new(rdma.RemoteRead)}))
	equal(t, "before Apply", send(t, k, 0, 8), a)
	noErr(t, d.Apply(other))
	must(d.RemoteTX(0, 8, 0, false)).Close()
	equal(t, "the layout in force is kept, not the one that was only prepared", send(t, k, 0, 8), a)
	open := must(k.NewReader(0, 8))
	defer open.Close()
	noErr(t, d.Apply(first))
	equal(t, "after Apply", send(t, k, 0, 8), b)
	must(d.RemoteTX(0, 8, 0, false)).Close()
	p := make([]byte, 8)
	must(open.ReadAt(p, 0))
	equal(t, "an open stream keeps its configuration", p, a)

	// On a free key, an update starts from an empty configuration, even if it was
	// prepared earlier.
	d.Invalidate()
	noErr(t, d.Apply(first))
	wantErr(t, second(d.RemoteTX(0, 8, 0, false)), syscall.EACCES)

	// A merge whose result is not a row of the table does not change the key.
	k = must(create(allFlags, 4))
	d = keydoor.Of(k)
	after := must(d.Prepare(&update{Layout: over(make([]byte, 1040)), Crypto: crypto(true, mkey.SignatureAfterCrypto, 512)}))
	both := must(d.Prepare(&update{Signature: &mkey.Signature{Memory: t10, Wire: t10}}))
	noErr(t, d.Apply(after))
	want := send(t, k, 0, 512)
	wantErr(t, d.Apply(both), syscall.EINVAL, "A to J")
	equal(t, "after a refused merge", send(t, k, 0, 512), want)
	wantErr(t, keydoor.Of(newKey(t, mkey.KeyConfig{Layout: over(a)})).Apply(after), syscall.EINVAL, "prepared for key")
}

// TestCheck checks that the first bad block is kept until Check is called.
func TestCheck(t *testing.T) {
	mem := make([]byte, 4*520)
	k := newKey(t, mkey.KeyConfig{Layout: over(mem), Access: rdma.LocalWrite, Signature: &mkey.Signature{Memory: t10}})
	keydoor.Of(k).SetNumber(0xABC01)
	sound(t, k, "a key that was not used")
	receive(t, k, 0, pattern(2048))
	send(t, k, 0, 2048)
	sound(t, k, "sound memory")
	mem[520+3]++
	mem[3*520+512+4] ^= 0x80
	send(t, k, 0, 2048)
	send(t, k, 1536, 512)
	keydoor.Of(k).SetNumber(0xABC02)
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

	// A new configuration and freeing the key do not discard the error.
	send(t, k, 0, 2048)
	noErr(t, configure(k, update{ResetSignature: true}))
	keydoor.Of(k).Invalidate()
	if bad := check(t, k); bad == nil || bad.Sig.Block != 1 {
		t.Errorf("after the key was freed: %+v", bad)
	}
}

// TestConcurrent uses one key in many goroutines, for the race detector. Every stream
// must have the bytes of one configuration or of the other.
func TestConcurrent(t *testing.T) {
	data := pattern(8192)
	k := must(create(allFlags, 8))
	a := update{Layout: over(data), Access: new(rdma.LocalWrite), Signature: &mkey.Signature{Wire: t10}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 520)}
	b := update{Layout: over(make([]byte, 8192)), ResetSignature: true, Crypto: crypto(true, mkey.SignatureAfterCrypto, 512)}
	noErr(t, configure(k, a))
	rounds := 200
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			p := make([]byte, 8320)
			for i := range rounds {
				tx, err := k.NewReader(0, 8320)
				if err != nil {
					if tx, err = k.NewReader(0, 8192); err != nil {
						t.Error(err)
						return
					}
				}
				if _, err := tx.ReadAt(p[:4000], int64(i)); err != nil {
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
			if err := configure(k, c); err != nil {
				t.Error(err)
			}
			if i%5 == 0 {
				d := keydoor.Of(k)
				p, err := d.Prepare(&a)
				if err != nil {
					t.Error(err)
				}
				if err := d.Apply(p); err != nil {
					t.Error(err)
				}
			}
			if _, err := k.Check(); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()

	// Configurations by two goroutines are merged.
	k = must(create(allFlags, 8))
	for _, c := range []update{{Layout: a.Layout}, {Access: a.Access}, {Signature: a.Signature}, {Crypto: a.Crypto}} {
		wg.Go(func() {
			if err := configure(k, c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	receive(t, k, 0, send(t, k, 0, 8320))
	sound(t, k, "merged configurations")
}
