package rig

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"sync/atomic"
)

// Loss drops one RoCEv2 packet of this namespace and counts the packets.
type Loss struct{ table string }

// losses numbers the tables of netfilter.
var losses atomic.Int64

// LoseOne drops the nth RoCEv2 packet, from 1 on, on its way from one IPv4 address to
// another, and no other packet. One of the addresses must be this namespace's. A train of
// packets that the kernel has not split yet counts as one.
func LoseOne(from, to netip.Addr, n int) (*Loss, error) {
	hook := "input"
	if from.IsLoopback() || from == hostAddr4 {
		hook = "output"
	}
	l := &Loss{fmt.Sprint("loss", losses.Add(1))}
	rule := fmt.Sprintf("add rule ip %s packets ip saddr %s ip daddr %s udp dport 4791 counter numgen inc mod 0xffffffff == %d drop", l.table, from, to, n-1)
	for _, command := range []string{
		"add table ip " + l.table,
		fmt.Sprintf("add chain ip %s packets { type filter hook %s priority 0; }", l.table, hook),
		rule,
	} {
		if err := run("nft", command); err != nil {
			return nil, err
		}
	}
	return l, nil
}

var counter = regexp.MustCompile(`counter packets (\d+)`)

// Stop ends the loss. It returns the number of packets that were sent from the one address
// to the other since LoseOne. The lost packet is one of them, if at least n packets were sent.
func (l *Loss) Stop() (packets int, err error) {
	text, err := exec.Command("nft", "list", "table", "ip", l.table).Output()
	if err != nil {
		return 0, fmt.Errorf("nft: %w", err)
	}
	m := counter.FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("nft: no counter in %s", text)
	}
	if packets, err = strconv.Atoi(string(m[1])); err != nil {
		return 0, err
	}
	return packets, run("nft", "delete table ip "+l.table)
}
