package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// mostObjectBytes is about the memory that the objects of a guest may take: 131072 queue pairs,
// or a million memory keys. An adapter has its objects in memory that the guest gives it.
const mostObjectBytes = 512 << 20

// quota counts the memory that the objects of a guest take in this process.
type quota struct {
	objects map[madeObject]int64
	bytes   int64
}

// madeObject names an object by the command that destroys it.
type madeObject struct {
	destroy prm.Command
	typ     uint16 // of a general object
	number  uint32
}

// creation is a command that creates an object which takes about so many bytes.
type creation struct {
	destroy prm.Command
	bytes   int64
}

// creations are the commands whose objects are as many as a guest likes.
var creations = map[prm.Command]creation{
	prm.CmdCreateMKey: {prm.CmdDestroyMKey, 512}, prm.CmdCreateCQ: {prm.CmdDestroyCQ, 1024}, prm.CmdCreateQP: {prm.CmdDestroyQP, 4096},
	prm.CmdCreatePSV: {prm.CmdDestroyPSV, 128}, prm.CmdCreateRMP: {prm.CmdDestroyRMP, 2048}, prm.CmdCreateXRCSRQ: {prm.CmdDestroyXRCSRQ, 2048},
	prm.CmdCreateObject: {prm.CmdDestroyObject, 1024}, prm.CmdCreateUmem: {prm.CmdDestroyUmem, 512}, prm.CmdAllocPD: {prm.CmdDeallocPD, 256},
	0x80e: {0x80f, 512}, 0x816: {0x817, 64}, 0x912: {0x914, 128}, // XRC domain, transport domain, TIS
	0x900: {0x902, 512}, 0x904: {0x906, 512}, 0x908: {0x90a, 512}, 0x916: {0x918, 256}, // TIR, SQ, RQ, RQT
}

// pageFactor is the number of bytes for each byte of a command that has a list of pages: a queue
// keeps an entry of 8 bytes as 72 bytes if its pages do not follow one another.
const pageFactor = 9

// cost returns the memory of the objects that a command makes.
func (k creation) cost(c *call) int64 {
	n := k.bytes
	if c.command == prm.CmdCreatePSV {
		n *= int64(prm.ParseCreatePSV(c.in).Count)
	}
	return n + pageFactor*int64(max(0, len(c.in)-eqPages))
}

// room refuses a command that makes objects for which there is no memory.
func (q *quota) room(c *call) error {
	k, ok := creations[c.command]
	if n := q.bytes + k.cost(c); ok && n > mostObjectBytes {
		return failure.New("command", syscall.ENOMEM, "%v: the function's objects would take %d bytes, and may take %d", c.command, n, mostObjectBytes)
	}
	return nil
}

// note counts what a command has made or destroyed.
func (q *quota) note(c *call) {
	if k, ok := creations[c.command]; ok {
		made := madeObject{destroy: k.destroy, number: prm.NumberOf(c.out)}
		cost := k.cost(c)
		switch c.command {
		case prm.CmdCreateObject:
			made.typ, made.number = c.mod, uint32(prm.Bits(c.out, 0x40, 32))
		case prm.CmdCreatePSV:
			for i := range prm.ParseCreatePSV(c.in).Count {
				made.number = uint32(prm.Bits(c.out, 0x88+32*i, 24))
				q.add(made, k.bytes)
			}
			return
		}
		q.add(made, cost)
		return
	}
	gone := madeObject{destroy: c.command, number: c.number()}
	if c.command == prm.CmdDestroyObject {
		gone.typ, gone.number = c.mod, c.in32(0x40, 32)
	}
	q.bytes -= q.objects[gone]
	delete(q.objects, gone)
}

func (q *quota) add(o madeObject, bytes int64) {
	q.bytes += bytes - q.objects[o]
	q.objects[o] = bytes
}
