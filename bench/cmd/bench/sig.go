package main

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/bench/isal"
	"github.com/softmkey/softmkey/internal/tool/bench"
	"github.com/softmkey/softmkey/sig"
)

// sigRows adds peers to the rows of package sig.
func sigRows() []bench.Row {
	var rows []bench.Row
	for _, r := range bench.Sig() {
		if r.Op == bench.Protect || r.Op == bench.Strip {
			r.Limit = new(memcpy(r.Data))
		} else {
			r.Limit = new(reading(r.Data))
		}
		switch {
		case r.Format.Type != sig.T10DIF:
			peerSum(&r)
		case r.Format.Guard == sig.GuardCSUM:
			c := memcpy(r.Data)
			r.Peer = &c
			if r.Op == bench.Protect || r.Op == bench.Strip {
				r.Limit = nil // no limit, because the peer is the limit
			}
		default:
			peerDIF(&r)
		}
		rows = append(rows, r.Row)
	}
	return append(rows, bench.Convert()...)
}

// peerDIF returns the peer of T10-DIF: the loop over blocks of a storage stack, with one
// call of ISA-L per block.
func peerDIF(r *bench.SigRow) {
	op := map[bench.SigOp]isal.Op{
		bench.Generate: isal.OpGenerate, bench.Verify: isal.OpVerify,
		bench.Protect: isal.OpGenerateCopy, bench.Strip: isal.OpVerifyCopy,
	}[r.Op]
	d := isal.DIF{BlockSize: r.Format.BlockSize, AppTag: r.Format.AppTag, RefTag: uint32(r.Format.RefTag)}
	n := r.Blocks()
	dst, src := r.Stream, r.Stream
	switch r.Op {
	case bench.Protect:
		src = r.Data
	case bench.Strip:
		dst = r.Data
	}
	peer := func(times int) int { return d.Repeat(op, dst, src, n, times) }
	r.Target = 1
	r.Peer = &bench.Case{Name: "SPDK's loop over ISA-L", Work: bench.DataSize, Run: func(times int) {
		if bad := peer(times); bad != n {
			panic(fmt.Sprintf("bench: the peer finds block %d bad", bad))
		}
	}}
	r.Check = func() error {
		if r.Op == bench.Verify {
			return checkFinds(r, func() bool { return peer(1) == 1 })
		}
		return checkSame(r, func() { peer(1) })
	}
}

// peerSum adds a peer to a CRC: one call of ISA-L for each block, which neither writes
// nor compares fields.
func peerSum(r *bench.SigRow) {
	peer, name := map[sig.Type]isal.Sum{
		sig.CRC32: isal.SumCRC32, sig.CRC32C: isal.SumCRC32C, sig.CRC64: isal.SumCRC64,
	}[r.Format.Type], map[sig.Type]string{
		sig.CRC32: "crc32_ieee", sig.CRC32C: "crc32_iscsi", sig.CRC64: "crc64_ecma_refl",
	}[r.Format.Type]
	if r.Op != bench.Verify {
		return // no peer has it
	}
	r.Target = 1
	r.Peer = &bench.Case{Name: "ISA-L " + name, Work: bench.DataSize, Run: func(times int) {
		peer.Repeat(r.Stream, r.Format.Stride(), r.Format.BlockSize, r.Blocks(), times)
	}}
}

// checkSame compares our output with the peer's.
func checkSame(r *bench.SigRow, peer func()) error {
	out := r.Stream
	if r.Op == bench.Strip {
		out = r.Data
	}
	spoil := func() {
		if r.Op != bench.Generate {
			clear(out)
			return
		}
		for i := range r.Blocks() {
			clear(field(r, i))
		}
	}
	spoil()
	r.Ours.Run(1)
	ours := bytes.Clone(out)
	spoil()
	peer()
	if !bytes.Equal(ours, out) {
		return errors.New("ours differs from the peer's")
	}
	return nil
}

// checkFinds checks that softmkey and the peer both report a bad second block.
func checkFinds(r *bench.SigRow, peer func() bool) error {
	b := &field(r, 1)[0]
	*b ^= 1
	defer func() { *b ^= 1 }()
	var bad *sig.Error
	if err := r.Format.Verify(r.Stream); !errors.As(err, &bad) || bad.Block != 1 || !peer() {
		return fmt.Errorf("a bad second block was not found: %v", err)
	}
	return nil
}

func field(r *bench.SigRow, i int) []byte {
	return r.Stream[i*r.Format.Stride()+r.Format.BlockSize:][:r.Format.FieldSize()]
}
