package mkey

import (
	"encoding/binary"
	"hash/crc32"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/keydoor"
)

// crcSeed is the initial value of the register.
const crcSeed = 0xFFFFFFFF

const transactionField = 4 // bytes of the CRC on the wire

// maxTransaction limits the data of a key with a transaction signature. A peer
// that repeats a READ before its end can force the device to compute the
// register from the beginning again for each packet.
const maxTransaction = 16 << 20

func (k *Key) prepareTransaction(u *update) (*keydoor.Transaction, error) {
	switch {
	case k.flags&BlockSignature == 0:
		return nil, failure.New(opConfigure, syscall.EINVAL, "a transaction signature on a key created without BlockSignature")
	case u.Signature != nil:
		return nil, failure.New(opConfigure, syscall.EINVAL, "a transaction signature and block signatures: a key has one of them")
	case u.Crypto != nil:
		return nil, errTransactionCrypto
	case u.Transaction.PSV == nil:
		return nil, failure.New(opConfigure, syscall.EINVAL, "a transaction signature without a PSV")
	}
	return new(*u.Transaction), nil
}

var errTransactionCrypto error = failure.New(opConfigure, syscall.EINVAL, "a transaction signature and crypto attributes: a key has one of them")

// checkTransaction refuses a plan whose transaction signature does not fit the rest.
func (p *plan) checkTransaction() error {
	t := p.transaction
	switch {
	case t == nil:
		return nil
	case p.crypto != nil:
		return errTransactionCrypto
	case p.layout != nil && p.layout.total > maxTransaction:
		return failure.New(opConfigure, syscall.EINVAL, "a transaction signature over a layout of %d bytes: at most %d", p.layout.total, maxTransaction)
	case p.layout != nil && t.Length != 0 && t.Length != p.layout.total:
		return failure.New(opConfigure, syscall.EINVAL, "a transaction signature over %d bytes: the layout has %d", t.Length, p.layout.total)
	}
	return nil
}

// transactionLen returns the bytes that follow the data on the wire.
func transactionLen(t *keydoor.Transaction) uint64 {
	if t == nil || !t.Generate {
		return 0
	}
	return transactionField
}

// transactionData returns the bytes of data in a range of the wire domain of a key with a
// transaction signature.
func (p *plan) transactionData(offset, length uint64) (uint64, error) {
	data, field := p.layout.total, transactionLen(p.transaction)
	switch {
	case offset > data || length > data-offset && length-(data-offset) > field:
		return 0, failure.New("mkey access", syscall.EFAULT, "range %d+%d lies outside of the %d bytes of data and %d bytes of signature of the stream", offset, length, data, field)
	}
	return min(length, data-offset), nil
}

// txRegister is the layer of a TX that computes a transaction signature. For a
// sequential reader, the register is computed from the bytes that are read.
// Bytes that a reader skips are read only for the register.
type txRegister struct {
	below       puller
	transaction *keydoor.Transaction // nil: the layer is not in use

	from, end uint64 // range of the transfer's data
	pos       uint64 // the register includes the data before this position
	first     uint32 // value of the register at from
	register  uint32
	loaded    bool // first is valid
	changed   bool // this stream, or an earlier one of the same READ, has changed the PSV
}

// A transaction's mark passes state from one stream of a READ to the next. It
// has the register after the last byte if the PSV was changed, and otherwise
// the register at the beginning. The mark rises with each stream of a READ.
const (
	markBegun   = 1 << 32
	markChanged = 1 << 33
)

func (l *txRegister) mark() uint64 {
	switch {
	case l.loaded && l.changed && l.pos == l.end:
		return markChanged | uint64(l.register)
	case l.loaded && !l.changed:
		return markBegun | uint64(l.first)
	}
	return 0
}

// restore continues from the mark of an earlier stream. A READ that was
// answered under an earlier configuration of the key has no mark, and does not
// change the PSV.
func (l *txRegister) restore(mark uint64, repeated bool) {
	switch {
	case mark&markChanged != 0:
		l.loaded, l.changed = true, true
		l.register, l.pos = uint32(mark), l.end
	case mark&markBegun != 0:
		l.loaded = true
		l.first = uint32(mark)
		l.register = l.first
	default:
		l.changed = repeated
	}
}

// load sets the register at the first access, when the streams before it have ended.
func (l *txRegister) load() {
	if l.loaded {
		return
	}
	l.loaded = true
	l.first = crcSeed
	if l.from != 0 || !l.transaction.Init {
		l.first = l.transaction.PSV.Register()
	}
	l.register = l.first
}

// add runs the register over p, the data at l.pos.
func (l *txRegister) add(p []byte) {
	l.register = ^crc32.Update(^l.register, castagnoli, p)
	l.pos += uint64(len(p))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// catchUp runs the register up to pos.
func (l *txRegister) catchUp(pos uint64) error {
	if l.pos >= pos {
		return nil
	}
	buf := borrow()
	defer buffers.Put(buf)
	for l.pos < pos {
		p := buf[:min(step, pos-l.pos)]
		if err := l.below.pull(p, l.pos); err != nil {
			return err
		}
		l.add(p)
	}
	return nil
}

func (l *txRegister) view(uint64, int) ([]byte, error) { return nil, nil }

func (l *txRegister) pull(p []byte, pos uint64) error {
	l.load()
	if pos < l.end && len(p) > 0 {
		n := min(uint64(len(p)), l.end-pos)
		if err := l.below.pull(p[:n], pos); err != nil {
			return err
		}
		if !l.changed || n < uint64(len(p)) {
			if err := l.catchUp(pos); err != nil {
				return err
			}
		}
		if l.pos >= pos && l.pos < pos+n {
			l.add(p[l.pos-pos : n])
		}
		p, pos = p[n:], pos+n
	}
	if len(p) > 0 {
		if err := l.catchUp(l.end); err != nil {
			return err
		}
		var field [transactionField]byte
		binary.LittleEndian.PutUint32(field[:], ^l.register)
		copy(p, field[pos-l.end:])
	}
	if l.pos == l.end && !l.changed {
		l.changed = true
		l.transaction.PSV.Set(l.register)
	}
	return nil
}
