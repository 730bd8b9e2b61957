package keyplan_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	. "github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/keyplan/plantest"
	"github.com/softmkey/softmkey/mkey"
)

func TestPlanErrors(t *testing.T) {
	for _, tc := range []struct {
		terms Terms
		want  string
	}{
		{Terms{Op: "teleport"}, "--op"},
		{Terms{Wire: "t10dif:100"}, "--wire"},
		{Terms{Wire: "t10dif:1024"}, "block size 1024"},
		{Terms{Mem: "md5"}, "--mem"},
		{Terms{PeerMem: "t10dif,app=70000"}, "--peer-mem"},
		{Terms{MTU: "1500"}, "--mtu"},
		{Terms{Wire: "t10dif", CheckMask: "0x100"}, "--check-mask"},
		{Terms{Wire: "t10dif", PeerCheckMask: "x"}, "--peer-check-mask"},
		{Terms{Mem: "t10dif", Wire: "crc32", CopyMask: "0xFF"}, "--copy-mask"},
		{Terms{Wire: "t10dif", PeerMem: "t10dif:4096", PeerCopyMask: "0xFF"}, "--peer-copy-mask"},
		{Terms{CopyMask: "0xFF"}, "--copy-mask"},
		{Terms{Crypto: "rot13"}, "--crypto"},
		{Terms{Order: "before"}, "--order without --crypto"},
		{Terms{PeerOrder: "before"}, "--peer-order without --peer-crypto"},
		{Terms{Unit: "512"}, "--unit without"},
		{Terms{Tweak: "1"}, "--tweak without"},
		{Terms{Crypto: "encrypt", Unit: "1024"}, "--unit"},
		{Terms{Crypto: "encrypt", Tweak: "-1"}, "--tweak"},
		{Terms{Crypto: "encrypt", Tweak: "0x100000000000000000000000000000000"}, "--tweak"},
		{Terms{Crypto: "encrypt", Wire: "t10dif"}, "--order is missing"},
		{Terms{Crypto: "encrypt", Order: "after", Mem: "t10dif", Wire: "t10dif"}, "use --order before"},
		{Terms{Crypto: "decrypt", Order: "before", Mem: "t10dif", Wire: "t10dif"}, "use --order after"},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif", PeerMem: "t10dif"}, "cannot read them"},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif", PeerCheckMask: "0xC0"}, "no key to read them"},
		{Terms{Crypto: "encrypt", PeerCrypto: "encrypt"}, "encrypted already"},
		{Terms{Crypto: "decrypt", PeerCrypto: "decrypt"}, "nothing on the wire is encrypted"},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "before"}, "needs --peer-order after"},
		{Terms{Crypto: "encrypt", Order: "after", Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"}, "needs --peer-order before"},
		{Terms{Crypto: "encrypt", Order: "after", Wire: "t10dif", PeerCrypto: "decrypt", PeerMem: "crc32"}, "use --peer-mem none"},
		{Terms{Wire: "t10dif", PeerCrypto: "decrypt"}, "--peer-order is missing"},
		{Terms{Wire: "t10dif", Mem: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"}, "use --mem none"},
		{Terms{Wire: "t10dif", CopyMask: "0xFF", PeerCrypto: "decrypt", PeerOrder: "after"}, "has no key"},
		{Terms{PeerCrypto: "encrypt", PeerMem: "t10dif"}, "--peer-order is missing"},
		{Terms{PeerCrypto: "encrypt", PeerOrder: "after", Wire: "t10dif", PeerMem: "t10dif"}, "use --peer-order before"},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "crc32"}, "--unit is missing: the 516 bytes"},
		{Terms{Mem: "crc32:4048", Wire: "crc32:4096", PeerMem: "crc32:4160"}, "only every 67358720 bytes"},
	} {
		if _, err := New(tc.terms, 0); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.terms, err, tc.want)
		}
	}
}

