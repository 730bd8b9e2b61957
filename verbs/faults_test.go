package verbs_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// TestFaults executes a mix of all operations, some through memory keys, over networks
// that lose, duplicate, reorder, damage and delay up to a tenth of all packets. Every
// byte must be right, and every completion must arrive exactly once and in order. The
// long form transfers a gigabyte.
func TestFaults(t *testing.T) {
	for _, f := range []struct {
		name   string
		faults netem.Faults
	}{
		{"none", netem.Faults{}},
		{"loss 1%", netem.Faults{Loss: 0.01}},
		{"loss 10%", netem.Faults{Loss: 0.1}},
		{"reordering 5%", netem.Faults{Reorder: 0.05}},
		{"everything 10%", netem.Faults{Loss: 0.02, Duplicate: 0.02, Reorder: 0.02, Corrupt: 0.02, Delay: 0.02}},
	} {
		t.Run(f.name, func(t *testing.T) {
			total := 16 << 20
			if os.Getenv("SOFTMKEY_LONG") != "" {
				total = 1 << 30
			}
			// With IPv6, which has no identification, the invariant CRC
			// detects every single flipped bit.
			network := netem.NewNetwork(7, f.faults, nil)
			a := openFaulty(t, network, "2001:db8::1")
			b := openFaulty(t, network, "2001:db8::2")
			// All retries together take 2 s, which is longer than a loaded machine
			// delays a goroutine under the race detector. Probes recover losses
			// much earlier.
			opts := &verbs.ConnectOptions{MTU: 1024, Timeout: 200 * time.Millisecond}
			ae, be := a.qp.Endpoint(), b.qp.Endpoint()
			for _, err := range []error{a.qp.Connect(be, opts), b.qp.Connect(ae, opts)} {
				fatal.If(t, err)
			}
			newMix(t, a, b).run(total)
			t.Logf("a: %+v", a.dev.Counters())
			t.Logf("b: %+v", b.dev.Counters())
		})
	}
}

// TestLostConnection asks the reason of a request that the peer did not answer, and of one that was flushed then.
func TestLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := openFaulty(t, netem.NewNetwork(1, netem.Faults{}, nil), "2001:db8::1")
		defer engine.PortOf(a.dev).Close()
		gone := a.qp.Endpoint()
		gone.GID, gone.QPN = netip.MustParseAddr("2001:db8::2"), 0x77
		fatal.If(t, a.qp.Connect(gone, &verbs.ConnectOptions{MTU: 1024, Timeout: time.Millisecond}))
		for id := range uint64(2) {
			fatal.If(t, a.qp.Start().ID(id).Send().Inline([]byte("lost")).Complete())
		}
		for _, want := range []rdma.Status{rdma.StatusRetryExcErr, rdma.StatusWRFlushErr} {
			var wc [1]rdma.WC
			for a.cq.Poll(wc[:]) == 0 {
				time.Sleep(time.Second)
			}
			var status rdma.StatusError
			var timeout interface{ Timeout() bool }
			if !errors.As(wc[0].Err, &status) || rdma.Status(status) != want || !errors.As(wc[0].Err, &timeout) || timeout.Timeout() != (want == rdma.StatusRetryExcErr) {
				t.Errorf("%v: %v", want, wc[0].Err)
			}
		}
	})
}

func openFaulty(t *testing.T, network *netem.Network, addr string) *side {
	t.Helper()
	ip := netip.MustParseAddr(addr)
	conn := must[*netem.Conn](t)(network.Listen(netip.AddrPortFrom(ip, 4791)))
	t.Cleanup(func() { t.Logf("%s sent %v", addr, conn.Counters()) })
	return openSideOn(t, ip, &verbs.DeviceOptions{Conn: conn}, verbs.QPAttr{MaxInlineData: 512, MaxSendWR: 4 * mixSlots, MaxRecvWR: 4 * mixSlots})
}

const (
	mixSlots = 16
	mixSize  = 256 << 10
)

// mix posts random requests from a to b, each with its own slot of memory on both sides.
type mix struct {
	t        *testing.T
	a, b     *side
	r        *rand.Rand
	src, dst *verbs.MR // mixSlots slots of mixSize bytes
	fields   *verbs.MR // memory for the peer's data with fields
	library  *verbs.MR // of the peer, for READs; never changed, because a repeated request may read it late
	signed   *verbs.MKey
	signing  *verbs.MKey // of the peer, over library
	libWire  []byte      // the bytes that signing returns
	word     *verbs.MR
	result   *verbs.MR

	next   uint64 // ID of the next request
	posted []func() int
	done   uint64
	added  uint64
}

