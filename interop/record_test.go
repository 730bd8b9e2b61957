package interop

import (
	"encoding/hex"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/interop/rig"
)

var recordDir = flag.String("record", "", "write a capture of two kernels talking, for testdata/captures, to this folder")

// TestRecord writes the project's table of RoCEv2 frames as sent by Linux: between two
// guests, with every opcode of reliable connections, every response of soft-RoCE, IPv4
// and IPv6. It runs on request only, because the result is stored in the repository.
func TestRecord(t *testing.T) {
	if *recordDir == "" {
		return
	}
	r := sharedRig(t)
	pcap := filepath.Join(t.TempDir(), "rxe.pcapng")
	capture, err := r.Capture(r.Guests[0], pcap)
	check(t, err)
	a, b := r.Guests[0], r.Guests[1]
	talk := func(mtu int, v6 bool) *pair { return newPair(t, a, b, mtu, v6, "wra") }
	recordOpcodes(talk(256, false), 0, 5, 256, 258, 1023)
	recordOpcodes(talk(256, true), 3, 600)
	recordLarge(talk(4096, false))
	recordRefusals(t, func(access peer.Access) *pair { return newPair(t, a, b, 256, false, access) })
	recordLoss(t, a, talk(256, false))
	check(t, capture.Stop())
	writeTable(t, pcap, filepath.Join(*recordDir, "rxe.tsv"))
}

// pair is a connected pair of queue pairs, one in each guest, with a buffer each.
type pair struct {
	t *testing.T
	s [2]*peer.Session
	q [2]*peer.QP
	b [2]*peer.Buffer
}

// newPair connects two guests. access is the set of rights that their queue pairs grant
// each other.
func newPair(t *testing.T, a, b *rig.Guest, mtu int, v6 bool, access peer.Access) *pair {
	p := &pair{t: t}
	guests := [2]*rig.Guest{a, b}
	var addrs [2]netip.Addr
	for i, g := range guests {
		addrs[i] = g.Addr4
		if v6 {
			addrs[i] = g.Addr6
		}
		s, err := peer.Dial(t.Context(), g.Addr4)
		check(p.t, err)
		t.Cleanup(func() { s.Close() })
		p.s[i] = s
		p.q[i], err = s.NewQP(peer.QPConfig{Access: access})
		check(p.t, err)
		p.b[i], err = s.NewBuffer(64<<10, 0, "")
		check(p.t, err)
		check(p.t, p.b[i].Fill(0, p.b[i].Size, uint64(i+1), 0))
	}
	for i := range guests {
		c := peer.Defaults()
		c.Source, c.Destination, c.QPN, c.MTU = addrs[i], addrs[1-i], p.q[1-i].Num, mtu
		// One direction wraps around 24 bits early.
		c.SendPSN, c.RecvPSN = []uint32{0xfffffc, 0x1234}[i], []uint32{0x1234, 0xfffffc}[i]
		c.Timeout, c.MinRNRTimer = 14, 20
		check(p.t, p.q[i].Connect(c))
	}
	return p
}

// do posts work at side 0 and waits for its completion, whose status it returns.
func (p *pair) do(w peer.Work) int {
	p.t.Helper()
	w.Buf, w.RemoteAddr = p.b[0], p.b[1].Addr
	if w.RKey == 0 {
		w.RKey = p.b[1].RKey
	}
	check(p.t, p.q[0].Post(w))
	c, err := p.s[0].Wait(1, 20*time.Second)
	check(p.t, err)
	if len(c) != 1 {
		p.t.Fatalf("%s of %d bytes: no completion", w.Op, w.Len)
	}
	return c[0].Status
}

// must is do for work that must succeed.
func (p *pair) must(w peer.Work) {
	p.t.Helper()
	if status := p.do(w); status != 0 {
		p.t.Fatalf("%s of %d bytes: status %d", w.Op, w.Len, status)
	}
}

func (p *pair) recv(n int) {
	p.t.Helper()
	check(p.t, p.q[1].Post(peer.Work{Op: peer.Recv, Buf: p.b[1], Off: 32 << 10, Len: n}))
}

// recordOpcodes executes every operation with messages of the given sizes.
func recordOpcodes(p *pair, sizes ...int) {
	for _, n := range sizes {
		p.recv(8192)
		p.must(peer.Work{Op: peer.Send, Len: n, Flags: "e"})
		p.recv(8192)
		p.must(peer.Work{Op: peer.SendImm, Len: n, Imm: 0xcafe0000 + uint32(n)})

		w, err := p.s[1].NewWindow()
		check(p.t, err)
		rkey, err := p.q[1].Bind(1, w, p.b[1], 0, 4096, "")
		check(p.t, err)
		p.must(peer.Work{Op: peer.Write, Len: n, RKey: rkey})
		p.recv(8192)
		p.must(peer.Work{Op: peer.SendInvalidate, Len: n, InvKey: rkey})

		p.must(peer.Work{Op: peer.Write, Len: n})
		p.recv(0)
		p.must(peer.Work{Op: peer.WriteImm, Len: n, Imm: 0xbeef0000 + uint32(n)})
		p.must(peer.Work{Op: peer.Read, Len: n, Off: 8192})
	}
	p.must(peer.Work{Op: peer.FetchAdd, Len: 8, Compare: 0x0102030405060708})
	p.must(peer.Work{Op: peer.CompareSwap, Len: 8, Compare: 0x1111, Swap: 0x2222})
}

