package sig_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/sig"
)

func TestParseFormat(t *testing.T) {
	const type1 = sig.Type1
	for _, test := range []struct {
		in   string
		want sig.Format
		out  string // result of String; empty means in
	}{
		{"none:512", sig.Format{BlockSize: 512}, ""},
		{"none", sig.Format{}, "none:512"},
		{"t10dif", sig.Format{Type: sig.T10DIF}, "t10dif:512"},
		{"t10dif:520,type1", sig.Format{Type: sig.T10DIF, BlockSize: 520}, "t10dif:520"},
		{"t10dif,type2,remap,app-escape", sig.Format{Type: sig.T10DIF}, "t10dif:512"},
		{"t10dif:4096,type3", sig.Format{Type: sig.T10DIF, BlockSize: 4096, Flags: sig.Type3}, ""},
		{"t10dif:512,type3,remap", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.RefRemap | sig.AppRefEscape}, "t10dif:512,app-ref-escape"},
		{"t10dif:512,no-remap", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.AppEscape}, ""},
		{"t10dif:512,no-escape", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.RefRemap}, ""},
		{"t10dif:512,no-remap,no-escape", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.Plain}, ""},
		{"t10dif:512,app-escape,app-ref-escape", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: type1 | sig.AppRefEscape}, ""},
		{"t10dif:512,no-remap,app-escape,app-ref-escape", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.AppEscape | sig.AppRefEscape}, ""},
		{"t10dif:512,guard=csum,seed=ones,app=0x5678,ref=0xf0debc9a,app-mask=0xff00",
			sig.Format{Type: sig.T10DIF, BlockSize: 512, Guard: sig.GuardCSUM, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xF0DEBC9A, AppMask: 0xFF00}, ""},
		{"t10dif:512,guard=crc,seed=0,app=12,ref=34", sig.Format{Type: sig.T10DIF, BlockSize: 512, Seed: sig.SeedZeros, AppTag: 12, RefTag: 34}, "t10dif:512,app=0xc,ref=0x22"},
		{"t10dif:512,app-mask=0x0", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.IgnoreApp}, ""},
		{"t10dif:512,type3,no-ref-check", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.Type3}, "t10dif:512,type3"},
		{"t10dif:512,no-ref-check", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.IgnoreRef}, ""},
		{"t10dif:512,no-guard-check,no-ref-check,no-remap,no-escape", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.IgnoreRef | sig.IgnoreGuard | sig.Plain}, ""},
		{"t10dif:512,no-app-check", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.IgnoreApp}, "t10dif:512,app-mask=0x0"},
		{"t10dif:512,type3,no-remap", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.AppRefEscape}, "t10dif:512,no-remap,app-ref-escape"},
		{"nvme64:512,type3,no-guard-check", sig.Format{Type: sig.NVMe64, BlockSize: 512, Flags: sig.Type3 | sig.IgnoreGuard}, "nvme64:512,no-guard-check,type3"},
		{"t10dif:512,app-mask=0x0,type3", sig.Format{Type: sig.T10DIF, BlockSize: 512, Flags: sig.IgnoreApp | sig.Type3}, ""},
		{"t10dif:512,app-mask=0xffff", sig.Format{Type: sig.T10DIF, BlockSize: 512, AppMask: 0xFFFF}, "t10dif:512"},
		{"crc32:4048", sig.Format{Type: sig.CRC32, BlockSize: 4048}, ""},
		{"crc32c:4160,seed=0", sig.Format{Type: sig.CRC32C, BlockSize: 4160, Seed: sig.SeedZeros}, ""},
		{"crc64,seed=ones", sig.Format{Type: sig.CRC64, Seed: sig.SeedOnes}, "crc64:512"},
		{"t10dif:4k", sig.Format{Type: sig.T10DIF, BlockSize: 4096}, "t10dif:4096"},
		{"crc32c:4KiB,seed=0", sig.Format{Type: sig.CRC32C, BlockSize: 4096, Seed: sig.SeedZeros}, "crc32c:4096,seed=0"},
		{"crc64:0x208", sig.Format{Type: sig.CRC64, BlockSize: 520}, "crc64:520"},
	} {
		got, err := sig.ParseFormat(test.in)
		if err != nil || got != test.want {
			t.Errorf("%s: %+v, %v; want %+v", test.in, got, err, test.want)
			continue
		}
		out := test.out
		if out == "" {
			out = test.in
		}
		if got.String() != out {
			t.Errorf("%s: String gives %s, want %s", test.in, got, out)
		}
	}
}