// TestCryptoSignatureRows compares the keys with the rows of the table in
// mlx5dv_wr_set_mkey_crypto(3).
func TestCryptoSignatureRows(t *testing.T) {
	type key struct {
		mem, wire, encryptOnTX bool
		order                  mkey.Order
	}
	of := func(k Key) (r key) {
		if k.Signature != nil {
			r.mem, r.wire = k.Signature.Memory != nil, k.Signature.Wire != nil
		}
		if k.Crypto != nil {
			r.encryptOnTX, r.order = k.Crypto.EncryptOnTX, k.Crypto.Order
		}
		return r
	}
	const first, last = mkey.SignatureBeforeCrypto, mkey.SignatureAfterCrypto
	for name, want := range map[string][2]key{
		"row A to A":          {{false, false, true, last}, {false, false, true, first}},
		"row A to D":          {{false, false, true, last}, {true, false, true, first}},
		"row B to B":          {{false, true, true, last}, {false, true, true, last}},
		"row C to C":          {{false, true, true, first}, {false, true, true, first}},
		"row D to A":          {{true, false, true, first}, {false, false, true, first}},
		"row E to E":          {{true, true, true, first}, {true, true, true, first}},
		"row F to F":          {{false, false, false, last}, {false, false, false, last}},
		"row G to G":          {{false, true, false, last}, {false, true, false, last}},
		"row H to H":          {{true, false, false, last}, {true, false, false, last}},
		"row I to I":          {{true, true, false, last}, {true, true, false, last}},
		"row J to J":          {{true, false, false, first}, {true, false, false, first}},
		"like D to like D":    {{true, false, true, last}, {true, false, true, last}},
		"like G to like G":    {{false, true, false, first}, {false, true, false, first}},
		"ciphertext to B":     {{false, true, false, 0}, {false, true, true, last}},
		"ciphertext to C":     {{}, {false, true, true, first}},
		"row C to ciphertext": {{false, true, true, first}, {}},
	} {
		found := false
		for _, row := range plantest.Rows {
			if row.Name != name {
				continue
			}
			found = true
			p, err := New(row.Terms, 0)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if got := [2]key{of(p.Sender), of(p.Receiver)}; got != want {
				t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
		if !found {
			t.Errorf("no row is called %q", name)
		}
	}
}

func TestTermsJoin(t *testing.T) {
	all := Terms{Op: "read", Mem: "t10dif:512", Tweak: "9"}
	got, err := Terms{Op: "read", Tweak: "9"}.Join(Terms{Mem: "t10dif:512", Tweak: "9"})
	if err != nil || got != all {
		t.Errorf("%+v, %v", got, err)
	}
	other, err := Terms{Mem: "t10dif:512", Tweak: "9"}.Join(Terms{Op: "read", Tweak: "9"})
	if err != nil || other != all {
		t.Errorf("the other way: %+v, %v", other, err)
	}
	if _, err := (Terms{PeerMem: "none"}).Join(Terms{PeerMem: "crc32:512\x1b[31m"}); err == nil || err.Error() != `--peer-mem is none here and crc32:512\x1b[31m on the other side` {
		t.Errorf("different: %v", err)
	}
	// Every field counts.
	for i := range reflect.TypeFor[Terms]().NumField() {
		var a, b Terms
		reflect.ValueOf(&a).Elem().Field(i).SetString("x")
		reflect.ValueOf(&b).Elem().Field(i).SetString("y")
		if _, err := a.Join(b); err == nil {
			t.Errorf("field %d is not compared", i)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		terms Terms
		size  int64
		want  string // part of the error; empty: no error
		peer  int64
	}{
		{Terms{}, 12345, "", 12345},
		{Terms{Mem: "t10dif"}, 1040, "", 1024},
		{Terms{Mem: "t10dif"}, 1041, "", 1025},
		{Terms{Mem: "t10dif"}, 1039, "truncated", -1},
		{Terms{Mem: "t10dif"}, 1032, "truncated", -1},
		{Terms{Mem: "crc32:4096", PeerMem: "t10dif"}, 4100, "", 4160},
		{Terms{Crypto: "encrypt"}, 1000, "data units", 1000},
		{Terms{Crypto: "encrypt"}, 1040, "", 1040},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif"}, 1024, "", 1040},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif"}, 1536, "", 1560},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif"}, 1040, "", 1056},
		{Terms{Crypto: "encrypt", Order: "before", Wire: "t10dif"}, 1041, "data units", 1057},
	} {
		p, err := New(tc.terms, 0)
		fatal.If(t, err)
		err = p.Check(tc.size)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v, %d bytes: %v, want %q", tc.terms, tc.size, err, tc.want)
		}
		if got := p.PeerSize(tc.size); got != tc.peer {
			t.Errorf("%+v, %d bytes: DST will have %d, want %d", tc.terms, tc.size, got, tc.peer)
		}
	}
}

func TestCheckFlip(t *testing.T) {
	for _, tc := range []struct {
		terms        Terms
		offset, size int64
		want         string
	}{
		{Terms{}, 0, 1000, "checks no signature"},
		{Terms{Mem: "t10dif"}, 0, 1040, "checks no signature"},
		{Terms{Wire: "t10dif", Crypto: "encrypt", Order: "before"}, 0, 1040, "checks no signature"},
		{Terms{Wire: "t10dif", Crypto: "encrypt", Order: "before", PeerCrypto: "decrypt"}, 1039, 1024, ""},
		{Terms{Wire: "t10dif"}, 1039, 1025, ""},
		{Terms{Wire: "t10dif"}, 1040, 1025, "a part of a block"},
		{Terms{Wire: "t10dif"}, 1041, 1025, "only 1041 bytes"},
		{Terms{Wire: "t10dif"}, 1 << 40, -1, ""}, // the length is not known yet
	} {
		p, err := New(tc.terms, 0)
		fatal.If(t, err)
		err = p.CheckFlip(tc.offset, tc.size)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v, byte %d of %d: %v, want %q", tc.terms, tc.offset, tc.size, err, tc.want)
		}
	}
}

// TestChunks checks that the size of a chunk is a whole number of blocks and data units
// in all domains.
func TestChunks(t *testing.T) {
	for _, row := range plantest.Rows {
		for _, op := range []string{Write, Read} {
			terms := row.Terms
			terms.Op = op
			p, err := New(terms, 0)
			if err != nil {
				t.Errorf("%s: %v", row.Name, err)
				continue
			}
			if p.Chunk > ChunkLimit || p.Chunk < ChunkSize/2 || p.Slots < 2 || p.Slots > MaxSlots {
				t.Errorf("%s: chunks of %d bytes in %d slots", row.Name, p.Chunk, p.Slots)
			}
			for _, s := range p.Sides() {
				if p.Chunk%s.Memory.Block != 0 || p.Chunk%s.Wire.Block != 0 {
					t.Errorf("%s: %d bytes are no whole blocks", row.Name, p.Chunk)
				}
				if s.Key.Crypto == nil {
					continue
				}
				units, _ := s.Units()
				if n := units.Len(p.Chunk); n%int64(s.Key.Crypto.DataUnitSize) != 0 {
					t.Errorf("%s: %d bytes are no whole data units", row.Name, n)
				}
			}
		}
	}
}
