package mkey_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/internal/mkeytest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

var (
	_ io.ReaderAt    = (*mkey.Reader)(nil)
	_ io.Closer      = (*mkey.Reader)(nil)
	_ io.WriteCloser = (*mkey.Writer)(nil)
)

// TestCloseTwice checks that a second Close does not affect streams opened since. A
// closed handle only keeps its counts.
func TestCloseTwice(t *testing.T) {
	a, b := pattern(4096), make([]byte, 4096)
	ka := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(a)})
	kb := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(b)})
	for range 100 {
		tx, rx := must(ka.NewReader(0, 8)), must(ka.NewWriter(0, 8))
		for range 3 {
			noErr(t, errors.Join(tx.Close(), rx.Close()))
		}
		ta, tb := must(ka.NewReader(0, 4096)), must(kb.NewReader(0, 4096))
		ra, rb := must(ka.NewWriter(0, 4096)), must(kb.NewWriter(0, 4096))
		tx.Close()
		rx.Close()
		pa, pb := make([]byte, 4096), make([]byte, 4096)
		if _, err := tx.ReadAt(pa[:8], 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("read after Close: %v", err)
		}
		if _, err := rx.Write(pa[:8]); !errors.Is(err, fs.ErrClosed) || !errors.Is(err, syscall.EBADF) {
			t.Fatalf("write after Close: %v", err)
		}
		if err := errors.Join(rx.Flush(), rx.Finish()); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("finish after Close: %v", err)
		}
		for _, s := range []struct {
			tx   *mkey.Reader
			p    []byte
			want []byte
		}{{ta, pa, a}, {tb, pb, b}} {
			if n, err := s.tx.ReadAt(s.p, 0); n != 4096 || err != nil {
				t.Fatal(n, err)
			}
			equal(t, "another stream", s.p, s.want)
		}
		for _, s := range []*mkey.Writer{ra, rb} {
			noErr(t, writeAll(s, pa))
			s.Close()
		}
		equal(t, "another stream's memory", b, a)
		clear(b)
		ta.Close()
		tb.Close()
	}

	mem := mkeytest.Protect(t10, pattern(1024))
	mem[3] ^= 1
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem), Signature: &mkey.Signature{Memory: t10, Wire: t10}})
	tx, rx := must(k.NewReader(0, 1040)), must(k.NewWriter(0, 1040))
	must(tx.ReadAt(make([]byte, 1040), 0))
	noErr(t, writeAll(rx, make([]byte, 1040)))
	tx.Close()
	rx.Close()
	if tx.Bad() != 1 || rx.Bad() != 1 || tx.Size() != 1040 || rx.Finish() != nil {
		t.Errorf("after Close: %d and %d bad blocks, %d long", tx.Bad(), rx.Bad(), tx.Size())
	}
}

// TestCloseFinishes checks that Writer.Close, like any io.WriteCloser, completes
// what was written, or returns why it cannot.
func TestCloseFinishes(t *testing.T) {
	for name, c := range failing() {
		for _, size := range []uint64{16, 100, 520, 1040, 4160, 5200, 100 * 520} {
			memory := func(end func(rx *mkey.Writer) error) ([]byte, error) {
				mem := make([]byte, 200*520)
				c.Layout = over(mem)
				rx := must(newKey(t, c).NewWriter(0, 100*520))
				must(rx.Write(pattern(int(size))))
				return mem, end(rx)
			}
			want, finished := memory((*mkey.Writer).Finish)
			got, closed := memory((*mkey.Writer).Close)
			equal(t, name, got, want)
			if fmt.Sprint(closed) != fmt.Sprint(finished) || finished == nil && bytes.Equal(got, make([]byte, len(got))) {
				t.Errorf("%s, %d bytes: Close returns %v, Finish %v", name, size, closed, finished)
			}
			_, err := memory(func(rx *mkey.Writer) error { return errors.Join(rx.Finish(), rx.Close(), rx.Close()) })
			if (err == nil) != (finished == nil) {
				t.Errorf("%s, %d bytes: Close after Finish: %v", name, size, err)
			}
		}
	}

	// The memory fails when Close writes to it.
	space := &mkeytest.Space{Mem: make([]byte, 4096), Rights: rdma.LocalWrite, Fail: func(keydoor.Vec) error { return syscall.EIO }}
	rx := must(newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: space, Length: 4096}}}).NewWriter(0, 4096))
	must(rx.Write(pattern(100)))
	if err := rx.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the memory fails: %v", err)
	}
	if err := errors.Join(rx.Close(), rx.Close()); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

