// Protect adds a T10-DIF to every block of a file, as a disk with 520-byte sectors keeps it,
// and reads the file back: first as a stream, then one range of it. A flipped bit is found.
//
//	go run ./examples/protect
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/softmkey/softmkey/sig"
)

// dif is the format of the file: 512 bytes of data, then guard, application tag and
// reference tag.
var dif = sig.Format{Type: sig.T10DIF, AppTag: 0x5678, RefTag: 1000}

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "protect")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "disk")
	data := bytes.Repeat([]byte("the data of a disk\n"), 1000)
	if err := write(name, data); err != nil {
		log.Fatal(err)
	}
	info, err := os.Stat(name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes of data became %d with fields\n", len(data), info.Size())

	if got, err := read(name); err != nil || !bytes.Equal(got, data) {
		log.Fatalf("the file does not have the data: %v", err)
	}
	fmt.Println("the file is good")

	if err := flip(name, 3*520+17); err != nil {
		log.Fatal(err)
	}
	_, err = read(name)
	var bad *sig.Error
	if !errors.As(err, &bad) {
		log.Fatalf("the damage was not found: %v", err)
	}
	fmt.Printf("%v in block %d: the field says %#x, the data %#x\n", bad.Kind, bad.Block, bad.Stored, bad.Computed)
}

// write creates a file with protected data. Close of the Writer writes the last block.
func write(name string, data []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := sig.NewWriter(f, dif)
	if err != nil {
		return err
	}
	if _, err := io.Copy(w, bytes.NewReader(data)); err != nil {
		return err
	}
	return w.Close()
}

// read returns the data of a protected file. A bad block is an error.
func read(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := sig.NewReader(f, dif)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// flip flips a bit of a file.
func flip(name string, offset int64) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], offset); err != nil {
		return err
	}
	b[0] ^= 1
	_, err = f.WriteAt(b[:], offset)
	return err
}
