package ether

import (
	"bytes"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Fields that the hash of a TIR is of.
const (
	hashSrcIP   = 1 << 0
	hashDstIP   = 1 << 1
	hashSrcPort = 1 << 2
	hashDstPort = 1 << 3
)

// MaxRQTSize is the largest number of receive queues in a table.
const MaxRQTSize = 1 << 8

// HashFunction is the hash that selects a queue.
type HashFunction uint8

// The hash functions.
const (
	HashNone     HashFunction = 0 // the first queue takes all frames
	HashXOR8     HashFunction = 1 // inverted XOR of all bytes
	HashToeplitz HashFunction = 2
)

// TIR decides which receive queue takes a frame: RQ, or one of the table RQT by a hash.
type TIR struct {
	Direct    bool
	RQ        uint32 // of a direct one
	RQT       uint32
	Hash      HashFunction
	Symmetric bool // source and destination are exchangeable
	Key       [40]byte
	Fields    uint32 // hash*
	Own       bool   // it also takes unicast frames that the port itself has sent
}

// rqt is a table of receive queues.
type rqt struct {
	max int
	rqs []uint32
}

func (t *TIR) check(op string, p *Port) (err error) {
	if t.Direct {
		_, err = find(op, "RQ", p.rqs, t.RQ)
	} else {
		_, err = find(op, "RQT", p.rqts, t.RQT)
	}
	return err
}

// CreateTIR makes a TIR and returns its number.
func (p *Port) CreateTIR(t TIR) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := t.check("CREATE_TIR", p); err != nil {
		return 0, err
	}
	return insert(p, "TIR", p.tirs, &t)
}

// ModifyTIR replaces the fields of a hash.
func (p *Port) ModifyTIR(id uint32, change func(t *TIR)) error {
	const op = "MODIFY_TIR"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := find(op, "TIR", p.tirs, id)
	if err != nil {
		return err
	}
	changed := *t
	change(&changed)
	if err := changed.check(op, p); err != nil {
		return err
	}
	*t = changed
	return nil
}

// DestroyTIR destroys a TIR. Entries that forward to it drop frames from then on.
func (p *Port) DestroyTIR(id uint32) error { return remove(p, "TIR", p.tirs, id) }

// CreateRQT makes a table of receive queues and returns its number.
func (p *Port) CreateRQT(max int, rqs []uint32) (uint32, error) {
	const op = "CREATE_RQT"
	p.mu.Lock()
	defer p.mu.Unlock()
	if max < 1 || max > MaxRQTSize || len(rqs) > max {
		return 0, failure.New(op, syscall.EINVAL, "%d queues in a table of %d: at most %d", len(rqs), max, MaxRQTSize)
	}
	if err := p.checkRQs(op, rqs); err != nil {
		return 0, err
	}
	return insert(p, "RQT", p.rqts, &rqt{max: max, rqs: rqs})
}

func (p *Port) checkRQs(op string, rqs []uint32) error {
	for _, n := range rqs {
		if _, err := find(op, "RQ", p.rqs, n); err != nil {
			return err
		}
	}
	return nil
}

// ModifyRQT replaces the queues of a table.
func (p *Port) ModifyRQT(id uint32, rqs []uint32) error {
	const op = "MODIFY_RQT"
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := find(op, "RQT", p.rqts, id)
	switch {
	case err != nil:
		return err
	case len(rqs) > t.max:
		return failure.New(op, syscall.EINVAL, "%d queues in a table of %d", len(rqs), t.max)
	}
	if err := p.checkRQs(op, rqs); err != nil {
		return err
	}
	t.rqs = rqs
	return nil
}

// DestroyRQT destroys a table of receive queues.
func (p *Port) DestroyRQT(id uint32) error { return remove(p, "RQT", p.rqts, id) }

// pick returns the receive queue that takes a frame, and fills the completion's hash. p.mu
// is held.
func (p *Port) pick(t *TIR, b []byte, l *layers, cqe *prm.EthernetCQE) *Queue {
	var hashed bool
	if t.Hash != HashNone {
		cqe.Hash, hashed = t.hash(b, l, cqe)
	}
	if !hashed {
		cqe.Hash = 1 // the driver takes 0 for "none"
	}
	if t.Direct {
		return p.rqs[t.RQ]
	}
	table := p.rqts[t.RQT]
	if table == nil || len(table.rqs) == 0 {
		return nil
	}
	i := 0
	if hashed {
		i = int(cqe.Hash % uint32(len(table.rqs)))
	}
	return p.rqs[table.rqs[i]]
}

// hash returns the Toeplitz hash of the fields that the TIR selects; false if the frame has
// none of them.
func (t *TIR) hash(b []byte, l *layers, cqe *prm.EthernetCQE) (uint32, bool) {
	if l.l3 == 0 {
		return 0, false
	}
	var in [36]byte
	n := 0
	a := addresses(b, l)
	half := len(a) / 2
	src, dst := a[:half], a[half:]
	swap := t.Symmetric && bytes.Compare(src, dst) > 0
	if swap {
		src, dst = dst, src
	}
	if t.Fields&hashSrcIP != 0 {
		n += copy(in[n:], src)
	}
	if t.Fields&hashDstIP != 0 {
		n += copy(in[n:], dst)
	}
	cqe.L3 = prm.EthL3IPv4
	if l.v6 {
		cqe.L3 = prm.EthL3IPv6
	}
	if l.l4 != 0 {
		src, dst := b[l.l4:l.l4+2], b[l.l4+2:l.l4+4]
		if swap {
			src, dst = dst, src
		}
		if t.Fields&hashSrcPort != 0 {
			n += copy(in[n:], src)
		}
		if t.Fields&hashDstPort != 0 {
			n += copy(in[n:], dst)
		}
		if t.Fields&(hashSrcPort|hashDstPort) != 0 {
			cqe.L4 = prm.EthL4TCP
			if l.proto == protoUDP {
				cqe.L4 = prm.EthL4UDP
			}
		}
	}
	if t.Hash == HashXOR8 {
		x := byte(0xff)
		for _, v := range in[:n] {
			x ^= v
		}
		return uint32(x), n > 0
	}
	return toeplitz(&t.Key, in[:n]), n > 0
}

// toeplitz is the hash of receive side scaling.
func toeplitz(key *[40]byte, in []byte) (h uint32) {
	window := uint64(be.Uint32(key[:]))<<32 | uint64(be.Uint32(key[4:]))
	for i, v := range in {
		for bit := 7; bit >= 0; bit-- {
			if v>>bit&1 != 0 {
				h ^= uint32(window >> 32)
			}
			window <<= 1
		}
		if i+8 < len(key) {
			window |= uint64(key[i+8])
		}
	}
	return h
}
