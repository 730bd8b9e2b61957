package verbs

import (
	"errors"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/operr"
	"github.com/softmkey/softmkey/roce"
)

// sgList is the memory of one message: a list of ranges of regions and memory
// keys, opened for reading (a roce.Source) or for writing (a roce.Sink).
type sgList struct {
	entries []sgEntry
	current int    // entry that was used last, where the next access most likely is
	written uint64 // bytes that Write took
	signed  bool   // a signature is checked on the way
}

// sgEntry is one range, open: inline data, a region, or a memory key's stream.
type sgEntry struct {
	start, length uint64 // in the message
	inline        []byte
	mr            *MR
	addr          uint64
	tx            keydoor.TX
	rx            keydoor.RX
}

func (l *sgList) reset() {
	l.entries, l.current, l.written, l.signed = l.entries[:0], 0, 0, false
}

func (l *sgList) openInline(data []byte) {
	l.reset()
	l.entries = append(l.entries, sgEntry{length: uint64(len(data)), inline: data})
}

// openRead opens the ranges for sending. What must be refused is refused here,
// before a byte is on its way.
func (l *sgList) openRead(pd *PD, sges []SGE) error {
	return l.open(pd, sges, func(e *sgEntry, k *MKey, s SGE) (err error) {
		if k != nil {
			e.tx, err = k.door.TX(s.Addr, uint64(s.Length))
			return err
		}
		return e.mr.Reach(s.Addr, uint64(s.Length), 0)
	})
}

// openWrite opens the ranges for receiving: exactly as many bytes as they have,
// or up to that many.
func (l *sgList) openWrite(pd *PD, sges []SGE, exact bool) error {
	return l.open(pd, sges, func(e *sgEntry, k *MKey, s SGE) (err error) {
		switch {
		case k == nil:
			return e.mr.Reach(s.Addr, uint64(s.Length), LocalWrite)
		case exact:
			e.rx, err = k.door.RX(s.Addr, uint64(s.Length))
		default:
			e.rx, err = k.door.RXUpTo(s.Addr, uint64(s.Length))
		}
		return err
	})
}

func (l *sgList) open(pd *PD, sges []SGE, open func(*sgEntry, *MKey, SGE) error) error {
	l.reset()
	var start uint64
	for _, s := range sges {
		if s.Length == 0 {
			continue
		}
		found, err := pd.dev.keys.lookup(pd, s.LKey)
		if err != nil {
			l.close()
			return err
		}
		l.entries = append(l.entries, sgEntry{start: start, length: uint64(s.Length), mr: found.mr, addr: s.Addr})
		if err := open(&l.entries[len(l.entries)-1], found.mkey, s); err != nil {
			l.close()
			return err
		}
		if found.mkey != nil {
			l.signed = l.signed || found.mkey.key.Flags()&mkey.BlockSignature != 0
		}
		start += uint64(s.Length)
	}
	return nil
}

// ReadAt implements roce.Source.
func (l *sgList) ReadAt(p []byte, off uint64) error {
	for len(p) > 0 {
		e := l.at(off)
		if e == nil {
			return operr.New("send", syscall.EFAULT, "offset %d lies behind the message", off)
		}
		within := off - e.start
		n := min(uint64(len(p)), e.length-within)
		var err error
		switch {
		case e.tx != nil:
			err = e.tx.ReadAt(p[:n], within)
		case e.mr != nil:
			var b []byte
			if b, err = e.mr.At(e.addr+within, n, 0); err == nil {
				copy(p, b)
			}
		default:
			copy(p, e.inline[within:within+n])
		}
		if err != nil {
			return err
		}
		p, off = p[n:], off+n
	}
	return nil
}

// View implements roce.Viewer.
func (l *sgList) View(off uint64, n int) []byte {
	e := l.at(off)
	if e == nil || off-e.start+uint64(n) > e.length {
		return nil
	}
	within := off - e.start
	switch {
	case e.tx != nil:
		return e.tx.View(within, n)
	case e.mr != nil:
		b, _ := e.mr.At(e.addr+within, uint64(n), 0)
		return b
	}
	return e.inline[within : within+uint64(n)]
}

// Place implements roce.Placer.
func (l *sgList) Place(n int) []byte {
	e := l.at(l.written)
	if e == nil || l.written-e.start+uint64(n) > e.length {
		return nil
	}
	if e.rx != nil {
		return e.rx.Place(n)
	}
	b, _ := e.mr.At(e.addr+l.written-e.start, uint64(n), LocalWrite)
	return b
}

// Placed implements roce.Placer.
func (l *sgList) Placed(n int) (err error) {
	if e := l.at(l.written); e.rx != nil {
		err = e.rx.Placed(n)
	}
	l.written += uint64(n)
	return err
}

// at returns the entry that holds an offset of the message.
func (l *sgList) at(off uint64) *sgEntry {
	if l.current >= len(l.entries) || off < l.entries[l.current].start {
		l.current = 0
	}
	for ; l.current < len(l.entries); l.current++ {
		if e := &l.entries[l.current]; off < e.start+e.length {
			return e
		}
	}
	return nil
}

// errTooLong is a message that is longer than the receive request has room for.
var errTooLong = operr.New("receive", syscall.EMSGSIZE, "the message is longer than the receive request")

// Write implements roce.Sink.
func (l *sgList) Write(p []byte) error {
	for len(p) > 0 {
		e := l.at(l.written)
		if e == nil {
			return errTooLong
		}
		within := l.written - e.start
		n := min(uint64(len(p)), e.length-within)
		var err error
		if e.rx != nil {
			err = e.rx.Write(p[:n])
		} else {
			var b []byte
			if b, err = e.mr.At(e.addr+within, n, LocalWrite); err == nil {
				copy(b, p)
			}
		}
		if err != nil {
			return err
		}
		p, l.written = p[n:], l.written+n
	}
	return nil
}

// finish ends a message that was written whole.
func (l *sgList) finish() error {
	for i := range l.entries {
		if e := &l.entries[i]; e.rx != nil && e.start <= l.written {
			if err := e.rx.Finish(); err != nil {
				return err
			}
		}
	}
	return nil
}

// close closes all streams and returns how many bad blocks they found.
func (l *sgList) close() (bad int) {
	for i := range l.entries {
		e := &l.entries[i]
		if e.tx != nil {
			bad += e.tx.Bad()
			e.tx.Close()
		}
		if e.rx != nil {
			bad += e.rx.Bad()
			e.rx.Close()
		}
	}
	clear(l.entries)
	l.reset()
	return bad
}

// statusOf returns the status of a request whose memory was refused.
func statusOf(err error) Status {
	var st roce.StatusError
	switch {
	case errors.As(err, &st):
		return Status(st)
	case errors.Is(err, syscall.EMSGSIZE):
		return StatusLocLenErr
	}
	return StatusLocProtErr
}
