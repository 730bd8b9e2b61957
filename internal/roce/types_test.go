package roce

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/rdma"
)

// datagramPair holds a pair of UD QPs and an address handle for each.
func datagramPair(t *testing.T, o pairOptions) (p *pair, ah [2]*AH) {
	o.typ = rdma.UD
	p = newPair(t, o)
	for i := range ah {
		var err error
		if ah[i], err = p.port[i].NewAH(0, p.conn[1-i].addr, 0x68); err != nil {
			t.Fatal(err)
		}
		p.qp[i].SetQKey(0x11111111)
	}
	return p, ah
}

func TestDatagrams(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		p, ah := datagramPair(t, pairOptions{mtu: 1024, ipv6: ipv6, psn: [2]uint32{0xfffffe, 0}})
		a, b := p.mem[0], p.mem[1]
		data := pattern(1024, 1)
		sizes := []int{0, 1, 3, 1024}
		for range sizes {
			b.recv(make([]byte, 40+1024))
		}
		for i, n := range sizes {
			op := ibv.WRSend
			if i%2 == 1 {
				op = ibv.WRSendImm
			}
			w := &Work{Op: op, Length: uint32(n), Imm: uint32(i), AH: ah[0], DestQPN: p.qp[1].num, QKey: 0x11111111, Solicited: i == 2}
			if n > 0 {
				w.Src = &source{b: data}
			}
			p.post(0, w)
		}
		p.run(1000)
		a.allSucceeded(len(sizes))
		if len(b.got) != len(sizes) {
			t.Fatalf("%d datagrams arrived, want %d", len(b.got), len(sizes))
		}
		for i, n := range sizes {
			g := b.got[i]
			want := RecvEvent{Op: ibv.WRSend, Length: uint32(40 + n), Solicited: i == 2, GRH: true, SrcQPN: p.qp[0].num, Src: p.conn[0].addr, PSN: psnAdd(0xfffffe, i)}
			if i%2 == 1 {
				want.HasImm, want.Imm = true, uint32(i)
			}
			if g.ev != want {
				t.Errorf("event %+v, want %+v", g.ev, want)
			}
			if !bytes.Equal(g.data[40:], data[:n]) {
				t.Errorf("datagram %d differs", i)
			}
			grh := make([]byte, 40)
			head := 20
			if i%2 == 1 {
				head = 24
			}
			wire.PutGRH(grh, &wire.GRH{Src: p.conn[0].addr.Addr(), Dst: p.conn[1].addr.Addr(), TOS: 0x6a, Length: head + n + pads(n) + 4, ID: uint16(0)})
			got := bytes.Clone(g.data[:40])
			if !ipv6 { // identification and checksum depend on the position in the train
				copy(got[24:26], grh[24:26])
				copy(got[30:32], grh[30:32])
			}
			if !bytes.Equal(got, grh) {
				t.Errorf("GRH %x, want %x", got, grh)
			}
		}
		p.idle()
	}
}

func TestDatagramsDropped(t *testing.T) {
	p, ah := datagramPair(t, pairOptions{mtu: 1024})
	send := func(qkey uint32) *Work {
		return &Work{Op: ibv.WRSend, Length: 10, Src: &source{b: make([]byte, 10)}, AH: ah[0], DestQPN: p.qp[1].num, QKey: qkey}
	}
	p.post(0, send(0x11111111), send(5))
	p.run(1000)
	c := p.port[1].Counters()
	if c.NoReceive != 1 || c.BadQKey != 1 || len(p.mem[1].got) != 0 {
		t.Errorf("no receive %d, bad Q_Key %d, %d arrived", c.NoReceive, c.BadQKey, len(p.mem[1].got))
	}
	// The highest bit selects the QP's own Q_Key.
	p.mem[1].recv(make([]byte, 100))
	p.post(0, send(ownQKey|7))
	p.run(1000)
	if len(p.mem[1].got) != 1 {
		t.Error("a datagram with the QP's own Q_Key did not arrive")
	}
	p.mem[0].allSucceeded(3)
	// The receive buffer is too small: it waits for a datagram that fits.
	p.mem[1].recv(make([]byte, 50))
	long := send(0x11111111)
	long.Length, long.Src = 11, &source{b: make([]byte, 11)}
	p.post(0, long, send(0x11111111))
	p.run(1000)
	p.mem[0].allSucceeded(5)
	if c := p.port[1].Counters(); c.TooLong != 1 || len(p.mem[1].got) != 2 || len(p.mem[1].failed) != 0 {
		t.Errorf("too long %d, %d arrived, failures %v", c.TooLong, len(p.mem[1].got), p.mem[1].failed)
	}
}

