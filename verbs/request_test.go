package verbs_test

import (
	"cmp"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// grants reports whether the peer's key allows a to WRITE through qp.
func grants(t *testing.T, a *side, qp *verbs.QP, key *verbs.MKey) bool {
	t.Helper()
	src := a.register(8, 0)
	a.complete(qp.Start().ID(50).Signaled().Write(key.RKey(), 0).SGE(src.SGE(0, 8)))
	wc := a.completions(1)[0]
	return wc.Status == rdma.StatusSuccess
}

// TestConfigurationLeavesNothing checks that a configuration which did not execute, for
// any reason, is not part of the next one. The key's rights are revoked in between; a
// configuration that sets only the layout must not restore them.
func TestConfigurationLeavesNothing(t *testing.T) {
	const all = rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead
	for name, lose := range map[string]func(t *testing.T, r *revoked, c verbs.Chain){
		"not completed": func(t *testing.T, r *revoked, c verbs.Chain) {},
		"refused":       func(t *testing.T, r *revoked, c verbs.Chain) { c.SGE(); c.Complete() },
		"cancelled": func(t *testing.T, r *revoked, c verbs.Chain) {
			r.b.modify(rdma.StateSQD)
			r.b.complete(c)
			if n, err := r.b.qp.Cancel(60); n != 1 || err != nil {
				t.Fatalf("cancelled %d, %v", n, err)
			}
			r.b.modify(rdma.StateRTS)
			r.b.completion(60, rdma.OpMKeyConfigure, rdma.StatusSuccess)
		},
		"flushed": func(t *testing.T, r *revoked, c verbs.Chain) {
			r.b.modify(rdma.StateSQD)
			r.b.complete(c)
			r.b.modify(rdma.StateErr)
			r.b.completion(60, rdma.OpMKeyConfigure, rdma.StatusWRFlushErr)
		},
		"dropped by RESET": func(t *testing.T, r *revoked, c verbs.Chain) {
			r.b.modify(rdma.StateSQD)
			r.b.complete(c)
			r.b.modify(rdma.StateReset)
			r.b.noCompletion()
		},
		"waiting on another QP": func(t *testing.T, r *revoked, c verbs.Chain) {
			r.b.modify(rdma.StateSQD)
			r.b.complete(c)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &revoked{valve: newValve()}
			r.a, r.b, r.a2, r.b2 = r.valve.pair(t, verbs.QPAttr{})
			mr, key := r.b.register(64, all), r.b.mkey(0)
			r.b.complete(r.b.qp.Start().ID(1).Signaled().Configure(key).Access(rdma.LocalWrite).List(mr.SGE(0, 64)))
			r.b.completion(1, rdma.OpMKeyConfigure, rdma.StatusSuccess)

			lose(t, r, r.b.qp.Start().ID(60).Signaled().Configure(key).Access(all))

			r.b.complete(r.b2.Start().ID(2).Signaled().Configure(key).List(mr.SGE(0, 64)))
			r.b.completion(2, rdma.OpMKeyConfigure, rdma.StatusSuccess)
			if grants(t, r.a, r.a2, key) {
				t.Error("the peer has a right that no executed configuration gave it")
			}
		})
	}
}

// TestConfigurationFails checks that an error which appears only when a configuration
// executes is reported by its completion, with the reason in words, and does not change
// the key.
func TestConfigurationFails(t *testing.T) {
	a, _ := pair(t, verbs.QPAttr{}, nil)
	mr, key := a.register(520, rdma.LocalWrite), a.mkey(mkey.BlockSignature|mkey.CryptoOffload)
	c := a.qp.Start()
	// Each of the two attributes is valid alone. The device does not support
	// their combination.
	c.Configure(key).List(mr.SGE(0, 512)).Signature(signature(&dif, &dif))
	crypto := cryptoOf(t, a, 512, false)
	c.ID(7).Configure(key).Crypto(crypto)
	a.complete(c)
	wc := a.completion(7, rdma.OpMKeyConfigure, rdma.StatusMWBindErr)
	if wc.Err == nil || !strings.Contains(wc.Err.Error(), "mkey configure") {
		t.Errorf("the reason is %v", wc.Err)
	}
}

