package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// TestTransaction READs one stream through many keys with one PSV, several READs at a time, in
// memory of each kind, over networks that lose and repeat packets. Whatever the peer has to ask
// for again, each byte counts once in the CRC behind the last key's data.
func TestTransaction(t *testing.T) {
	for name, f := range map[string]netem.Faults{
		"no faults": {}, "loss": {Loss: 0.05}, "everything": {Loss: 0.02, Duplicate: 0.03, Reorder: 0.03, Delay: 0.02},
	} {
		for _, copied := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/copied=%t", name, copied), func(t *testing.T) {
				for seed := range uint64(4) {
					testTransaction(t, netem.NewNetwork(seed, f, nil), seed, copied)
				}
			})
		}
	}
}

func testTransaction(t *testing.T, n *netem.Network, seed uint64, copied bool) {
	r := rand.New(rand.NewPCG(seed, 5))
	x, y := newEnd(t, n.Listen, "192.0.2.1", QPAttr{}), newEnd(t, n.Listen, "192.0.2.2", QPAttr{})
	connect(x, x.qp, y, y.qp)
	connect(y, y.qp, x, x.qp)

	const keys = 24
	lengths, total := make([]int, keys), 0
	for i := range lengths {
		lengths[i] = 1 + r.IntN(20_000)
		total += lengths[i]
	}
	var data []byte
	var from *Region
	if copied {
		m, region := y.far(total, rdma.LocalWrite|rdma.RemoteRead)
		data, from = m.b, region
	} else {
		data, from = y.slice(total, rdma.LocalWrite|rdma.RemoteRead)
	}
	rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
	got, to := x.slice(total+4, rdma.LocalWrite)
	psv := keydoor.NewPSV()
	psv.Set(5) // left by another stream
	access := rdma.RemoteRead
	var reads []*SendRequest
	read := func(k *MKey, at uint64, off, n int) {
		reads = append(reads, &SendRequest{ID: uint64(len(reads)), Op: ibv.WRRead, RKey: k.Number(), RemoteAddr: at, SGEs: []rdma.SGE{sge(to, off, n)}})
	}
	off := 0
	for i, n := range lengths {
		k := y.newKey(mkey.BlockSignature)
		last := i == keys-1
		y.post(&SendRequest{ID: uint64(i), Op: ibv.WRConfigure, Configure: &Configuration{
			Key: k, Access: &access, HasList: true, List: []rdma.SGE{sge(from, off, n)},
			Transaction: &keydoor.Transaction{PSV: psv, Init: i == 0, Generate: last, Length: uint64(n)},
		}})
		y.want(t, fmt.Sprintf("send %d: success", i))
		cut := n
		if r.IntN(3) == 0 {
			cut = 1 + r.IntN(n) // in two parts
		}
		read(k, 0, off, cut)
		if cut < n {
			read(k, uint64(cut), off+cut, n-cut)
		}
		if last {
			read(k, uint64(n), total, 4)
		}
		off += n
	}
	x.post(reads...)
	for i := range reads {
		x.want(t, fmt.Sprintf("send %d: success", i))
	}
	if !bytes.Equal(got[:total], data) {
		t.Fatal("the data differs")
	}
	if crc, want := binary.LittleEndian.Uint32(got[total:]), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)); crc != want {
		t.Fatalf("seed %d: the CRC is %#x, want %#x", seed, crc, want)
	}
}
