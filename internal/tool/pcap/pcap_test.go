package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/internal/net/wire"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/roce/netem"
	"github.com/softmkey/softmkey/packetconn"
)

var start = time.Date(2024, 2, 29, 23, 59, 59, 123456789, time.UTC)

// ticker returns a clock that advances by a nanosecond with each call.
func ticker() func() time.Time {
	n := -1
	return func() time.Time { n++; return start.Add(time.Duration(n)) }
}

func mustListen(t *testing.T, n *inproc.Network, addr string) *inproc.Conn {
	t.Helper()
	c, err := n.Listen(netip.MustParseAddrPort(addr))
	fatal.If(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// pass sends a train, and receives it.
func pass(t *testing.T, from, to packetconn.Conn, d packetconn.Train) {
	t.Helper()
	if k, err := from.Send([]packetconn.Train{d}); k != 1 || err != nil {
		t.Fatal(k, err)
	}
	if k, err := to.Recv([]packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}}); k != 1 || err != nil {
		t.Fatal(k, err)
	}
}

// rocePacket returns an acknowledgement, the smallest packet with all parts that a
// dissector checks, with the invariant CRC for the given identification.
func rocePacket(src, dst netip.AddrPort, id uint16, psn uint32) []byte {
	p := []byte{17, 0x40, 0xff, 0xff, 0, 0, 0, 0x11, 0, byte(psn >> 16), byte(psn >> 8), byte(psn), 0x1f, 0, 0, 1, 0, 0, 0, 0}
	wire.NewFlow(src, dst).Front(len(p)).WithID(id).PutICRC(p)
	return p
}

// packet is a packet of a recording, decoded by gopacket, which verifies its checksums.
type packet struct {
	ci       gopacket.CaptureInfo
	opts     pcapgo.NgPacketOptions
	src, dst string
	id       uint16
	tos      uint8
	hops     uint8
	payload  []byte
}

func read(t *testing.T, r io.Reader) (*pcapgo.NgReader, []packet) {
	t.Helper()
	ng, err := pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
	fatal.If(t, err)
	var all []packet
	for {
		data, ci, opts, err := ng.ReadPacketDataWithOptions()
		if err == io.EOF {
			return ng, all
		}
		fatal.If(t, err)
		q := packet{ci: ci, opts: opts}
		var v4 layers.IPv4
		var v6 layers.IPv6
		var u layers.UDP
		if data[0]>>4 == 4 {
			fatal.If(t, v4.DecodeFromBytes(data, gopacket.NilDecodeFeedback))
			if v4.Flags != layers.IPv4DontFragment || v4.FragOffset != 0 {
				t.Errorf("IPv4 header: %+v", v4)
			}
			// The header including its checksum adds up to ones.
			if sum := fold(add(0, data[:ipv4Len])); sum != 0xffff {
				t.Errorf("IPv4 header checksum %#x, sum %#x", v4.Checksum, sum)
			}
			q.id, q.tos, q.hops = v4.Id, v4.TOS, v4.TTL
			fatal.If(t, u.DecodeFromBytes(v4.Payload, gopacket.NilDecodeFeedback))
			u.SetNetworkLayerForChecksum(&v4)
			q.src, q.dst = v4.SrcIP.String(), v4.DstIP.String()
		} else {
			fatal.If(t, v6.DecodeFromBytes(data, gopacket.NilDecodeFeedback))
			q.tos, q.hops = v6.TrafficClass, v6.HopLimit
			fatal.If(t, u.DecodeFromBytes(v6.Payload, gopacket.NilDecodeFeedback))
			u.SetNetworkLayerForChecksum(&v6)
			q.src, q.dst = v6.SrcIP.String(), v6.DstIP.String()
		}
		if err, res := u.VerifyChecksum(); err != nil || !res.Valid {
			t.Errorf("UDP checksum %#x, want %#x: %v", res.Actual, res.Correct, err)
		}
		q.src = fmt.Sprintf("%s:%d", q.src, u.SrcPort)
		q.dst = fmt.Sprintf("%s:%d", q.dst, u.DstPort)
		q.payload = bytes.Clone(u.Payload)
		all = append(all, q)
	}
}

