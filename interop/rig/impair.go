package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
)

// Impairment configures the faults of one direction, as percentages of packets. A
// reordered packet overtakes earlier ones, which are delayed by DelayMS.
type Impairment struct {
	Loss      float64
	Reorder   float64
	Duplicate float64
	Corrupt   float64 // one bit of the packet is flipped
	DelayMS   int     // 0 with Reorder means 2

	// MADs limits the faults to packets to QP 1, which carry the messages of the
	// connection manager, over IPv4. Packets over IPv6 pass without faults.
	MADs bool
}

// netem returns the impairment as arguments of tc-netem(8).
func (i Impairment) netem() string {
	words := []string{"netem limit 100000"}
	if i.Reorder > 0 && i.DelayMS == 0 {
		i.DelayMS = 2
	}
	if i.DelayMS > 0 {
		words = append(words, fmt.Sprintf("delay %dms", i.DelayMS))
	}
	for _, part := range []struct {
		word    string
		percent float64
	}{{"loss", i.Loss}, {"duplicate", i.Duplicate}, {"corrupt", i.Corrupt}, {"reorder", i.Reorder}} {
		if part.percent > 0 {
			words = append(words, fmt.Sprintf("%s %g%%", part.word, part.percent))
		}
	}
	return strings.Join(words, " ")
}

// Impair adds faults to the link of g: toGuest applies to packets that the guest
// receives, fromGuest to packets that it sends. Zero values restore the link. Only RoCEv2
// packets are affected, so that the connection to rxepeer stays fast.
//
// The guest itself applies the faults: packets that it sends pass a netem queue on eth0,
// and packets that it receives are redirected through one on ifb0.
func (g *Guest) Impair(ctx context.Context, toGuest, fromGuest Impairment) error {
	commands := []string{
		"(/sbin/tc qdisc del dev eth0 root; /sbin/tc qdisc del dev eth0 ingress; /sbin/tc qdisc del dev ifb0 root; true) 2>/dev/null",
	}
	if fromGuest != (Impairment{}) {
		commands = append(commands,
			// Three bands, with netem on the third, to which the filter sends
			// packets.
			"/sbin/tc qdisc add dev eth0 root handle 1: prio bands 3 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
			"/sbin/tc qdisc add dev eth0 parent 1:3 handle 3: "+fromGuest.netem(),
			fromGuest.filters("dev eth0 parent 1:", "flowid 1:3"))
	}
	if toGuest != (Impairment{}) {
		commands = append(commands,
			"/sbin/ip link set ifb0 mtu 9000 txqueuelen 10000 up",
			"/sbin/tc qdisc add dev ifb0 root "+toGuest.netem(),
			"/sbin/tc qdisc add dev eth0 ingress",
			toGuest.filters("dev eth0 parent ffff:", "action mirred egress redirect dev ifb0"))
	}
	_, err := g.Shell(ctx, strings.Join(commands, " && ")+" 2>&1")
	return err
}

// filters returns the commands for the filters that select the impaired packets: those
// to RoCEv2's UDP port, for IPv4 and IPv6.
func (i Impairment) filters(where, then string) string {
	if i.MADs {
		// The destination QP is in the second word of the base transport header,
		// after 20 bytes of IPv4 and 8 of UDP.
		return "/sbin/tc filter add " + where + " protocol ip prio 1 u32 match ip protocol 17 0xff match ip dport 4791 0xffff" +
			" match u32 0x00000001 0x00ffffff at 32 " + then
	}
	return "/sbin/tc filter add " + where + " protocol ip prio 1 flower ip_proto udp dst_port 4791 " + then + " && " +
		"/sbin/tc filter add " + where + " protocol ipv6 prio 2 flower ip_proto udp dst_port 4791 " + then
}

// Impaired counts the packets of netem in one direction.
type Impaired struct {
	Packets uint64 // packets that passed, including duplicates
	Dropped uint64
}

// Impairments returns the counts since the last call of Impair.
func (g *Guest) Impairments(ctx context.Context) (toGuest, fromGuest Impaired, err error) {
	text, err := g.Shell(ctx, "/sbin/tc -s -j qdisc show")
	if err != nil {
		return Impaired{}, Impaired{}, err
	}
	var disciplines []struct {
		Kind    string `json:"kind"`
		Dev     string `json:"dev"`
		Packets uint64 `json:"packets"`
		Drops   uint64 `json:"drops"`
	}
	if err := json.Unmarshal([]byte(text), &disciplines); err != nil {
		return Impaired{}, Impaired{}, fmt.Errorf("tc: %w: %s", err, text)
	}
	for _, d := range disciplines {
		switch {
		case d.Kind != "netem":
		case d.Dev == "eth0":
			fromGuest = Impaired{d.Packets, d.Drops}
		default:
			toGuest = Impaired{d.Packets, d.Drops}
		}
	}
	return toGuest, fromGuest, nil
}
