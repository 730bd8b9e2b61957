package luks

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

// read returns a file of testdata: headers that cryptsetup 2.6.1 has made with `luksFormat --type luks1`, and with
// `--type luks2 --sector-size 4096`, and their volume keys.
func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	fatal.If(t, err)
	return b
}

func TestRead(t *testing.T) {
	for name, want := range map[string]Volume{
		"luks1": {Version: 1, Offset: 2 << 20, Length: -1, Sector: 512, Step: 1, KeySize: 64},
		"luks2": {Version: 2, Offset: 1 << 20, Length: -1, Sector: 4096, Step: 8, KeySize: 64},
	} {
		v, err := Read(bytes.NewReader(read(t, name)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		key := read(t, name+".key")
		if ok, err := v.Fits(t.Context(), key); !ok || err != nil {
			t.Errorf("%s: its key: %v, %v", name, ok, err)
		}
		key[5] ^= 1
		if ok, err := v.Fits(t.Context(), key); ok || err != nil {
			t.Errorf("%s: another key: %v, %v", name, ok, err)
		}
		v.digests = nil
		if v.Version != want.Version || v.Offset != want.Offset || v.Length != want.Length || v.Sector != want.Sector || v.Step != want.Step || v.Tweak != want.Tweak || v.KeySize != want.KeySize {
			t.Errorf("%s: %+v, want %+v", name, *v, want)
		}
	}
}

// seal returns a header of LUKS2 with its checksum.
func seal(b []byte) []byte {
	clear(b[0x1c0:0x200])
	s := hashes["sha256"]()
	s.Write(b)
	copy(b[0x1c0:], s.Sum(nil))
	return b
}

// withArea returns a header of LUKS2 with another JSON area, and the checksum of that.
func withArea(t testing.TB, area []byte) []byte {
	b := read(t, "luks2")
	clear(b[4096:])
	copy(b[4096:], area)
	return seal(b)
}

// resealed returns a header of LUKS2 with a change and the checksum of that.
func resealed(t testing.TB, change func(b []byte)) []byte {
	b := read(t, "luks2")
	change(b)
	return seal(b)
}

// manyDigests returns a header of LUKS2 with n digests that take long.
func manyDigests(t testing.TB, n int) []byte {
	var m map[string]any
	fatal.If(t, json.Unmarshal(areaOf(t), &m))
	digests := m["digests"].(map[string]any)
	d := maps.Clone(digests["0"].(map[string]any))
	d["iterations"], d["digest"] = mostIterations, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	for i := range n {
		digests[strconv.Itoa(i)] = d
		d = maps.Clone(d)
		d["keyslots"] = []any{}
	}
	area, err := json.Marshal(m)
	fatal.If(t, err)
	return withArea(t, area)
}

// TestFitsEnds: the work for a key ends with the context.
func TestFitsEnds(t *testing.T) {
	v, err := Read(bytes.NewReader(manyDigests(t, mostDigests)))
	fatal.If(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := v.Fits(ctx, make([]byte, 64)); err != stop {
		t.Errorf("%v", err)
	}
}

// TestDigest compares digests with those of crypto/pbkdf2.
func TestDigest(t *testing.T) {
	for name, h := range hashes {
		for _, n := range []int{1, 20, 64, 100} {
			d := digest{h, []byte("salt"), 9000, make([]byte, n)}
			got, err := d.of(t.Context(), []byte("key"))
			want, _ := pbkdf2.Key(h, "key", d.salt, d.iterations, n)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes: %x, %v, want %x", name, n, got, err, want)
			}
		}
	}
}

// TestSecondHeader damages the headers of a device in every part. The other header is used while it is sound, and the one
// with the higher sequence number if both are.
func TestSecondHeader(t *testing.T) {
	const size = 16 << 10
	copyOf := func(sector string, sequence byte) []byte {
		return resealed(t, func(b []byte) {
			copy(b[4096:], bytes.Replace(areaOf(t), []byte(`"sector_size":4096`), []byte(`"sector_size":`+sector), 1))
			copy(b, second)
			binary.BigEndian.PutUint64(b[0x100:], size)
			b[23] = sequence
		})
	}
	reencrypted := func(b []byte) []byte {
		area := bytes.Replace(areaOf(t), []byte(`"config":{`), []byte(`"config":{"requirements":{"mandatory":["online-reencrypt-v2"]},`), 1)
		clear(b[4096:])
		copy(b[4096:], area)
		return seal(b)
	}
	for name, c := range map[string]struct {
		change  func(b []byte)
		other   []byte
		sector  int
		refused bool
	}{
		"sound":                   {func([]byte) {}, copyOf("1024", 1), 4096, false},
		"second is newer":         {func([]byte) {}, copyOf("1024", 200), 1024, false},
		"no magic":                {func(b []byte) { clear(b[:4096]) }, copyOf("1024", 1), 1024, false},
		"checksum":                {func(b []byte) { b[5000] ^= 1 }, copyOf("1024", 1), 1024, false},
		"size":                    {func(b []byte) { b[13] = 0xFF }, copyOf("1024", 1), 1024, false},
		"second is damaged":       {func([]byte) {}, bytes.Replace(copyOf("1024", 200), []byte("pbkdf2"), []byte("PBKDF2"), 1), 4096, false},
		"both":                    {func(b []byte) { b[5000] ^= 1 }, bytes.Replace(copyOf("1024", 1), []byte("pbkdf2"), []byte("PBKDF2"), 1), 0, true},
		"first says more":         {func(b []byte) { reencrypted(b) }, copyOf("1024", 1), 0, true},
		"second says more":        {func([]byte) {}, reencrypted(copyOf("1024", 200)), 0, true},
		"an old one says more":    {func([]byte) {}, reencrypted(copyOf("1024", 1)), 4096, false},
		"second at another place": {func(b []byte) { clear(b[:4096]) }, append(make([]byte, size), copyOf("1024", 1)...), 0, true},
	} {
		device := read(t, "luks2")[:size]
		c.change(device)
		v, err := Read(bytes.NewReader(append(device, c.other...)))
		if (err != nil) != c.refused || err == nil && v.Sector != c.sector {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

func areaOf(t testing.TB) []byte { return []byte(text(read(t, "luks2")[4096:])) }

// sealed returns a header of LUKS2 in whose JSON area a text is another one.
func sealed(t testing.TB, old, now string) []byte {
	area := areaOf(t)
	if !bytes.Contains(area, []byte(old)) {
		t.Fatalf("%q is not in the header", old)
	}
	return withArea(t, bytes.Replace(area, []byte(old), []byte(now), 1))
}

// The data of a detached header is on another device: what lies behind the header is not the volume.
func TestDetached(t *testing.T) {
	one := read(t, "luks1")
	binary.BigEndian.PutUint32(one[104:], 0)
	for name, b := range map[string][]byte{
		"LUKS1": one,
		"LUKS2": sealed(t, `"offset":"1048576"`, `"offset":"0"`),
	} {
		v, err := Read(bytes.NewReader(b))
		if err == nil {
			err = v.Detached()
		}
		if err == nil || !strings.Contains(err.Error(), "a detached header, whose data is on another device") {
			t.Errorf("%s: %v, want that the header is a detached one", name, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	luks1 := func(change func(b []byte)) []byte {
		b := read(t, "luks1")
		change(b)
		return b
	}
	for reason, b := range map[string][]byte{
		"no header of LUKS":             []byte("LUKS\xba\xbe\x00\x03 of a later time"),
		"592 bytes, and this device 40": read(t, "luks1")[:40],
		`cipher "aes-cbc-plain64"`:      luks1(func(b []byte) { copy(b[40:], "cbc-plain64\x00") }),
		`cipher "aes-xts-plain"`:        luks1(func(b []byte) { copy(b[40:], "xts-plain\x00") }),
		"48 bytes: AES-XTS":             luks1(func(b []byte) { binary.BigEndian.PutUint32(b[108:], 48) }),
		`hash "whirlpool"`:              luks1(func(b []byte) { copy(b[72:], "whirlpool\x00") }),
		"0 iterations":                  luks1(func(b []byte) { clear(b[164:168]) }),
		"header of LUKS2":               read(t, "luks2")[:2000],
		"header of 16384 bytes":         read(t, "luks2")[:8192],
		"checksum of the header":        bytes.Replace(read(t, "luks2"), []byte(`"32768"`), []byte(`"32769"`), 1),
		`cipher "aes-xts-benbi`:         sealed(t, `"aes-xts-plain64","sector_size"`, `"aes-xts-benbi64","sector_size"`),
		"sectors of 8192 bytes":         sealed(t, `"sector_size":4096`, `"sector_size":8192`),
		"integrity":                     sealed(t, `"sector_size":4096`, `"sector_size":4096,"integrity":{"type":"hmac(sha256)"}`),
		"2 segments":                    sealed(t, `"segments":{`, `"segments":{"1":{"type":"linear"},`),
		"no digest of the volume key":   sealed(t, `"pbkdf2","keyslots"`, `"argon2","keyslots"`),
		"JSON area":                     sealed(t, `{`, `[`),
		"an object with zeros":          withArea(t, append(areaOf(t), ' ')),
		"zeros behind it":               withArea(t, append(areaOf(t), 0, 'x')),
		"is at byte 4096":               resealed(t, func(b []byte) { b[0x100+6] = 0x10 }),
		"keyslots.9 is not an object":   sealed(t, `"keyslots":["0"]`, `"keyslots":["9"]`),
		"stripes":                       luks1(func(b []byte) { b[208+47] = 1 }),
		"at byte 0: there is place":     luks1(func(b []byte) { clear(b[208+40 : 208+44]) }),
		"from 592 to 20480":             luks1(func(b []byte) { b[107], b[106], b[105] = 40, 0, 0 }),
		"key slots end at 557056":       sealed(t, `"offset":"1048576"`, `"offset":"32768"`),
		"sector's":                      sealed(t, `"offset":"1048576"`, `"offset":"1048577"`),
		"from 32768 to 557056":          sealed(t, `"offset":"32768"`, `"offset":"28672"`),
		"multiple of 4096":              sealed(t, `"keyslots_size":"524288"`, `"keyslots_size":"524289"`),
		"9 digests":                     manyDigests(t, 9),
	} {
		_, err := Read(bytes.NewReader(b))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%v, want %q", err, reason)
		}
	}
	if _, err := Read(bytes.NewReader(nil)); !errors.Is(err, ErrNoHeader) {
		t.Error(err)
	}
}

// FuzzRead reads headers, and headers of LUKS2 whose checksum is right.
func FuzzRead(f *testing.F) {
	f.Add(read(f, "luks1"))
	f.Add(read(f, "luks2"))
	f.Add(areaOf(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, withArea(t, b)} {
			v, err := Read(bytes.NewReader(b))
			if err == nil && (v.Offset < 0 || v.Length < -1 || v.Sector < 512 || v.Step < 1) {
				t.Errorf("%+v", *v)
			}
		}
	})
}
