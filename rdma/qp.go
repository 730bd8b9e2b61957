package rdma

import (
	"fmt"
	"net/netip"
)

// QPType is the transport service of a QP. The values are those of enum ibv_qp_type.
type QPType uint8

// The QP types.
const (
	RC QPType = 2 // reliable connection
	UC QPType = 3 // unreliable connection: a lost packet drops its message
	UD QPType = 4 // unreliable datagram: one packet a message, each with its own destination
)

// The other types, which package verbs does not make, are in internal/ibv.
var qpTypeNames = map[QPType]string{1: "GSI", RC: "RC", UC: "UC", UD: "UD", 9: "XRC_SEND", 10: "XRC_RECV", 0xd0: "DCI", 0xd1: "DCT"}

// String returns the type's name.
func (t QPType) String() string {
	if s, ok := qpTypeNames[t]; ok {
		return s
	}
	return fmt.Sprintf("qp_type(%d)", uint8(t))
}

// State is the state of a QP. The values are those of enum ibv_qp_state.
type State uint8

// The states of a QP. SQE does not occur on a reliable connection.
const (
	StateReset State = 0
	StateInit  State = 1
	StateRTR   State = 2
	StateRTS   State = 3
	StateSQD   State = 4
	StateSQE   State = 5
	StateErr   State = 6
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String returns the state's name.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// GID is a global identifier: an IPv6 address, or an IPv4 address a.b.c.d as
// ::ffff:a.b.c.d.
type GID [16]byte

// GIDOf returns the GID of an address.
func GIDOf(a netip.Addr) GID { return a.As16() }

// Addr returns the address that the GID stands for.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// String returns the GID as the tools of libibverbs print it.
func (g GID) String() string { return netip.AddrFrom16(g).StringExpanded() }

// AH is the address of a peer (struct ibv_ah_attr, as far as RoCEv2 uses it).
type AH struct {
	DGID         GID
	SGIDIndex    int    // entry of this device's GID table
	UDPPort      uint16 // UDP port of the peer's device; 0 means RoCEv2's 4791
	FlowLabel    uint32 // of 20 bits
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8 // service level

	// The following fields matter on a network of Ethernet frames only. A UDP socket leaves
	// both to the system.
	NextHop    [6]byte // MAC address that packets are sent to
	SourcePort uint16  // UDP port that packets are sent from; 0: RoCEv2's 4791
}

// Datagram reports whether a QP of the type sends datagrams, each with its own destination.
func (t QPType) Datagram() bool { return t == UD || t == 1 }

// MulticastQPN is the destination QP number of datagrams to a multicast group
// (InfiniBand specification, 9.8.1.1).
const MulticastQPN = 0xFFFFFF
