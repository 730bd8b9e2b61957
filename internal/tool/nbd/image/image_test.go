package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/nbd"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/mkeyio"
	"github.com/softmkey/softmkey/sig"
)

var _ nbd.Device = (*Image)(nil)

// memory is a store whose operations fail as its functions say.
type memory struct {
	mu        sync.RWMutex
	b         []byte
	fail      func(op string, off int64) error // nil: never
	discarded []int64                          // offsets and lengths
}

func (s *memory) failure(op string, off int64) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(op, off)
}

func (s *memory) ReadAt(p []byte, off int64) (int, error) {
	if err := s.failure("read", off); err != nil {
		return 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return bytes.NewReader(s.b).ReadAt(p, off)
}

func (s *memory) WriteAt(p []byte, off int64) (int, error) {
	if err := s.failure("write", off); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return copy(s.b[off:], p), nil
}

func (s *memory) Sync() error { return s.failure("sync", 0) }

func (s *memory) Discard(off, n int64) error {
	s.discarded = append(s.discarded, off, n)
	return nil
}

func format(t *testing.T, text string) sig.Format {
	t.Helper()
	f, err := sig.ParseFormat(text)
	fatal.If(t, err)
	return f
}

// made returns the output of a job.
func made(t *testing.T, job mkeyio.StreamJob, in []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := mkeyio.Run(context.Background(), job, mkeyio.To(&out), mkeyio.From(bytes.NewReader(in))); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// log records what an image reports.
type log struct {
	mu     sync.Mutex
	bad    []uint64
	kept   []uint64
	failed []string
}

func (l *log) options(job mkeyio.StreamJob, size int) Options {
	return Options{
		Job: job, Size: int64(size),
		Bad: func(b *mkey.BadBlock) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.bad = append(l.bad, b.Sig.Block)
		},
		Kept: func(block uint64) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.kept = append(l.kept, block)
		},
		Failed: func(op string, _ int64, err error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.failed = append(l.failed, op+": "+err.Error())
		},
	}
}

// open returns the image of a job in a store, and the log of its reports.
func open(t *testing.T, s *memory, job mkeyio.StreamJob) (*Image, *log) {
	t.Helper()
	l := new(log)
	m, err := New(s, l.options(job, len(s.b)))
	fatal.If(t, err)
	return m, l
}

// TestFlushStands lets one sync fail, as the kernel reports an error of a write-back: once. Every later
// flush fails, it is reported once, and Close returns it.
func TestFlushStands(t *testing.T) {
	job := mkeyio.Protect(format(t, "t10dif"))
	var syncs atomic.Int32
	s := &memory{b: made(t, job, make([]byte, 8<<10)), fail: func(op string, _ int64) error {
		if op == "sync" && syncs.Add(1) == 2 {
			return syscall.EIO
		}
		return nil
	}}
	m, l := open(t, s, job)
	fatal.If(t, m.Flush())
	for range 3 {
		if err := m.Flush(); !errors.Is(err, syscall.EIO) {
			t.Errorf("a flush after the failure: %v", err)
		}
	}
	if err := m.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("Close: %v", err)
	}
	if n := m.Counts(); n.Failures != 3 {
		t.Errorf("%+v", n)
	}
	if len(l.failed) != 1 || l.failed[0] != "flush: input/output error" {
		t.Errorf("reported: %q", l.failed)
	}
}

// TestFlushTogether runs flushes of many clients. No two syncs run at the same time, a flush
// returns after a sync that began after its call, and an error reaches every flush that was waiting.
func TestFlushTogether(t *testing.T) {
	const clients, rounds = 8, 50
	var running, begun atomic.Int32
	f := flusher{sync: func() error {
		n := begun.Add(1)
		if running.Add(1) != 1 {
			t.Error("two syncs at a time")
		}
		defer running.Add(-1)
		if n > clients*rounds/4 {
			return syscall.EIO
		}
		return nil
	}}
	var firsts atomic.Int32
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			failed := false
			for range rounds {
				before := begun.Load()
				err, first := f.flush()
				if first {
					firsts.Add(1)
				}
				if err == nil && (failed || begun.Load() == before) {
					t.Errorf("a flush succeeded after a failure, or without a sync")
				}
				failed = failed || err != nil
			}
		})
	}
	all.Wait()
	if _, err := f.flush(); err && f.err == nil {
		t.Error("two first errors")
	}
	if f.err != nil && firsts.Load() != 1 {
		t.Errorf("%d callers learned of the failure first", firsts.Load())
	}
}

// TestReadOnlyFlush: a file system such as squashfs refuses to sync a file.
func TestReadOnlyFlush(t *testing.T) {
	job := mkeyio.Protect(format(t, "t10dif"))
	s := &memory{b: made(t, job, make([]byte, 4096)), fail: func(op string, _ int64) error { return syscall.EINVAL }}
	var l log
	o := l.options(job, len(s.b))
	o.ReadOnly = true
	m, err := New(s, o)
	fatal.If(t, err)
	if err := errors.Join(m.Flush(), m.Close()); err != nil || len(l.failed) > 0 {
		t.Errorf("%v, reported %q", err, l.failed)
	}
}

// TestFailures: each kind of error of the store is reported once, and all are counted.
func TestFailures(t *testing.T) {
	job := mkeyio.Protect(format(t, "t10dif"))
	data := make([]byte, 64<<10)
	s := &memory{b: made(t, job, data)}
	m, l := open(t, s, job)
	s.fail = func(op string, off int64) error {
		switch op {
		case "read":
			return &os.PathError{Op: "read", Path: "img", Err: syscall.EIO}
		case "write":
			return syscall.ENOSPC
		}
		return nil
	}
	p := make([]byte, 1024)
	for range 3 {
		if _, err := m.ReadAt(p, 0); !errors.Is(err, syscall.EIO) {
			t.Error(err)
		}
		if _, err := m.WriteAt(p, 0); !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	}
	s.fail = nil
	s.b = s.b[:600] // truncated
	if _, err := m.ReadAt(p, 0); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if n := m.Counts(); n.Failures != 7 || len(l.failed) != 3 || l.failed[0] != "read: read img: input/output error" {
		t.Errorf("%+v, reported %q", n, l.failed)
	}
}

