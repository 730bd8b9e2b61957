package mkey_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

const allFlags = mkey.BlockSignature | mkey.CryptoOffload | mkey.UpdateTag | mkey.RemoteInvalidate

func TestCreate(t *testing.T) {
	for _, flags := range []mkey.Flags{1, 1 << 5, mkey.BlockSignature | 1<<31} {
		wantErr(t, second(create(flags, 4)), syscall.EOPNOTSUPP, fmt.Sprintf("%#x", uint32(flags)))
	}
	for _, n := range []int{-1, 65537, 1<<31 - 1} {
		wantErr(t, second(create(0, n)), syscall.EINVAL, fmt.Sprint("max_entries ", n), "65536")
	}
	for n, want := range map[int]int{0: 0, 1: 4, 3: 4, 4: 4, 5: 8, 65533: 65536, 65536: 65536} {
		k := must(create(allFlags, n))
		if k.MaxEntries() != want || k.Flags() != allFlags {
			t.Errorf("max_entries %d: the key has %d, flags %#x", n, k.MaxEntries(), k.Flags())
		}
	}
}

// TestRefusedConf has a case for every rule that a configuration can violate.
func TestRefusedConf(t *testing.T) {
	mem := mkey.Bytes(make([]byte, 8192))
	seg := mkey.Segment{Memory: mem, Length: 16}
	signature := func(s mkey.Signature) update { return update{Signature: &s} }
	format := func(f sig.Format) update { return signature(mkey.Signature{Wire: &f}) }
	cases := []struct {
		name  string
		conf  update
		errno syscall.Errno
		words []string
	}{
		{"access flag that keys do not have", update{Access: new(rdma.Access(1 << 5))}, syscall.EINVAL, []string{"ZERO_BASED"}},

		{"more list entries than the key has", update{Layout: make(mkey.List, 9)}, syscall.ENOMEM, []string{"9 entries", "has 8"}},
		{"more interleaved entries, the header counted", update{Layout: mkey.Interleaved{Repeat: 1, Entries: make([]mkey.Entry, 8)}}, syscall.ENOMEM, []string{"9 entries", "has 8"}},
		{"list entry without memory", update{Layout: mkey.List{seg, {Length: 1}}}, syscall.EINVAL, []string{"entry 1"}},
		{"list entry with a nil key", update{Layout: mkey.List{{Memory: (*mkey.Key)(nil), Length: 1}}}, syscall.EINVAL, []string{"entry 0"}},
		{"interleaved entry without memory", update{Layout: mkey.Interleaved{Repeat: 1, Entries: []mkey.Entry{{Count: 1}}}}, syscall.EINVAL, []string{"entry 0"}},
		{"nil pointer to a list", update{Layout: (*mkey.List)(nil)}, syscall.EINVAL, []string{"*mkey.List"}},
		{"nil pointer to a pattern", update{Layout: (*mkey.Interleaved)(nil)}, syscall.EINVAL, []string{"*mkey.Interleaved"}},
		{"segment beyond 64 bits", update{Layout: mkey.List{{Memory: mem, Addr: 1, Length: 1<<64 - 1}}}, syscall.EINVAL, []string{"64 bits"}},
		{"sum of lengths beyond 64 bits", update{Layout: mkey.List{{Memory: mem, Length: 1 << 63}, {Memory: mem, Length: 1 << 63}}}, syscall.EINVAL, []string{"entry 1", "64 bits"}},
		{"pattern beyond 64 bits", update{Layout: mkey.Interleaved{Repeat: 1<<32 - 1, Entries: []mkey.Entry{{Memory: mem, Addr: 1 << 32, Count: 1<<32 - 1, Skip: 1}}}}, syscall.EINVAL, []string{"repeated 4294967295 times"}},
		{"pattern whose turns overflow", update{Layout: mkey.Interleaved{Repeat: 1<<32 - 1, Entries: []mkey.Entry{{Memory: mem, Count: 1<<32 - 1, Skip: 1<<32 - 1}}}}, syscall.EINVAL, []string{"64 bits"}},
		{"pattern whose length overflows", update{Layout: mkey.Interleaved{Repeat: 1<<32 - 1, Entries: []mkey.Entry{{Memory: mem, Count: 1<<32 - 1}, {Memory: mem, Count: 1<<32 - 1}}}}, syscall.EINVAL, []string{"64 bits"}},

		{"both domains absent", signature(mkey.Signature{}), syscall.EINVAL, []string{"neither"}},
		{"a format of no type", format(sig.Format{}), syscall.EINVAL, []string{"none"}},
		{"an unknown type", format(sig.Format{Type: sig.NVMe64 + 1}), syscall.EINVAL, []string{"type(8)"}},
		{"a type of files", format(sig.Format{Type: sig.NVMe64}), syscall.EINVAL, []string{"nvme64", "a memory key has only t10dif"}},
		{"an unknown seed", format(sig.Format{Type: sig.T10DIF, Seed: 3}), syscall.EINVAL, []string{"seed 3"}},
		{"an unknown guard", format(sig.Format{Type: sig.T10DIF, Guard: 2}), syscall.EINVAL, []string{"guard type 2"}},
		{"unknown T10-DIF flags", format(sig.Format{Type: sig.T10DIF, Flags: 0x100}), syscall.EINVAL, []string{"0x100"}},
		{"tags with a CRC", format(sig.Format{Type: sig.CRC32, RefTag: 1}), syscall.EINVAL, []string{"crc32"}},
		{"a block size no key has", format(sig.Format{Type: sig.T10DIF, BlockSize: 1024}), syscall.EINVAL, []string{"1024", "512 520 4048 4096 4160"}},
		{"a block size that is no multiple of 8", format(sig.Format{Type: sig.T10DIF, BlockSize: 513}), syscall.EINVAL, []string{"513", "8"}},
		{"a negative block size", format(sig.Format{Type: sig.CRC32, BlockSize: -512}), syscall.EINVAL, []string{"-512"}},
		{"a bad format of the memory domain", signature(mkey.Signature{Memory: &sig.Format{Type: 9}, Wire: t10}), syscall.EINVAL, []string{"type(9)"}},
		{"a check mask of no domain", signature(mkey.Signature{Memory: t10, WireCheckMask: new(sig.MaskRef)}), syscall.EINVAL, []string{"check mask 0xf", "wire"}},
		{"a check mask of no domain, 0", signature(mkey.Signature{Wire: crc32, MemoryCheckMask: new(sig.Mask)}), syscall.EINVAL, []string{"check mask 0x0", "memory"}},
		{"copy mask with memory only", signature(mkey.Signature{Memory: t10, CopyMask: new(sig.Mask)}), syscall.EINVAL, []string{"copy mask"}},
		{"copy mask with wire only", signature(mkey.Signature{Wire: crc32, CopyMask: new(sig.Mask)}), syscall.EINVAL, []string{"copy mask"}},
		{"copy mask with different types", signature(mkey.Signature{Memory: t10, Wire: crc64, CopyMask: new(sig.Mask)}), syscall.EINVAL, []string{"copy mask", "t10dif", "crc64"}},
		{"copy mask with different block sizes", signature(mkey.Signature{Memory: t10, Wire: &sig.Format{Type: sig.T10DIF, BlockSize: 520}, CopyMask: new(sig.Mask)}), syscall.EINVAL, []string{"copy mask", "512", "520"}},

		{"crypto without a DEK", update{Crypto: &mkey.Crypto{DataUnitSize: 512}}, syscall.EINVAL, []string{"DEK"}},
		{"a data unit of no size", update{Crypto: crypto(true, 0, 0)}, syscall.EINVAL, []string{"data unit size 0", "512 520 4048 4096 4160"}},
		{"a data unit of another size", update{Crypto: crypto(true, 0, 528)}, syscall.EINVAL, []string{"data unit size 528"}},
		{"an unknown order", update{Crypto: crypto(true, 2, 512)}, syscall.EINVAL, []string{"signature_crypto_order 2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := must(create(allFlags, 8))
			before := update{Layout: mkey.List{seg}, Crypto: crypto(true, mkey.SignatureBeforeCrypto, 512)}
			noErr(t, configure(k, before))
			want := send(t, k, 0, 16)
			wantErr(t, second(keydoor.Of(k).Prepare(&c.conf)), c.errno, c.words...)
			wantErr(t, configure(k, c.conf), c.errno, c.words...)
			equal(t, "a refused configuration changed the key", send(t, k, 0, 16), want)

			cfg := mkey.KeyConfig{Layout: c.conf.Layout, Signature: c.conf.Signature, Crypto: c.conf.Crypto}
			if c.errno == syscall.EINVAL && c.conf.Access == nil {
				if k, err := mkey.New(cfg); err == nil || k != nil {
					t.Errorf("New took it: %v, %v", k, err)
				}
			}
		})
	}
}

