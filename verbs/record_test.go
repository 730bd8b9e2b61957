package verbs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
)

// record computes the result that MKey.Check must return next, by the rules of
// the documentation: the first bad block since the last Check, and with
// Options.Strict one for each configuration.
type record struct {
	strict, done bool
	first        *mkey.BadBlock
}

func (m *record) found(bad []sig.Error, d mkey.Domain, key uint32) {
	if len(bad) > 0 && m.first == nil && !m.done {
		m.first, m.done = &mkey.BadBlock{Sig: bad[0], Domain: d, Key: key}, m.strict
	}
}

// TestRecords runs random sequences of configurations, transfers in all four directions with
// and without damage, and checks of a key. It compares data and records with the oracle.
func TestRecords(t *testing.T) {
	runs := 60
	if testing.Short() {
		runs = 12
	}
	for seed := range uint64(runs) {
		// In virtual time no packet is late. A READ that is requested again because its answer is
		// late may still be answered after its completion, while the test writes to the memory.
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRecords(t, seed) })
		})
	}
}

// closeDevices closes the devices of sides that are opened later, after the objects of the sides are closed: a bubble ends
// only when its goroutines have ended.
func closeDevices(t *testing.T, sides ...**side) {
	t.Cleanup(func() {
		for _, s := range sides {
			if err := errors.Join((*s).pd.Close(), (*s).dev.Close()); err != nil {
				t.Error(err)
			}
		}
	})
}

func testRecords(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 9))
	model := record{strict: seed%2 == 1}
	var a, b *side
	closeDevices(t, &a, &b)
	a, b = inprocPair(t, verbs.DeviceOptions{Strict: model.strict})
	const room = 12 << 10
	all := rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead
	mem, remote := a.register(room, all), b.register(room, all)
	key := a.mkey(mkey.BlockSignature)

	var oracle mkeytest.Oracle
	var memory, wire []byte // correct data of both domains
	configure := func() {
		c := a.qp.Start().ID(1).Signaled()
		reset, sign := false, false
		if r.IntN(6) == 0 {
			oracle.Signature, reset = nil, true
		} else if memory == nil || r.IntN(3) > 0 {
			oracle.Signature, sign = mkeytest.RandomSignature(r), true
		}
		data := make([]byte, r.IntN(9000))
		fill(data, r.Uint64())
		memory, wire = data, data
		if s := oracle.Signature; s != nil {
			if s.Memory != nil {
				memory = mkeytest.Protect(s.Memory, data)
			}
			if s.Wire != nil {
				wire = mkeytest.Protect(s.Wire, data)
			}
		}
		c = c.Configure(key).Access(all).List(mem.SGE(0, len(memory)))
		if reset {
			c = c.ResetSignature()
		}
		if sign {
			c = c.Signature(*oracle.Signature)
		}
		a.complete(c)
		a.completion(1, rdma.OpMKeyConfigure, rdma.StatusSuccess)
		model.done = false
	}
	damaged := func(stream []byte) []byte {
		stream = bytes.Clone(stream)
		if r.IntN(2) == 0 {
			mkeytest.Flip(r, stream, 1+r.IntN(3))
		}
		return stream
	}
	transfer := func() {
		var want, got []byte
		var bad []sig.Error
		domain := mkey.MemoryDomain
		sges := key.SGE(0, len(wire))
		out := r.IntN(2) == 0
		src := damaged(memory)
		if !out {
			src, domain = damaged(wire), mkey.WireDomain
		}
		switch local := r.IntN(2) == 0; {
		case out:
			copy(mem.Bytes(), src)
			want, bad, _ = oracle.TX(src)
			// Both sides have the wire stream in a region of their own.
			if local {
				a.complete(a.qp.Start().ID(2).Signaled().Write(remote.RKey(), remote.Addr()).SGE(sges))
				a.completion(2, rdma.OpRDMAWrite, rdma.StatusSuccess)
			} else {
				b.complete(b.qp.Start().ID(2).Signaled().Read(key.RKey(), 0).SGE(remote.SGE(0, len(wire))))
				b.completion(2, rdma.OpRDMARead, rdma.StatusSuccess)
			}
			got = remote.Bytes()[:len(want)]
		case local:
			copy(remote.Bytes(), src)
			a.complete(a.qp.Start().ID(2).Signaled().Read(remote.RKey(), remote.Addr()).SGE(sges))
			a.completion(2, rdma.OpRDMARead, rdma.StatusSuccess)
		default:
			copy(remote.Bytes(), src)
			b.complete(b.qp.Start().ID(2).Signaled().Write(key.RKey(), 0).SGE(remote.SGE(0, len(wire))))
			b.completion(2, rdma.OpRDMAWrite, rdma.StatusSuccess)
		}
		if !out {
			want, bad, _ = oracle.RX(src)
			got = mem.Bytes()[:len(want)]
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("the data of a transfer differs from the oracle, signature %+v", oracle.Signature)
		}
		model.found(bad, domain, key.LKey())
	}
	check := func() {
		got, err := key.Check()
		if err != nil {
			t.Fatal(err)
		}
		if (got == nil) != (model.first == nil) || got != nil && *got != *model.first {
			t.Fatalf("strict %t: the check returns %+v, want %+v", model.strict, got, model.first)
		}
		model.first = nil
	}
	configure()
	for range 60 {
		switch r.IntN(8) {
		case 0:
			configure()
		case 1, 2, 3:
			check()
		default:
			transfer()
		}
	}
}
