package detect

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/sig"
)

// random returns n pseudorandom bytes.
func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// protected returns a stream of a format.
func protected(t *testing.T, text string, data []byte) (sig.Format, []byte) {
	t.Helper()
	f := parse(t, text)
	stream := make([]byte, f.StreamLen(int64(len(data))))
	if _, err := f.Protect(stream, data); err != nil {
		t.Fatal(err)
	}
	return f, stream
}

func TestStream(t *testing.T) {
	for _, text := range []string{
		"t10dif:512", "t10dif:4096,app=0x5678,ref=0x800", "t10dif:520,guard=csum", "t10dif:4048,seed=ones", "t10dif:512,app=0x1,ref=0x7,type3",
		"crc32:512", "crc32c:4096", "crc64:4096", "crc32c:512,seed=0", "crc64:512,seed=0", "t10dif:4104", "crc32c:65536", "t10dif:1544",
		"nvme16:4096,ref=0x5,meta=64,pi-first", "nvme32:4096,app=0x1", "nvme64:512", "nvme64:4096,app=0x5678,ref=0x10,meta=64", "nvme64:4096,type3,meta=128,pi-first",
	} {
		contents := [][]byte{random(600_000), append(make([]byte, 100_000), random(500_000)...), append(random(70_000), make([]byte, 2_000_000)...)}
		if strings.HasPrefix(text, "nvme") {
			contents = contents[1:2]
		}
		for _, data := range contents {
			f, stream := protected(t, text, data)
			stream[5] ^= 1 // some damage
			stream[len(stream)/2] ^= 1
			got, ok, err := Stream(bytes.NewReader(stream), int64(len(stream)))
			if err != nil || !ok || got.Format.String() != f.String() {
				t.Errorf("%s: %+v, %t, %v", text, got, ok, err)
			}
			if fits, err := Fits(bytes.NewReader(stream), int64(len(stream)), f); !fits || err != nil {
				t.Errorf("%s does not fit: %v", text, err)
			}
		}
	}
}

// TestStorageTags finds storage tags beside reference tags that wrap, also if single blocks have other tags.
func TestStorageTags(t *testing.T) {
	block := random(512)
	for _, text := range []string{
		"nvme16:512,ref=0xff00,sts=16,storage=0xabcd", "nvme16:512,sts=20,storage=0x12345", "nvme16:512,ref=0x7,meta=16,sts=16,storage=0x1",
		"nvme32:512,sts=64,storage=0xabcd", "nvme64:512,app=0x5,sts=40,storage=0xffffffffff", "nvme16:512,ref=0x4000,meta=64,pi-first,sts=17,storage=0x1ffff",
	} {
		f, stream := protected(t, text, bytes.Repeat(block, 100_000))
		for _, at := range []int{3, 17} {
			field := stream[at*f.Stride()+512:][:f.FieldSize()]
			copy(field[len(field)-4:], "\x12\x34\x56\x78") // in a field that is first, bytes that nobody checks
		}
		got, ok, err := Stream(bytes.NewReader(stream), int64(len(stream)))
		if err != nil || !ok || got.Format.String() != f.String() {
			t.Errorf("%s: %v, %+v, %t, %v", text, got.Format, got, ok, err)
		}
	}
}

// TestStreamEscapes: escaped blocks have no tags, and tags that differ are reported.
func TestStreamEscapes(t *testing.T) {
	_, stream := protected(t, "t10dif,app=3,ref=9", random(40*512))
	for i := range 10 {
		copy(stream[i*520+514:], "\xff\xff\x12\x34\x56\x78")
	}
	if got, ok, err := Stream(bytes.NewReader(stream), int64(len(stream))); !ok || err != nil || got.Format.String() != "t10dif:512,app=0x3,ref=0x9" {
		t.Errorf("%+v, %t, %v", got, ok, err)
	}
	for i := range 40 {
		copy(stream[i*520+514:], random(6 * 40)[i*6:][:6])
	}
	got, ok, err := Stream(bytes.NewReader(stream), int64(len(stream)))
	if !ok || err != nil || !got.AppTags || !got.RefTags || got.Format.Flags&sig.IgnoreApp == 0 || got.Good != 40 {
		t.Errorf("%+v, %t, %v", got, ok, err)
	}
}

// TestStreamRaw: data without fields has no format.
func TestStreamRaw(t *testing.T) {
	for name, raw := range map[string][]byte{
		"nothing": nil, "random": random(1 << 20), "zeros": make([]byte, 1<<20), "ones": bytes.Repeat([]byte{0xff}, 1<<20), "short": random(100),
		"text": bytes.Repeat([]byte("The quick brown fox jumps over the lazy dog. "), 10_000),
	} {
		if got, ok, err := Stream(bytes.NewReader(raw), int64(len(raw))); ok || err != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if fits, err := Fits(bytes.NewReader(raw), int64(len(raw)), sig.Format{Type: sig.CRC32C, BlockSize: 4096}); err != nil || fits != (name == "nothing" || name == "short") {
			t.Errorf("%s fits: %t, %v", name, fits, err)
		}
	}
}

