package sig_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/sig"
)

// vector is one line of a file in testdata/vectors.
type vector struct {
	name  string
	f     sig.Format
	data  []byte
	field []byte
}

func vectors(t *testing.T, file string) []vector {
	t.Helper()
	text := must(os.ReadFile("../testdata/vectors/" + file))
	var all []vector
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if len(words) != 3 {
			t.Fatalf("line %d: %d words", i+1, len(words))
		}
		f, err := sig.ParseFormat(words[0])
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		field, err := hex.DecodeString(words[2])
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		v := vector{words[0] + " " + words[1], f, vectorData(t, words[1]), field}
		if len(v.data)+len(v.field) != f.Stride() {
			t.Fatalf("line %d: %d bytes of data, %d of field", i+1, len(v.data), len(v.field))
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		t.Fatal("no vectors")
	}
	return all
}

func vectorData(t *testing.T, s string) []byte {
	t.Helper()
	pattern, times, repeated := strings.Cut(s, "*")
	count := 1
	if repeated {
		count = must(strconv.Atoi(times))
	}
	data := make([]byte, count)
	for i := range data {
		switch pattern {
		case "up":
			data[i] = byte(i)
		case "down":
			data[i] = byte(count - 1 - i)
		default:
			return bytes.Repeat(must(hex.DecodeString(pattern)), count)
		}
	}
	return data
}

// Every vector is one block. The test also repeats it in runs of several blocks, so that
// kernels which process groups of blocks see it at each position of a group.
func TestVectors(t *testing.T) {
	for _, v := range vectors(t, "sig-fields.txt") {
		t.Run(v.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 7, 8, 9, 17} {
				f := v.f
				f.Flags = sig.AppEscape // every block of the run has the tag of the vector
				if f.Type != sig.T10DIF {
					f.Flags = 0
				}
				data := bytes.Repeat(v.data, n)
				want := bytes.Repeat(append(bytes.Clone(v.data), v.field...), n)
				got := make([]byte, len(want))
				must(f.Protect(got, data))
				if !bytes.Equal(got, want) {
					t.Fatalf("%d blocks: field % x, want % x", n, got[len(v.data):][:len(v.field)], v.field)
				}
				noErr(t, f.Verify(want))
				must(f.Strip(got, want))
				if !bytes.Equal(got[:len(data)], data) {
					t.Fatal("stripped data differ")
				}
			}
		})
	}
}