func newMix(t *testing.T, a, b *side) *mix {
	rights := rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead | rdma.RemoteAtomic
	m := &mix{
		t: t, a: a, b: b, r: rand.New(rand.NewPCG(11, 1)),
		src: a.register(mixSlots*mixSize, rights), dst: b.register(mixSlots*mixSize, rights),
		word: b.register(8, rights), result: a.register(8*mixSlots, rights),
		fields: b.register(mixSlots*mixSize/512*520, rights), library: b.register(2*mixSize, rights),
	}
	fill(m.library.Bytes(), 12)
	m.signing = b.mkey(mkey.BlockSignature)
	b.configure(m.signing, m.library, func(c verbs.Chain) { c.Signature(signature(nil, &dif)) })
	m.libWire = make([]byte, 2*mixSize/512*520)
	if _, err := dif.Protect(m.libWire, m.library.Bytes()); err != nil {
		t.Fatal(err)
	}
	// The key signs the memory of a for the wire, slot by slot.
	m.signed = a.mkey(mkey.BlockSignature)
	a.configure(m.signed, m.src, func(c verbs.Chain) { c.Signature(signature(nil, &dif)) })
	return m
}

func (m *mix) run(total int) {
	moved := 0
	for m.done < m.next || moved < total {
		for m.next-m.done < mixSlots && moved < total {
			moved += m.post()
		}
		for _, wc := range m.a.completions(1) {
			if wc.Status != rdma.StatusSuccess || wc.ID != m.done {
				m.t.Fatalf("completion %+v (%v), want id %d", wc, wc.Status, m.done)
			}
			m.posted[0]()
			m.posted = m.posted[1:]
			m.done++
		}
	}
	if m.word.Bytes()[0] != byte(m.added) {
		m.t.Errorf("the peer's word is %d after %d additions", m.word.Bytes()[0], m.added)
	}
	m.a.noCompletion()
	m.b.noCompletion()
	m.a.noError(m.signed)
}

// post posts a random request. It appends to posted a function that checks the request
// after its completion.
func (m *mix) post() int {
	slot := int(m.next % mixSlots)
	size := m.r.IntN(mixSize + 1)
	if m.r.IntN(3) == 0 {
		size = m.r.IntN(2100)
	}
	src, dst := m.src.Bytes()[slot*mixSize:][:size], m.dst.Bytes()[slot*mixSize:][:size]
	local, remote := m.src.SGE(slot*mixSize, size), m.dst.Addr()+uint64(slot*mixSize)
	for i := 0; i < size; i += 61 {
		src[i] = byte(m.r.Uint32())
	}
	want := append([]byte(nil), src...)
	c := m.a.qp.Start().ID(m.next).Signaled()
	id := m.next
	equal := func(op string, got []byte) func() int {
		return func() int {
			if !bytes.Equal(got, want) {
				m.t.Fatalf("request %d, %s of %d bytes: wrong bytes", id, op, size)
			}
			return size
		}
	}
	received := func(op string, imm uint32) func() int {
		m.b.recv(id, m.dst.SGE(slot*mixSize, mixSize))
		return func() int {
			wc := m.b.completions(1)[0]
			if wc.ID != id || wc.Status != rdma.StatusSuccess || int(wc.ByteLen) != size || wc.Imm != imm {
				m.t.Fatalf("request %d, %s: received %+v (%v)", id, op, wc, wc.Status)
			}
			return equal(op, dst)()
		}
	}
	var check func() int
	switch op := m.r.IntN(8); op {
	case 0:
		check = received("SEND", 0)
		c.Send().SGE(local)
	case 1:
		check = received("SEND with immediate", uint32(id))
		c.SendImm(uint32(id)).SGE(local)
	case 2:
		check = equal("WRITE", dst)
		c.Write(m.dst.RKey(), remote).SGE(local)
	case 3:
		check = received("WRITE with immediate", uint32(id))
		c.WriteImm(m.dst.RKey(), remote, uint32(id)).SGE(local)
	case 4:
		at := m.r.IntN(mixSize)
		want = m.library.Bytes()[at:][:size]
		clear(src)
		check = equal("READ", src)
		c.Read(m.library.RKey(), m.library.Addr()+uint64(at)).SGE(local)
	case 5:
		size = 8
		sum := m.added
		m.added++
		check = func() int {
			if got := m.result.Bytes()[8*slot]; got != byte(sum) {
				m.t.Fatalf("request %d: fetched %d, want %d", id, got, byte(sum))
			}
			return 8
		}
		c.FetchAdd(m.word.RKey(), m.word.Addr(), 1).SGE(m.result.SGE(8*slot, 8))
	case 7:
		// A READ from the middle of a block: the requester asks for lost parts
		// again.
		at := m.r.IntN(100) * 520
		want = m.libWire[at:][:size]
		clear(src)
		check = equal("READ of a key", src)
		c.Read(m.signing.RKey(), uint64(at)).SGE(local)
	case 6:
		blocks := size / 512
		size = blocks * 520
		const slotWire = mixSize / 512 * 520
		out := m.fields.Bytes()[slot*slotWire:][:size]
		check = func() int {
			f := dif
			f = f.From(uint64(slot * mixSize / 512))
			if err := f.Verify(out); err != nil {
				m.t.Fatalf("request %d: signed WRITE of %d blocks: %v", id, blocks, err)
			}
			for i := range blocks {
				if !bytes.Equal(out[i*520:][:512], want[i*512:][:512]) {
					m.t.Fatalf("request %d: signed WRITE: wrong bytes in block %d", id, i)
				}
			}
			return size
		}
		c.Write(m.fields.RKey(), m.fields.Addr()+uint64(slot*slotWire)).SGE(m.signed.SGE(slot*slotWire, size))
	}
	m.a.complete(c)
	m.posted = append(m.posted, check)
	m.next++
	return size
}

