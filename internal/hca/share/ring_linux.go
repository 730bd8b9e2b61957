package share

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/packetconn"
)

// A ring carries trains from one process to another through memory that both map. One process
// produces, the other consumes, and neither trusts the other: each keeps its own position outside
// of the memory, checks the other's position before each use, and copies a record's header and
// payload out before anything looks at them.
//
// The memory begins with a page of three words: the position of the producer, the position of the
// consumer, and a word that is not 0 while the consumer may sleep. Positions count bytes and never
// wrap. Records follow, each of whole cache lines: a word (see recordWord) and the payload. No
// record crosses the end of the memory; a record of kind skip fills the rest.
type ring struct {
	memory   []byte // the mapping
	data     []byte // the records
	produced *atomic.Uint64
	consumed *atomic.Uint64
	asleep   *atomic.Uint32
	at       uint64 // position of this process
}

const (
	ringHeader = 4096
	// ringData is the size of the records. A connection's windows keep less than this in
	// flight (roce.DefaultWindow for requests, and as much for the responses of READs).
	ringData = 4 << 20
	ringSize = ringHeader + ringData

	line       = 64 // the unit of positions
	recordHead = 8

	// ringHot is the number of bytes after which the producer may write to the beginning of the memory
	// again, before the memory ends. Memory that was used before is in the processor's cache and takes
	// no further pages. The producer goes back if the consumer has read all but one part in ringBehind
	// of the bytes from the beginning on. What the consumer has read has room for further packets.
	ringHot    = 512 << 10
	ringBehind = 4

	// ringRoom is the free memory that packets need which nobody repeats. The transport asks for it before it builds
	// a batch of four trains. Where the producer goes back to the beginning, more is free.
	ringRoom = ringHot / 2
)

// The kinds of a record.
const (
	recordTrain = 1
	recordSkip  = 2
)

var (
	errRingFull   = errors.New("the ring is full")
	errRingBroken = errors.New("the other process wrote an impossible position or record")
)

// recordWord is the word before a payload: its length (32 bits), the length of a datagram of the
// train (16 bits, 0: the train is one datagram), the type of service, and the kind.
func recordWord(length, seg int, tos byte, kind uint64) uint64 {
	return uint64(length) | uint64(seg)<<32 | uint64(tos)<<48 | kind<<56
}

func recordSize(length int) uint64 { return uint64(length+recordHead+line-1) &^ (line - 1) }

// newMemory returns a file with the memory of an empty ring. Its size is sealed, so that no process
// can make accesses to it fail.
func newMemory() (fd int, err error) {
	fd, err = unix.MemfdCreate("softmkey-ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, err
	}
	err = unix.Ftruncate(fd, ringSize)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// openRing maps the memory of a ring that another process may have made.
func openRing(fd int) (*ring, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == nil {
		err = unix.Fstatfs(fd, &fs)
	}
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	switch {
	case err != nil:
		return nil, err
	case seals&unix.F_SEAL_SHRINK == 0 || st.Size != ringSize || int64(fs.Type) != unix.TMPFS_MAGIC:
		return nil, fmt.Errorf("the memory of the ring is not a sealed memfd of %d bytes", ringSize)
	}
	b, err := unix.Mmap(fd, 0, ringSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &ring{
		memory: b, data: b[ringHeader:],
		produced: (*atomic.Uint64)(unsafe.Pointer(&b[0])),
		consumed: (*atomic.Uint64)(unsafe.Pointer(&b[line])),
		asleep:   (*atomic.Uint32)(unsafe.Pointer(&b[2*line])),
	}, nil
}

// close unmaps the memory. No other method may be called afterwards.
func (r *ring) close() { unix.Munmap(r.memory) }

// word returns the word of the record at an offset in data, which is that of a line.
func (r *ring) word(offset uint64) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&r.data[offset]))
}

// push appends a train. It returns errRingFull or errRingBroken.
func (r *ring) push(t *packetconn.Train) error {
	used := r.at - r.consumed.Load()
	if used > ringData {
		return errRingBroken
	}
	n := recordSize(len(t.Buf))
	offset := r.at % ringData
	skip := uint64(0)
	if offset+n > ringData || offset >= ringHot && used <= offset/ringBehind {
		skip = ringData - offset
	}
	if used+skip+n > ringData {
		return errRingFull
	}
	if skip > 0 {
		r.word(offset).Store(recordWord(0, 0, 0, recordSkip))
		offset = 0
	}
	seg := t.Seg
	if seg >= len(t.Buf) {
		seg = 0
	}
	copy(r.data[offset+recordHead:], t.Buf)
	r.word(offset).Store(recordWord(len(t.Buf), seg, t.TOS, recordTrain))
	r.at += skip + n
	r.produced.Store(r.at)
	return nil
}

// pop moves the next train to t, without its address, and reports whether there was one. Buf of t
// has a capacity of at least packetconn.RecvSize. It returns errRingBroken.
func (r *ring) pop(t *packetconn.Train) (bool, error) {
	for {
		used := r.produced.Load() - r.at
		switch {
		case used == 0:
			return false, nil
		case used > ringData || used%line != 0:
			return false, errRingBroken
		}
		offset := r.at % ringData
		word := r.word(offset).Load()
		length, seg, tos := int(uint32(word)), int(uint16(word>>32)), byte(word>>48)
		n := ringData - offset
		switch word >> 56 {
		case recordSkip:
			if offset == 0 || n > used {
				return false, errRingBroken
			}
			r.at += n
			r.consumed.Store(r.at)
			continue
		case recordTrain:
		default:
			return false, errRingBroken
		}
		if length == 0 || length > packetconn.RecvSize || recordSize(length) > min(n, used) || seg > length {
			return false, errRingBroken
		}
		t.Buf = t.Buf[:length]
		copy(t.Buf, r.data[offset+recordHead:])
		t.Seg, t.TOS, t.Swap, t.Memory, t.Route = seg, tos, false, true, packetconn.Route{}
		if seg == 0 {
			t.Seg = length
		}
		r.at += recordSize(length)
		r.consumed.Store(r.at)
		return true, nil
	}
}

// sleep announces that the consumer is going to wait, and reports whether there is something to
// consume instead.
func (r *ring) sleep() (arrived bool) {
	// Producer and consumer each store first and load then, so that at least one of them
	// sees the other's store.
	r.asleep.Store(1)
	return r.produced.Load() != r.at
}

// awake ends what sleep announced. Until then the producer wakes the consumer once.
func (r *ring) awake() { r.asleep.Store(0) }

// wakes reports whether the consumer has to be woken after push.
func (r *ring) wakes() bool { return r.asleep.Load() != 0 && r.asleep.Swap(0) != 0 }
