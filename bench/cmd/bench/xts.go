package main

import (
	"bytes"
	"errors"

	"github.com/softmkey/softmkey/bench/openssl"
	"github.com/softmkey/softmkey/internal/tool/bench"
)

// xtsRows adds OpenSSL to the rows of package xts.
func xtsRows() []bench.Row {
	var rows []bench.Row
	for _, r := range bench.XTS() {
		x, err := openssl.NewXTS(r.Key, r.Decrypt)
		if err != nil {
			panic(err)
		}
		peer := func(times int) {
			if err := x.Repeat(r.Dst, r.Src, r.Size, r.Tweak, times); err != nil {
				panic(err)
			}
		}
		r.Peer = &bench.Case{Name: "OpenSSL", Work: r.Ours.Work, Run: peer}
		r.Target = 1
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
