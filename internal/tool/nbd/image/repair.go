package image

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"

	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

// repair decides which bad blocks are signed again. A wrong format or a wrong key also makes blocks
// bad, and signing them again would overwrite data. So the image as a whole must fit, and each bad
// block must be among good ones.
type repair struct {
	allowed, force bool
	fields         evidence
	plain          *mkeyio.View // of fields; nil: they are not encrypted
	kept           atomic.Bool  // a block that was not repaired has been reported
}

const (
	// sampleBlocks is the number of blocks that AllowRepair looks for in an image, among blocks that
	// are no evidence.
	sampleBlocks = 96
	// sampleTries and sampleBytes bound the search for them.
	sampleTries = 4096
	sampleBytes = 256 << 20

	// longestRun is the largest number of bad blocks in a row that are repaired.
	longestRun = 8
	// window is the number of blocks on each side of a bad one that are looked at, windowBytes about
	// the most bytes of them.
	window      = 64
	windowBytes = 8 << 20
)

// MisfitError is the error of AllowRepair for an image that does not fit its format.
type MisfitError struct {
	Format      sig.Format
	Good, Tried int
}

// Error says how many blocks fit.
func (e *MisfitError) Error() string {
	if e.Tried == 0 {
		return fmt.Sprintf("no block shows whether the image has %v", e.Format)
	}
	return fmt.Sprintf("%d of the %d blocks that were tried fit %v", e.Good, e.Tried, e.Format)
}

// AllowRepair makes reads, and writes of parts of blocks, sign bad blocks again. Only fields are
// written. Unless force is set, the format must check guards, and a sample of the image must fit: three
// quarters of the blocks that are evidence must be good, or AllowRepair returns a *MisfitError. Then a block is repaired if it is
// in a run of at most longestRun bad ones and most blocks around it are good. It is called before the
// requests that it concerns.
func (m *Image) AllowRepair(force bool) error {
	f, _ := m.o.formats()
	if f == nil {
		return errors.New("the image has no fields to sign")
	}
	e := evidence{r: m.store, format: *f, blocks: m.o.Size / int64(f.Stride())}
	if c := m.o.Job.Crypto; c != nil && !c.OnMemory(m.o.Job.Signature) { // the fields are encrypted
		if m.repair.plain != nil {
			_ = m.repair.plain.Close() // of an earlier call; always returns nil
		}
		var err error
		if m.repair.plain, err = mkeyio.NewView(mkeyio.StreamJob{Direction: mkeyio.TX, Crypto: c}, m.store, m.o.Size); err != nil {
			return err
		}
		e.r = m.repair.plain
	}
	if !force {
		if f.Flags&sig.IgnoreGuard != 0 {
			return fmt.Errorf("no-guard-check: tags alone do not show whether the image has %v", *f)
		}
		good, tried, err := e.sample()
		if err != nil {
			return err
		}
		if tried == 0 || good*4 < tried*3 {
			return &MisfitError{*f, good, tried}
		}
	}
	m.repair.allowed, m.repair.force, m.repair.fields = true, force, e
	return nil
}

// mend repairs the bad blocks of the granules that a request touches. It reports whether the request
// should be tried again: it has repaired a block, or another request has done so in the meantime.
func (m *Image) mend(off, n int64) bool {
	if !m.repair.allowed {
		return false
	}
	e := &m.repair.fields
	g := m.Granule()
	from, to := off/g*g, min((off+n+g-1)/g*g, m.Size())
	first, last := from/m.block, min((to+m.block-1)/m.block, e.blocks)
	around := min(window, max(longestRun+1, windowBytes/int64(e.format.Stride())))
	begin := max(first-around, 0)
	verdicts, err := e.scan(begin, min(last+around, e.blocks))
	if err != nil {
		return false // the request returns the error
	}
	mended, left := false, false
	for block := first; block < last; block++ {
		if verdicts[block-begin] != bad {
			continue
		}
		if !m.repair.force && !credible(verdicts, int(block-begin), int(around)) {
			left = true
			if !m.repair.kept.Swap(true) {
				m.o.Kept(uint64(block))
			}
			continue
		}
		if err := m.Repair(block*m.block, m.block); err != nil {
			m.check("write", block*m.block, err)
			return mended
		}
		mended = true
		m.repaired.Add(1)
		m.mu.Lock()
		m.seen.remove(uint64(block), uint64(block))
		m.mu.Unlock()
	}
	return mended || !left
}