func TestSettersNeedTheirFlag(t *testing.T) {
	k := must(create(0, 4))
	wantErr(t, configure(k, update{Signature: &mkey.Signature{Wire: t10}}), syscall.EINVAL, "BlockSignature")
	wantErr(t, configure(k, update{Crypto: crypto(true, 0, 512)}), syscall.EINVAL, "CryptoOffload")
	wantErr(t, second(k.Check()), syscall.EINVAL, "BlockSignature")
	if err := configure(k, update{ResetSignature: true}); err != nil {
		t.Errorf("resetting a signature that cannot be there: %v", err)
	}
}

// TestWorkRequestSpace checks the space in the work request: 16 bytes for each entry, including the
// header of an interleaved layout, and 64 for each kind of attributes.
func TestWorkRequestSpace(t *testing.T) {
	mem := mkey.Bytes(make([]byte, 4096))
	list := func(n int) mkey.List { return slices.Repeat(mkey.List{{Memory: mem, Length: 8}}, n) }
	inter := func(n int) mkey.Interleaved {
		return mkey.Interleaved{Repeat: 1, Entries: slices.Repeat([]mkey.Entry{{Memory: mem, Count: 8}}, n)}
	}
	s, c := &mkey.Signature{Wire: t10}, crypto(true, mkey.SignatureBeforeCrypto, 520)
	for _, x := range []struct {
		conf update
		need int
	}{
		{update{Layout: list(4)}, 64},
		{update{Layout: inter(3)}, 64},
		{update{Layout: list(32)}, 512},
		{update{Signature: s}, 64},
		{update{Crypto: c}, 64},
		{update{Layout: list(1), Signature: s}, 80},
		{update{Layout: inter(1), Signature: s, Crypto: c, Access: new(rdma.LocalWrite)}, 160},
		{update{Access: new(rdma.LocalWrite), ResetSignature: true}, 0},
	} {
		k := must(create(allFlags, 32))
		if x.conf.Space = x.need; x.need > 0 {
			x.conf.Space--
			wantErr(t, configure(k, x.conf), syscall.ENOMEM, fmt.Sprint("take ", x.need), fmt.Sprint("has ", x.need-1))
			x.conf.Space++
		} else {
			x.conf.Space = 1
		}
		if err := configure(k, x.conf); err != nil {
			t.Errorf("%d bytes in a space of %d: %v", x.need, x.conf.Space, err)
		}
	}
}