func recordLarge(p *pair) {
	p.must(peer.Work{Op: peer.Write, Len: 4097})
	p.must(peer.Work{Op: peer.Read, Len: 4099})
}

// recordRefusals causes each negative acknowledgement, each on a connection of its own.
func recordRefusals(t *testing.T, talk func(peer.Access) *pair) {
	expect := func(what string, got, want int) {
		if got != want {
			t.Errorf("%s: status %d, want %d", what, got, want)
		}
	}
	p := talk("wra")
	expect("wrong rkey", p.do(peer.Work{Op: peer.Write, Len: 100, RKey: 0xdead00}), 10)
	p = talk("r")
	expect("write without the right", p.do(peer.Work{Op: peer.Write, Len: 100}), 9)
	p = talk("wra")
	p.recv(10)
	expect("send longer than the receive", p.do(peer.Work{Op: peer.Send, Len: 100}), 11)

	p = talk("wra")
	check(p.t, p.q[0].Post(peer.Work{Op: peer.Send, Buf: p.b[0], Len: 600}))
	time.Sleep(100 * time.Millisecond) // the receiver answers "not ready" several times
	p.recv(1000)
	c, err := p.s[0].Wait(1, 20*time.Second)
	check(p.t, err)
	if len(c) != 1 || c[0].Status != 0 {
		t.Errorf("send to a receiver that was late: %v", c)
	}
}

// recordLoss loses packets in both directions, to cause sequence errors, repeated
// requests and duplicates.
func recordLoss(t *testing.T, g *rig.Guest, p *pair) {
	lossy := rig.Impairment{Loss: 15}
	check(p.t, g.Impair(t.Context(), lossy, lossy))
	for range 3 {
		p.must(peer.Work{Op: peer.Write, Len: 1500})
		p.must(peer.Work{Op: peer.Read, Len: 1500, Off: 8192})
		p.recv(2000)
		p.must(peer.Work{Op: peer.Send, Len: 1500})
		p.must(peer.Work{Op: peer.FetchAdd, Len: 8, Compare: 1})
	}
	check(p.t, g.Impair(t.Context(), rig.Impairment{}, rig.Impairment{}))
}

// columns are the columns of the table: a name and the field of tshark.
var columns = [][2]string{
	{"frame", "frame.number"},
	{"ipid", "ip.id"},
	{"opcode", "infiniband.bth.opcode"},
	{"se", "infiniband.bth.se"},
	{"pad", "infiniband.bth.padcnt"},
	{"destqp", "infiniband.bth.destqp"},
	{"ackreq", "infiniband.bth.a"},
	{"psn", "infiniband.bth.psn"},
	{"va", "infiniband.reth.va"},
	{"rkey", "infiniband.reth.r_key"},
	{"dmalen", "infiniband.reth.dmalen"},
	{"imm", "infiniband.immdt"},
	{"invkey", "infiniband.ieth"},
	{"syndrome", "infiniband.aeth.syndrome"},
	{"msn", "infiniband.aeth.msn"},
	{"swap", "infiniband.atomiceth.swapdt"},
	{"compare", "infiniband.atomiceth.cmpdt"},
	{"original", "infiniband.atomicacketh.origremdt"},
}

// writeTable writes the frames of a capture as text: tshark's fields of each, followed by
// its bytes.
func writeTable(t *testing.T, pcap, file string) {
	args := []string{"-T", "fields"}
	var head []string
	for _, c := range columns {
		head = append(head, c[0])
		args = append(args, "-e", c[1])
	}
	rows := strings.Split(strings.TrimSuffix(string(tshark(t, pcap, args...)), "\n"), "\n")
	frames := rawFrames(t, pcap)
	if len(rows) != len(frames) {
		t.Fatalf("%d rows of fields, %d frames", len(rows), len(frames))
	}
	var out strings.Builder
	fmt.Fprintln(&out, strings.Join(append(head, "bytes"), "\t"))
	for i, row := range rows {
		if err := checkICRC(frames[i]); err != nil {
			t.Fatalf("frame %d: %v", i+1, err)
		}
		values := strings.Split(row, "\t")
		for j, c := range columns {
			switch {
			case values[j] == "":
				values[j] = "-"
			case c[0] == "imm" || c[0] == "invkey":
				first, _, _ := strings.Cut(values[j], ",") // tshark prints it twice
				values[j] = "0x" + first
			}
		}
		fmt.Fprintln(&out, strings.Join(append(values, hex.EncodeToString(frames[i])), "\t"))
	}
	check(t, os.WriteFile(file, []byte(out.String()), 0o644))
	t.Logf("%d frames, %d bytes", len(frames), out.Len())
}
