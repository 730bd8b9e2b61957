// Encrypt encrypts a file with AES-XTS, on all cores and with constant memory, and decrypts
// it again. A file may have any length: 100,001 bytes stay 100,001 bytes.
//
//	go run ./examples/encrypt
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/mkeyio"
)

func main() {
	log.SetFlags(0)
	dir, err := os.MkdirTemp("", "encrypt")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	plain, secret, back := filepath.Join(dir, "plain"), filepath.Join(dir, "secret"), filepath.Join(dir, "back")
	if err := os.WriteFile(plain, bytes.Repeat([]byte("nobody may read this. "), 5000)[:100_001], 0o600); err != nil {
		log.Fatal(err)
	}

	raw := dek.Generate(dek.Size256, false)
	key, err := dek.New(raw)
	clear(raw) // the DEK has a copy of the key in locked memory
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()

	e := mkeyio.Encryption{DEK: key, Unit: 4096}
	if err := through(e.Encrypt, secret, plain); err != nil {
		log.Fatal(err)
	}
	if err := through(e.Decrypt, back, secret); err != nil {
		log.Fatal(err)
	}
	a, b, c := contents(plain), contents(secret), contents(back)
	fmt.Printf("%d bytes, encrypted %d; equal: %v; decrypted equal: %v\n", len(a), len(b), bytes.Equal(a, b), bytes.Equal(a, c))
}

// through runs one file through a direction of an Encryption into another.
func through(direction func(context.Context, mkeyio.Output, mkeyio.Input) (mkeyio.JobReport, error), to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	src, err := mkeyio.FromFile(in)
	if err != nil {
		return err
	}
	dst, err := mkeyio.ToFile(out)
	if err != nil {
		return err
	}
	if _, err := direction(context.Background(), dst, src); err != nil {
		return err
	}
	return out.Close()
}

func contents(name string) []byte {
	b, err := os.ReadFile(name)
	if err != nil {
		log.Fatal(err)
	}
	return b
}