func TestDatagramsThatCannotBe(t *testing.T) {
	for _, v := range []struct {
		change func(*Work)
		want   rdma.Status
	}{
		{func(w *Work) { w.Length = 1025 }, rdma.StatusLocLenErr},
		{func(w *Work) { w.AH = nil }, rdma.StatusLocQPOpErr},
		{func(w *Work) { w.DestQPN = 1 << 24 }, rdma.StatusLocQPOpErr},
		{func(w *Work) { w.Op = ibv.WRWrite }, rdma.StatusLocQPOpErr},
		{func(w *Work) { w.Op = ibv.WRRead }, rdma.StatusLocQPOpErr},
		{func(w *Work) { w.Op = ibv.WRFetchAdd }, rdma.StatusLocQPOpErr},
		{func(w *Work) { w.Op = ibv.WRSendInv }, rdma.StatusLocQPOpErr},
		{func(w *Work) { w.Src = &source{err: errTest} }, rdma.StatusLocProtErr},
	} {
		p, ah := datagramPair(t, pairOptions{mtu: 1024})
		w := &Work{Op: ibv.WRSend, Length: 10, Src: &source{b: make([]byte, 2000)}, AH: ah[0], DestQPN: p.qp[1].num, QKey: 1}
		v.change(w)
		p.post(0, w)
		p.run(1000)
		p.mem[0].statuses(v.want)
		if st := p.qp[0].State(); st != rdma.StateRTS || len(p.mem[0].failed) > 0 {
			t.Errorf("after %v the QP is in %v, failures %v: it still receives", v.want, st, p.mem[0].failed)
		}
	}
}

// TestWorkAfterFailedSource posts a Work behind one whose Source fails before its first packet, and before its third. The
// QP sends the later Work once and whole.
func TestWorkAfterFailedSource(t *testing.T) {
	failing := func(at uint64) *source { return &source{b: make([]byte, 1000), err: errTest, at: at} }
	t.Run("UD", func(t *testing.T) {
		p, ah := datagramPair(t, pairOptions{mtu: 1024})
		send := func(src *source) *Work {
			return &Work{Op: ibv.WRSend, Length: 100, Src: src, AH: ah[0], DestQPN: p.qp[1].num, QKey: 0x11111111}
		}
		for range 3 {
			p.mem[1].recv(make([]byte, 200))
		}
		for range 2 {
			p.post(0, send(failing(0)))
			p.run(1000)
		}
		p.post(0, send(&source{b: pattern(100, 5)}))
		p.run(1000)
		p.mem[0].statuses(rdma.StatusLocProtErr, rdma.StatusLocProtErr, rdma.StatusSuccess)
		if got := p.mem[1].got; len(got) != 1 || !bytes.Contains(got[0].data, pattern(100, 5)) {
			t.Errorf("%d datagrams arrived, want the one that has bytes", len(got))
		}
	})
	for _, at := range []uint64{0, 512} {
		t.Run(fmt.Sprintf("UC/%d", at), func(t *testing.T) {
			p := unreliablePair(t)
			for range 3 {
				p.mem[1].recv(make([]byte, 1000))
			}
			send := func(src *source) *Work { return &Work{Op: ibv.WRSend, Length: 1000, Src: src} }
			p.post(0, send(failing(at)))
			p.run(1000)
			p.post(0, send(&source{b: pattern(1000, 5)}), send(&source{b: pattern(1000, 6)}))
			p.run(1000)
			p.mem[0].statuses(rdma.StatusLocProtErr, rdma.StatusSuccess, rdma.StatusSuccess)
			got := p.mem[1].got
			if len(got) != 2 || !bytes.Equal(got[0].data, pattern(1000, 5)) || !bytes.Equal(got[1].data, pattern(1000, 6)) {
				t.Errorf("%d messages arrived, want the two that have bytes", len(got))
			}
			p.idle()
		})
	}
}

