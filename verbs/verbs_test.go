package verbs_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// deadline limits every wait of a test that would otherwise hang. No measurement depends
// on it.
const deadline = 30 * time.Second

// loopback returns a different loopback address for every device of the test binary.
var loopback = udptest.NextAddr

// side is one end of a connection with all that a test uses.
type side struct {
	t   *testing.T
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
	qp  *verbs.QP
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		fatal.If(t, err)
		return v
	}
}

func openSide(t *testing.T, attr verbs.QPAttr) *side {
	t.Helper()
	return openSideOn(t, loopback(), nil, attr)
}

func openSideOn(t *testing.T, addr netip.Addr, opts *verbs.DeviceOptions, attr verbs.QPAttr) *side {
	t.Helper()
	s := &side{t: t, dev: must[*verbs.Device](t)(verbs.Open(addr, opts))}
	s.pd = must[*verbs.PD](t)(s.dev.NewPD())
	s.cq = must[*verbs.CQ](t)(s.dev.NewCQ(1 << 16))
	attr.SendCQ = s.cq
	s.qp = must[*verbs.QP](t)(s.pd.NewQP(attr))
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{s.qp, s.cq} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

// pair returns two connected sides, of two devices.
func pair(t *testing.T, attr verbs.QPAttr, opts *verbs.ConnectOptions) (a, b *side) {
	t.Helper()
	if attr.MaxInlineData == 0 {
		attr.MaxInlineData = 512
	}
	a, b = openSide(t, attr), openSide(t, attr)
	connectQPs(t, a.qp, b.qp, opts)
	return a, b
}

// connectQPs connects two QPs to each other.
func connectQPs(t *testing.T, a, b *verbs.QP, opts *verbs.ConnectOptions) {
	t.Helper()
	for _, err := range []error{a.Connect(b.Endpoint(), opts), b.Connect(a.Endpoint(), opts)} {
		fatal.If(t, err)
	}
}

// modify moves the QP to a state.
func (s *side) modify(to rdma.State) {
	s.t.Helper()
	fatal.If(s.t, s.qp.SetState(to))
}

func (s *side) register(n int, access rdma.Access) *verbs.MR {
	s.t.Helper()
	mr := must[*verbs.MR](s.t)(s.pd.Register(make([]byte, n), access))
	s.t.Cleanup(func() { mr.Close() })
	return mr
}

func (s *side) mkey(flags mkey.Flags) *verbs.MKey {
	s.t.Helper()
	k := must[*verbs.MKey](s.t)(s.pd.NewMKey(verbs.MKeyAttr{Flags: flags, MaxEntries: 16}))
	s.t.Cleanup(func() { k.Close() })
	return k
}

// completions waits for n completions.
func (s *side) completions(n int) []rdma.WC {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	var all []rdma.WC
	for len(all) < n {
		wcs := make([]rdma.WC, n-len(all))
		got, err := s.cq.Wait(ctx, wcs)
		if err != nil {
			s.t.Fatalf("%d of %d completions, then %v", len(all), n, err)
		}
		for _, wc := range wcs[:got] {
			if (wc.Status == rdma.StatusSuccess) != (wc.Err == nil) {
				s.t.Errorf("completion of request %d: %v with the reason %v", wc.ID, wc.Status, wc.Err)
			}
		}
		all = append(all, wcs[:got]...)
	}
	return all
}

// completion waits for one completion and checks it.
func (s *side) completion(id uint64, op rdma.Opcode, st rdma.Status) rdma.WC {
	s.t.Helper()
	wc := s.completions(1)[0]
	if wc.ID != id || wc.Status != st || (st == rdma.StatusSuccess && wc.Opcode != op) {
		s.t.Fatalf("completion %+v (%v), want id %d, %v, %v", wc, wc.Status, id, op, st)
	}
	return wc
}

func (s *side) noCompletion() {
	s.t.Helper()
	var wc [1]rdma.WC
	if s.cq.Poll(wc[:]) != 0 {
		s.t.Fatalf("unexpected completion %+v (%v)", wc[0], wc[0].Status)
	}
}

// nextEvent waits for an event of the device, and acknowledges it.
func (s *side) nextEvent() *verbs.Event {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	e := must[*verbs.Event](s.t)(s.dev.NextEvent(ctx))
	e.Ack()
	return e
}

func (s *side) event(want rdma.EventType) {
	s.t.Helper()
	if e := s.nextEvent(); e.Type != want || e.QP != s.qp {
		s.t.Fatalf("event %v of %p, want %v", e.Type, e.QP, want)
	}
}

func (s *side) recv(id uint64, sges ...rdma.SGE) {
	s.t.Helper()
	if _, err := s.qp.PostRecv(verbs.RecvWR{ID: id, SGEs: sges}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *side) complete(c verbs.Chain) {
	s.t.Helper()
	fatal.If(s.t, c.Complete())
}

func fill(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestOperations(t *testing.T) {
	for _, mtu := range []int{256, 1024, 4096} {
		for _, size := range []int{0, 1, 255, 256, 257, 4096, 4097, 70_000, 1 << 20} {
			t.Run(fmt.Sprintf("mtu=%d/size=%d", mtu, size), func(t *testing.T) {
				a, b := pair(t, verbs.QPAttr{}, &verbs.ConnectOptions{MTU: mtu})
				src, dst := a.register(size+1, rdma.LocalWrite), b.register(size+1, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
				fill(src.Bytes(), 1)
				check := func(op string) {
					t.Helper()
					if !bytes.Equal(dst.Bytes()[:size], src.Bytes()[:size]) || dst.Bytes()[size] != 0 {
						t.Fatalf("%s: wrong bytes", op)
					}
					clear(dst.Bytes())
				}

				b.recv(1, dst.SGE(0, size))
				a.complete(a.qp.Start().ID(2).Signaled().Send().SGE(src.SGE(0, size)))
				if wc := b.completion(1, rdma.OpRecv, rdma.StatusSuccess); int(wc.ByteLen) != size || wc.Flags != 0 {
					t.Fatalf("SEND: %+v", wc)
				}
				a.completion(2, rdma.OpSend, rdma.StatusSuccess)
				check("SEND")

				b.recv(3, dst.SGE(0, size))
				a.complete(a.qp.Start().ID(4).Signaled().SendImm(0xCAFEBABE).SGE(src.SGE(0, size)))
				if wc := b.completion(3, rdma.OpRecv, rdma.StatusSuccess); wc.Flags != rdma.WithImm || wc.Imm != 0xCAFEBABE {
					t.Fatalf("SEND with immediate: %+v", wc)
				}
				a.completion(4, rdma.OpSend, rdma.StatusSuccess)
				check("SEND with immediate")

				a.complete(a.qp.Start().ID(5).Signaled().Write(dst.RKey(), dst.Addr()).SGE(src.SGE(0, size)))
				a.completion(5, rdma.OpRDMAWrite, rdma.StatusSuccess)
				check("WRITE")

				b.recv(6)
				a.complete(a.qp.Start().ID(7).Signaled().WriteImm(dst.RKey(), dst.Addr(), 7).SGE(src.SGE(0, size)))
				if wc := b.completion(6, rdma.OpRecvRDMAWithImm, rdma.StatusSuccess); wc.Imm != 7 || int(wc.ByteLen) != size {
					t.Fatalf("WRITE with immediate: %+v", wc)
				}
				a.completion(7, rdma.OpRDMAWrite, rdma.StatusSuccess)
				check("WRITE with immediate")

				copy(dst.Bytes(), src.Bytes()[:size])
				clear(src.Bytes())
				a.complete(a.qp.Start().ID(8).Signaled().Read(dst.RKey(), dst.Addr()).SGE(src.SGE(0, size)))
				if wc := a.completion(8, rdma.OpRDMARead, rdma.StatusSuccess); int(wc.ByteLen) != size {
					t.Fatalf("READ: %+v", wc)
				}
				check("READ")
			})
		}
	}
}

// TestReadBeforeWrite posts a READ and a WRITE to the same memory with one doorbell and without a fence. The READ
// returns the memory as it was before.
func TestReadBeforeWrite(t *testing.T) {
	for _, inside := range []bool{false, true} {
		for _, size := range []int{1, 4096, 100_000} {
			a, b := pair(t, verbs.QPAttr{}, nil)
			if inside {
				a = openSide(t, verbs.QPAttr{})
				if b = a; a.qp.Connect(a.qp.Endpoint(), nil) != nil {
					t.Fatal("a QP is not connected to itself")
				}
			}
			// Each round has memory of its own, which this goroutine reads when the queue pair is closed: the
			// network orders its accesses and those of the peer's goroutines, which the race detector does not see.
			const rounds = 100
			dst := a.register(size, rdma.LocalWrite)
			src, target := a.register(rounds*size, rdma.LocalWrite), b.register(rounds*size, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
			fill(src.Bytes(), 1)
			fill(target.Bytes(), 2)
			old := bytes.Clone(target.Bytes())
			for at := 0; at < rounds*size; at += size {
				addr := target.Addr() + uint64(at)
				a.complete(a.qp.Start().ID(1).Signaled().Read(target.RKey(), addr).SGE(dst.SGE(0, size)).
					ID(2).Signaled().Write(target.RKey(), addr).SGE(src.SGE(at, size)))
				a.completion(1, rdma.OpRDMARead, rdma.StatusSuccess)
				a.completion(2, rdma.OpRDMAWrite, rdma.StatusSuccess)
				if !bytes.Equal(dst.Bytes(), old[at:][:size]) {
					t.Fatalf("inside %v, %d bytes, round %d: the WRITE has overtaken the READ", inside, size, at/size)
				}
			}
			b.qp.Close()
			if !bytes.Equal(target.Bytes(), src.Bytes()) {
				t.Fatalf("inside %v, %d bytes: the WRITEs are not whole", inside, size)
			}
		}
	}
}

func TestAtomics(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	result := a.register(8, rdma.LocalWrite)
	word := b.register(16, rdma.LocalWrite|rdma.RemoteAtomic)
	word.Bytes()[8] = 5
	a.complete(a.qp.Start().ID(1).Signaled().FetchAdd(word.RKey(), word.Addr()+8, 3).SGE(result.SGE(0, 8)))
	a.completion(1, rdma.OpFetchAdd, rdma.StatusSuccess)
	if result.Bytes()[0] != 5 || word.Bytes()[8] != 8 {
		t.Fatalf("fetch and add: got %d, stored %d", result.Bytes()[0], word.Bytes()[8])
	}
	a.complete(a.qp.Start().ID(2).Signaled().CompareSwap(word.RKey(), word.Addr()+8, 8, 99).SGE(result.SGE(0, 8)))
	a.completion(2, rdma.OpCompSwap, rdma.StatusSuccess)
	a.complete(a.qp.Start().ID(3).Signaled().CompareSwap(word.RKey(), word.Addr()+8, 8, 1).SGE(result.SGE(0, 8)))
	a.completion(3, rdma.OpCompSwap, rdma.StatusSuccess)
	if result.Bytes()[0] != 99 || word.Bytes()[8] != 99 {
		t.Fatalf("compare and swap: got %d, stored %d", result.Bytes()[0], word.Bytes()[8])
	}
}

func TestLoopbackQP(t *testing.T) {
	a := openSide(t, verbs.QPAttr{})
	fatal.If(t, a.qp.Connect(a.qp.Endpoint(), nil))
	mr := a.register(64, rdma.LocalWrite)
	a.recv(1, mr.SGE(0, 64))
	a.complete(a.qp.Start().ID(2).Send().Inline([]byte("to myself")))
	a.completion(1, rdma.OpRecv, rdma.StatusSuccess)
	if !bytes.HasPrefix(mr.Bytes(), []byte("to myself")) {
		t.Fatalf("got %q", mr.Bytes())
	}
}

func TestInlineCopiesAtPost(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	mr := b.register(64, rdma.LocalWrite)
	b.recv(1, mr.SGE(0, 64))
	data := []byte("before")
	a.complete(a.qp.Start().Send().Inline(data))
	copy(data, "after.")
	b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
	if !bytes.HasPrefix(mr.Bytes(), []byte("before")) {
		t.Fatalf("got %q", mr.Bytes())
	}
	a.noCompletion() // the request was not signaled
}

// TestRemoteErrors checks that the peer can only use the access it was granted: each
// request is refused and completes with a remote access error, and the responder's device
// reports it.
func TestRemoteErrors(t *testing.T) {
	type request struct {
		name string
		post func(a, b *side, mr *verbs.MR, c verbs.Chain, local rdma.SGE) verbs.Chain
	}
	for _, r := range []request{
		{"unknown key", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Write(mr.RKey()^0x5500, mr.Addr()).SGE(l)
		}},
		{"stale tag", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Write(mr.RKey()^1, mr.Addr()).SGE(l)
		}},
		{"behind the end", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Write(mr.RKey(), mr.Addr()+1).SGE(l)
		}},
		{"before the start", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Read(mr.RKey(), mr.Addr()-1).SGE(l)
		}},
		{"around the end of addresses", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Read(mr.RKey(), ^uint64(0)-3).SGE(l)
		}},
		{"no right to read", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Read(b.register(4096, rdma.LocalWrite|rdma.RemoteWrite).RKey(), 0).SGE(l)
		}},
		{"no right to write", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			ro := b.register(4096, rdma.RemoteRead)
			return c.Write(ro.RKey(), ro.Addr()).SGE(l)
		}},
		{"no right to atomics", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			l.Length = 8
			return c.FetchAdd(mr.RKey(), (mr.Addr()+7)&^7, 1).SGE(l)
		}},
		{"another protection domain", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			pd := must[*verbs.PD](b.t)(b.dev.NewPD())
			other := must[*verbs.MR](b.t)(pd.Register(make([]byte, 4096), rdma.LocalWrite|rdma.RemoteWrite))
			return c.Write(other.RKey(), other.Addr()).SGE(l)
		}},
		{"a closed region", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			mr.Close()
			return c.Write(mr.RKey(), mr.Addr()).SGE(l)
		}},
		{"a free memory key", func(a, b *side, mr *verbs.MR, c verbs.Chain, l rdma.SGE) verbs.Chain {
			return c.Write(b.mkey(0).RKey(), 0).SGE(l)
		}},
	} {
		t.Run(r.name, func(t *testing.T) {
			a, b := pair(t, verbs.QPAttr{}, nil)
			local := a.register(4096, rdma.LocalWrite)
			fill(local.Bytes(), 3)
			mr := b.register(4096, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
			a.complete(r.post(a, b, mr, a.qp.Start().ID(9), local.SGE(0, 4096)))
			a.completion(9, 0, rdma.StatusRemAccessErr)
			b.event(rdma.EventQPAccessErr)
			if a.qp.State() != rdma.StateErr || b.qp.State() != rdma.StateErr {
				t.Errorf("states %v and %v, want ERR", a.qp.State(), b.qp.State())
			}
			if !bytes.Equal(mr.Bytes(), make([]byte, 4096)) {
				t.Error("memory was written")
			}
		})
	}
}

