package nvmet

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/sig"
)

// access is a command that names a range of blocks.
type access struct {
	nvme.RW
	q  *Queue
	c  *controller
	ns *Namespace
	x  Transfer

	cmd  *nvme.Command
	prot protection
	wire int // bytes that the host transfers
}

// ranged returns the handler of a command that names a range of blocks. It checks the range and the protection
// information, and waits if the command is one to delay. moves is whether the blocks are transferred.
func ranged(moves bool, run func(*access) result) handler {
	return func(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
		a := &access{RW: cmd.RW(), q: q, c: c, x: x, cmd: cmd, ns: c.target.namespace(cmd.NSID)}
		if a.ns == nil {
			return fails(nvme.InvalidNamespace)
		}
		if !a.ns.contains(a.SLBA, a.Blocks) {
			return a.fail(a.SLBA, nvme.OutOfRange, nil)
		}
		var status nvme.Status
		if a.prot, status = a.ns.protection(a.RW); status != nvme.Success {
			return a.fail(a.SLBA, status, nil)
		}
		if moves {
			a.wire = int(a.Blocks) * a.ns.BlockSize
			if a.wire > MaxTransfer {
				return fails(nvme.InvalidField)
			}
			if a.prot.onWire() {
				a.wire += int(a.Blocks) * fieldSize
			}
			if x.Len() < a.wire {
				return fails(x.Status())
			}
		}
		for _, d := range a.ns.Delay {
			if from, to := d.covers(a.SLBA, uint64(a.Blocks)); from < to {
				q.wait(d)
			}
		}
		return run(a)
	}
}

// wait waits for the time of a delay, or for the end of the connection.
func (q *Queue) wait(d *Delay) {
	late := time.NewTimer(d.Time)
	defer late.Stop()
	select {
	case <-late.C:
	case <-q.over:
	}
}

// fail notes an error at a block, and returns the result.
func (a *access) fail(lba uint64, status nvme.Status, bad *mkey.BadBlock) result {
	if !status.OfMedia() { // damage may be gone at the next attempt
		status |= nvme.DNR
	}
	a.c.failed(a.q, a.cmd, lba, status, bad)
	return result{status: status}
}

// bad returns the result for a bad block, whose number counts from the first block of the command.
func (a *access) bad(b *mkey.BadBlock) result {
	return a.fail(a.SLBA+b.Sig.Block, statusOf(b.Sig.Kind), b)
}

// broken returns the result for an error of the medium after n good bytes.
func (a *access) broken(n int, err error, otherwise nvme.Status) result {
	lba := a.SLBA + uint64(n/a.ns.stride())
	var bad *mkey.BadBlock
	if errors.As(err, &bad) && a.ns.PI > 0 {
		otherwise = statusOf(bad.Sig.Kind)
	}
	return a.fail(lba, otherwise, bad)
}

// room returns memory for n blocks with their fields.
func (a *access) room(n uint32) ([]byte, error) { return a.x.Buffer(int(n) * a.ns.stride()) }

// load reads the blocks of the command from the medium.
func (a *access) load(buf []byte) result {
	got, err := a.ns.Store.ReadAt(buf, int64(a.SLBA)*int64(a.ns.stride()))
	if err != nil && (got < len(buf) || !errors.Is(err, io.EOF)) {
		return a.broken(got, err, nvme.UnrecoveredRead)
	}
	a.ns.deallocated(buf, a.SLBA, a.Blocks)
	for _, d := range a.ns.Damage {
		switch {
		case d.Wire:
		case !a.ns.Checked:
			d.apply(buf, a.SLBA, uint64(a.Blocks), a.ns.BlockSize, a.ns.stride())
		default:
			if from, _, hit := d.hits(a.SLBA, uint64(a.Blocks)); hit {
				return a.fail(from, nvme.UnrecoveredRead, nil)
			}
		}
	}
	return result{}
}

// save writes blocks to the medium.
func (a *access) save(buf []byte, lba uint64) result {
	n, err := a.ns.Store.WriteAt(buf, int64(lba)*int64(a.ns.stride()))
	if full(err) {
		return a.fail(lba, nvme.CapacityExceeded, nil)
	}
	if err != nil {
		first := *a
		first.SLBA = lba
		return first.broken(n, err, nvme.WriteFault)
	}
	return result{}
}

// full reports whether an error says that the medium has no room for what was written: a sparse image on a full disk.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// unflushed returns the status of a flush or a deallocation that has failed.
func unflushed(err error) nvme.Status {
	if full(err) {
		return nvme.CapacityExceeded
	}
	return nvme.WriteFault
}

// damage damages blocks on the wire.
func (a *access) damage(buf []byte) (hit bool) {
	for _, d := range a.ns.Damage {
		if d.Wire && (d.Part == Data || a.prot.onWire()) {
			hit = d.apply(buf, a.SLBA, uint64(a.Blocks), a.ns.BlockSize, a.ns.stride()) || hit
		}
	}
	return hit
}

