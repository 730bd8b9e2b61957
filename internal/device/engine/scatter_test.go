package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/rdma"
)

// inline returns a SEND of data that the request carries.
func inline(id uint64, data []byte) *SendRequest {
	return &SendRequest{ID: id, Op: ibv.WRSend, HasInline: true, Inline: data}
}

// TestBatchedScatter sends small messages in one batch, to memory that can only be copied. The data
// of all of them is written with few calls, and before the completions are reported.
func TestBatchedScatter(t *testing.T) {
	const n, size = 60, 64
	x, y := pair(t, QPAttr{})
	m, r := y.far(n*size, rdma.LocalWrite)
	data := func(id uint64) []byte { return bytes.Repeat([]byte{byte(id)}, size) }
	y.ended = func(r *RecvRequest) {
		if got := m.b[r.ID*size:][:size]; !bytes.Equal(got, data(r.ID)) {
			t.Errorf("message %d was reported before its data was there", r.ID)
		}
	}
	var recvs []*RecvRequest
	var sends []*SendRequest
	for id := range uint64(n) {
		recvs = append(recvs, &RecvRequest{ID: id, SGEs: []rdma.SGE{sge(r, int(id)*size, size)}})
		sends = append(sends, inline(id, data(id)))
	}
	y.postRecv(recvs...)
	x.post(sends...)
	for id := range n {
		y.want(t, fmt.Sprintf("recv %d: success, %d bytes", id, size))
		x.want(t, fmt.Sprintf("send %d: success", id))
	}
	if calls := m.calls.Load(); calls > n/10 {
		t.Errorf("%d calls for %d messages", calls, n)
	}
}

// TestBatchOrder has an atomic, and a memory key, between two WRITEs of a batch that go to
// the same bytes. They must see the first WRITE, and the second one must come last.
func TestBatchOrder(t *testing.T) {
	const all = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic
	x, y := pair(t, QPAttr{})
	m, r := y.far(16, all)
	old, oldRegion := x.slice(8, rdma.LocalWrite)
	// With 16 bytes, the packet of a WRITE is longer than that of an atomic, which can then
	// end the train.
	number := func(n uint64) []byte { return append(binary.NativeEndian.AppendUint64(nil, n), make([]byte, 8)...) }
	write := func(id, n uint64) *SendRequest {
		return &SendRequest{ID: id, Op: ibv.WRWrite, RKey: r.Number(), RemoteAddr: 0x1000, HasInline: true, Inline: number(n)}
	}
	x.post(write(1, 40),
		&SendRequest{ID: 2, Op: ibv.WRFetchAdd, RKey: r.Number(), RemoteAddr: 0x1000, CompareAdd: 2, SGEs: []rdma.SGE{sge(oldRegion, 0, 8)}},
		write(3, 7))
	x.want(t, "send 1: success", "send 2: success", "send 3: success")
	if got := binary.NativeEndian.Uint64(old); got != 40 {
		t.Errorf("the atomic found %d, want 40", got)
	}
	if got := binary.NativeEndian.Uint64(m.b); got != 7 {
		t.Errorf("%d after the batch, want 7", got)
	}

	k := y.newKey(0)
	access := rdma.LocalWrite | rdma.RemoteWrite
	y.post(&SendRequest{ID: 4, Op: ibv.WRConfigure, Configure: &Configuration{Key: k, Access: &access, HasList: true, List: []rdma.SGE{sge(r, 0, 16)}}})
	y.want(t, "send 4: success")
	byKey := write(6, 2)
	byKey.RKey, byKey.RemoteAddr = k.Number(), 0
	x.post(write(5, 1), byKey)
	x.want(t, "send 5: success", "send 6: success")
	if got := binary.NativeEndian.Uint64(m.b); got != 2 {
		t.Errorf("%d after a WRITE by address and one by key, want 2", got)
	}
}

// TestBatchFails unmaps the memory of one message in the middle of a batch. The messages
// before it succeed here, and it and the later ones fail.
func TestBatchFails(t *testing.T) {
	x, y := pair(t, QPAttr{})
	_, good := y.far(64, rdma.LocalWrite|rdma.RemoteWrite)
	m, bad := y.far(64, rdma.LocalWrite|rdma.RemoteWrite)
	m.gone.Store(true)
	for id, r := range []*Region{good, bad, good, good} {
		y.postRecv(&RecvRequest{ID: uint64(id), SGEs: []rdma.SGE{sge(r, 0, 64)}})
	}
	data := make([]byte, 64)
	x.post(inline(0, data), inline(1, data), inline(2, data))
	y.want(t, "recv 0: success", "recv 1: local protection error, 0 bytes, flags 0 (copy: ", "recv 2: work request flushed error")
	y.want(t, "recv 3: work request flushed error", "event QP fatal")
	x.want(t, "send 0: remote operation error")

	x, y = pair(t, QPAttr{})
	_, good = y.far(64, rdma.LocalWrite|rdma.RemoteWrite)
	m, bad = y.far(64, rdma.LocalWrite|rdma.RemoteWrite)
	m.gone.Store(true)
	y.postRecv(&RecvRequest{ID: 0, SGEs: []rdma.SGE{sge(good, 0, 64)}})
	x.post(&SendRequest{ID: 0, Op: ibv.WRWrite, RKey: bad.Number(), RemoteAddr: 0x1000, HasInline: true, Inline: data}, inline(1, data))
	x.want(t, "send 0: remote access error")
	y.want(t, "recv 0: work request flushed error", "event QP access error")
}

// TestBatchRead unmaps the memory that the responses of a READ go to.
func TestBatchRead(t *testing.T) {
	x, y := pair(t, QPAttr{})
	m, r := x.far(8192, rdma.LocalWrite)
	m.gone.Store(true)
	_, src := y.slice(8192, rdma.RemoteRead)
	x.post(&SendRequest{ID: 1, Op: ibv.WRRead, RKey: src.Number(), RemoteAddr: src.Attr().Addr, SGEs: []rdma.SGE{sge(r, 0, 8192)}})
	x.want(t, "send 1: local protection error (copy: ")
}

// TestBatchFlushed takes a QP to ERR while a message waits for the end of its batch.
func TestBatchFlushed(t *testing.T) {
	_, y := pair(t, QPAttr{})
	y.postRecv(&RecvRequest{ID: 2})
	y.qp.Lock()
	y.qp.scatter = new(scatter)
	y.qp.scatter.end(&RecvRequest{ID: 1}, &Completion{Op: rdma.OpRecv})
	y.qp.Unlock()
	y.check(y.qp.Modify(ibv.QPModify{State: rdma.StateErr}, ibv.AttrState))
	y.want(t, "recv 1: work request flushed error", "recv 2: work request flushed error")
}
