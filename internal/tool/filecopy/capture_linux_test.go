package filecopy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/udp/udptest"
	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/pcap"
)

// TestCapture records copies over UDP and checks the format of every packet: IPv4, UDP
// port 4791, an opcode of a reliable connection, and an invariant CRC computed as the
// InfiniBand specification describes it, annex A17.
func TestCapture(t *testing.T) {
	var file bytes.Buffer
	rec := pcap.NewRecorder(&file, nil)
	a, err := device.Open(udptest.Addr(1), device.Options{Recorder: rec})
	fatal.If(t, err)
	defer a.Close()
	b, err := device.Open(udptest.Addr(2), device.Options{})
	fatal.If(t, err)
	defer b.Close()
	data := random(6, 300_001)
	for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
		for _, mtu := range []string{"256", "4096"} {
			p, err := keyplan.New(keyplan.Terms{Op: op, Wire: "t10dif", MTU: mtu}, 0)
			fatal.If(t, err)
			var dst bytes.Buffer
			_, _, err = Local(timeout(t), a, b, p, SenderConfig{Src: bytes.NewReader(data), Flip: -1}, ReceiverConfig{Dst: &dst})
			if err != nil || !bytes.Equal(dst.Bytes(), data) {
				t.Fatalf("%s: %d bytes, %v", op, dst.Len(), err)
			}
		}
	}
	a.Close()
	fatal.If(t, rec.Close())

	r, err := pcapgo.NewNgReader(&file, pcapgo.DefaultNgReaderOptions)
	fatal.If(t, err)
	opcodes := map[byte]int{}
	for n := 1; ; n++ {
		packet, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		fatal.If(t, err)
		if info.CaptureLength != info.Length {
			t.Fatalf("packet %d was cut", n)
		}
		if r.LinkType() == layers.LinkTypeEthernet {
			packet = packet[14:]
		}
		opcode, err := checkPacket(packet)
		if err != nil {
			t.Fatalf("packet %d: %v", n, err)
		}
		opcodes[opcode]++
	}
	// SEND, WRITE and READ: first, middle and last packets, and responses.
	for _, opcode := range []byte{0, 1, 2, 4, 6, 7, 9, 12, 13, 14, 15, 17} {
		if opcodes[opcode] == 0 {
			t.Errorf("no packet has opcode %d", opcode)
		}
	}
}

// checkPacket checks a packet from its IPv4 header on and returns its opcode.
func checkPacket(packet []byte) (opcode byte, err error) {
	const ip, udp, bth = 20, 8, 12
	switch {
	case len(packet) < ip+udp+bth+4 || packet[0] != 0x45 || int(binary.BigEndian.Uint16(packet[2:])) != len(packet):
		return 0, errors.New("no IPv4 packet")
	case packet[9] != 17 || binary.BigEndian.Uint16(packet[ip+2:]) != 4791 || int(binary.BigEndian.Uint16(packet[ip+4:])) != len(packet)-ip:
		return 0, errors.New("no RoCEv2 packet")
	case packet[ip+udp] > 0x17:
		return 0, errors.New("not of a reliable connection")
	}
	masked := bytes.Clone(packet)
	for _, i := range []int{1, 8, 10, 11, ip + 6, ip + 7, ip + udp + 4} { // type of service, time to live, checksums, congestion bits
		masked[i] = 0xFF
	}
	end := len(packet) - 4
	sum := crc32.Update(crc32.ChecksumIEEE(bytes.Repeat([]byte{0xFF}, 8)), crc32.IEEETable, masked[:end])
	if binary.LittleEndian.Uint32(packet[end:]) != sum {
		return 0, errors.New("the invariant CRC is wrong")
	}
	return packet[ip+udp], nil
}
