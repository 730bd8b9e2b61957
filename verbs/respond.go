package verbs

import (
	"encoding/binary"
	"errors"
	"sync"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/roce"
)

// responder is the QP's side that carries out the peer's requests. It is used
// under the transport's lock of the QP.
type responder struct {
	qp     *QP
	active bool   // a receive request is in use
	recv   RecvWR // the one
	opened bool   // its memory is open
	memory sgList
	status Status // why the receive request failed, if this side knows
}

// Write implements roce.Sink for the message of a receive request, whose memory
// is opened by its first byte.
func (r *responder) Write(p []byte) error {
	return r.judge(r.write(p))
}

// judge returns what the peer is told of an error.
func (r *responder) judge(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.EMSGSIZE) {
		r.status = StatusLocLenErr
		return roce.NAKInvalidRequest.Err() // the peer sent more than was agreed
	}
	r.status = StatusLocProtErr
	return roce.NAKRemoteOperational.Err()
}

func (r *responder) write(p []byte) error {
	if !r.opened {
		if err := r.memory.openWrite(r.qp.pd, r.recv.SGEs, false); err != nil {
			return err
		}
		r.opened = true
	}
	return r.memory.Write(p)
}

// Place implements roce.Placer.
func (r *responder) Place(n int) []byte {
	if !r.opened {
		return nil
	}
	return r.memory.Place(n)
}

// Placed implements roce.Placer.
func (r *responder) Placed(n int) error { return r.judge(r.memory.Placed(n)) }

// BeginRecv implements roce.Handler.
func (qp *QP) BeginRecv() (roce.Sink, roce.NAK) {
	var wr RecvWR
	var ok bool
	if qp.attr.SRQ != nil {
		wr, ok = qp.attr.SRQ.pop()
	} else {
		wr, _, ok = qp.rq.pop()
	}
	if !ok {
		return nil, roce.NAKRNR
	}
	qp.resp = responder{qp: qp, active: true, recv: wr, memory: qp.resp.memory}
	return &qp.resp, roce.NAKNone
}

// ReturnRecv implements roce.Handler. QPs of this package are reliable connections, for
// which it is not called.
func (qp *QP) ReturnRecv() {}

// Received implements roce.Handler.
func (qp *QP) Received(ev roce.RecvEvent) roce.NAK {
	r := &qp.resp
	if r.opened {
		if err := r.memory.finish(); err != nil {
			r.status = statusOf(err)
			return roce.NAKRemoteOperational
		}
	}
	wc := WC{ID: r.recv.ID, Opcode: OpRecv, ByteLen: ev.Length, QPNum: qp.Num(), SrcQP: qp.Query().DestQPN}
	if ev.Op == roce.OpWriteImm {
		wc.Opcode = OpRecvRDMAWithImm
	}
	if ev.HasImm {
		wc.Flags, wc.Imm = WithImm, ev.Imm
	}
	if ev.HasInv {
		wc.Flags, wc.InvalidatedKey = WithInv, ev.InvKey
	}
	r.release()
	if !qp.attr.RecvCQ.push(wc, ev.Solicited) {
		return roce.NAKRemoteOperational
	}
	return roce.NAKNone
}

// abandon ends the receive request in use, if there is one, with a status.
func (r *responder) abandon(st Status) {
	if !r.active {
		return
	}
	if r.status != StatusSuccess {
		st = r.status
	}
	qp, id := r.qp, r.recv.ID
	r.release()
	qp.attr.RecvCQ.push(WC{ID: id, Status: st, Opcode: OpRecv, QPNum: qp.Num()}, false)
}

// release closes the receive request in use without a completion.
func (r *responder) release() {
	if !r.active {
		return
	}
	r.memory.close()
	q := &r.qp.rq
	if srq := r.qp.attr.SRQ; srq != nil {
		q = &srq.rq
	}
	q.recycle(r.recv.SGEs)
	*r = responder{qp: r.qp, memory: r.memory}
}

// remoteMemory is a range that the peer reads or writes: of a region, or of a
// memory key's wire domain.
type remoteMemory struct {
	mr   *MR
	key  *MKey
	addr uint64
	need Access
	tx   keydoor.TX
	rx   keydoor.RX
}

var remotePool = sync.Pool{New: func() any { return new(remoteMemory) }}

// ReadAt implements roce.Source.
func (m *remoteMemory) ReadAt(p []byte, off uint64) error {
	if m.tx != nil {
		if m.tx.ReadAt(p, off) != nil {
			return roce.NAKRemoteAccess.Err()
		}
		return nil
	}
	b, err := m.mr.At(m.addr+off, uint64(len(p)), m.need)
	if err != nil {
		return roce.NAKRemoteAccess.Err()
	}
	copy(p, b)
	return nil
}

// Write implements roce.Sink.
func (m *remoteMemory) Write(p []byte) error {
	if m.rx != nil {
		if err := m.rx.Write(p); err != nil {
			return roce.NAKRemoteAccess.Err()
		}
		return nil
	}
	b, err := m.mr.At(m.addr, uint64(len(p)), m.need)
	if err != nil {
		return roce.NAKRemoteAccess.Err()
	}
	copy(b, p)
	m.addr += uint64(len(p))
	return nil
}

