package pci

import (
	"syscall"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/hca/prm"
)

// mostObjectBytes is about the memory that the objects of a guest may take: 131072 queue pairs,
// or a million memory keys. An adapter has its objects in memory that the guest gives it.
const mostObjectBytes = 512 << 20

// memoryQuota counts the memory that the objects of a guest take in this process: each costs the Bytes of the command
// that makes it ([prm.Spec]).
type memoryQuota struct {
	objects map[prm.Destruction]int64 // by the command that destroys the object
	bytes   int64
}

// pageFactor is the number of bytes for each byte of a command that has a list of pages: a queue
// keeps an entry of 8 bytes as 72 bytes if its pages do not follow one another.
const pageFactor = 9

// cost returns the memory of each object that a command makes, 0 if it is not counted.
func (c *call) cost() int64 {
	n := c.Command.Spec().Bytes
	if n > 0 {
		n += pageFactor * int64(max(0, len(c.In)-prm.ListAt))
	}
	return n
}

// room refuses a command that makes objects for which there is no memory.
func (q *memoryQuota) room(c *call) error {
	if n := int64(prm.Objects(c.In)) * c.cost(); n > 0 && q.bytes+n > mostObjectBytes {
		return failure.New("command", syscall.ENOMEM, "%v: the function's objects would take %d bytes, and may take %d", c.Command, q.bytes+n, mostObjectBytes)
	}
	return nil
}

// note counts what a command has made or destroyed.
func (q *memoryQuota) note(c *call) {
	if bytes := c.cost(); bytes > 0 {
		for i := range prm.Objects(c.In) {
			made, _ := prm.DestructionOf(c.In, c.Out, i)
			q.bytes += bytes - q.objects[made]
			q.objects[made] = bytes
		}
		return
	}
	gone := prm.ParseDestruction(c.Command, c.In)
	q.bytes -= q.objects[gone]
	delete(q.objects, gone)
}
