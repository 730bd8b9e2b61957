package draw

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// TestManyKeys reads a trace that configures many keys with interleaved layouts of many pieces each. The
// memory that the keys take is a small multiple of the trace's.
func TestManyKeys(t *testing.T) {
	const keys = 2000
	line := umr(`"interleaved":{"repeat":4294967295,"entries":[{"addr":"0x1000","length":512,"step":520},{"addr":"0x1200","length":8,"step":520}]}`)
	text := strings.Repeat(line, keys)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	trace, err := ReadTrace(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	all := Keys(trace)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if used, most := int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(32*len(text)); len(all) != keys || used > most {
		t.Errorf("%d keys take %d bytes, %d times the trace's; want %d keys and at most %d", len(all), used, used/int64(len(text)), keys, most)
	}
	svg := all[keys-1].SVG()
	wellFormed(t, svg)
	if len(svg) > 1<<20 {
		t.Errorf("a picture of %d bytes", len(svg))
	}
	if !strings.Contains(string(svg), fmt.Sprintf("%d pieces", mostPieces)) {
		t.Error("the picture does not say how many pieces it has")
	}
	runtime.KeepAlive(trace)
}

// TestTooManyRecords reads a trace of more records than are kept.
func TestTooManyRecords(t *testing.T) {
	text := strings.Repeat("{}\n", 100)
	if all, err := readTrace(strings.NewReader(text), 100); err != nil || len(all) != 100 {
		t.Errorf("%d records, %v", len(all), err)
	}
	if _, err := readTrace(strings.NewReader(text), 99); err == nil || !strings.Contains(err.Error(), "line 100: a trace may have 99 records") {
		t.Errorf("%v", err)
	}
}

// recording returns packets between two hosts: for each QP a SEND and its ACK, all with the same PSN.
func recording(qps int) (packets []pcap.Packet) {
	a, b := netip.MustParseAddrPort("10.0.0.1:49152"), netip.MustParseAddrPort("10.0.0.2:4791")
	packet := func(from, to netip.AddrPort, opcode byte, qp int, sent bool, more ...byte) {
		p := []byte{opcode, 0x40, 0xff, 0xff}
		p = binary.BigEndian.AppendUint32(p, uint32(qp))
		p = append(binary.BigEndian.AppendUint32(p, 1), more...)
		packets = append(packets, pcap.Packet{Time: time.Unix(0, int64(len(packets))), From: from, To: to, Sent: sent, Payload: append(p, 0, 0, 0, 0)})
	}
	for i := range qps {
		packet(a, b, 4, i+2, true, 1, 2, 3, 4)
		packet(b, a, 17, i+2, true, 0x1f, 0, 0, 0)
	}
	for range qps { // received again and again: packets with the same bytes
		packet(a, b, 4, 2, true, 1, 2, 3, 4)
		packet(a, b, 4, 2, false, 1, 2, 3, 4)
	}
	return packets
}

// TestManyConnections draws a connection of a recording with a QP in each packet. The work per packet does
// not grow with the recording: events are looked at once for each picture.
func TestManyConnections(t *testing.T) {
	const qps = 20_000 // the square of it would take minutes
	all := Connections(recording(qps))
	if len(all) != qps {
		t.Fatalf("%d connections", len(all))
	}
	if c := all[0]; c.DestQP != 2 || len(c.events) != qps+1 {
		t.Errorf("the connection with the most packets: QP %d, %d request packets", c.DestQP, len(c.events))
	}
	svg := all[1].SVG()
	wellFormed(t, svg)
	if !strings.Contains(string(svg), "SEND, PSN 0") || !strings.Contains(string(svg), "ACK up to PSN 0") {
		t.Errorf("%s", svg)
	}
}
