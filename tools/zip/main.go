// Zip puts a folder into a .zip file whose bytes depend on the files alone.
//
//	zip SECONDS DIR NAME OUT
//
// NAME is the folder, in DIR, and SECONDS the time of all files, since 1970.
package main

import (
	"archive/zip"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: zip SECONDS DIR NAME OUT")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "zip:", err)
		os.Exit(1)
	}
}

func run(seconds, dir, name, out string) error {
	sec, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	z := zip.NewWriter(f)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	root := os.DirFS(dir)
	err = fs.WalkDir(root, name, func(p string, e fs.DirEntry, err error) error { // in the order of the names
		if err != nil || e.IsDir() {
			return err
		}
		h := &zip.FileHeader{Name: p, Method: zip.Deflate, Modified: time.Unix(sec, 0).UTC()}
		h.SetMode(0o644)
		if path.Ext(p) == ".exe" {
			h.SetMode(0o755)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		b, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		_, err = w.Write(b)
		return err
	})
	return errors.Join(err, z.Close(), f.Close())
}