// TestGhost connects two QPs anew while a SEND of their first connection is still in the network. The second connection
// must neither deliver it nor lose a message of its own for it (IBTA volume 1, section 9.7.2.4: PSNs tell ghosts).
func TestGhost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := inproc.Pair(nil)
		late := false
		here2 := netem.Wrap(here, 1, netem.Faults{MaxDelay: 300 * time.Millisecond}, &netem.Options{Filter: func(uint64, netip.AddrPort, []byte) netem.Action {
			if late {
				late = false
				return netem.Delay
			}
			return netem.Pass
		}})
		var a, b *side
		closeDevices(t, &a, &b)
		a = openSideOn(t, netip.MustParseAddr("192.0.2.1"), &verbs.DeviceOptions{Conn: here2}, verbs.QPAttr{})
		b = openSideOn(t, netip.MustParseAddr("192.0.2.2"), &verbs.DeviceOptions{Conn: there}, verbs.QPAttr{})
		into := b.register(128, rdma.LocalWrite)
		for i, text := range []string{"of the first connection", "of the second one"} {
			connectQPs(t, a.qp, b.qp, nil)
			late = i == 0
			if i == 1 {
				b.recv(7, into.SGE(0, 64))
				time.Sleep(time.Second) // the late packet arrives
			}
			a.complete(a.qp.Start().ID(uint64(i)).Signaled().Send().Inline([]byte(text)))
			synctest.Wait()
			if i == 0 {
				a.modify(rdma.StateReset)
				b.modify(rdma.StateReset)
				continue
			}
			b.completion(7, rdma.OpRecv, rdma.StatusSuccess)
			a.completion(1, rdma.OpSend, rdma.StatusSuccess)
			if got := string(into.Bytes()[:len(text)]); got != text {
				t.Errorf("the second connection delivers %q, want %q", got, text)
			}
		}
		if err := into.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStarvedRead reads while another QP to the same host fills the window of READ responses, and waits for a packet
// that is lost again and again. The READ succeeds nevertheless: its peer answers.
func TestStarvedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := inproc.Pair(nil)
		var until time.Time
		var other uint32
		here2 := netem.Wrap(here, 1, netem.Faults{}, &netem.Options{Filter: func(_ uint64, _ netip.AddrPort, p []byte) netem.Action {
			const sendOnly = 4
			if p[0] == sendOnly && uint32(p[5])<<16|uint32(p[6])<<8|uint32(p[7]) == other && time.Now().Before(until) {
				return netem.Lose
			}
			return netem.Pass
		}})
		var a, b *side
		closeDevices(t, &a, &b)
		a = openSideOn(t, netip.MustParseAddr("192.0.2.1"), &verbs.DeviceOptions{Conn: here2}, verbs.QPAttr{})
		b = openSideOn(t, netip.MustParseAddr("192.0.2.2"), &verbs.DeviceOptions{Conn: there}, verbs.QPAttr{})
		const size = 8 << 20
		from, into := b.register(size, rdma.RemoteRead), a.register(size, rdma.LocalWrite)
		cq := must[*verbs.CQ](t)(a.dev.NewCQ(16))
		second := must[*verbs.QP](t)(a.pd.NewQP(verbs.QPAttr{SendCQ: cq}))
		peer := must[*verbs.QP](t)(b.pd.NewQP(verbs.QPAttr{SendCQ: b.cq}))
		connectQPs(t, a.qp, b.qp, &verbs.ConnectOptions{Timeout: 4 * time.Second})
		connectQPs(t, second, peer, nil) // 67 ms, seven times
		b.recv(1, from.SGE(0, 0))
		other, until = b.qp.Num(), time.Now().Add(3*time.Second)
		c := a.qp.Start()
		c.ID(1).Signaled().Send()
		c.ID(2).Signaled().Read(from.RKey(), from.Addr()).SGE(into.SGE(0, size))
		a.complete(c)
		time.Sleep(20 * time.Millisecond)
		fatal.If(t, second.Start().ID(3).Signaled().Read(from.RKey(), from.Addr()).SGE(into.SGE(0, 4096)).Complete())
		wcs := make([]rdma.WC, 1)
		if n, err := cq.Wait(t.Context(), wcs); n != 1 || wcs[0].Status != rdma.StatusSuccess {
			t.Errorf("%d completions, %v; %v %v, want success", n, err, wcs[0].Status, wcs[0].Err)
		}
		if !time.Now().Before(until) {
			t.Error("the READ waited until the other QP went on")
		}
		a.completion(1, rdma.OpSend, rdma.StatusSuccess)
		a.completion(2, rdma.OpRDMARead, rdma.StatusSuccess)
		if err := errors.Join(second.Close(), peer.Close(), cq.Close(), from.Close(), into.Close()); err != nil {
			t.Error(err)
		}
	})
}