// damages reports whether blocks of the command may be damaged on the wire.
func (a *access) damages() bool {
	for _, d := range a.ns.Damage {
		if from, to := d.covers(a.SLBA, uint64(a.Blocks)); d.Wire && from < to {
			return true
		}
	}
	return false
}

// pull moves the host's blocks to buf, with fields if the namespace has them. Blocks that are to be damaged
// on the wire are checked after that.
func (a *access) pull(buf []byte) result {
	mask, damages := a.prot.mask, a.damages()
	if damages {
		mask = 0
	}
	bad, err := a.x.Pull(buf, a.wire, a.prot.signature(mask))
	if err != nil {
		return fails(nvme.DataTransferError)
	}
	if damages && a.damage(buf) && a.prot.act && !a.prot.absent {
		if err := a.prot.format.Generate(buf); err != nil {
			return fails(nvme.InternalError)
		}
	}
	if damages && a.prot.onWire() {
		if bad, err = a.prot.check(buf, int(a.Blocks)); err != nil {
			return fails(nvme.InternalError)
		}
	}
	if bad != nil {
		return a.bad(bad)
	}
	return result{}
}

// push moves blocks of the medium to the host. Blocks that are to be damaged on the wire are checked
// before that.
func (a *access) push(buf []byte) result {
	mask := a.prot.mask
	if a.damages() {
		bad, err := a.prot.check(buf, int(a.Blocks))
		if err != nil {
			return fails(nvme.InternalError)
		}
		if bad != nil {
			return a.bad(bad)
		}
		a.damage(buf)
		mask = 0
	}
	bad, err := a.x.Push(buf, a.wire, a.prot.signature(mask))
	if err != nil {
		return fails(nvme.DataTransferError)
	}
	if bad != nil {
		return a.bad(bad)
	}
	return result{}
}

func read(a *access) result {
	buf, err := a.room(a.Blocks)
	if err != nil {
		return fails(nvme.InternalError)
	}
	r := a.load(buf)
	if r.status != nvme.Success {
		return r
	}
	if r = a.push(buf); r.status == nvme.Success {
		a.c.health.Lock()
		a.c.health.Reads++
		a.c.health.BytesRead += uint64(a.Blocks) * uint64(a.ns.BlockSize)
		a.c.health.Unlock()
	}
	return r
}

func write(a *access) result {
	if a.ns.ReadOnly {
		return fails(nvme.WriteProtected)
	}
	buf, err := a.room(a.Blocks)
	if err != nil {
		return fails(nvme.InternalError)
	}
	r := a.pull(buf)
	if r.status != nvme.Success {
		return r
	}
	if r = a.save(buf, a.SLBA); r.status == nvme.Success {
		a.c.health.Lock()
		a.c.health.Writes++
		a.c.health.BytesWritten += uint64(a.Blocks) * uint64(a.ns.BlockSize)
		a.c.health.Unlock()
		r = a.finish()
	}
	return r
}

// finish puts what a command has written on the medium if the command asks for it (FUA).
func (a *access) finish() result {
	if a.FUA {
		if err := a.ns.Store.Flush(); err != nil {
			return a.fail(a.SLBA, unflushed(err), nil)
		}
	}
	return result{}
}

func compare(a *access) result {
	if a.prot.act && !a.prot.absent {
		return a.fail(a.SLBA, nvme.InvalidPI, nil)
	}
	buf, err := a.room(2 * a.Blocks)
	if err != nil {
		return fails(nvme.InternalError)
	}
	theirs, ours := buf[:len(buf)/2], buf[len(buf)/2:]
	if r := a.pull(theirs); r.status != nvme.Success {
		return r
	}
	if r := a.load(ours); r.status != nvme.Success {
		return r
	}
	if bad, err := a.prot.check(ours, int(a.Blocks)); err != nil {
		return fails(nvme.InternalError)
	} else if bad != nil {
		return a.bad(bad)
	}
	stride := a.ns.stride()
	for i := range int(a.Blocks) { // of the protection information, only the checks count
		if !bytes.Equal(ours[i*stride:][:a.ns.BlockSize], theirs[i*stride:][:a.ns.BlockSize]) {
			return a.fail(a.SLBA+uint64(i), nvme.CompareFailure, nil)
		}
	}
	return result{}
}

func verify(a *access) result {
	whole := a.Blocks
	buf, err := a.room(min(whole, a.piece()))
	if err != nil {
		return fails(nvme.InternalError)
	}
	for done := uint32(0); done < whole && !a.over(); done += a.Blocks {
		a.Blocks = min(whole-done, a.piece())
		piece := buf[:int(a.Blocks)*a.ns.stride()]
		if r := a.load(piece); r.status != nvme.Success {
			return r
		}
		if bad, err := a.prot.check(piece, int(a.Blocks)); err != nil {
			return fails(nvme.InternalError)
		} else if bad != nil {
			return a.bad(bad)
		}
		a.SLBA += uint64(a.Blocks)
		a.prot.format = a.prot.format.From(uint64(a.Blocks))
	}
	return result{}
}

