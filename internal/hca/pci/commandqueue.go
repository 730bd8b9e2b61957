package pci

import (
	"math/bits"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/pci/ether"
	"github.com/softmkey/softmkey/operr"
)

// An entry of the command queue.
const (
	entrySize    = 1 << queueLogStride
	entryType    = 7
	entryInLen   = 4
	entryInBox   = 8
	entryIn      = 16
	entryOut     = 32
	entryOutBox  = 48
	entryOutLen  = 56
	entryToken   = 60
	entryStatus  = 63
	entryOwned   = 1 // the device owns the entry
	entryInPlace = 16

	minCommand = 8 // bytes of a command or an answer: ENABLE_HCA's has 12
	maxCommand = 1<<20 + 4096

	// A mailbox block.
	boxData   = 512
	boxNext   = 0x230
	boxNumber = 0x238
	boxToken  = 0x23d
	boxSize   = 0x240
)

// Delivery statuses of an entry.
const (
	deliverOK        = 0x0
	deliverToken     = 0x2
	deliverNumber    = 0x3
	deliverBadOutBox = 0x4
	deliverBadInBox  = 0x5
	deliverInLen     = 0x7
	deliverOutLen    = 0x8
	deliverBadEntry  = 0x10
)

// ring executes the commands of the slots in a mask. A doorbell without a queue, or one of a function
// that is not a bus master, does nothing.
func (d *Device) ring(slots uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fw == nil {
		return
	}
	d.pending |= slots
	if !d.working && d.pending != 0 {
		d.working = true
		go d.work()
	}
}

// work executes commands until none is pending.
func (d *Device) work() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.pending != 0 {
		slot := bits.TrailingZeros32(d.pending)
		d.pending &^= 1 << slot
		if d.queueAddr == 0 || !d.dma.master() {
			continue
		}
		q := commandQueue{mem: d.dma, addr: d.queueAddr + uint64(slot)<<queueLogStride}
		fw := d.fw
		d.mu.Unlock()
		if err := fw.command(&q, slot); err != nil && !notMaster(err) {
			d.trace("command", 0, "command queue", err)
			d.fail(healthFirmwareError)
		}
		d.mu.Lock()
	}
	d.working = false
	d.idle.Broadcast()
}

// commandQueue is one entry of the command queue.
type commandQueue struct {
	mem   ether.Memory
	addr  uint64
	entry [entrySize]byte
}

// errNotOwned says that an entry is the driver's.
var errNotOwned = failure.New("command queue", syscall.EINVAL, "the driver owns the entry: bit 0 of its last byte is 0")

// read reads the entry and the command. It returns an error if the memory cannot be read or the entry
// is the driver's, and a delivery status if the entry is invalid.
func (q *commandQueue) read() (in []byte, outLen int, status uint8, err error) {
	if err := q.mem.Read(q.addr, q.entry[:]); err != nil {
		return nil, 0, 0, &operr.Error{Op: "command queue", Errno: syscall.EFAULT, Reason: "an entry cannot be read", Err: err}
	}
	e := q.entry[:]
	inLen, roomLen := be.Uint32(e[entryInLen:]), be.Uint32(e[entryOutLen:])
	switch {
	case e[entryStatus]&entryOwned == 0:
		return nil, 0, 0, errNotOwned
	case e[0] != entryType:
		return nil, 0, deliverBadEntry, nil
	case inLen < minCommand || inLen > maxCommand:
		return nil, 0, deliverInLen, nil
	case roomLen < minCommand || roomLen > maxCommand:
		return nil, 0, deliverOutLen, nil
	}
	in = append(make([]byte, 0, min(inLen, 8192)), e[entryIn:entryIn+entryInPlace]...)
	status, err = q.boxes(be.Uint64(e[entryInBox:]), int(inLen)-entryInPlace, deliverBadInBox, func(at uint64, box []byte, n int) error {
		in = append(in, box[:n]...)
		return nil
	})
	return in[:min(len(in), max(int(inLen), entryInPlace))], int(roomLen), status, err
}

// boxes calls f for each mailbox block of a list with n bytes.
func (q *commandQueue) boxes(addr uint64, n int, bad uint8, f func(at uint64, box []byte, n int) error) (status uint8, err error) {
	var box [boxSize]byte
	for i := uint32(0); n > 0; i++ {
		if addr == 0 {
			return bad, nil
		}
		if err := q.mem.Read(addr, box[:]); err != nil {
			return 0, &operr.Error{Op: "command queue", Errno: syscall.EFAULT, Reason: "a mailbox cannot be read", Err: err}
		}
		if be.Uint32(box[boxNumber:]) != i {
			return deliverNumber, nil
		}
		if bad == deliverBadInBox && box[boxToken] != q.entry[entryToken] {
			return deliverToken, nil
		}
		if err := f(addr, box[:], min(n, boxData)); err != nil {
			return 0, err
		}
		n -= boxData
		addr = be.Uint64(box[boxNext:])
	}
	return deliverOK, nil
}

// answer writes the answer, and gives the entry back at last.
func (q *commandQueue) answer(out []byte, status uint8) error {
	if status == deliverOK {
		rest := out[min(entryInPlace, len(out)):]
		var err error
		status, err = q.boxes(be.Uint64(q.entry[entryOutBox:]), len(rest), deliverBadOutBox, func(at uint64, box []byte, n int) error {
			if err := q.mem.Write(at+boxToken, q.entry[entryToken:entryToken+1]); err != nil {
				return err
			}
			err := q.mem.Write(at, rest[:n])
			rest = rest[n:]
			return err
		})
		if err != nil {
			return err
		}
		copy(q.entry[entryOut:entryOut+entryInPlace], out)
	}
	q.entry[entryStatus] = status << 1
	if err := q.mem.Write(q.addr+entryOut, q.entry[entryOut:entryOut+entryInPlace]); err != nil {
		return err
	}
	return q.mem.Write(q.addr+entryToken, q.entry[entryToken:])
}

// command executes the command of a slot. An error means that the queue is unusable.
func (f *firmware) command(q *commandQueue, slot int) error {
	in, outLen, status, err := q.read()
	if err == errNotOwned { // nothing is written to memory that the driver has not given
		f.dev.trace("command", 0, "command queue", err)
		return nil
	}
	if err != nil {
		return err
	}
	var out []byte
	var after func()
	if status == deliverOK {
		out, after = f.execute(in, outLen, slot)
	} else {
		f.dev.trace("command", 0, "command queue", failure.New("command queue", syscall.EINVAL, "delivery status %#x of entry %x", status, q.entry))
	}
	if err := q.answer(out, status); err != nil {
		return err
	}
	f.eqs.commandDone(slot)
	if after != nil {
		after()
	}
	return nil
}