// TestCryptoSignatureRows checks all 32 combinations of crypto and signature attributes. Rows A
// to J of mlx5dv_wr_set_mkey_crypto(3) must be accepted.
func TestCryptoSignatureRows(t *testing.T) {
	const after, before = mkey.SignatureAfterCrypto, mkey.SignatureBeforeCrypto
	type combination struct {
		encrypt   bool
		order     mkey.Order
		mem, wire bool
	}
	rows := map[combination]string{
		{true, after, true, false}:   "D, by its other name",
		{false, before, false, true}: "G, by its other name",
		{true, after, false, false}:  "A", {true, before, false, false}: "A",
		{true, after, false, true}:   "B",
		{true, before, false, true}:  "C",
		{true, before, true, false}:  "D",
		{true, before, true, true}:   "E",
		{false, after, false, false}: "F", {false, before, false, false}: "F",
		{false, after, false, true}:  "G",
		{false, after, true, false}:  "H",
		{false, after, true, true}:   "I",
		{false, before, true, false}: "J",
	}
	for i := range 16 {
		c := combination{i&1 != 0, mkey.Order(i >> 1 & 1), i&4 != 0, i&8 != 0}
		conf := update{Crypto: crypto(c.encrypt, c.order, 520)}
		if c.mem || c.wire {
			conf.Signature = new(mkey.Signature)
			if c.mem {
				conf.Signature.Memory = t10
			}
			if c.wire {
				conf.Signature.Wire = crc32
			}
		}
		k := must(create(allFlags, 4))
		err := configure(k, conf)
		if rows[c] == "" {
			wantErr(t, err, syscall.EINVAL, fmt.Sprint("encrypt_on_tx=", c.encrypt), fmt.Sprint("memory=", c.mem), fmt.Sprint("wire=", c.wire), "A to J")
		} else if err != nil {
			t.Errorf("row %s: %v", rows[c], err)
		}

		// Setting the attributes one after the other, in either order, must give
		// the same result.
		for _, first := range []update{{Crypto: conf.Crypto}, {Signature: conf.Signature}} {
			k := must(create(allFlags, 4))
			noErr(t, configure(k, first))
			second := update{Crypto: conf.Crypto}
			if first.Crypto != nil {
				second = update{Signature: conf.Signature}
			}
			if err := configure(k, second); (err == nil) != (rows[c] != "") {
				t.Errorf("%+v set one after the other: %v", c, err)
			}
		}
	}
}

// TestBlockSizes checks that the five sizes are valid for blocks and units, and that zero
// means 512.
func TestBlockSizes(t *testing.T) {
	for _, n := range []int{512, 520, 4048, 4096, 4160} {
		for ty := sig.T10DIF; ty <= sig.CRC64; ty++ {
			newKey(t, mkey.KeyConfig{Signature: &mkey.Signature{Memory: &sig.Format{Type: ty, BlockSize: n}}, Crypto: crypto(false, 0, n)})
		}
	}
	wire := make([]byte, 512)
	k := newKey(t, mkey.KeyConfig{Layout: over(wire), Signature: &mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF}}})
	if n := len(send(t, k, 0, 520)); n != 520 {
		t.Errorf("default block size: %d bytes", n)
	}
}