func TestRecording(t *testing.T) {
	for _, family := range []struct{ a, b string }{
		{"10.1.2.3:4791", "10.255.0.255:4791"},
		{"[2001:db8::1]:4791", "[2001:db8:ffff::2]:4791"},
	} {
		var file bytes.Buffer
		r := NewRecorder(&file, &Options{Now: ticker()})
		n := inproc.NewNetwork(nil)
		a := r.Wrap(mustListen(t, n, family.a))
		b := r.Wrap(mustListen(t, n, family.b))
		other := mustListen(t, n, strings.ReplaceAll(family.b, ":4791", ":999"))

		var payload []byte
		for i := range 5 {
			payload = append(payload, rocePacket(a.LocalAddr(), b.LocalAddr(), uint16(i), uint32(i))...)
		}
		size := len(payload) / 5

		// A train between two recorded connections; a datagram that is no RoCE packet,
		// from an unrecorded connection; and a packet whose identification is known only
		// from its CRC.
		odd := bytes.Repeat([]byte{0xff}, 33)
		solved := rocePacket(other.LocalAddr(), a.LocalAddr(), 0xbeef, 77)
		pass(t, a, b, packetconn.Train{Addr: b.LocalAddr(), Buf: payload, Seg: size, TOS: 2})
		pass(t, other, a, packetconn.Train{Addr: a.LocalAddr(), Buf: odd})
		pass(t, other, a, packetconn.Train{Addr: a.LocalAddr(), Buf: solved, TOS: 0xff, Route: packetconn.Route{HopLimit: 17}})
		pass(t, a, other, packetconn.Train{Addr: other.LocalAddr(), Route: packetconn.Route{HopLimit: 9}}) // empty
		fatal.If(t, r.Close())
		if got := r.Packets(); got != 13 {
			t.Errorf("%d packets recorded", got)
		}

		ng, got := read(t, &file)
		if ng.NInterfaces() != 2 {
			t.Errorf("%d interfaces", ng.NInterfaces())
		}
		for i, name := range []string{family.a, family.b} {
			if intf, err := ng.Interface(i); err != nil || intf.Name != name || intf.LinkType != layers.LinkTypeRaw || intf.TimestampResolution != 9 {
				t.Errorf("interface %d: %+v, %v", i, intf, err)
			}
		}
		type want struct {
			intf     int
			out      bool
			src, dst string
			id       uint16
			tos      uint8
			hops     uint8
			payload  []byte
			tick     int
		}
		var wants []want
		for dir := range 2 {
			for i := range 5 {
				wants = append(wants, want{dir, dir == 0, family.a, family.b, uint16(i), 2, 64, payload[i*size : (i+1)*size], dir})
			}
		}
		o := other.LocalAddr().String()
		wants = append(wants,
			want{0, false, o, family.a, 0, 0, 64, odd, 2},
			want{0, false, o, family.a, 0xbeef, 0xff, 17, solved, 3},
			want{0, true, family.a, o, 0, 0, 9, nil, 4})
		if len(got) != len(wants) {
			t.Fatalf("%d packets, want %d", len(got), len(wants))
		}
		for i, w := range wants {
			g := got[i]
			if strings.HasPrefix(family.a, "[") {
				w.id = 0
				strip := strings.NewReplacer("[", "", "]", "")
				w.src, w.dst = strip.Replace(w.src), strip.Replace(w.dst)
			}
			if g.src != w.src || g.dst != w.dst || g.id != w.id || g.tos != w.tos || g.hops != w.hops || !bytes.Equal(g.payload, w.payload) || g.ci.InterfaceIndex != w.intf {
				t.Errorf("packet %d: %+v, want %+v", i, g, w)
			}
			if !g.ci.Timestamp.Equal(start.Add(time.Duration(w.tick))) {
				t.Errorf("packet %d: %v, want tick %d", i, g.ci.Timestamp, w.tick)
			}
			direction := pcapgo.NgEpbFlagDirectionInbound
			if w.out {
				direction = pcapgo.NgEpbFlagDirectionOutbound
			}
			if g.opts.Flags == nil || g.opts.Flags.Direction != direction {
				t.Errorf("packet %d: flags %+v, want direction %v", i, g.opts.Flags, direction)
			}
		}
	}
}