// TestInvalidationRefused sends a SEND that is to invalidate a region, which cannot be invalidated: the receive request
// fails, and the sender, which gets no NAK, when its retries end.
func TestInvalidationRefused(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	local, mr := a.register(4096, rdma.LocalWrite), b.register(4096, rdma.LocalWrite)
	b.recv(77, mr.SGE(0, 4096))
	a.complete(a.qp.Start().ID(9).SendInv(mr.RKey()).SGE(local.SGE(0, 4096)))
	b.completion(77, 0, rdma.StatusLocAccessErr)
	a.completion(9, 0, rdma.StatusRetryExcErr)
}

func TestLocalErrors(t *testing.T) {
	for name, post := range map[string]func(a *side, c verbs.Chain) verbs.Chain{
		"unknown key": func(a *side, c verbs.Chain) verbs.Chain {
			return c.Send().SGE(rdma.SGE{Addr: 0, Length: 8, LKey: 0x12345600})
		},
		"behind the end": func(a *side, c verbs.Chain) verbs.Chain {
			s := a.register(8, 0).SGE(0, 8)
			s.Addr++
			return c.Send().SGE(s)
		},
		"free memory key": func(a *side, c verbs.Chain) verbs.Chain {
			return c.Send().SGE(a.mkey(0).SGE(0, 8))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, verbs.QPAttr{}, nil)
			b.recv(1)
			a.complete(post(a, a.qp.Start().ID(5)).ID(6).Send())
			a.completion(5, 0, rdma.StatusLocProtErr)
			a.completion(6, 0, rdma.StatusWRFlushErr)
			if a.qp.State() != rdma.StateErr {
				t.Errorf("state %v", a.qp.State())
			}
			b.noCompletion()
		})
	}
}

