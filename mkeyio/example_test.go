package mkeyio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// Protect a stream, damage a byte of it, and find the block.
func ExampleRun() {
	ctx := context.Background()
	format := sig.Format{Type: sig.T10DIF, AppTag: 0x5678}

	var protected bytes.Buffer
	data := bytes.NewReader(make([]byte, 10*512))
	report, err := mkeyio.Run(ctx, mkeyio.Protect(format), mkeyio.To(&protected), mkeyio.From(data))
	fmt.Println(report.BytesIn, report.BytesOut, report.Blocks, err)

	protected.Bytes()[3*520+100] ^= 0x80
	_, err = mkeyio.Run(ctx, mkeyio.Strip(format), mkeyio.CheckOnly(), mkeyio.From(&protected))
	var bad *mkey.BadBlock
	if errors.As(err, &bad) {
		fmt.Println(bad)
	}
	// Output:
	// 5120 5200 10 <nil>
	// wire domain: bad guard: block 3 at offset 1560: stored 0x0, computed 0x322c
}

// Report every bad block and write the data anyway.
func ExampleStreamJob() {
	format := sig.Format{Type: sig.CRC32C, BlockSize: 4096}
	stream := make([]byte, 5*4100) // a zero CRC does not match zeros

	var data bytes.Buffer
	job := mkeyio.Strip(format)
	job.KeepGoing = true
	job.Bad = func(b *mkey.BadBlock) { fmt.Println(b.Sig.Kind, b.Sig.Block) }
	report, err := mkeyio.Run(context.Background(), job, mkeyio.To(&data), mkeyio.FromAt(bytes.NewReader(stream), int64(len(stream))))
	fmt.Println(report.Errors, data.Len(), err != nil)
	// Output:
	// bad guard 0
	// bad guard 1
	// bad guard 2
	// bad guard 3
	// bad guard 4
	// 5 20480 true
}

// Protect a file: every block of 512 bytes gets a T10-DIF.
func ExampleToFile() {
	dir, err := os.MkdirTemp("", "mkeyio")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "data")
	if err := os.WriteFile(name, make([]byte, 100<<10), 0o600); err != nil {
		panic(err)
	}

	from, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	defer from.Close()
	to, err := os.Create(name + ".protected")
	if err != nil {
		panic(err)
	}
	defer to.Close()
	src, err := mkeyio.FromFile(from)
	if err != nil {
		panic(err)
	}
	dst, err := mkeyio.ToFile(to)
	if err != nil {
		panic(err)
	}
	report, err := mkeyio.Run(context.Background(), mkeyio.Protect(sig.Format{Type: sig.T10DIF}), dst, src)
	fmt.Println(report.BytesIn, report.BytesOut, report.Blocks, err)
	// Output: 102400 104000 200 <nil>
}

// Change a few bytes of a protected file: the view checks what it reads and signs what it writes.
func ExampleNewView() {
	format := sig.Format{Type: sig.T10DIF, AppTag: 0x5678}
	file, err := os.CreateTemp("", "*.dif")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(file.Name())
	defer file.Close()
	stream := make([]byte, 10*520)
	if _, err := format.Protect(stream, make([]byte, 10*512)); err != nil {
		fmt.Println(err)
		return
	}
	stream[3*520+7] ^= 1 // damage
	if _, err := file.Write(stream); err != nil {
		fmt.Println(err)
		return
	}

	view, err := mkeyio.NewView(mkeyio.Protect(format), file, int64(len(stream)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer view.Close()
	n, err := view.WriteAt([]byte("hello"), 1000) // across the end of a block
	fmt.Println(view.Size(), n, err)
	n, err = view.ReadAt(make([]byte, 3*512), 512)
	fmt.Println(n, err)
	// Output:
	// 5120 5 <nil>
	// 1024 wire domain: bad guard: block 3 at offset 1560: stored 0x0, computed 0x9814
}

// A new encrypted file gets its length first: a View does not change it. What was not written yet is zeros in the file,
// and noise in the View.
func ExampleEncryption_View() {
	key, err := dek.New(dek.Generate(dek.Size256, false))
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	f, err := os.CreateTemp("", "encrypted")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()

	const size = 1 << 20
	if err := f.Truncate(size); err != nil {
		log.Fatal(err)
	}
	v, err := mkeyio.Encryption{DEK: key, Unit: 4096}.View(f, size)
	if err != nil {
		log.Fatal(err)
	}
	defer v.Close()
	if _, err := v.WriteAt([]byte("hello"), 8192); err != nil {
		log.Fatal(err)
	}
	plain, stored := make([]byte, 5), make([]byte, 5)
	if _, err := v.ReadAt(plain, 8192); err != nil {
		log.Fatal(err)
	}
	if _, err := f.ReadAt(stored, 8192); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(plain), bytes.Equal(plain, stored))
	// Output: hello false
}