// credible reports whether the bad block at an index is damage, rather than a part of an image, or of
// a region, that has another format.
func credible(v []verdict, at, around int) bool {
	run := 1
	for _, step := range []int{-1, 1} {
		for i := at + step; i >= max(at-around, 0) && i <= min(at+around, len(v)-1) && v[i] != good; i += step {
			if v[i] == bad {
				run++
			}
		}
	}
	balance := 0 // good blocks less bad ones
	for _, x := range v[max(at-around, 0):min(at+around+1, len(v))] {
		switch x {
		case good:
			balance++
		case bad:
			balance--
		}
	}
	return run <= longestRun && balance > 0
}

// verdict is what a block says about the format of its image.
type verdict uint8

const (
	neutral verdict = iota // nothing: it is exempt from the check, or fits many formats
	good
	bad
)

// evidence compares the blocks of a stream with a format.
type evidence struct {
	r      io.ReaderAt // the stream, without the encryption of its fields
	format sig.Format
	blocks int64 // whole blocks of the stream
}

// judge returns the verdict of a block with its field.
func (e *evidence) judge(b []byte, number int64) verdict {
	f := e.format.From(uint64(number))
	switch {
	case bytes.Count(b, b[:1]) == len(b), f.Escapes(f.Field(b[f.Block():])):
		return neutral
	case f.Verify(b) != nil:
		return bad
	case e.weak(f.Field(b[f.Block():])):
		return neutral
	}
	return good
}

// weak reports whether a correct field has nothing but zeros and ones in the parts that are checked. Data of
// another format has such fields as well: the checksum of zeros and ones is zero.
func (e *evidence) weak(x sig.Field) bool {
	f := e.format
	plain := func(v uint64) bool { return v&(v+1) == 0 } // zeros and then ones
	return plain(x.Guard) && (f.Flags&sig.IgnoreApp != 0 || plain(uint64(x.AppTag))) && (f.Flags&sig.IgnoreRef != 0 || plain(x.RefTag))
}

// sample judges blocks at places all over the stream, until enough of them are evidence.
func (e *evidence) sample() (fit, tried int, err error) {
	b := make([]byte, e.format.Stride())
	n := min(e.blocks, sampleTries)
	read := 0
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(int(n)) {
		at := int64(i)*(e.blocks/n) + int64(i)*(e.blocks%n)/n
		if _, err := e.r.ReadAt(b, at*int64(len(b))); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		switch e.judge(b, at) {
		case good:
			fit++
			tried++
		case bad:
			tried++
		}
		if read += len(b); tried == sampleBlocks || read >= sampleBytes && tried > 0 {
			break
		}
	}
	return fit, tried, nil
}

// scan judges the blocks from first up to end.
func (e *evidence) scan(first, end int64) ([]verdict, error) {
	stride := int64(e.format.Stride())
	verdicts := make([]verdict, 0, end-first)
	b := make([]byte, max(1<<20/stride, 1)*stride)
	for at := first; at < end; {
		n := min(int64(len(b))/stride, end-at)
		if k, err := e.r.ReadAt(b[:n*stride], at*stride); err != nil && !(errors.Is(err, io.EOF) && int64(k) == n*stride) {
			return nil, err
		}
		for i := range n {
			verdicts = append(verdicts, e.judge(b[i*stride:][:stride], at+i))
		}
		at += n
	}
	return verdicts, nil
}