// TestChainFinished checks that calls on a completed chain affect neither that
// chain nor another one.
func TestChainFinished(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	done := a.qp.Start()
	a.complete(done)
	done.ID(1).Signaled().Send()
	one, two := a.qp.Start().ID(10).Signaled(), a.qp.Start().ID(20).Signaled()
	done.ID(3).Fence().Send().Inline([]byte("x")).Configure(nil).Access(0)
	if err := done.Complete(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("completing a finished chain: %v", err)
	}
	b.recv(1)
	b.recv(2)
	a.complete(one.Send())
	a.complete(two.Send())
	if err := two.Complete(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("completing a chain twice: %v", err)
	}
	a.completion(10, rdma.OpSend, rdma.StatusSuccess)
	a.completion(20, rdma.OpSend, rdma.StatusSuccess)
	a.noCompletion()
	if err := new(verbs.Chain).Complete(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("the zero value: %v", err)
	}
}

// TestChainsDoNotShare completes chains twice in some goroutines while others build theirs.
func TestChainsDoNotShare(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{MaxSendWR: 1 << 10, MaxRecvWR: 1 << 12}, nil)
	const each, goroutines = 200, 4
	for range each * goroutines {
		b.recv(1)
	}
	var wg sync.WaitGroup
	for g := range uint64(goroutines) {
		wg.Go(func() {
			for i := range uint64(each) {
				c := a.qp.Start()
				c.Complete()
				d := a.qp.Start().ID(g<<32 | i).Signaled()
				c.Complete()
				if err := d.Send().Complete(); err != nil {
					t.Error(err)
				}
				d.Complete()
			}
		})
	}
	wg.Wait()
	var next [goroutines]uint64
	for _, wc := range a.completions(each * goroutines) {
		g := wc.ID >> 32
		if wc.ID != g<<32|next[g] || wc.Status != rdma.StatusSuccess {
			t.Fatalf("completion %#x (%v), want request %d of goroutine %d", wc.ID, wc.Status, next[g], g)
		}
		next[g]++
	}
}

// TestSetTag checks that a new tag belongs to the next configuration. Requests that
// execute before it use the old number.
func TestSetTag(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	mr, key := a.register(64, rdma.LocalWrite), a.mkey(mkey.UpdateTag)
	a.configure(key, mr, nil)
	old := key.SGE(0, 8)
	a.modify(rdma.StateSQD)
	dst := b.register(8, rdma.LocalWrite)
	for id := range uint64(4) {
		b.recv(id, dst.SGE(0, 8))
	}
	a.complete(a.qp.Start().ID(1).Signaled().Send().SGE(old))
	fatal.If(t, key.SetTag(0x5A))
	if key.LKey() != old.LKey&^0xFF|0x5A {
		t.Errorf("key %#x", key.LKey())
	}
	a.complete(a.qp.Start().ID(2).Signaled().Send().SGE(old).ID(3).Configure(key).ID(4).Signaled().Send().SGE(key.SGE(0, 8)).
		ID(5).Send().SGE(old))
	a.modify(rdma.StateRTS)
	for _, id := range []uint64{1, 2, 4} {
		a.completion(id, rdma.OpSend, rdma.StatusSuccess)
	}
	wc := a.completion(5, rdma.OpSend, rdma.StatusLocProtErr)
	if wc.Err == nil || !strings.Contains(wc.Err.Error(), "stale") {
		t.Errorf("the reason is %v", wc.Err)
	}
	if err := a.mkey(0).SetTag(1); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("a key without mkey.UpdateTag: %v", err)
	}
}

