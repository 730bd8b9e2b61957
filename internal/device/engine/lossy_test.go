package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
)

// lossyMemory is memory of one end for a number of messages, each with a slot of its own.
type lossyMemory struct {
	b      []byte
	number uint32 // of the region, or of the key over it
	addr   uint64 // of the first slot
	slot   int    // bytes of a slot on the wire
}

// at returns the entry for a slot's first n bytes.
func (m *lossyMemory) at(slot, n int) rdma.SGE {
	return rdma.SGE{Addr: m.addr + uint64(slot*m.slot), Length: uint32(n), LKey: m.number}
}

// lossyKey is what the keys of both ends do with the bytes on the wire.
type lossyKey struct {
	sign, encrypt bool
	start         uint64 // address of the first byte of a key
}

func (k lossyKey) none() bool { return !k.sign && !k.encrypt }

// wire returns the length on the wire of n bytes of memory.
func (k lossyKey) wire(n int) int {
	if k.sign {
		return n / 512 * 520
	}
	return n
}

// lossyMemory registers slots of size bytes, and configures a key over them unless how is none.
func (e *end) lossyMemory(slots, size int, copied bool, how lossyKey, d *dek.DEK) *lossyMemory {
	var b []byte
	var r *Region
	if copied {
		var f *far
		f, r = e.far(slots*size, allRights)
		b = f.b
	} else {
		b, r = e.slice(slots*size, allRights)
	}
	m := &lossyMemory{b: b, number: r.Number(), addr: r.Attr().Addr, slot: how.wire(size)}
	if how.none() {
		return m
	}
	a := keydoor.Attr{Flags: uint32(mkey.RemoteInvalidate), MaxEntries: 4}
	access := allRights
	c := &Configuration{HasList: true, List: []rdma.SGE{sge(r, 0, slots*size)}, Access: &access}
	if how.sign {
		a.Flags |= uint32(mkey.BlockSignature)
		c.Signature = &mkey.Signature{Wire: &sig.Format{Type: sig.T10DIF, BlockSize: 512, AppTag: 7, RefTag: 3}}
	}
	if how.encrypt {
		a.Flags |= uint32(mkey.CryptoOffload)
		c.Crypto = &mkey.Crypto{EncryptOnTX: true, Order: mkey.SignatureAfterCrypto, DataUnitSize: 512, DEK: d}
	}
	k, err := e.pd.NewMKey(a)
	e.check(err)
	c.Key, c.Start = k, &how.start
	e.post(&SendRequest{ID: 1, Op: ibv.WRConfigure, Configure: c})
	e.want(e.t, "send 1: success")
	m.number, m.addr = k.Number(), how.start
	return m
}

// TestLossyMessages has many messages in flight, of one size, over networks that lose, reorder
// and duplicate packets: with memory that is used in place and
// memory that can only be copied, with keys that sign and encrypt and without. Every byte must be
// right and every message must complete once, in order. The time is virtual.
func TestLossyMessages(t *testing.T) {
	n := uint64(40)
	switch {
	case os.Getenv("SOFTMKEY_LONG") != "":
		n = 5000
	case testing.Short():
		n = 60
	}
	for seed := range n {
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lossyMessages(t, seed) })
		}) {
			return
		}
	}
}

func lossyMessages(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 5))
	faults := netem.Faults{Loss: []float64{0.001, 0.01, 0.03}[rnd.IntN(3)], Latency: time.Duration(rnd.IntN(100)) * time.Microsecond}
	if rnd.IntN(2) == 0 {
		faults.Reorder = 0.05
	}
	if rnd.IntN(3) == 0 {
		faults.Duplicate = 0.03
	}
	how := lossyKey{sign: rnd.IntN(2) == 0, encrypt: rnd.IntN(3) == 0}
	copied := [2]bool{rnd.IntN(2) == 0, rnd.IntN(4) > 0}
	slots := 1 << rnd.IntN(7)
	size := 16 << rnd.IntN(13)
	if !how.none() {
		size = max(size, 512)
	}
	t.Logf("faults %+v, keys %+v, copied %v, %d messages of %d bytes", faults, how, copied, slots, size)

	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	d, err := dek.New(key)
	if err != nil {
		t.Fatal(err)
	}
	network := netem.NewNetwork(seed, faults, nil)
	x, y := newEnd(t, network.Listen, "2001:db8::1", QPAttr{}), newEnd(t, network.Listen, "2001:db8::2", QPAttr{})
	for _, e := range []*end{x, y} {
		e.log = make(chan string, 1000)
		defer e.close()
	}
	connect(x, x.qp, y, y.qp)
	connect(y, y.qp, x, x.qp)
	xm := x.lossyMemory(slots, size, copied[0], how, d)
	ym := y.lossyMemory(slots, size, copied[1], how, d)

	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	for round := range 3 {
		random.Read(xm.b)
		random.Read(ym.b)
		before := [2][]byte{bytes.Clone(xm.b), bytes.Clone(ym.b)}
		var sends []*SendRequest
		var recvs []*RecvRequest
		var wantX, wantY []string
		var checks []func()
		for i := range slots {
			n := size
			if how.none() {
				n -= rnd.IntN(1 + size/16)
			}
			wire := how.wire(n)
			r := &SendRequest{ID: uint64(round*1000 + i), SGEs: []rdma.SGE{xm.at(i, wire)}, RKey: ym.number, RemoteAddr: ym.at(i, 0).Addr}
			from, to, at := before[0], ym.b, i*size
			arrives := func(flags string) {
				recvs = append(recvs, &RecvRequest{ID: r.ID, SGEs: []rdma.SGE{ym.at(i, wire)}})
				wantY = append(wantY, fmt.Sprintf("recv %d: success, %d bytes, flags %s", r.ID, wire, flags))
			}
			switch rnd.IntN(6) {
			case 0:
				r.Op = ibv.WRSend
				arrives("")
			case 1:
				r.Op, r.Imm = ibv.WRSendImm, uint32(i)
				arrives("")
			case 2:
				free := y.newKey(mkey.RemoteInvalidate)
				y.post(&SendRequest{ID: 1, Op: ibv.WRConfigure, Configure: &Configuration{Key: free, HasList: true}})
				y.want(t, "send 1: success")
				r.Op, r.InvKey = ibv.WRSendInv, free.Number()
				arrives("")
			case 3:
				r.Op = ibv.WRWrite
			case 4:
				r.Op, r.Imm = ibv.WRWriteImm, uint32(i)
				recvs = append(recvs, &RecvRequest{ID: r.ID})
				wantY = append(wantY, fmt.Sprintf("recv %d: success, %d bytes, flags", r.ID, wire))
			case 5:
				r.Op = ibv.WRRead
				from, to = before[1], xm.b
			}
			sends = append(sends, r)
			wantX = append(wantX, fmt.Sprintf("send %d: success", r.ID))
			checks = append(checks, func() {
				if !bytes.Equal(to[at:][:n], from[at:][:n]) {
					t.Errorf("round %d, message %d, %v of %d bytes: wrong bytes", round, i, r.Op, n)
				}
			})
		}
		y.postRecv(recvs...)
		x.post(sends...)
		x.want(t, wantX...)
		y.want(t, wantY...)
		for _, check := range checks {
			check()
		}
	}
}