// unreliablePair is a pair of UC QPs.
func unreliablePair(t *testing.T) *pair {
	return newPair(t, pairOptions{typ: rdma.UC, mtu: 256, psn: [2]uint32{0xfffffe, 7}})
}

func TestUnreliable(t *testing.T) {
	p := unreliablePair(t)
	b := p.mem[1]
	b.keys[1] = make([]byte, 4096)
	data := pattern(1000, 3)
	for range 3 {
		b.recv(make([]byte, 1000))
	}
	p.post(0,
		&Work{Op: ibv.WRSend, Src: &source{b: data}, Length: 1000},
		&Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 1000, RKey: 1, RemoteAddr: 96},
		&Work{Op: ibv.WRSendImm, Src: &source{b: data}, Length: 5, Imm: 9, Solicited: true},
		&Work{Op: ibv.WRWriteImm, Src: &source{b: data}, Length: 300, RKey: 1, RemoteAddr: 2000, Imm: 10},
		&Work{Op: ibv.WRWrite})
	p.run(1000)
	p.mem[0].allSucceeded(5)
	want := []RecvEvent{
		{Op: ibv.WRSend, Length: 1000, PSN: 1}, // of 4 packets from 0xfffffe on
		{Op: ibv.WRSend, Length: 5, HasImm: true, Imm: 9, Solicited: true, PSN: 6},
		{Op: ibv.WRWriteImm, Length: 300, HasImm: true, Imm: 10, PSN: 8},
	}
	if len(b.got) != 3 {
		t.Fatalf("%d messages", len(b.got))
	}
	for i, g := range b.got {
		if g.ev != want[i] || g.ev.Op == ibv.WRSend && !bytes.Equal(g.data, data[:g.ev.Length]) {
			t.Errorf("message %d: %+v", i, g.ev)
		}
	}
	if !bytes.Equal(b.keys[1][96:1096], data) || !bytes.Equal(b.keys[1][2000:2300], data[:300]) {
		t.Error("WRITEs differ")
	}
	if c := p.port[1].Counters(); c.DroppedMessages != 0 {
		t.Errorf("%d messages dropped", c.DroppedMessages)
	}
	p.idle()
}

// neighbor is a network whose memory has room for the packets to other processes while full is false.
type neighbor struct {
	netconn.Neighbor
	full  bool
	asked destination
}

func (n *neighbor) Room(to netip.AddrPort, qpn uint32) bool {
	n.asked = destination{to, qpn}
	return !n.full
}

// TestRoom has UC and UD queue pairs whose peer, another process, has not taken the packets before: theirs wait.
func TestRoom(t *testing.T) {
	for _, typ := range []rdma.QPType{rdma.UC, rdma.UD} {
		p, ah := newPair(t, pairOptions{typ: typ, mtu: 1024}), (*AH)(nil)
		if typ == rdma.UD {
			p, _ = datagramPair(t, pairOptions{mtu: 1024})
			ah, _ = p.port[0].NewAH(0, p.conn[1].addr, 0)
		}
		n := &neighbor{full: true}
		p.port[0].gids()[0].near = n
		for range 3 {
			p.mem[1].recv(make([]byte, 140))
			p.post(0, &Work{Op: ibv.WRSend, Src: &source{b: pattern(100, 1)}, Length: 100, AH: ah, DestQPN: p.qp[1].num, QKey: 0x11111111})
		}
		for range 5 {
			p.step()
			p.clock += 1e6
		}
		if sent, want := p.port[0].Counters().SentPackets, (destination{p.conn[1].addr, p.qp[1].num}); sent != 0 || n.asked != want {
			t.Errorf("%v: %d packets were sent without room; asked about %v, want %v", typ, sent, n.asked, want)
		}
		n.full = false
		p.run(100)
		p.mem[0].allSucceeded(3)
		if len(p.mem[1].got) != 3 {
			t.Errorf("%v: %d messages arrived, want 3", typ, len(p.mem[1].got))
		}
	}
}