// drive returns the image of a formatted drive: the blocks of each run were written, the others
// are zeros with fields of ones.
func drive(t *testing.T, text string, blocks int, written func(i int) bool) []byte {
	t.Helper()
	f, stream := protected(t, text, random(blocks * 4096)[:blocks*parse(t, text).Block()])
	for i := range blocks {
		if b := stream[i*f.Stride():][:f.Stride()]; !written(i) {
			clear(b[:f.Block()])
			copy(b[f.Block():], bytes.Repeat([]byte{0xFF}, f.FieldSize()))
		}
	}
	return stream
}

func parse(t *testing.T, text string) sig.Format {
	t.Helper()
	f, err := sig.ParseFormat(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestStreamOfDrive: the unwritten blocks of a drive are no evidence, neither for nor against a
// format. One written block is too little for a guard of 16 bits.
func TestStreamOfDrive(t *testing.T) {
	for name, tc := range map[string]struct {
		format  string
		blocks  int
		written func(int) bool
		found   bool
	}{
		"one of ten":               {"t10dif:512", 10, func(i int) bool { return i == 3 }, false},
		"two of ten":               {"t10dif:512", 10, func(i int) bool { return i == 3 || i == 8 }, true},
		"20 % in one run":          {"t10dif:4096", 1000, func(i int) bool { return i < 200 }, true},
		"5 % in one run at an end": {"t10dif:4096,ref=5", 1000, func(i int) bool { return i >= 950 }, true},
		"each fifth block":         {"t10dif:512,app=7", 3000, func(i int) bool { return i%5 == 0 }, true},
		"nvme, each tenth":         {"nvme64:4096", 500, func(i int) bool { return i%10 == 0 }, true},
		"nothing":                  {"t10dif:512", 100, func(int) bool { return false }, false},
	} {
		stream := drive(t, tc.format, tc.blocks, tc.written)
		got, ok, err := Stream(bytes.NewReader(stream), int64(len(stream)))
		if err != nil || ok != tc.found || ok && got.Format.String() != parse(t, tc.format).String() {
			t.Errorf("%s: %v, %t, %v", name, got.Format, ok, err)
		}
		if fits, err := Fits(bytes.NewReader(stream), int64(len(stream)), parse(t, tc.format)); !fits || err != nil {
			t.Errorf("%s does not fit: %v", name, err)
		}
		wrong := parse(t, tc.format)
		wrong.RefTag++
		if fits, err := Fits(bytes.NewReader(stream), int64(len(stream)), wrong); fits != (name == "nothing") || err != nil {
			t.Errorf("%s fits %v: %v", name, wrong, err)
		}
	}
}

// TestStreamOfFiles looks for signatures in the files of this system, which have none.
func TestStreamOfFiles(t *testing.T) {
	most := 15
	if os.Getenv("SOFTMKEY_LONG") != "" {
		most = 1000
	}
	var names []string
	for _, dir := range []string{"/etc", "/usr/bin", "/usr/lib", "/usr/share", "/var/lib/dpkg"} {
		_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				names = append(names, name)
			}
			return nil
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	tried := 0
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		info, err := f.Stat()
		if err == nil && info.Size() > 0 && tried < most {
			tried++
			if got, ok, err := Stream(f, info.Size()); ok || err != nil {
				t.Errorf("%s of %d bytes: %v, %d of %d blocks, %d bits; %v", name, info.Size(), got.Format, got.Good, got.Tried, got.bits, err)
			}
		}
		f.Close()
	}
	t.Logf("%d files", tried)
}

// TestStreamOfImageFormat: the first clusters of a fresh image in the format of qcow2 are mostly zeros.
func TestStreamOfImageFormat(t *testing.T) {
	image := make([]byte, 192<<10)
	copy(image, "QFI\xfb\x00\x00\x00\x03")
	image[23], image[31], image[47] = 16, 1, 3
	binary.BigEndian.PutUint64(image[40:], 0x30000)
	binary.BigEndian.PutUint64(image[0x10000:], 0x20000)
	for i := range 4 {
		binary.BigEndian.PutUint16(image[0x20000+2*i:], 1)
	}
	if got, ok, err := Stream(bytes.NewReader(image), int64(len(image))); ok || err != nil {
		t.Errorf("%v, %d of %d blocks, %v", got.Format, got.Good, got.Tried, err)
	}
}