// over reports whether the connection has ended, so that a long command is in vain.
func (a *access) over() bool {
	select {
	case <-a.q.over:
		return true
	default:
		return false
	}
}

// piece returns the number of blocks that a long command reads or writes at a time.
func (a *access) piece() uint32 { return uint32(256 << 10 / a.ns.BlockSize) }

// zero writes zeros and, if f is not nil, their fields, whose tags are those of f at the first block. Without f,
// the fields are zeros. It uses the memory of buf.
func (a *access) zero(buf []byte, lba, blocks uint64, f *sig.Format) result {
	stride := a.ns.stride()
	most := uint64(len(buf) / stride)
	clear(buf)
	for done := uint64(0); done < blocks && !a.over(); {
		n := min(most, blocks-done)
		piece := buf[:int(n)*stride]
		if f != nil {
			if err := f.From(done).Generate(piece); err != nil {
				return fails(nvme.InternalError)
			}
		}
		if r := a.save(piece, lba+done); r.status != nvme.Success {
			return r
		}
		done += n
	}
	return result{}
}

func writeZeroes(a *access) result {
	if a.ns.ReadOnly {
		return fails(nvme.WriteProtected)
	}
	var f *sig.Format
	if a.prot.act && !a.prot.absent {
		f = &a.prot.format
	}
	buf, err := a.room(min(a.Blocks, a.piece()))
	if err != nil {
		return fails(nvme.InternalError)
	}
	r := a.zero(buf, a.SLBA, uint64(a.Blocks), f)
	if r.status == nvme.Success {
		r = a.finish()
	}
	return r
}

// datasetManagement deallocates ranges, as far as the store can. The attribute is a hint, and so are the others, which
// change nothing: what is beyond maxDeallocate stays.
func datasetManagement(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
	n := (int(cmd.DW[0]&0xff) + 1) * nvme.RangeSize
	ns := c.target.namespace(cmd.NSID)
	switch {
	case ns == nil:
		return fails(nvme.InvalidNamespace)
	case x.Len() < n:
		return fails(x.Status())
	case cmd.DW[1]>>2&1 == 0:
		return result{}
	case ns.ReadOnly:
		return fails(nvme.WriteProtected)
	}
	a := &access{q: q, c: c, ns: ns, x: x, cmd: cmd}
	buf, err := x.Buffer(n)
	if err != nil {
		return fails(nvme.InternalError)
	}
	if _, err := x.Pull(buf, n, nil); err != nil {
		return fails(nvme.DataTransferError)
	}
	for ranges := buf; len(ranges) > 0; ranges = ranges[nvme.RangeSize:] {
		if g := nvme.ParseRange(ranges); !ns.contains(g.SLBA, g.Blocks) {
			return a.fail(g.SLBA, nvme.OutOfRange, nil)
		}
	}
	for _, d := range ns.Delay { // once, also if it concerns several ranges
		for ranges := buf; len(ranges) > 0; ranges = ranges[nvme.RangeSize:] {
			g := nvme.ParseRange(ranges)
			if from, to := d.covers(g.SLBA, uint64(g.Blocks)); from < to {
				q.wait(d)
				break
			}
		}
	}
	left, piece := maxDeallocate/uint64(ns.BlockSize), uint64(1<<30/ns.BlockSize)
	for ranges := buf; len(ranges) > 0; ranges = ranges[nvme.RangeSize:] {
		g := nvme.ParseRange(ranges)
		for lba, end := g.SLBA, g.SLBA+min(uint64(g.Blocks), left); lba < end && !a.over(); {
			n := min(end-lba, piece) // so that the end of the connection is noticed
			if err := ns.Store.Trim(int64(lba)*int64(ns.stride()), int64(n)*int64(ns.stride())); err != nil {
				return a.fail(lba, unflushed(err), nil)
			}
			lba, left = lba+n, left-n
		}
	}
	return result{}
}

func flush(q *Queue, c *controller, cmd *nvme.Command, x Transfer) result {
	list := c.target.Namespaces
	if cmd.NSID != nvme.AllNamespaces {
		ns := c.target.namespace(cmd.NSID)
		if ns == nil {
			return fails(nvme.InvalidNamespace)
		}
		list = []*Namespace{ns}
	}
	if s := c.flush(q, cmd, list); s != nvme.Success {
		return fails(s)
	}
	return result{}
}

// flush puts what was written to namespaces on the media.
func (c *controller) flush(q *Queue, cmd *nvme.Command, list []*Namespace) nvme.Status {
	for _, ns := range list {
		if err := ns.Store.Flush(); err != nil {
			status := unflushed(err)
			c.failed(q, cmd, 0, status|nvme.DNR, nil)
			return status
		}
	}
	return nvme.Success
}