// TestReaderAt checks that a Reader follows the contracts of io.ReaderAt and io.Reader.
func TestReaderAt(t *testing.T) {
	mem := pattern(1000)
	tx := must(newKey(t, mkey.KeyConfig{Layout: over(mem)}).NewReader(0, 1000))
	defer tx.Close()
	noErr(t, iotest.TestReader(tx, mem[:1000]))
	p := make([]byte, 600)
	if n, err := tx.ReadAt(p, 500); n != 500 || err != io.EOF {
		t.Errorf("across the end: %d, %v", n, err)
	}
	equal(t, "across the end", p[:500], mem[500:])
	if n, err := tx.ReadAt(p, 1000); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d, %v", n, err)
	}
	if n, err := tx.ReadAt(p, 2000); n != 0 || err != io.EOF {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if n, err := tx.ReadAt(p[:500], 500); n != 500 || err != nil {
		t.Errorf("up to the end: %d, %v", n, err)
	}
	wantErr(t, second(tx.ReadAt(p, -1)), syscall.EINVAL, "-1")
	all := must(io.ReadAll(io.NewSectionReader(tx, 0, 1<<62)))
	equal(t, "all", all, mem)
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			p := make([]byte, 100)
			if n, err := tx.ReadAt(p, int64(i*100)); n != 100 || err != nil {
				t.Error(n, err)
			}
			equal(t, "one of many at once", p, mem[i*100:][:100])
		})
	}
	wg.Wait()
}

// freed opens streams of each kind on a key, frees the key with free, and
// checks that the streams have ended.
func freed(t *testing.T, c mkey.KeyConfig, free func(k *mkey.Key)) {
	t.Helper()
	c.Access = rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite
	k := newKey(t, c)
	d := keydoor.Of(k)
	const n = 64 * 520
	buf := make([]byte, n)
	tx := []keydoor.TX{must(d.TX(0, n)), must(d.RemoteTX(0, n, 0, false))}
	rx := []keydoor.RX{must(d.RX(0, n)), must(d.RXUpTo(0, n)), must(d.RemoteRX(0, n)), must(d.RX(0, n))}
	for _, s := range tx {
		noErr(t, s.ReadAt(buf[:700], 0))
	}
	for _, s := range rx {
		noErr(t, s.Write(buf[:700]))
	}
	free(k)
	for i, s := range tx {
		if err := s.ReadAt(buf[:100], 800); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("TX %d after the key was freed: %v", i, err)
		}
		if s.View(800, 100) != nil {
			t.Errorf("TX %d has a view after the key was freed", i)
		}
		s.Close()
	}
	for i, s := range rx {
		var err error
		switch i {
		case 0:
			err = s.Write(buf[:100])
		case 1:
			err = s.Finish()
		case 2:
			if s.Place(100) != nil {
				err = s.Placed(100)
			} else {
				err = s.Write(buf[:100])
			}
		default:
			err = s.Flush()
			if c.Signature == nil && c.Crypto == nil {
				err = s.Write(nil) // no bytes were pending
			}
		}
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("RX %d after the key was freed: %v", i, err)
		}
		s.Close()
	}
}