// tshark, an independent implementation, must find no error in a recording, including the
// checksums.
func TestTshark(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("reading a recording with Wireshark needs the command tshark, of Debian's package tshark")
	}
	path := filepath.Join(t.TempDir(), "x.pcapng")
	r, err := Create(path, nil)
	fatal.If(t, err)
	var listening []netip.AddrPort
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		inner, err := udp.Listen(netip.MustParseAddrPort(addr), nil)
		if err != nil {
			if strings.HasPrefix(addr, "[") {
				t.Logf("without IPv6: %v", err)
				continue
			}
			t.Fatal(err)
		}
		c := r.Wrap(inner)
		defer c.Close()
		n := inproc.NewNetwork(nil)
		peer := r.Wrap(mustListen(t, n, strings.Replace(addr, ":0", ":4791", 1)))
		other := mustListen(t, n, strings.Replace(addr, ":0", ":50000", 1))
		listening = append(listening, peer.LocalAddr())

		var train []byte
		for i := range 8 {
			train = append(train, rocePacket(other.LocalAddr(), peer.LocalAddr(), uint16(i), uint32(i))...)
		}
		pass(t, other, peer, packetconn.Train{Addr: peer.LocalAddr(), Buf: train, Seg: len(train) / 8, TOS: 3})
		// Also packets that a real socket sends to RoCEv2's port, where no
		// program needs to listen.
		for i := range 8 {
			p := rocePacket(c.LocalAddr(), peer.LocalAddr(), netconn.Of(c).ID(i), uint32(i))
			copy(train[i*len(p):], p)
		}
		if _, err := c.Send([]packetconn.Train{{Addr: peer.LocalAddr(), Buf: train, Seg: len(train) / 8}}); err != nil {
			t.Fatal(err)
		}
	}
	fatal.If(t, r.Close())
	run := func(args ...string) string {
		cmd := exec.Command(tshark, append([]string{"-r", path, "-n", "-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"}, args...)...)
		cmd.Stderr = io.Discard // tshark warns about running as root
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", cmd.Args, err)
		}
		return string(out)
	}
	// One start of tshark counts the packets of all filters.
	counted := []struct {
		filter string
		want   int
	}{
		{"udp.dstport == 4791", 16 * len(listening)},
		{"infiniband.bth.opcode == 17 && infiniband.aeth", 16 * len(listening)},
		{"infiniband.bth.psn == 7", 2 * len(listening)},
		{"udp.checksum.status == 1", 16 * len(listening)},
		{"ip && ip.checksum.status == 1 && ip.flags.df == 1", 16},
		{"ip.id == 7", 2},
		{"frame.packet_flags_direction == 1", 8 * len(listening)},
		{"frame.packet_flags_direction == 2", 8 * len(listening)},
		{"_ws.malformed || _ws.expert.severity >= 4194304", 0}, // severity "note" or higher
	}
	statistics := "io,stat,0"
	for _, c := range counted {
		statistics += "," + c.filter
	}
	// The row of the table is "0.000 <> 1.234 | frames | bytes | frames | bytes ...".
	_, row, found := strings.Cut(run("-q", "-z", statistics), "<>")
	cells := strings.Split(row, "|")
	if !found || len(cells) < 2*len(counted) {
		t.Fatalf("tshark's table: %s", row)
	}
	for i, c := range counted {
		if got := strings.TrimSpace(cells[1+2*i]); got != strconv.Itoa(c.want) {
			t.Errorf("%s: %s packets, want %d", c.filter, got, c.want)
		}
	}
}

func TestOutputFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.pcapng")
	names := func() (s []string) {
		entries, err := os.ReadDir(dir)
		fatal.If(t, err)
		for _, e := range entries {
			s = append(s, e.Name())
		}
		return s
	}
	fatal.If(t, os.WriteFile(path, []byte("old"), 0o600))
	r, err := Create(path, nil)
	fatal.If(t, err)
	if old, _ := os.ReadFile(path); string(old) != "old" {
		t.Error("the old file went before the new one was there")
	}
	fatal.If(t, r.Abort())
	if got := names(); len(got) != 1 {
		t.Errorf("after Abort: %v", got)
	}
	if err := r.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Close after Abort: %v", err)
	}

	if r, err = Create(path, nil); err != nil {
		t.Fatal(err)
	}
	fatal.If(t, r.Close())
	if got := names(); len(got) != 1 {
		t.Errorf("after Close: %v", got)
	}
	data, err := os.ReadFile(path)
	fatal.If(t, err)
	if ng, got := read(t, bytes.NewReader(data)); len(got) != 0 || ng.NInterfaces() != 1 {
		t.Errorf("recording of nothing: %d packets, %d interfaces", len(got), ng.NInterfaces())
	}
	if err := r.Abort(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Abort after Close: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "nowhere", "x"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder that is not there: %v", err)
	}
	if _, err := os.Stat(os.DevNull); err == nil {
		if r, err = Create(os.DevNull, nil); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("recording to %s: %v", os.DevNull, err)
		}
	}
}

// full is a writer without space.
type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

// A failing recording does not disturb the traffic.
func TestWriteError(t *testing.T) {
	r := NewRecorder(full{}, nil)
	a, b := inproc.Pair(nil)
	defer a.Close()
	defer b.Close()
	w := r.Wrap(a)
	for range 100 {
		pass(t, w, b, packetconn.Train{Addr: b.LocalAddr(), Buf: make([]byte, 60_000)})
	}
	if err := r.Close(); !errors.Is(err, errFull) {
		t.Errorf("Close: %v", err)
	}
	// A closed recording does not either.
	if n, err := w.Send([]packetconn.Train{{Addr: b.LocalAddr()}}); n != 1 || err != nil {
		t.Error(n, err)
	}
	r.Wrap(b)
}