// TestAnswerMemory sends READs and atomics whose memory is wrong on this side, on the peer's,
// and on both. The peer's refusal comes first, as with an adapter, which uses its own memory
// when the answer has arrived.
func TestAnswerMemory(t *testing.T) {
	const all = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic
	good := func(s *side) rdma.SGE { return s.register(8, all).SGE(0, 8) }
	unknown := func(*side) rdma.SGE { return rdma.SGE{Length: 8, LKey: 0x12345600} }
	key := func(s *side, access rdma.Access) rdma.SGE {
		k := s.mkey(0)
		s.complete(s.qp.Start().ID(1000).Signaled().Configure(k).Access(access).List(good(s)))
		s.completion(1000, rdma.OpMKeyConfigure, rdma.StatusSuccess)
		return k.SGE(0, 8)
	}
	memory := map[string]func(*side) rdma.SGE{
		"good":           good,
		"good key":       func(s *side) rdma.SGE { return key(s, all) },
		"unknown":        unknown,
		"free key":       func(s *side) rdma.SGE { return s.mkey(0).SGE(0, 8) },
		"no rights":      func(s *side) rdma.SGE { return s.register(8, 0).SGE(0, 8) },
		"key, no rights": func(s *side) rdma.SGE { return key(s, 0) },
	}
	for _, op := range []string{"READ", "FETCH_ADD"} {
		for mine, local := range memory {
			for theirs, remote := range memory {
				t.Run(fmt.Sprintf("%s/%s/%s", op, mine, theirs), func(t *testing.T) {
					a, b := pair(t, verbs.QPAttr{}, nil)
					l, r := local(a), remote(b)
					c := a.qp.Start().ID(1).Signaled()
					if op == "READ" {
						c = c.Read(r.LKey, r.Addr)
					} else {
						c = c.FetchAdd(r.LKey, r.Addr, 1)
					}
					a.complete(c.SGE(l))
					want := rdma.StatusSuccess
					switch {
					case !strings.HasPrefix(theirs, "good"):
						want = rdma.StatusRemAccessErr
					case !strings.HasPrefix(mine, "good"):
						want = rdma.StatusLocProtErr
					}
					if wc := a.completions(1)[0]; wc.Status != want {
						t.Errorf("%v (%v), want %v", wc.Status, wc.Err, want)
					}
				})
			}
		}
	}
	// No byte is written, so the list may name anything.
	a, b := pair(t, verbs.QPAttr{}, nil)
	r := good(b)
	a.complete(a.qp.Start().ID(1).Signaled().Read(r.LKey, r.Addr).SGE(rdma.SGE{LKey: 1}))
	a.completion(1, rdma.OpRDMARead, rdma.StatusSuccess)
}