// View implements roce.Viewer.
func (m *remoteMemory) View(off uint64, n int) []byte {
	if m.tx != nil {
		return m.tx.View(off, n)
	}
	b, _ := m.mr.At(m.addr+off, uint64(n), m.need)
	return b
}

// Place implements roce.Placer.
func (m *remoteMemory) Place(n int) []byte {
	if m.rx != nil {
		return m.rx.Place(n)
	}
	b, _ := m.mr.At(m.addr, uint64(n), m.need)
	return b
}

// Placed implements roce.Placer.
func (m *remoteMemory) Placed(n int) error {
	if m.rx == nil {
		m.addr += uint64(n)
		return nil
	}
	if m.rx.Placed(n) != nil {
		return roce.NAKRemoteAccess.Err()
	}
	return nil
}

func (m *remoteMemory) close() {
	if m.tx != nil {
		m.tx.Close()
	}
	if m.rx != nil {
		m.rx.Close()
	}
	*m = remoteMemory{}
	remotePool.Put(m)
}

// openRemote finds the memory that the peer names and checks that it may reach
// it, through the QP and along the whole path.
func (qp *QP) openRemote(rkey uint32, va uint64, length uint32, need Access) (*remoteMemory, roce.NAK) {
	if !qp.grants(need) {
		return nil, roce.NAKRemoteAccess
	}
	e, err := qp.pd.dev.keys.lookup(qp.pd, rkey)
	if err != nil {
		return nil, roce.NAKRemoteAccess
	}
	m := remotePool.Get().(*remoteMemory)
	m.mr, m.key, m.addr, m.need = e.mr, e.mkey, va, need
	switch {
	case e.mr != nil:
		err = e.mr.Reach(va, uint64(length), need)
	case need == RemoteRead:
		m.tx, err = e.mkey.door.RemoteTX(va, uint64(length))
	default:
		m.rx, err = e.mkey.door.RemoteRX(va, uint64(length))
	}
	if err != nil {
		m.close()
		if errors.Is(err, syscall.EMSGSIZE) {
			return nil, roce.NAKRemoteOperational // a job size that AES-XTS cannot do
		}
		return nil, roce.NAKRemoteAccess
	}
	return m, roce.NAKNone
}

// grants reports whether the peer may do so through the QP.
func (qp *QP) grants(need Access) bool {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	return qp.conn.AccessFlags&need == need
}

// OpenWrite implements roce.Handler.
func (qp *QP) OpenWrite(rkey uint32, va uint64, length uint32) (roce.Sink, roce.NAK) {
	m, nak := qp.openRemote(rkey, va, length, RemoteWrite)
	if nak != roce.NAKNone {
		return nil, nak
	}
	return m, roce.NAKNone
}

// EndWrite implements roce.Handler.
func (qp *QP) EndWrite(s roce.Sink, done bool) roce.NAK {
	m := s.(*remoteMemory)
	defer m.close()
	if done && m.rx != nil {
		switch err := m.rx.Finish(); {
		case errors.Is(err, syscall.EMSGSIZE):
			return roce.NAKRemoteOperational // a job size that AES-XTS cannot do
		case err != nil:
			return roce.NAKRemoteAccess
		}
	}
	return roce.NAKNone
}

// OpenRead implements roce.Handler.
func (qp *QP) OpenRead(rkey uint32, va uint64, length uint32) (roce.Source, roce.NAK) {
	m, nak := qp.openRemote(rkey, va, length, RemoteRead)
	if nak != roce.NAKNone {
		return nil, nak
	}
	return m, roce.NAKNone
}

// EndRead implements roce.Handler.
func (qp *QP) EndRead(s roce.Source) { s.(*remoteMemory).close() }

// Atomic implements roce.Handler. The 8 bytes must lie in one piece of memory; a
// key made for signatures or crypto has none that could be changed on their own.
func (qp *QP) Atomic(op roce.Op, rkey uint32, va uint64, a, b uint64) (uint64, roce.NAK) {
	if !qp.grants(RemoteAtomic) {
		return 0, roce.NAKRemoteAccess
	}
	e, err := qp.pd.dev.keys.lookup(qp.pd, rkey)
	if err != nil {
		return 0, roce.NAKRemoteAccess
	}
	var mem []byte
	switch {
	case e.mr != nil:
		mem, err = e.mr.At(va, 8, RemoteAtomic)
	case e.mkey.key.Flags()&(mkey.BlockSignature|mkey.CryptoOffload) == 0:
		mem, err = e.mkey.key.At(va, 8, RemoteAtomic)
	}
	if err != nil || len(mem) != 8 {
		return 0, roce.NAKRemoteAccess
	}
	qp.pd.dev.atomics.Lock()
	defer qp.pd.dev.atomics.Unlock()
	orig := binary.NativeEndian.Uint64(mem)
	switch op {
	case roce.OpCmpSwap:
		if orig == a {
			binary.NativeEndian.PutUint64(mem, b)
		}
	case roce.OpFetchAdd:
		binary.NativeEndian.PutUint64(mem, orig+a)
	}
	return orig, roce.NAKNone
}

// Invalidate implements roce.Handler.
func (qp *QP) Invalidate(rkey uint32) roce.NAK {
	e, err := qp.pd.dev.keys.lookup(qp.pd, rkey)
	if err != nil || e.mkey == nil || e.mkey.door.InvalidateRemote() != nil {
		return roce.NAKRemoteAccess
	}
	return roce.NAKNone
}