// The 64-bit sum equals the 16-bit sum, for all lengths near a word.
func TestChecksum(t *testing.T) {
	b := make([]byte, 100)
	for i := range b {
		b[i] = byte(200 + 31*i)
	}
	for n := range b {
		var slow uint64
		for i, x := range b[:n] {
			slow += uint64(x) << (8 * uint(1-i&1))
		}
		if got, want := fold(add(0, b[:n])), fold(slow); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
	if got := fold(add(add(0, bytes.Repeat([]byte{0xff}, 16)), []byte{0, 1})); got != 1 {
		t.Errorf("carries: %#x", got)
	}
	// If the checksum of a payload is 0, ones are sent.
	src := netip.MustParseAddrPort("10.0.0.1:1")
	p := appendPacket(nil, src, src, 0, 0, 0, []byte{0, 0})
	check := binary.BigEndian.Uint16(p[ipv4Len+6:])
	p = appendPacket(nil, src, src, 0, 0, 0, binary.BigEndian.AppendUint16(nil, check))
	if got := binary.BigEndian.Uint16(p[ipv4Len+6:]); got != 0xffff {
		t.Errorf("checksum %#x, want ones", got)
	}
}

// joiner is a connection that joins groups. A group receives the datagrams that come to the
// address of the connection.
type joiner struct{ packetconn.Conn }

// member is a connection that has joined a group. It has the group's address.
type member struct {
	packetconn.Conn
	group netip.AddrPort
}

func (m member) LocalAddr() netip.AddrPort { return m.group }

func (j joiner) Join(group netip.Addr) (packetconn.Conn, error) {
	return member{j.Conn, netip.AddrPortFrom(group, 4791)}, nil
}

// TestMulticastGroup records the datagrams of a group.
func TestMulticastGroup(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(&file, &Options{Now: ticker()})
	n := inproc.NewNetwork(nil)
	a := mustListen(t, n, "10.0.0.1:4791")
	inner := mustListen(t, n, "10.0.0.2:4791")
	b := r.Wrap(joiner{inner})
	g, err := netconn.Join(b, netip.MustParseAddr("239.1.2.3"))
	fatal.If(t, err)
	p := rocePacket(a.LocalAddr(), g.LocalAddr(), 5, 5)
	pass(t, a, g, packetconn.Train{Addr: inner.LocalAddr(), Buf: p})
	fatal.If(t, errors.Join(g.Close(), r.Close()))
	ng, got := read(t, &file)
	if ng.NInterfaces() != 2 || len(got) != 1 || got[0].dst != "239.1.2.3:4791" || got[0].src != "10.0.0.1:4791" || got[0].id != 5 || !bytes.Equal(got[0].payload, p) {
		t.Errorf("%d interfaces, %+v", ng.NInterfaces(), got)
	}
	plain := r.Wrap(mustListen(t, n, "10.0.0.3:4791"))
	if _, err := netconn.Join(plain, netip.MustParseAddr("239.1.2.3")); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Error(err)
	}
}

// TestDroppedAndLocalPackets records packets that are lost on purpose, in the order of sending,
// and packets that a device sends to itself.
func TestDroppedAndLocalPackets(t *testing.T) {
	var file bytes.Buffer
	r := NewRecorder(&file, &Options{Now: ticker()})
	n := inproc.NewNetwork(nil)
	a := r.Wrap(mustListen(t, n, "10.1.2.3:4791"))
	peer := mustListen(t, n, "10.1.2.4:4791")
	faulty := netem.Wrap(a, 1, netem.Faults{}, &netem.Options{
		Filter: func(n uint64, _ netip.AddrPort, _ []byte) netem.Action {
			if n == 1 {
				return netem.Lose
			}
			return netem.Pass
		},
		Lost: func(d packetconn.Train) { r.Lost(a, d) },
	})
	var payload []byte
	for i := range 3 {
		payload = append(payload, rocePacket(a.LocalAddr(), peer.LocalAddr(), uint16(40+i), uint32(i))...)
	}
	if _, err := faulty.Send([]packetconn.Train{
		{Addr: peer.LocalAddr(), Buf: payload, Seg: len(payload) / 3},
		{Addr: a.LocalAddr(), Buf: []byte("to itself"), Seg: 9},
	}); err != nil {
		t.Fatal(err)
	}
	if k, err := faulty.Recv([]packetconn.Train{{Buf: make([]byte, packetconn.RecvSize)}}); k != 1 || err != nil {
		t.Fatal(k, err)
	}
	fatal.If(t, r.Close())
	_, got := read(t, &file)
	if len(got) != 4 {
		t.Fatalf("%d packets, want 4", len(got))
	}
	for i, p := range got[:3] {
		if psn := p.payload[11]; int(psn) != i {
			t.Errorf("packet %d has PSN %d", i, psn)
		}
		if lost := slices.Equal(p.opts.Comments, []string{LostComment}); lost != (i == 1) {
			t.Errorf("packet %d has the comments %q", i, p.opts.Comments)
		}
	}
	if got[1].id != 41 {
		t.Errorf("the lost packet has identification %d", got[1].id)
	}
	if string(got[3].payload) != "to itself" {
		t.Errorf("the last packet is %q", got[3].payload)
	}
}