// TestStrictSignatureReports checks that with Options.Strict, a key that has reported a bad
// signature reports the next one only after a new configuration, and without it as soon as the
// last report was fetched.
func TestStrictSignatureReports(t *testing.T) {
	for _, strict := range []bool{false, true} {
		a := openSideOn(t, loopback(), &verbs.DeviceOptions{Strict: strict}, verbs.QPAttr{MaxInlineData: 512})
		b := openSide(t, verbs.QPAttr{MaxInlineData: 512})
		connectQPs(t, a.qp, b.qp, nil)
		disk, key := a.register(520, rdma.LocalWrite), a.mkey(mkey.BlockSignature) // all zeros: bad
		dst := b.register(512, rdma.LocalWrite|rdma.RemoteWrite)
		bad := func() bool {
			t.Helper()
			a.complete(a.qp.Start().ID(1).Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 512)))
			a.completion(1, rdma.OpRDMAWrite, rdma.StatusSuccess)
			bad, err := key.Check()
			fatal.If(t, err)
			return bad != nil
		}
		for range 2 {
			a.configure(key, disk, func(c verbs.Chain) { c.Signature(signature(&dif, nil)) })
			if !bad() {
				t.Fatal("the first bad signature is not reported")
			}
			if again := bad(); again == strict {
				t.Errorf("strict %t: the next one is reported: %t", strict, again)
			}
		}
	}
}

// TestConfigurationRoom checks how many entries and attributes a configuration has room for:
// 16 bytes for each entry, 16 for an interleaved pattern, 64 for signature attributes and 64
// for crypto attributes, in MaxInlineData + 4 bytes. The default of MaxInlineData is 256.
func TestConfigurationRoom(t *testing.T) {
	for _, inline := range []int{0, 1, 11, 12, 27, 28, 60, 75, 76, 124, 139, 140, 188, 203, 204, 512} {
		room := cmp.Or(inline, 256) + 4
		a, _ := pair(t, verbs.QPAttr{}, nil)
		qp := must[*verbs.QP](t)(a.pd.NewQP(verbs.QPAttr{SendCQ: a.cq, MaxInlineData: inline}))
		defer qp.Close()
		crypto := cryptoOf(t, a, 512, true)
		for attrs := range 4 {
			signed, encrypted := attrs&1 != 0, attrs&2 != 0
			flags := mkey.Flags(0)
			if signed {
				flags |= mkey.BlockSignature
			}
			if encrypted {
				flags |= mkey.CryptoOffload
			}
			key := must[*verbs.MKey](t)(a.pd.NewMKey(verbs.MKeyAttr{Flags: flags, MaxEntries: 64}))
			defer key.Close()
			for entries := range 40 {
				for _, interleaved := range []bool{false, true} {
					c := qp.Start().Configure(key)
					need := 16 * entries
					if interleaved {
						c, need = c.Interleaved(1, make([]rdma.Strided, entries)...), need+16
					} else {
						c = c.List(make([]rdma.SGE, entries)...)
					}
					if signed {
						c, need = c.Signature(signature(nil, &dif)), need+64
					}
					if encrypted {
						c, need = c.Crypto(crypto), need+64
					}
					// A QP in RESET accepts no requests, so a configuration
					// that fits is refused with EINVAL.
					want := syscall.EINVAL
					if need > room {
						want = syscall.ENOMEM
					}
					if err := c.Complete(); !errors.Is(err, want) {
						t.Fatalf("max_inline_data %d, %d entries, interleaved %t, signed %t, encrypted %t: %v, want %v", inline, entries, interleaved, signed, encrypted, err, want)
					}
				}
			}
		}
	}
}