// TestBadOnce: a bad block is reported once, and again if it was good in between.
func TestBadOnce(t *testing.T) {
	f := format(t, "crc32c:512")
	job := mkeyio.Protect(f)
	s := &memory{b: made(t, job, make([]byte, 64<<10))}
	m, l := open(t, s, job)
	damage := func(block int) { s.b[block*f.Stride()+7] ^= 1 }
	damage(5)
	damage(77)
	p := make([]byte, 64<<10)
	for range 3 {
		if _, err := m.ReadAt(p, 0); !isBad(err) {
			t.Error(err)
		}
	}
	if _, err := m.WriteAt(make([]byte, 1024), 5*512); err != nil {
		t.Error(err)
	}
	damage(6)
	damage(5)
	for range 2 {
		if _, err := m.ReadAt(p, 0); !isBad(err) {
			t.Error(err)
		}
	}
	n := m.Counts()
	if want := []uint64{5, 77, 5, 6}; !slices.Equal(l.bad, want) || n.Bad != 4 || n.Refused != 5 || n.First.Sig.Block != 5 {
		t.Errorf("reported %d, %+v", l.bad, n)
	}
}

// TestSeen: the set is bounded, and removing a long range is quick.
func TestSeen(t *testing.T) {
	var s seen
	s.remove(0, 1<<60)
	for i := range uint64(seenPages + 3) {
		if !s.add(i*seenPage) || s.add(i*seenPage) {
			t.Fatalf("page %d", i)
		}
	}
	if len(s.pages) > seenPages {
		t.Errorf("%d pages", len(s.pages))
	}
	s = seen{}
	for _, block := range []uint64{3, 4096, 4097, 70_000} {
		s.add(block)
	}
	s.remove(4, 4096)
	for block, want := range map[uint64]bool{3: false, 4096: true, 4097: false, 70_000: false} {
		if s.add(block) != want {
			t.Errorf("block %d", block)
		}
	}
}

// TestSeparateSync: a flush reaches both files, and the error of either is its error.
func TestSeparateSync(t *testing.T) {
	for failing := range 3 { // 2: none
		var files [2]File
		for i := range files {
			f, err := os.CreateTemp(t.TempDir(), "")
			fatal.If(t, err)
			defer f.Close()
			if i == failing {
				f.Close()
			}
			files[i] = File{File: f}
		}
		if err := Separate(format(t, "t10dif"), files[0], files[1]).Sync(); (err == nil) != (failing == 2) {
			t.Errorf("file %d: %v", failing, err)
		}
	}
}

// TestTrim: of an image without fields, whole data units and blocks are discarded. An image with fields stays.
func TestTrim(t *testing.T) {
	data := bytes.Repeat([]byte("content."), 4096)
	crypto := &mkey.Crypto{EncryptOnTX: true, DataUnitSize: 4096, DEK: newDEK(t, 1)}
	for name, job := range map[string]mkeyio.StreamJob{
		"fields":     mkeyio.Protect(format(t, "t10dif")),
		"protected":  mkeyio.Strip(format(t, "t10dif")),
		"both":       {Signature: &mkey.Signature{Wire: ptr(format(t, "t10dif"))}, Crypto: &mkey.Crypto{EncryptOnTX: true, DataUnitSize: 512, DEK: crypto.DEK}},
		"encryption": {Crypto: crypto},
	} {
		s := &memory{b: bytes.Clone(data)}
		if job.Direction == mkeyio.TX {
			s.b = made(t, job, data)
		}
		before := bytes.Clone(s.b)
		m, _ := open(t, s, job)
		for _, r := range [][2]int64{{0, 100}, {4000, 9000}, {8192, 8192}, {30_000, 2768}, {7, 0}} {
			if err := m.Trim(r[0], r[1]); err != nil {
				t.Error(err)
			}
		}
		var want []int64
		switch name {
		case "encryption":
			want = []int64{4096, 8192, 8192, 8192}
		case "protected": // 520 bytes that the clients see are 512 of the image
			want = []int64{4096, 8704, 8192, 7680, 29696, 2560}
		}
		if !slices.Equal(s.discarded, want) {
			t.Errorf("%s: discarded %d", name, s.discarded)
		}
		if !bytes.Equal(s.b, before) {
			t.Errorf("%s: trim has written", name)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// TestZero zeroes ranges that take several pieces and end within granules.
func TestZero(t *testing.T) {
	job := mkeyio.Protect(format(t, "t10dif:4096"))
	size := 3*len(zeroPiece) + 4096
	clean := make([]byte, size)
	for i := range clean {
		clean[i] = byte(i>>9) | 1
	}
	for _, r := range [][2]int{{0, size}, {100, len(zeroPiece)}, {4096, len(zeroPiece)}, {5000, 2*len(zeroPiece) + 7777}, {size - len(zeroPiece) - 1, len(zeroPiece) + 1}} {
		stored := made(t, job, clean)
		m, _ := open(t, &memory{b: stored}, job)
		want := bytes.Clone(clean)
		clear(want[r[0]:][:r[1]])
		fatal.If(t, m.Zero(int64(r[0]), int64(r[1])))
		if !bytes.Equal(stored, made(t, job, want)) {
			t.Errorf("%d bytes at %d: the store has not zeros there with right fields and the rest as before", r[1], r[0])
		}
	}
}
