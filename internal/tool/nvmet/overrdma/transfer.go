package overrdma

import (
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// transfer moves the data of a command. It implements nvmet.Transfer.
type transfer struct {
	w       *worker
	addr    uint64
	rkey    uint32
	n       int
	capsule []byte // the data, if it is in the capsule
	status  nvme.Status
	mr      *verbs.MR

	push   rdma.SGE // data for the host that the response posts
	pushes bool     // there is such data
}

// newTransfer reads the command's descriptor. data is the data in the capsule.
func newTransfer(w *worker, d *nvme.SGL, data []byte) *transfer {
	x := &transfer{w: w, status: nvme.DataLengthInvalid}
	switch {
	case d.Type == nvme.KeyedBlock && (d.Subtype == nvme.Address || d.Subtype == nvme.Invalidate):
		x.addr, x.rkey, x.n = d.Addr, d.Key, int(d.Length)
	case d.Type == nvme.DataBlock && d.Subtype == nvme.Offset:
		if d.Addr > uint64(len(data)) {
			x.status = nvme.OffsetInvalid
		} else if rest := data[d.Addr:]; uint64(d.Length) <= uint64(len(rest)) {
			x.capsule, x.n = rest[:d.Length:d.Length], int(d.Length)
		}
	default:
		x.status = nvme.DescriptorTypeInvalid
	}
	return x
}

// Len implements nvmet.Transfer.
func (x *transfer) Len() int { return x.n }

// Status implements nvmet.Transfer.
func (x *transfer) Status() nvme.Status { return x.status }

// Buffer implements nvmet.Transfer.
func (x *transfer) Buffer(n int) ([]byte, error) {
	if x.mr != nil || n > nvmet.MaxBuffer {
		return nil, fmt.Errorf("a buffer of %d bytes: must be the command's only one, of at most %d", n, nvmet.MaxBuffer)
	}
	_, size := classOf(n)
	x.w.c.host.take(size)
	mr, err := x.w.c.s.memory.get(n)
	if err != nil {
		x.w.c.host.give(size)
		return nil, err
	}
	x.mr = mr
	return mr.Bytes()[:n], nil // with the capacity of the whole: see sge
}

// finish frees the buffer, unless it is lent to the send queue.
func (x *transfer) finish() {
	if x.mr != nil {
		x.w.c.freeBuffer(x.mr)
		x.mr = nil
	}
}

// sge returns the list entry of a part of the buffer. The part's capacity tells where it begins.
func (x *transfer) sge(buf []byte) rdma.SGE {
	return x.mr.SGE(cap(x.mr.Bytes())-cap(buf), len(buf))
}

// Pull implements nvmet.Transfer.
func (x *transfer) Pull(buf []byte, n int, s *mkey.Signature) (*mkey.BadBlock, error) {
	if x.capsule == nil {
		return x.move(buf, n, s, false)
	}
	if s == nil {
		copy(buf, x.capsule[:n])
		return nil, nil
	}
	return nvmet.Sign(s, mkey.WireDomain, buf, x.capsule[:n], len(buf)/s.Memory.Stride())
}

// Push implements nvmet.Transfer.
func (x *transfer) Push(buf []byte, n int, s *mkey.Signature) (*mkey.BadBlock, error) {
	if x.capsule != nil {
		return nil, errors.New("data for the host in a command capsule")
	}
	return x.move(buf, n, s, true)
}

// move moves n bytes of the wire by RDMA. A transfer to the host without a signature is left to the
// response: its failure ends the connection.
func (x *transfer) move(buf []byte, n int, s *mkey.Signature, toHost bool) (bad *mkey.BadBlock, err error) {
	w, sge := x.w, x.sge(buf)
	if toHost && s == nil {
		sge.Length = uint32(n)
		x.push, x.pushes = sge, true
		return nil, nil
	}
	wr := w.c.qp.Start()
	if s != nil {
		if w.key == nil {
			if w.key, err = w.c.s.pd.NewMKey(verbs.MKeyAttr{Flags: mkey.BlockSignature, MaxEntries: 1}); err != nil {
				return nil, err
			}
		}
		wr.ID(w.id).Configure(w.key).Access(rdma.LocalWrite).List(sge).Signature(*s)
		sge = w.key.SGE(0, n)
	} else {
		sge.Length = uint32(n)
	}
	wr.ID(w.id).Signaled()
	if toHost {
		wr.Write(x.rkey, x.addr).SGE(sge)
	} else {
		wr.Read(x.rkey, x.addr).SGE(sge)
	}
	if err := wr.Complete(); err != nil {
		return nil, err
	}
	if err := <-w.done; err != nil {
		return nil, err
	}
	if s != nil {
		return w.key.Check()
	}
	return nil, nil
}
