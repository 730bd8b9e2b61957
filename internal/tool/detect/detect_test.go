package detect

import (
	"bytes"
	"math/rand/v2"
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
	f, err := sig.ParseFormat(text)
	if err != nil {
		t.Fatal(err)
	}
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