// TestUnreliableLoses drops each packet of a sequence of messages in turn. Only its
// message may be lost, and no receive request.
func TestUnreliableLoses(t *testing.T) {
	for lost := range 12 {
		p := unreliablePair(t)
		a, b := p.mem[0], p.mem[1]
		b.keys[1] = make([]byte, 4096)
		for range 4 {
			b.recv(make([]byte, 1000))
		}
		n := 0
		p.fault = func(to int, k []byte) [][]byte {
			if k == nil {
				return nil
			}
			if n++; n-1 == lost {
				return nil
			}
			if n%3 == 0 {
				return [][]byte{k, bytes.Clone(k)} // some arrive twice
			}
			return [][]byte{k}
		}
		for i := range 4 {
			op := ibv.WRSend
			if i%2 == 1 {
				op = ibv.WRWriteImm
			}
			p.post(0, &Work{Op: op, Src: &source{b: pattern(700, uint64(i))}, Length: 700, RKey: 1, RemoteAddr: uint64(i) * 700})
		}
		p.run(1000)
		a.allSucceeded(4)
		p.qp[1].Fail() // closes a WRITE whose last packet was lost
		if len(b.got) != 3 || len(b.rq) != 1 || b.open != 0 {
			t.Errorf("packet %d lost: %d messages arrived, %d receive requests are left, %d open", lost, len(b.got), len(b.rq), b.open)
		}
		next := 0
		for i := range 4 {
			if i == lost/3 {
				continue
			}
			if g := b.got[next]; g.ev.Op == ibv.WRSend && !bytes.Equal(g.data, pattern(700, uint64(i))) {
				t.Errorf("packet %d lost: message %d differs", lost, i)
			}
			next++
		}
		if c := p.port[1].Counters(); c.DroppedMessages > 1 {
			t.Errorf("packet %d lost: %d messages dropped", lost, c.DroppedMessages)
		}
	}
}

// TestUnreliableRefused rejects requests for each possible reason. The message is dropped
// and the connection continues.
func TestUnreliableRefused(t *testing.T) {
	p := unreliablePair(t)
	a, b := p.mem[0], p.mem[1]
	b.keys[1] = make([]byte, 4096)
	src := &source{b: pattern(1000, 3)}
	p.post(0,
		&Work{Op: ibv.WRSend, Src: src, Length: 1000}, // no receive request
		&Work{Op: ibv.WRWrite, Src: src, Length: 1000, RKey: 2},
		&Work{Op: ibv.WRWriteImm, Src: src, Length: 1000, RKey: 1})
	p.run(1000)
	b.recv(make([]byte, 999))
	p.post(0,
		&Work{Op: ibv.WRSend, Src: src, Length: 1000}, // too long
		&Work{Op: ibv.WRWriteImm, Src: src, Length: 700, RKey: 3},
		&Work{Op: ibv.WRSend, Src: src, Length: 999})
	p.run(1000)
	a.allSucceeded(6)
	if c := p.port[1].Counters(); c.DroppedMessages != 5 || c.NoReceive != 2 {
		t.Errorf("%d messages dropped, %d without a receive request", c.DroppedMessages, c.NoReceive)
	}
	if len(b.got) != 1 || !bytes.Equal(b.got[0].data, src.b[:999]) || len(b.failed) != 0 {
		t.Errorf("%d messages arrived, failures %v", len(b.got), b.failed)
	}
	p.post(0, &Work{Op: ibv.WRRead, Dst: &sink{}, Length: 1, RKey: 1})
	p.run(10)
	if st := p.qp[0].State(); st != rdma.StateRTS || a.ended[len(a.ended)-1].st != rdma.StatusLocQPOpErr || len(a.failed) > 0 {
		t.Errorf("after a READ the QP is in %v, %v, failures %v: want an error of the request, and a QP that still receives", st, a.ended[len(a.ended)-1].st, a.failed)
	}
}

// xrcMemory is a memory with one shared receive queue, number 5.
type xrcMemory struct{ *memory }

