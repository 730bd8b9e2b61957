package main

// #cgo LDFLAGS: -lcrypto
// #include "evp.h"
import "C"

import (
	"bytes"
	"errors"
	"unsafe"

	"github.com/softmkey/softmkey/internal/bench"
)

// xtsRows puts OpenSSL beside the rows of package xts.
func xtsRows() []bench.Row {
	var rows []bench.Row
	for _, r := range bench.XTS() {
		encrypt := C.int(1)
		if r.Decrypt {
			encrypt = 0
		}
		ctx := C.evp_xts(pointer(r.Key), C.int(len(r.Key)*4), encrypt)
		peer := func(times int) {
			if ctx == nil || C.evp_run(ctx, pointer(r.Dst), pointer(r.Src), C.int(r.Size), C.size_t(len(r.Src)/r.Size),
				C.uint64_t(r.Tweak), C.size_t(times)) == 0 {
				panic("bench: OpenSSL refuses AES-XTS")
			}
		}
		r.Peer = &bench.Case{Name: "OpenSSL", Work: r.Ours.Work, Run: peer}
		if r.Size != 520 {
			r.Target, r.LimitTarget = 5, 0.95
		}
		r.Check = func() error {
			r.Ours.Run(1)
			ours := bytes.Clone(r.Dst)
			clear(r.Dst)
			peer(1)
			if !bytes.Equal(ours, r.Dst) {
				return errors.New("ours differs from OpenSSL's")
			}
			return nil
		}
		rows = append(rows, r.Row)
	}
	return rows
}

func pointer(b []byte) *C.uint8_t { return (*C.uint8_t)(unsafe.SliceData(b)) }

// openSSL returns OpenSSL's name and version.
func openSSL() string { return C.GoString(C.OpenSSL_version(C.OPENSSL_VERSION)) }