// TestStreamsEndWithKey checks that streams end when their key is freed or closed, even if the
// key is configured again, and when a nested key is freed.
func TestStreamsEndWithKey(t *testing.T) {
	for name, c := range failing() {
		t.Run(name, func(t *testing.T) {
			mem := make([]byte, 100*520)
			c.Layout = over(mem)
			if name == "rows A, F" {
				c.Crypto = crypto(true, 0, 520)
			}
			freed(t, c, func(k *mkey.Key) { keydoor.Of(k).Invalidate() })
			freed(t, c, func(k *mkey.Key) { k.Close() })
			freed(t, c, func(k *mkey.Key) {
				keydoor.Of(k).Invalidate()
				noErr(t, configure(k, update{Access: new(rdma.LocalWrite), Layout: over(mem), Signature: c.Signature, Crypto: c.Crypto}))
			})
			inner := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: over(mem)})
			c.Layout = mkey.List{{Memory: inner, Length: uint64(len(mem))}}
			k := newKey(t, c)
			n := wholeJob(t, k)
			tx, rx := must(k.NewReader(0, int64(n))), must(k.NewWriter(0, int64(n)))
			inner.Close()
			wantErr(t, second(tx.ReadAt(make([]byte, n), 0)), syscall.EINVAL, "free")
			wantErr(t, writeAll(rx, make([]byte, n)), syscall.EINVAL, "free")
		})
	}
	k := newKey(t, mkey.KeyConfig{Layout: over(make([]byte, 8))})
	k.Close()
	wantErr(t, configure(k, update{Layout: over(make([]byte, 8))}), syscall.EINVAL, "closed")
}

// TestRemoteEndsWithConfiguration checks that a new configuration ends the streams of a
// peer, but not those of the owner.
func TestRemoteEndsWithConfiguration(t *testing.T) {
	mem := make([]byte, 4160)
	k := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite | rdma.RemoteRead | rdma.RemoteWrite, Layout: over(mem), Signature: &mkey.Signature{Memory: t10, Wire: t10}})
	d := keydoor.Of(k)
	tx, rx := must(d.RemoteTX(0, 4160, 0, false)), must(d.RemoteRX(0, 4160))
	own, in := must(d.TX(0, 4160)), must(d.RX(0, 4160))
	buf := make([]byte, 100)
	noErr(t, errors.Join(tx.ReadAt(buf, 0), rx.Write(buf), own.ReadAt(buf, 0), in.Write(buf)))
	noErr(t, configure(k, update{}))
	wantErr(t, tx.ReadAt(buf, 200), syscall.EACCES, "configured anew")
	wantErr(t, rx.Write(buf), syscall.EACCES, "configured anew")
	if err := errors.Join(own.ReadAt(buf, 200), in.Write(buf), in.Finish()); err != nil {
		t.Errorf("the owner's streams: %v", err)
	}
	for _, s := range []interface{ Close() }{tx, rx, own, in} {
		s.Close()
	}
}

// TestFreeWaits checks that freeing a key, directly or as a nested one, waits until no
// access uses the memory.
func TestFreeWaits(t *testing.T) {
	for _, nested := range []bool{false, true} {
		entered, release := make(chan bool), make(chan bool)
		space := &mkeytest.Space{Mem: make([]byte, 4096), Rights: rdma.LocalWrite, Fail: func(keydoor.Vec) error {
			entered <- true
			<-release
			return nil
		}}
		inner := newKey(t, mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: space, Length: 4096}}})
		k, free := inner, inner
		if nested {
			k = newKey(t, mkey.KeyConfig{Layout: mkey.List{{Memory: inner, Length: 4096}}})
		}
		tx := must(k.NewReader(0, 4096))
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := tx.ReadAt(make([]byte, 4096), 0); err != nil {
				t.Error(err)
			}
		})
		<-entered
		done := make(chan bool)
		wg.Go(func() {
			keydoor.Of(free).Invalidate()
			close(done)
		})
		// Freeing cannot complete before the access has ended, in any order of
		// scheduling.
		for _, err := free.WireLen(); err == nil; _, err = free.WireLen() {
		}
		select {
		case <-done:
			t.Error("freed while an access was inside")
		default:
		}
		close(release)
		wg.Wait()
		tx.Close()
	}
}