func TestParseFormatRefused(t *testing.T) {
	for _, s := range []string{
		"", "t10", "T10DIF", ":512", "t10dif:", "t10dif:0", "t10dif:513", "t10dif:4", "t10dif:-8", "t10dif:0x201", "t10dif:4KB", "t10dif:K", "t10dif:4G", "t10dif:4.0k", "t10dif:4294967296", "t10dif:1073741832",
		"t10dif,", "t10dif,,", "t10dif,x", "t10dif,app", "t10dif,app=", "t10dif,app=65536", "t10dif,app=-1", "t10dif,ref=0x100000000", "t10dif,app-mask=x",
		"t10dif,guard", "t10dif,guard=md5", "t10dif,seed=1", "t10dif,app=1,app=1", "t10dif,type1,type2", "t10dif,type1,type1", "t10dif,remap,no-remap",
		"t10dif,no-escape,app-escape", "t10dif,type1=1", "t10dif,remap=", "none,seed=0", "none,app=1", "crc32,app=1", "crc32,ref=1", "crc32c,guard=csum",
		"crc64,type3", "crc64,no-guard-check", "t10dif,no-ref-check=1", "t10dif,no-app-check,app-mask=1", "t10dif,no-app-check,no-ref-check,no-guard-check", "crc64,no-remap", "t10dif,meta=16", "nvme64,meta=0", "nvme64,meta=12", "nvme64,sts=x", "nvme64,pi-first=1", "nvme16,no-storage-check=1", "nvme32,seed=ones", "nvme32,storage=0x10000", "crc32,app-mask=1", "crc32,app-mask=0",
	} {
		if f, err := sig.ParseFormat(s); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%q: %+v, %v; want EINVAL", s, f, err)
		}
	}
}

