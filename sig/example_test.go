package sig_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/softmkey/softmkey/sig"
)

func Example() {
	dif := sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 1000}

	data := make([]byte, 4*512)
	stream := make([]byte, dif.StreamLen(int64(len(data))))
	n, err := dif.Protect(stream, data)
	fmt.Println(n, err)

	stream[2*520+17] ^= 0x40 // damage block 2
	err = dif.Verify(stream)
	fmt.Println(err)

	var bad *sig.Error
	if errors.As(err, &bad) {
		fmt.Println(bad.Kind, bad.Block)
	}
	// Output:
	// 2080 <nil>
	// bad guard: block 2 at offset 1040: stored 0x0, computed 0x16ce
	// bad guard 2
}

// The field that a ConnectX generates for 512 bytes of 0xA5.
func ExampleFormat_Generate() {
	f := sig.Format{Type: sig.T10DIF, Seed: sig.SeedOnes, AppTag: 0x5678, RefTag: 0xF0DEBC9A}
	buf := make([]byte, 520)
	for i := range buf[:512] {
		buf[i] = 0xA5
	}
	if err := f.Generate(buf); err != nil {
		panic(err)
	}
	fmt.Printf("% X\n", buf[512:])
	// Output: EC 7D 56 78 F0 DE BC 9A
}

func ExampleFormat_VerifyEach() {
	f := sig.Format{Type: sig.CRC32C, BlockSize: 4096}
	stream := make([]byte, 3*f.Stride())
	if err := f.Generate(stream); err != nil {
		panic(err)
	}
	stream[0]++
	stream[2*f.Stride()]++

	err := f.VerifyEach(stream, func(e sig.Error) bool {
		fmt.Println(e.Kind, "in block", e.Block)
		return true // continue
	})
	fmt.Println(err)
	// Output:
	// bad guard in block 0
	// bad guard in block 2
	// <nil>
}

func ExampleFormat_Convert() {
	from := sig.Format{Type: sig.T10DIF, BlockSize: 512}
	to := sig.Format{Type: sig.CRC64, BlockSize: 4096}

	data := make([]byte, 8192)
	src := make([]byte, from.StreamLen(8192))
	dst := make([]byte, to.StreamLen(8192))
	if _, err := from.Protect(src, data); err != nil {
		panic(err)
	}
	n, err := from.Convert(to, dst, src)
	fmt.Println(n, err, to.Verify(dst))
	// Output: 8208 <nil> <nil>
}

// A Transform with fields in a separate buffer and blocks numbered from 100. It checks
// everything but the application tag, which it preserves.
func ExampleTransform() {
	f := sig.Format{Type: sig.T10DIF, RefTag: 1}
	t, err := sig.NewTransform(sig.TransformConfig{
		In: f, Out: f,
		CheckMask: new(sig.MaskGuard | sig.MaskRef),
		CopyMask:  new(sig.MaskApp),
	})
	if err != nil {
		panic(err)
	}
	data := make([]byte, 2*512)
	metadata := []byte{
		0, 0, 0xCA, 0xFE, 0, 0, 0, 101,
		0, 0, 0xBE, 0xEF, 0, 0, 0, 102,
	}
	stream := make([]byte, 2*520)

	err = t.Run(sig.Interleaved(f, stream), sig.Separate(f, data, metadata), 2, 100, nil)
	fmt.Printf("% X\n% X\n%v\n", stream[512:520], stream[1032:1040], err)
	// Output:
	// 00 00 CA FE 00 00 00 65
	// 00 00 BE EF 00 00 00 66
	// <nil>
}

func ExampleParseFormat() {
	f, err := sig.ParseFormat("t10dif:4096,guard=csum,ref=0x10,type3")
	if err != nil {
		panic(err)
	}
	fmt.Println(f.BlockSize, f.Guard == sig.GuardCSUM, f.RefTag)
	fmt.Println(f)
	// Output:
	// 4096 true 16
	// t10dif:4096,guard=csum,ref=0x10,type3
}

// A format is text in JSON, flags and configuration files.
func ExampleFormat_MarshalText() {
	text, err := json.Marshal(sig.Format{Type: sig.T10DIF, AppTag: 0x5678})
	fmt.Printf("%s %v\n", text, err)
	var f sig.Format
	err = json.Unmarshal([]byte(`"crc32c:4096"`), &f)
	fmt.Println(f.Type, f.BlockSize, err)
	// Output:
	// "t10dif:512,app=0x5678" <nil>
	// crc32c 4096 <nil>
}

// A stream is protected on its way to a file, and checked on its way back.
func ExampleNewWriter() {
	f := sig.Format{Type: sig.CRC32C, BlockSize: 4096}
	var file bytes.Buffer
	w, err := sig.NewWriter(&file, f)
	if err != nil {
		panic(err)
	}
	if _, err := io.Copy(w, strings.NewReader(strings.Repeat("block ", 2000))); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil { // writes the end of the stream
		panic(err)
	}
	fmt.Println(file.Len(), "bytes in the file")

	file.Bytes()[5000] ^= 1
	r, err := sig.NewReader(&file, f)
	if err != nil {
		panic(err)
	}
	data, err := io.ReadAll(r)
	fmt.Println(len(data), "good bytes, then:", err)
	// Output:
	// 12008 bytes in the file
	// 4096 good bytes, then: bad guard: block 1 at offset 4100: stored 0x93b2258d, computed 0xaaa86b5c
}