// TestFreeAndUse frees and configures a key while four goroutines use it, each another quarter of
// its memory. Once the key is free, the program may write its memory: the race detector reports
// later accesses.
func TestFreeAndUse(t *testing.T) {
	const quarter = 16 * 520
	for name, use := range map[string]func(d keydoor.Key, at uint64, buf []byte){
		"TX": func(d keydoor.Key, at uint64, buf []byte) {
			if tx, err := d.TX(at, uint64(len(buf))); err == nil {
				for off := 0; off < len(buf) && tx.ReadAt(buf[off:off+520], at+uint64(off)) == nil; off += 520 {
				}
				tx.Close()
			}
		},
		"RX": func(d keydoor.Key, at uint64, buf []byte) {
			if rx, err := d.RX(at, uint64(len(buf))); err == nil {
				for off := 0; off < len(buf) && rx.Write(buf[off:off+520]) == nil; off += 520 {
				}
				rx.Finish()
				rx.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := make([]byte, 4*quarter)
			k := must(create(mkey.BlockSignature, 4))
			d := keydoor.Of(k)
			stop := make(chan bool)
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					buf := make([]byte, quarter)
					for {
						select {
						case <-stop:
							return
						default:
							use(d, uint64(i*quarter), buf)
						}
					}
				})
			}
			for i := range 300 {
				noErr(t, configure(k, update{Access: new(rdma.LocalWrite), Layout: over(mem), Signature: &mkey.Signature{Memory: t10, Wire: t10}}))
				d.Invalidate()
				for j := range mem {
					mem[j] = byte(i)
				}
			}
			close(stop)
			wg.Wait()
		})
	}
}

// TestStrictCheck checks that a strict key records one bad block per configuration.
func TestStrictCheck(t *testing.T) {
	for _, strict := range []bool{false, true} {
		mem := mkeytest.Protect(t10, pattern(1024))
		mem[3] ^= 1
		k := must(created(keydoor.Attr{Flags: uint32(mkey.BlockSignature), MaxEntries: 1, StrictCheck: strict}))
		noErr(t, configure(k, update{Layout: over(mem), Signature: &mkey.Signature{Memory: t10}}))
		send(t, k, 0, 1024)
		if check(t, k) == nil {
			t.Error("the first bad block is missing")
		}
		send(t, k, 0, 1024)
		if bad := check(t, k); (bad == nil) != strict {
			t.Errorf("strict %t, asked again without a new configuration: %v", strict, bad)
		}
		noErr(t, configure(k, update{}))
		send(t, k, 0, 1024)
		if check(t, k) == nil {
			t.Error("the bad block after a new configuration is missing")
		}
	}
}

// gate is memory of which an access waits until it is opened.
type gate struct {
	in, open chan bool
	data     []byte
}

func (g *gate) Reach(uint64, uint64, rdma.Access) error { return nil }

func (g *gate) At(addr, n uint64, _ rdma.Access) ([]byte, error) {
	g.in <- true
	<-g.open
	return g.data[addr:][:n], nil
}

// While a stream accesses the memory, no call of Close returns, not even a second one: what returns may free the memory.
func TestEveryCloseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{in: make(chan bool), open: make(chan bool), data: make([]byte, 64)}
		k := must(mkey.New(mkey.KeyConfig{Access: rdma.LocalWrite, Layout: mkey.List{{Memory: g, Length: 64}}}))
		tx := must(k.NewReader(0, 64))
		var accesses atomic.Int32
		go func() {
			tx.ReadAt(make([]byte, 64), 0)
			accesses.Store(1)
		}()
		<-g.in
		closed := make(chan int32, 2)
		for range 2 {
			go func() {
				k.Close()
				closed <- accesses.Load()
			}()
		}
		synctest.Wait()
		if n := len(closed); n > 0 {
			t.Errorf("%d calls of Close have returned while a stream accesses the memory", n)
		}
		close(g.open)
		<-closed
		<-closed
		tx.Close()
	})
}