func (m xrcMemory) BeginRecv(srq uint32) (Sink, NAK) {
	if srq != 5 {
		return nil, NAKInvalidRequest
	}
	return m.memory.BeginRecv(srq)
}

func TestXRC(t *testing.T) {
	p := newPair(t, pairOptions{typ: ibv.XRCRecv, mtu: 256})
	// Side 0 sends: exchange its QP's type.
	p.qp[0].typ = ibv.XRCSend
	p.qp[1].h = xrcMemory{p.mem[1]}
	a, b := p.mem[0], p.mem[1]
	b.keys[1] = pattern(4096, 1)
	b.recv(make([]byte, 1000))
	b.recv(nil)
	got := make([]byte, 1000)
	data := pattern(1000, 3)
	p.post(0,
		&Work{Op: ibv.WRSendImm, Src: &source{b: data}, Length: 1000, SRQ: 5, Imm: 3},
		&Work{Op: ibv.WRRead, Dst: &sink{b: got}, Length: 1000, RKey: 1, RemoteAddr: 2000, SRQ: 5},
		&Work{Op: ibv.WRFetchAdd, RKey: 1, RemoteAddr: 8, SRQ: 5},
		&Work{Op: ibv.WRMaskedCmpSwap, Length: 4, RKey: 1, RemoteAddr: 12, SRQ: 5},
		&Work{Op: ibv.WRMaskedFetchAdd, Length: 8, RKey: 1, RemoteAddr: 8, SRQ: 5},
		&Work{Op: ibv.WRWriteImm, Src: &source{b: data}, Length: 700, RKey: 1, SRQ: 5},
		&Work{Op: ibv.WRWrite, Src: &source{b: data}, Length: 700, RKey: 1})
	p.run(1000)
	a.allSucceeded(7)
	if len(b.got) != 2 || !bytes.Equal(b.got[0].data, data) || !bytes.Equal(got, pattern(4096, 1)[2000:3000]) || !bytes.Equal(b.keys[1][:700], data[:700]) {
		t.Errorf("%d messages, or data differ", len(b.got))
	}
	p.idle()
	p.post(0, &Work{Op: ibv.WRSend, SRQ: 6})
	p.run(1000)
	b.failedWith(Failure{Status: rdma.StatusRemInvReqErr, NAK: NAKInvalidRequest})
	p.post(1, &Work{Op: ibv.WRSend})
}

func TestGSI(t *testing.T) {
	p := newPair(t, pairOptions{})
	var arrived []Datagram
	var users [2]*GSI
	for i := range users {
		var err error
		users[i], err = p.port[i].OpenGSI(func(d Datagram) { arrived = append(arrived, d) })
		fatal.If(t, err)
	}
	if _, err := p.port[0].OpenGSI(func(Datagram) {}); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second QP 1: %v", err)
	}
	ah, err := p.port[0].NewAH(0, netip.AddrPortFrom(p.conn[1].addr.Addr(), 0), 0)
	fatal.If(t, err)
	mad := pattern(256, 1)
	fatal.If(t, users[0].Send(ah, 1, mad))
	p.run(10)
	if len(arrived) != 1 {
		t.Fatalf("%d datagrams arrived, want one", len(arrived))
	}
	if d := arrived[0]; d.Src != p.conn[0].addr || d.SrcQPN != 1 || d.PKey != 0xffff || !bytes.Equal(d.Payload, mad) {
		t.Errorf("%+v", d)
	}
	if err := users[0].Send(ah, 1, make([]byte, 1025)); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("1025 bytes: %v", err)
	}
	users[1].Close()
	users[0].Send(ah, 1, mad)
	p.run(10)
	if len(arrived) != 1 {
		t.Errorf("after Close: %d arrived", len(arrived)-1)
	}
	for range maxGSIQueue {
		fatal.If(t, users[0].Send(ah, 1, mad))
	}
	if err := users[0].Send(ah, 1, mad); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("a full queue: %v", err)
	}
	users[0].Close()
	users[0].Close()
	if err := users[0].Send(ah, 1, mad); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
	if _, err := p.port[0].OpenGSI(func(Datagram) {}); err != nil {
		t.Errorf("opened again: %v", err)
	}
}