// TestParseFormatChoices checks that the error for an unknown option lists the
// valid options.
func TestParseFormatChoices(t *testing.T) {
	for text, want := range map[string]string{
		"t10dif,reftag=2048": `no option "reftag=2048"; the options of t10dif are app=N, ref=N, app-mask=N, guard=crc|csum, seed=0|ones, type1`,
		"crc64,type=1":       `no option "type=1"; the options of crc64 are seed=0|ones`,
		"t10dif,guard=md5":   `option "guard=md5": must be guard=crc or guard=csum`,
		"crc32,seed=1":       `option "seed=1": must be seed=0 or seed=ones`,
		"t10dif,app=65536":   `option "app=65536": must be app=N, with N from 0 to 0xffff, in decimal or in hexadecimal after 0x`,
		"t10dif,ref=x":       `option "ref=x": must be ref=N, with N from 0 to 0xffffffff`,
		"t10dif,app-mask":    `option "app-mask": must be app-mask=N`,
		"t10dif,type1=1":     `option "type1=1": type1 takes no value`,
		"t10dif:4KB":         `block size "4KB": must be a positive number of bytes below 2G, such as 512 or 4K`,
		"t10dif:2G":          `block size "2G": must be a positive number of bytes below 2G`,
	} {
		if _, err := sig.ParseFormat(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestValidateRefused(t *testing.T) {
	for _, f := range []sig.Format{
		{Type: sig.NVMe64 + 1},
		{Type: sig.T10DIF, Guard: sig.GuardCSUM + 1},
		{Type: sig.T10DIF, Seed: sig.SeedOnes + 1},
		{Type: sig.CRC32, Seed: 0xFF},
		{Type: sig.T10DIF, Flags: sig.IgnoreGuard << 1},
		{Type: sig.T10DIF, Flags: sig.IgnoreGuard | sig.IgnoreRef | sig.IgnoreApp},
		{Type: sig.NVMe32, Flags: sig.IgnoreGuard | sig.IgnoreRef | sig.IgnoreApp | sig.IgnoreStorage},
		{Type: sig.T10DIF, Flags: sig.IgnoreStorage},
		{Type: sig.T10DIF, RefTag: 1 << 32},
		{Type: sig.T10DIF, Metadata: 16},
		{Type: sig.CRC64, FieldFirst: true},
		{Type: sig.CRC64, StorageTag: 1},
		{Type: sig.NVMe16, Metadata: 12},
		{Type: sig.NVMe16, Metadata: -8},
		{Type: sig.NVMe32, Metadata: 8},
		{Type: sig.NVMe64, Metadata: 1 << 16},
		{Type: sig.NVMe16, StorageBits: 33},
		{Type: sig.NVMe32, StorageBits: 15},
		{Type: sig.NVMe64, StorageBits: 49},
		{Type: sig.NVMe64, StorageBits: -1},
		{Type: sig.NVMe64, StorageTag: 1},
		{Type: sig.NVMe32, StorageTag: 1 << 16},
		{Type: sig.NVMe16, RefTag: 1 << 32},
		{Type: sig.NVMe64, StorageBits: 48, RefTag: 1},
		{Type: sig.NVMe64, Guard: sig.GuardCSUM},
		{Type: sig.NVMe64, Seed: sig.SeedOnes},
		{Type: sig.T10DIF, Flags: sig.Plain | sig.RefRemap},
		{Type: sig.T10DIF, Flags: sig.IgnoreApp, AppMask: 1},
		{Type: sig.T10DIF, BlockSize: 1},
		{Type: sig.T10DIF, BlockSize: -8},
		{Type: sig.CRC32, BlockSize: 12},
		{Type: sig.CRC64, BlockSize: (1 << 30) + 8},
		{Type: sig.CRC64, AppTag: 1},
		{Type: sig.CRC64, AppMask: 1},
		{Type: sig.CRC64, RefTag: 1},
		{Type: sig.CRC64, Flags: sig.Plain},
		{Type: sig.CRC64, Guard: sig.GuardCSUM},
		{Seed: sig.SeedOnes},
		{RefTag: 1},
	} {
		if err := f.Validate(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v, want EINVAL", f, err)
		}
	}
	for _, f := range []sig.Format{
		{}, {Type: sig.T10DIF}, {Type: sig.T10DIF, Flags: sig.Plain | sig.IgnoreApp}, {Type: sig.CRC64, BlockSize: (1 << 30)}, {Type: sig.CRC32, BlockSize: 8},
		{Type: sig.NVMe32, StorageBits: 64, StorageTag: 1<<64 - 1, RefTag: 0xFFFF}, {Type: sig.NVMe32, RefTag: 1<<64 - 1}, {Type: sig.NVMe16, Metadata: 64, FieldFirst: true, Flags: sig.IgnoreStorage | sig.IgnoreApp},
		{Type: sig.NVMe32, Flags: sig.IgnoreGuard | sig.IgnoreRef | sig.IgnoreApp},
	} {
		if err := f.Validate(); err != nil {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

// ParseFormat parses the result of String and returns an equal format.
func TestFormatRoundTrip(t *testing.T) {
	r := newRand(t, 0x55)
	for range 2000 {
		f := randomFormat(r, sig.Type(r.IntN(5)), 8*(1+r.IntN(600)))
		g, err := sig.ParseFormat(f.String())
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		if g.String() != f.String() {
			t.Fatalf("%+v: %v, then %v", f, f, g)
		}
		if f.Type == sig.NoSignature {
			continue
		}
		block := make([]byte, f.BlockSize)
		if got, want := oracleField(g, block, 3), oracleField(f, block, 3); got != want {
			t.Fatalf("%+v: field %+v, after %v %+v", f, want, g, got)
		}
	}
}

func FuzzParseFormat(f *testing.F) {
	for _, s := range []string{"t10dif:512,guard=csum,seed=ones,app=0x5678,ref=1,type3,no-remap", "crc64:8", "none", "t10dif,app-mask=0,no-escape", "nvme32:4096,meta=64,pi-first,sts=32,storage=0x1234,ref=1,no-storage-check"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		format, err := sig.ParseFormat(s)
		if err != nil {
			if !errors.Is(err, syscall.EINVAL) {
				t.Fatal(err)
			}
			return
		}
		if err := format.Validate(); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		again, err := sig.ParseFormat(format.String())
		if err != nil || again.String() != format.String() {
			t.Fatalf("%q: %v, then %v, %v", s, format, again, err)
		}
	})
}

func TestStrings(t *testing.T) {
	for got, want := range map[string]string{
		sig.CRC32C.String():    "crc32c",
		sig.Type(9).String():   "type(9)",
		sig.BadGuard.String():  "bad guard",
		sig.BadAppTag.String(): "bad application tag",
		sig.BadRefTag.String(): "bad reference tag",
		sig.Kind(0).String():   "kind(0)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