// TestConfigurationLength checks that signature and crypto attributes are refused over more
// than 4 GiB, as libmlx5 refuses them, and that layouts without them may be longer.
func TestConfigurationLength(t *testing.T) {
	a, _ := pair(t, verbs.QPAttr{}, nil)
	mr := a.register(512, rdma.LocalWrite)
	list := func(n uint64) (sges []rdma.SGE) {
		for ; n > 0; n -= min(n, 1<<30) {
			sges = append(sges, rdma.SGE{Addr: mr.Addr(), Length: uint32(min(n, 1<<30)), LKey: mr.LKey()})
		}
		return sges
	}
	const most = 1<<32 - 1
	s, enc := signature(nil, &dif), cryptoOf(t, a, 512, true)
	configure := func(c verbs.Chain) rdma.Status {
		t.Helper()
		a.complete(c)
		return a.completions(1)[0].Status
	}
	for name, set := range map[string]func(c verbs.Chain) verbs.Chain{
		"signature": func(c verbs.Chain) verbs.Chain { return c.Signature(s) },
		"crypto":    func(c verbs.Chain) verbs.Chain { return c.Crypto(enc) },
	} {
		flags := mkey.BlockSignature | mkey.CryptoOffload
		for layout, with := range map[string]func(c verbs.Chain, n uint64) verbs.Chain{
			"list": func(c verbs.Chain, n uint64) verbs.Chain { return c.List(list(n)...) },
			"interleaved": func(c verbs.Chain, n uint64) verbs.Chain {
				if n == most {
					return c.Interleaved(3, rdma.Strided{BytesCount: most / 3, LKey: mr.LKey()})
				}
				return c.Interleaved(uint32(n>>20), rdma.Strided{BytesCount: 1 << 20, LKey: mr.LKey()})
			},
		} {
			name := name + " over a " + layout
			key := a.mkey(flags)
			if err := with(set(a.qp.Start().Configure(key)), most+1).Complete(); !errors.Is(err, syscall.EINVAL) {
				t.Errorf("%s of 4 GiB: %v", name, err)
			}
			if st := configure(with(set(a.qp.Start().Signaled().Configure(key)), most)); st != rdma.StatusSuccess {
				t.Fatalf("%s of a byte less: %v", name, st)
			}
			// A layout alone may be of any length, in any order with the attributes that
			// are in force. Attributes may not be set over it.
			if st := configure(with(a.qp.Start().Signaled().Configure(key), 5<<30)); st != rdma.StatusSuccess {
				t.Fatalf("%s: a layout of 5 GiB: %v", name, st)
			}
			if st := configure(set(a.qp.Start().Signaled().Configure(key))); st != rdma.StatusMWBindErr {
				t.Fatalf("%s of 5 GiB in force: %v", name, st)
			}
			a.modify(rdma.StateReset)
			b := openSide(t, verbs.QPAttr{MaxInlineData: 512})
			connectQPs(t, a.qp, b.qp, nil)
		}
	}
}

// TestDEKs checks that a configuration refuses DEKs that the key may not use, and holds
// its DEK.
func TestDEKs(t *testing.T) {
	a, b := pair(t, verbs.QPAttr{}, nil)
	mr, key := a.register(512, rdma.LocalWrite), a.mkey(mkey.CryptoOffload)
	other := must[*verbs.PD](t)(a.dev.NewPD())
	plain := func(s *side, pd dek.PD) *dek.DEK {
		d := must[*dek.DEK](t)(s.dev.Crypto().NewDEK(make16(), &dek.DEKOptions{PD: pd}))
		t.Cleanup(func() { d.Close() })
		return d
	}
	try := func(d mkey.DEK) error {
		c := a.qp.Start().ID(1).Signaled().Configure(key).List(mr.SGE(0, 512)).
			Crypto(mkey.Crypto{EncryptOnTX: true, DataUnitSize: 512, DEK: d, InitialTweak: xts.Tweak{}})
		err := c.Complete()
		if err == nil {
			a.completion(1, rdma.OpMKeyConfigure, rdma.StatusSuccess)
		}
		return err
	}
	for name, d := range map[string]mkey.DEK{
		"none": nil, "a typed nil": (*dek.DEK)(nil), "of another device": plain(b, nil), "of another PD": plain(a, other),
	} {
		if err := try(d); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a DEK %s: %v", name, err)
		}
	}
	own := plain(a, a.pd)
	fatal.If(t, try(own))
	if err := own.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing the DEK of a key: %v", err)
	}
	a.complete(a.qp.Start().ID(2).Signaled().LocalInv(key.LKey()))
	a.completion(2, rdma.OpLocalInv, rdma.StatusSuccess)
	if err := own.Close(); err != nil {
		t.Errorf("closing the DEK of a key that is free: %v", err)
	}
	if err := try(own); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a closed DEK: %v", err)
	}
}

func make16() []byte {
	k := make([]byte, 32)
	for i := range k {
		k[i] = byte(i)
	}
	return k
}

