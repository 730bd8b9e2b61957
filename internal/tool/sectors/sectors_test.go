package sectors

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// TestSectors compares all readers and the Writer with loops over bytes.
func TestSectors(t *testing.T) {
	r, content := rand.New(rand.NewPCG(4, 1)), rand.NewChaCha8([32]byte{4})
	for _, text := range []string{"512+8", "512+8,meta-first", "512+10", "520+4", "4096+128", "8+1", "512K+64K,meta-first"} {
		f, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, blocks := range []int{0, 1, 2, 1500} {
			if f.Block > 4096 {
				blocks = min(blocks, 3)
			}
			data := make([]byte, blocks*f.Block)
			content.Read(data)
			var zeroed, filled []byte // the sectors, with zeros and with other bytes beside the data
			for i := range blocks {
				block, extra := data[i*f.Block:][:f.Block], make([]byte, f.Extra)
				noise := make([]byte, f.Extra)
				content.Read(noise)
				if f.First {
					zeroed, filled = append(append(zeroed, extra...), block...), append(append(filled, noise...), block...)
				} else {
					zeroed, filled = append(append(zeroed, block...), extra...), append(append(filled, block...), noise...)
				}
			}
			if n, err := f.Len(int64(len(data))); n != int64(len(zeroed)) || err != nil {
				t.Errorf("%s: Len %d, %v", text, n, err)
			}
			if n, err := f.DataLen(int64(len(zeroed))); n != int64(len(data)) || err != nil {
				t.Errorf("%s: DataLen %d, %v", text, n, err)
			}
			got, err := io.ReadAll(f.Reader(bytes.NewReader(filled)))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s, %d blocks: read %d bytes, %v", text, blocks, len(got), err)
			}
			if len(data) < 1<<20 {
				if err := iotest.TestReader(f.Reader(iotest.HalfReader(bytes.NewReader(filled))), data); err != nil {
					t.Errorf("%s, %d blocks: %v", text, blocks, err)
				}
			}
			at := f.ReaderAt(bytes.NewReader(filled))
			for range 50 {
				off := r.IntN(len(data) + 1)
				p := make([]byte, r.IntN(len(data)-off+1))
				if n, err := at.ReadAt(p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, data[off:][:n]) {
					t.Fatalf("%s: %d bytes at %d: %d, %v", text, len(p), off, n, err)
				}
			}
			var out bytes.Buffer
			w := f.NewWriter(&out)
			for rest := data; len(rest) > 0; {
				n := 1 + r.IntN(len(rest))
				if k, err := w.Write(rest[:n]); k != n || err != nil {
					t.Fatal(k, err)
				}
				rest = rest[n:]
			}
			if err := w.Close(); err != nil || !bytes.Equal(out.Bytes(), zeroed) {
				t.Errorf("%s, %d blocks: wrote %d bytes, %v", text, blocks, out.Len(), err)
			}
		}
	}
}

// TestPartial: neither sectors nor blocks may be incomplete.
func TestPartial(t *testing.T) {
	f := Format{Block: 512, Extra: 8}
	_, read := io.ReadAll(f.Reader(strings.NewReader(strings.Repeat("x", 1041))))
	w := f.NewWriter(io.Discard)
	io.WriteString(w, strings.Repeat("x", 1025))
	_, data := f.DataLen(1041)
	for want, err := range map[string]error{
		"1041 bytes: must be whole sectors of 520 bytes": errors.Join(read, data),
		"1025 bytes of data: must be whole blocks of":    w.Close(),
	} {
		if !errors.Is(err, syscall.EINVAL) || strings.Count(err.Error(), want) != strings.Count(err.Error(), "must be") {
			t.Error(err)
		}
	}
	failing := errors.New("the source fails")
	if _, err := io.ReadAll(f.Reader(io.MultiReader(strings.NewReader("x"), iotest.ErrReader(failing)))); !errors.Is(err, failing) {
		t.Errorf("a source that fails: %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"512+8", "4096+64", "512+10,meta-first"} {
		if f, err := Parse(text); err != nil || f.String() != "none:"+text {
			t.Errorf("%s: %v, %v", text, f, err)
		}
	}
	for text, want := range map[string]string{
		"510+8":             `block size "510": must be a multiple of 8 bytes`,
		"0+8":               "block size",
		"16M+8":             "at most 8388608",
		"+8":                "block size",
		"512+":              `"" bytes beside the block: must be 1 to 65536`,
		"512+0":             `"0" bytes`,
		"512+65537":         `"65537" bytes`,
		"512+8+8":           `"8+8" bytes`,
		"512+8,":            `no option ""`,
		"512+8,pi-first":    `no option "pi-first"`,
		"512+8,meta-first,": "no option",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
