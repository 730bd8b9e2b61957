package interop

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/interop/peer"
)

// guesses are the dissectors that tshark 4.0 applies to a payload by heuristics. The
// payload of a test is for none of them, and some report it as malformed.
const guesses = "smcr_infiniband,smb_direct_infiniband,rpcrdma_infiniband,nvme_rdma,lnet_ib," +
	"iser_infiniband,eth_over_ib,mellanox_eoib,sdp_infiniband,fc_infiniband"

// tshark runs tshark on a capture.
func tshark(t *testing.T, pcap string, args ...string) []byte {
	t.Helper()
	// The kernel sends no UDP checksum, which IPv6 permits to tunnels (RFC 6935).
	args = append([]string{"-r", pcap, "-o", "udp.ignore_ipv6_zero_checksum:TRUE"}, args...)
	for guess := range strings.SplitSeq(guesses, ",") {
		args = append(args, "--disable-heuristic", guess)
	}
	cmd := exec.Command("tshark", args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark: %v: %s", err, complaints.String())
	}
	return out
}

// rawFrames returns the frames of a capture, from the Ethernet header on.
func rawFrames(t *testing.T, pcap string) (frames [][]byte) {
	t.Helper()
	var packets []struct {
		Source struct {
			Layers struct {
				Frame []any `json:"frame_raw"`
			}
		} `json:"_source"`
	}
	check(t, json.Unmarshal(tshark(t, pcap, "-T", "jsonraw", "-j", "frame"), &packets))
	for _, p := range packets {
		frame, err := hex.DecodeString(p.Source.Layers.Frame[0].(string))
		check(t, err)
		frames = append(frames, frame)
	}
	return frames
}

// checkICRC computes the invariant CRC of a frame as described in the InfiniBand
// specification, annex A17: over eight bytes of ones and the packet from the IP header
// on, with the variant fields as ones. tshark shows the CRC but does not check it.
func checkICRC(frame []byte) error {
	ip, udp := append([]byte(nil), frame[14:]...), 20
	switch etherType := binary.BigEndian.Uint16(frame[12:]); etherType {
	case 0x0800:
		ip = ip[:binary.BigEndian.Uint16(ip[2:])]
		ip[1], ip[8], ip[10], ip[11] = 0xff, 0xff, 0xff, 0xff // type of service, time to live, checksum
	case 0x86dd:
		udp = 40
		ip = ip[:udp+int(binary.BigEndian.Uint16(ip[4:]))]
		ip[0] |= 0x0f
		ip[1], ip[2], ip[3], ip[7] = 0xff, 0xff, 0xff, 0xff // traffic class, flow label, hop limit
	default:
		return fmt.Errorf("ether type %#x", etherType)
	}
	ip[udp+6], ip[udp+7] = 0xff, 0xff // checksum
	ip[udp+8+4] = 0xff                // congestion marks and reserved bits
	covered := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ip[:len(ip)-4]...)
	if got, want := binary.LittleEndian.Uint32(ip[len(ip)-4:]), crc32.ChecksumIEEE(covered); got != want {
		return fmt.Errorf("invariant CRC %#x, want %#x", got, want)
	}
	return nil
}

// TestDissection records a conversation and checks how tshark decodes every frame: it
// must be RoCEv2, without errors.
func TestDissection(t *testing.T) {
	n := newNetwork(t)
	families(t, func(t *testing.T, v6 bool) {
		pcap := filepath.Join(t.TempDir(), "conversation.pcapng")
		capture, err := n.r.Capture(n.r.Guest, pcap)
		check(t, err)
		a, b := n.open(t, v6)
		c := peer.Defaults()
		c.MTU = 512
		join(t, a, b, v6, c)
		table(t, a, b, []int{0, 1, 511, 512, 514, 1024, 5000, 65_537})
		check(t, capture.Stop())

		verdict := string(tshark(t, pcap, "-T", "fields", "-E", "separator=,",
			"-e", "frame.number", "-e", "infiniband.bth.opcode", "-e", "_ws.malformed", "-e", "_ws.expert.message"))
		seen := map[string]int{}
		for line := range strings.Lines(verdict) {
			fields := strings.SplitN(strings.TrimSpace(line), ",", 3)
			if len(fields) != 3 || fields[1] == "" || fields[2] != "," {
				t.Fatalf("tshark says %q", line)
			}
			seen[fields[1]]++
		}
		frames := rawFrames(t, pcap)
		for i, frame := range frames {
			if err := checkICRC(frame); err != nil {
				t.Fatalf("frame %d: %v", i+1, err)
			}
		}
		// All opcodes of reliable connections except for the unused 21.
		for opcode := range 24 {
			if opcode != 21 && seen[fmt.Sprint(opcode)] == 0 {
				t.Errorf("opcode %d does not occur", opcode)
			}
		}
		t.Logf("%d frames, by opcode: %v", len(frames), seen)
	})
}