// TestSGEBounds checks that entries outside of a region panic, as slice expressions do.
func TestSGEBounds(t *testing.T) {
	a := openSide(t, verbs.QPAttr{})
	mr, key := a.register(64, 0), a.mkey(0)
	panics := func(name string, f func()) {
		defer func() {
			if recover() == nil {
				t.Errorf("%s does not panic", name)
			}
		}()
		f()
	}
	for _, r := range [][2]int{{-4, -1}, {-1, 1}, {0, -1}, {0, 65}, {64, 1}, {65, 0}, {math.MaxInt, math.MaxInt}} {
		panics("MR.SGE", func() { mr.SGE(r[0], r[1]) })
	}
	for _, r := range [][2]int{{-1, 1}, {0, -1}} {
		panics("MKey.SGE", func() { key.SGE(r[0], r[1]) })
	}
	if math.MaxInt > math.MaxUint32 {
		panics("MKey.SGE", func() { key.SGE(0, math.MaxInt) })
	}
	if s := mr.SGE(64, 0); s.Length != 0 {
		t.Errorf("the end of the region: %+v", s)
	}
}

// TestQPHidesTheTransport checks that QP does not export the transport's callbacks.
func TestQPHidesTheTransport(t *testing.T) {
	if _, ok := any(new(verbs.QP)).(roce.Handler); ok {
		t.Error("verbs.QP is a roce.Handler")
	}
	if _, ok := any(new(verbs.QP)).(interface{ Next() *roce.Work }); ok {
		t.Error("verbs.QP shows Next")
	}
	if s := (ibv.AttrState | ibv.AttrPathMTU | 1<<30).String(); s != "STATE|PATH_MTU|0x40000000" {
		t.Errorf("a mask prints as %s", s)
	}
}

// TestDrainedBySelf moves a QP to SQD while a WRITE with a bad signature is in flight.
// The completion must come first, then the event, and the good status after the fence
// must wait until the program has seen the event.
func TestDrainedBySelf(t *testing.T) {
	for _, seen := range []bool{false, true} {
		r := &revoked{valve: newValve()}
		r.a, r.b, r.a2, r.b2 = r.valve.pair(t, verbs.QPAttr{SignaturePipelining: true})
		a, b := r.a, r.b
		disk, key := a.register(4*520, rdma.LocalWrite), a.mkey(mkey.BlockSignature) // all zeros: bad
		a.configure(key, disk, func(c verbs.Chain) { c.Signature(signature(&dif, nil)) })
		dst, status := b.register(4*512, rdma.LocalWrite|rdma.RemoteWrite), b.register(8, rdma.LocalWrite)
		b.recv(1, status.SGE(0, 8))
		r.valve.shut(0, 0x0a, 0x08) // WRITE only, WRITE last
		c := a.qp.Start()
		c.ID(10).Signaled().Write(dst.RKey(), dst.Addr()).SGE(key.SGE(0, 4*512))
		c.ID(11).Signaled().Fence().Send().Inline([]byte("good"))
		a.complete(c)
		<-r.valve.reached
		a.modify(rdma.StateSQD)
		r.valve.open()
		rts := func() {
			t.Helper()
			a.modify(rdma.StateRTS)
		}
		if seen {
			a.event(rdma.EventSQDrained)
			// The completion came before the event.
			var wc [1]rdma.WC
			if a.cq.Poll(wc[:]) != 1 || wc[0].ID != 10 {
				t.Fatalf("the event came before the completion")
			}
		} else {
			a.completion(10, rdma.OpRDMAWrite, rdma.StatusSuccess)
			rts() // the program has not fetched its events
			for a.qp.State() != rdma.StateSQD {
				runtime.Gosched() // lets the QP reach the fence
			}
			a.noCompletion()
			b.noCompletion()
			a.event(rdma.EventSQDrained)
		}
		if n, err := a.qp.Cancel(11); n != 1 || err != nil {
			t.Fatalf("cancelled %d, %v", n, err)
		}
		a.complete(a.qp.Start().ID(12).Signaled().Fence().Send().Inline([]byte("bad!")))
		rts()
		a.completion(11, rdma.OpSend, rdma.StatusSuccess)
		a.completion(12, rdma.OpSend, rdma.StatusSuccess)
		b.completion(1, rdma.OpRecv, rdma.StatusSuccess)
		if got := string(status.Bytes()[:4]); got != "bad!" {
			t.Errorf("status %q", got)
		}
		if bad, _ := key.Check(); bad == nil || bad.Sig.Kind == sig.Kind(0) {
			t.Error("the key reports nothing")
		}
	}
}
