package draw

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// exchange makes recordings of a connection between two queue pairs, 0x11 and 0x22, at one address.
type exchange struct {
	near, far []pcap.Packet
	skew      time.Duration // of the responder's clock
}

// request adds a WRITE or SEND of one packet, sent and received at times in microseconds. -1: it is lost.
func (x *exchange) request(opcode byte, psn uint32, sent, taken int) {
	x.packet(false, []byte{opcode}, psn, sent, taken)
}

// answer adds an acknowledgement.
func (x *exchange) answer(syndrome byte, psn uint32, sent, taken int) {
	x.packet(true, []byte{17, syndrome}, psn, sent, taken)
}

func (x *exchange) packet(back bool, what []byte, psn uint32, sent, taken int) {
	a, b, qp := netip.MustParseAddrPort("10.0.0.1:49152"), netip.MustParseAddrPort("10.0.0.1:4791"), uint32(0x22)
	p := []byte{what[0], 0x40, 0xff, 0xff}
	from, to := &x.near, &x.far
	skews := [2]time.Duration{0, x.skew}
	if back {
		qp, from, to = 0x11, to, from
		skews[0], skews[1] = skews[1], skews[0]
	}
	p = binary.BigEndian.AppendUint32(p, qp)
	p = binary.BigEndian.AppendUint32(p, psn)
	if back {
		p = append(p, what[1], 0, 0, 0)
	}
	p = append(p, 0, 0, 0, 0)
	at := func(us int, skew time.Duration) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(us)*time.Microsecond + skew)
	}
	*from = append(*from, pcap.Packet{Time: at(sent, skews[0]), From: a, To: b, Sent: true, Lost: taken < 0, Payload: p})
	if taken >= 0 {
		*to = append(*to, pcap.Packet{Time: at(taken, skews[1]), From: a, To: b, Payload: p})
	}
}

const (
	send        = 4
	ack         = 0x1f
	nakSequence = 0x60
)

// lossy is a connection with a probe, a loss that a NAK reports, and an answer that is late.
func lossy(skew time.Duration) *exchange {
	x := &exchange{skew: skew}
	x.request(send, 100, 0, 50)
	x.answer(ack, 100, 60, 900) // late: a second SEND and a probe are sent before it arrives
	x.request(send, 101, 70, -1)
	x.request(send, 102, 80, 140)
	x.answer(nakSequence, 101, 150, -1)
	x.request(send, 101, 1800, 1850) // a probe: nothing arrived for longer than a round trip
	x.answer(ack, 102, 1860, 1900)
	x.request(send, 103, 2000, -1)
	x.request(send, 104, 2010, 2050)
	x.answer(nakSequence, 103, 2060, 2100)
	x.request(send, 103, 2110, 2160) // because of the NAK
	x.request(send, 104, 2111, 2161)
	x.answer(ack, 104, 2170, 2200)
	return x
}

// TestTimeline draws a connection of two queue pairs at one address. Both QP numbers are named, a probe is told from
// what a NAK asked for, and the times of each column rise.
func TestTimeline(t *testing.T) {
	for _, skew := range []time.Duration{0, time.Hour, -time.Hour} {
		x := lossy(skew)
		all := Connections(x.near, x.far)
		if len(all) != 1 {
			t.Fatalf("%d connections", len(all))
		}
		svg := all[0].SVG()
		wellFormed(t, svg)
		text := string(svg)
		for _, part := range []string{"requests from 10.0.0.1 QP 0x11 to 10.0.0.1 QP 0x22", ">10.0.0.1, QP 0x11<", ">10.0.0.1, QP 0x22<", "2 lost, 2 sent again, 1 probe ", ">probe: SEND, PSN 1<", ">again SEND, PSN 3 to 4 (2 packets)<", ">NAK: PSN 3 is missing<"} {
			if !strings.Contains(text, part) {
				t.Errorf("skew %v: no %q in\n%s", skew, part, svg)
			}
		}
		if moved := strings.Contains(text, "the clocks differ"); moved != (skew != 0) {
			t.Errorf("skew %v: the clocks differ: %v", skew, moved)
		}
		apart(t, svg)
		columns := map[string]bool{}
		for _, e := range elements(t, svg, "text") {
			if !strings.HasSuffix(e[""], " ms") || e["font-size"] != "11" {
				continue
			}
			at, y := parseFloat(t, strings.TrimSuffix(e[""], " ms")), parseFloat(t, e["y"])
			for _, o := range stamps(t, svg, e["x"]) {
				if (o[0] < at) != (o[1] < y) && o[0] != at {
					t.Errorf("skew %v: %.3f ms at %.0f and %.3f ms at %.0f", skew, at, y, o[0], o[1])
				}
			}
			columns[e["x"]] = true
		}
		if len(columns) != 2 {
			t.Errorf("%d columns of times", len(columns))
		}
	}
}

// stamps returns the times of a column, with their positions.
func stamps(t *testing.T, svg []byte, x string) (all [][2]float64) {
	for _, e := range elements(t, svg, "text") {
		if e["x"] == x && strings.HasSuffix(e[""], " ms") && e["font-size"] == "11" {
			all = append(all, [2]float64{parseFloat(t, strings.TrimSuffix(e[""], " ms")), parseFloat(t, e["y"])})
		}
	}
	return all
}

// TestTimelineOneSide draws the recording of one side, in which no packet has two times.
func TestTimelineOneSide(t *testing.T) {
	x := lossy(0)
	for name, packets := range map[string][]pcap.Packet{"requester": x.near, "responder": x.far} {
		svg := Connections(packets)[0].SVG()
		wellFormed(t, svg)
		if !strings.Contains(string(svg), "QP 0x11 to 10.0.0.1 QP 0x22") {
			t.Errorf("%s: %s", name, svg)
		}
		apart(t, svg)
	}
}