// TestShortReceive sends more bytes than the receive request has room for.
func TestShortReceive(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	src, dst := a.register(5000, 0), b.register(4096, rdma.LocalWrite)
	b.recv(1, dst.SGE(0, 4096))
	a.complete(a.qp.Start().ID(2).Send().SGE(src.SGE(0, 5000)))
	b.completion(1, 0, rdma.StatusLocLenErr)
	a.completion(2, 0, rdma.StatusRemInvReqErr)
	b.event(rdma.EventQPReqErr)
}

func TestSharedReceiveQueue(t *testing.T) {
	a, b := openSide(t, verbs.QPAttr{}), openSide(t, verbs.QPAttr{})
	srq := must[*verbs.SRQ](t)(b.pd.NewSRQ(verbs.SRQAttr{MaxWR: 8}))
	qp := must[*verbs.QP](t)(b.pd.NewQP(verbs.QPAttr{SendCQ: b.cq, SRQ: srq}))
	b.qp.Close()
	b.qp = qp
	connectQPs(t, a.qp, qp, nil)
	fatal.If(t, srq.Arm(2))
	mr := b.register(64, rdma.LocalWrite)
	for i := range 2 {
		if _, err := srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGEs: []rdma.SGE{mr.SGE(32*i, 32)}}); err != nil {
			t.Fatal(err)
		}
	}
	a.complete(a.qp.Start().Send().Inline([]byte("one")).Send().Inline([]byte("two")))
	b.completion(0, rdma.OpRecv, rdma.StatusSuccess)
	b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
	if e := b.nextEvent(); e.Type != rdma.EventSRQLimitReached || e.SRQ != srq {
		t.Fatalf("event %v", e.Type)
	}
	if err := srq.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing an SRQ in use: %v", err)
	}
	b.modify(rdma.StateErr)
	b.event(rdma.EventQPLastWQEReached)
}
