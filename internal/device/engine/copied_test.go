package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/keydoor"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
)

// far is memory that can only be copied, at addresses from farBase on. A test can unmap
// its pages.
type far struct {
	b       []byte
	inPlace bool // the memory names no Space, so it is used in place
	gone    atomic.Bool
	calls   atomic.Int64
}

const farBase = 0x7000_0000

func (f *far) Reach(addr, n uint64, need rdma.Access) error {
	if need&^rdma.LocalWrite != 0 {
		return failure.New("reach", syscall.EACCES, "the memory of a region is asked for the rights %#x", uint32(need))
	}
	return nil
}

// At returns pieces of up to 700 bytes.
func (f *far) At(addr, n uint64, need rdma.Access) ([]byte, error) {
	if !f.inPlace {
		panic("memory that can only be copied is used in place")
	}
	if err := f.Reach(addr, n, need); err != nil {
		return nil, err
	}
	off := addr - farBase
	return f.b[off : off+min(n, 700-off%700)], nil
}

func (f *far) Space(addr, n uint64, need rdma.Access) (keydoor.Space, uint64, error) {
	if f.inPlace {
		return nil, 0, nil
	}
	return f, addr, f.Reach(addr, n, need)
}

func (f *far) each(v []keydoor.Vec, do func(there, here []byte)) error {
	f.calls.Add(1)
	for _, e := range v {
		if f.gone.Load() || e.Addr < farBase || e.Addr-farBase+uint64(len(e.Buf)) > uint64(len(f.b)) {
			return failure.New("copy", syscall.EFAULT, "%#x+%d is not mapped", e.Addr, len(e.Buf))
		}
		do(f.b[e.Addr-farBase:], e.Buf)
	}
	return nil
}

func (f *far) ReadV(v []keydoor.Vec) error {
	return f.each(v, func(there, here []byte) { copy(here, there) })
}

func (f *far) WriteV(v []keydoor.Vec) error {
	return f.each(v, func(there, here []byte) { copy(there, here) })
}

func (e *end) far(n int, access rdma.Access) (*far, *Region) {
	e.t.Helper()
	f := &far{b: make([]byte, n)}
	return f, e.region(f, n, access)
}

func (e *end) region(m mkey.Memory, n int, access rdma.Access) *Region {
	e.t.Helper()
	r, err := e.pd.NewRegion(RegionAttr{Memory: m, Start: farBase, Addr: 0x1000, Length: uint64(n), Access: access})
	e.check(err)
	return r
}

// TestCopiedMemory executes every operation with memory that is not a slice, at both ends, with
// lists of several entries: memory that can only be copied, keydoor.Copied that names no Space,
// and other mkey.Memory.
func TestCopiedMemory(t *testing.T) {
	for kind, of := range map[string]func(e *end, n int) (*far, *Region){
		"copied": func(e *end, n int) (*far, *Region) { return e.far(n, allRights) },
		"no Space": func(e *end, n int) (*far, *Region) {
			f := &far{b: make([]byte, n), inPlace: true}
			return f, e.region(f, n, allRights)
		},
		"in place": func(e *end, n int) (*far, *Region) {
			f := &far{b: make([]byte, n), inPlace: true}
			return f, e.region(struct{ mkey.Memory }{f}, n, allRights)
		},
	} {
		t.Run(kind, func(t *testing.T) { testMemory(t, of) })
	}
}

const allRights = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic

func testMemory(t *testing.T, of func(e *end, n int) (*far, *Region)) {
	for _, size := range []int{1, 100, 5000, 300_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			x, y := pair(t, QPAttr{})
			xm, xr := of(x, size+16)
			ym, yr := of(y, size+16)
			_, own := x.slice(size, 0)
			random := rand.NewChaCha8([32]byte{byte(size)})
			refresh := func() {
				random.Read(xm.b)
				random.Read(ym.b)
			}
			// A list of three entries: copied, in place (ignored if empty),
			// copied.
			third := size / 3
			list := []rdma.SGE{sge(xr, 8, third), sge(own, 0, 0), sge(xr, 8+third, size-third)}
			same := func(what string) {
				t.Helper()
				if !bytes.Equal(xm.b[8:][:size], ym.b[8:][:size]) {
					t.Fatalf("%s: the data differs", what)
				}
			}
			refresh()
			x.post(&SendRequest{ID: 1, Op: ibv.WRWrite, RKey: yr.Number(), RemoteAddr: 0x1008, SGEs: list})
			x.want(t, "send 1: success")
			same("WRITE")
			refresh()
			x.post(&SendRequest{ID: 2, Op: ibv.WRRead, RKey: yr.Number(), RemoteAddr: 0x1008, SGEs: list})
			x.want(t, "send 2: success")
			same("READ")
			refresh()
			y.postRecv(&RecvRequest{ID: 3, SGEs: []rdma.SGE{sge(yr, 8, third), sge(yr, 8+third, size-third)}})
			x.post(&SendRequest{ID: 3, Op: ibv.WRSend, SGEs: list})
			y.want(t, fmt.Sprintf("recv 3: success, %d bytes", size))
			x.want(t, "send 3: success")
			same("SEND")
			if limit := int64(20 + 4*size/4096); xm.calls.Load() > limit {
				t.Errorf("%d calls for %d bytes", xm.calls.Load(), 3*size)
			}
			binary.NativeEndian.PutUint64(ym.b[8:], 40)
			x.post(&SendRequest{ID: 4, Op: ibv.WRFetchAdd, RKey: yr.Number(), RemoteAddr: 0x1008, CompareAdd: 2, SGEs: []rdma.SGE{sge(xr, 0, 8)}})
			x.want(t, "send 4: success")
			if got, old := binary.NativeEndian.Uint64(ym.b[8:]), binary.NativeEndian.Uint64(xm.b); got != 42 || old != 40 {
				t.Errorf("after the atomic %d, before it %d", got, old)
			}
			x.post(&SendRequest{ID: 5, Op: ibv.WRMaskedFetchAdd, RKey: yr.Number(), RemoteAddr: 0x1008, CompareAdd: 0xff, CompareMask: 1 << 3, SGEs: []rdma.SGE{sge(xr, 0, 4)}})
			x.want(t, "send 5: success")
			if got, old := binary.NativeEndian.Uint32(ym.b[8:]), binary.BigEndian.Uint32(xm.b); got != 0x119 || old != 42 {
				t.Errorf("after the masked atomic %#x, before it %d", got, old)
			}
		})
	}
}

// TestCopiedMemoryGone unmaps memory of the program. Requests must fail with the reason,
// on either side.
func TestCopiedMemoryGone(t *testing.T) {
	for _, where := range []string{"local", "peer"} {
		x, y := pair(t, QPAttr{})
		xm, xr := x.far(8192, rdma.LocalWrite)
		ym, yr := y.far(8192, rdma.LocalWrite|rdma.RemoteWrite)
		want := "send 1: remote access error"
		if where == "local" {
			xm.gone.Store(true)
			want = "send 1: local protection error (copy: "
		} else {
			ym.gone.Store(true)
		}
		x.post(&SendRequest{ID: 1, Op: ibv.WRWrite, RKey: yr.Number(), RemoteAddr: 0x1000, SGEs: []rdma.SGE{sge(xr, 0, 8192)}})
		x.want(t, want)
	}
}

// TestPlaceCopied asks for the place of a packet in memory that can only be
// copied, which happens for every packet. The answer must not allocate, as an
// error's text would.
func TestPlaceCopied(t *testing.T) {
	x, _ := pair(t, QPAttr{})
	_, r := x.far(8192, rdma.LocalWrite|rdma.RemoteWrite)
	var m transfer
	m.begin(x.qp, remote)
	if err := m.openRemote(r.Number(), 0x1000, 8192, rdma.RemoteWrite, 0); err != nil {
		t.Fatal(err)
	}
	defer m.close()
	if n := testing.AllocsPerRun(100, func() {
		if m.Place(4096) != nil {
			t.Error("memory that can only be copied has a place")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
