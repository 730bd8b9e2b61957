//go:build linux

package nldev

import (
	"encoding/binary"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Device is an RDMA device with one port that is active.
type Device struct {
	Index        uint32 // from 0
	Name         string // mlx5_0
	Firmware     string
	Capabilities uint64 // enum ibv_device_cap_flags
	Down         bool   // its port has no link
	NodeGUID     uint64
	SystemGUID   uint64
	Interface    Interface
	Verbs        Node // its character device
}

// Interface is the network interface of a port. Without a name there is none.
type Interface struct {
	Index int
	Name  string
}

// Node is a character device.
type Node struct {
	Name         string // uverbs0
	ABI          uint64 // version of its commands
	Major, Minor uint32
}

// dev returns the number of a node as huge_encode_dev of Linux makes it.
func (n Node) dev() uint64 {
	return uint64(n.Minor&0xff | n.Major<<8 | n.Minor&^0xff<<12)
}

// System is what there is.
type System struct {
	Devices []Device
	CM      Node // of the connection manager
}

// The commands and attributes of <rdma/rdma_netlink.h>.
const (
	client = 5 << 10 // RDMA_NL_NLDEV, in a message's type

	cmdDevices = client | 1  // RDMA_NLDEV_CMD_GET
	cmdPorts   = client | 5  // RDMA_NLDEV_CMD_PORT_GET
	cmdSystem  = client | 6  // RDMA_NLDEV_CMD_SYS_GET
	cmdNode    = client | 15 // RDMA_NLDEV_CMD_GET_CHARDEV

	attrDevice       = 1
	attrName         = 2
	attrPort         = 3 // of a device: the number of ports
	attrCapabilities = 4
	attrFirmware     = 5
	attrNodeGUID     = 6
	attrSystemGUID   = 7
	attrState        = 12
	attrPhysState    = 13
	attrNodeType     = 14
	attrNetdev       = 50
	attrNetdevName   = 51
	attrNetnsMode    = 66
	attrProtocol     = 67
	attrNodeClient   = 69
	attrNode         = 70
	attrNodeABI      = 71
	attrNodeDev      = 72
	attrCopyOnFork   = 93

	stateDown   = 1
	stateActive = 4

	// The states of the link.
	stateDisabled = 3
	stateLinkUp   = 5

	nodeTypeCA  = 1
	netnsShared = 1
)

// Answer returns the datagrams that answer a request, which a socket with a port number has
// sent. A request that is malformed beyond its header gets an error; without a header it gets no
// answer.
func (s *System) Answer(request []byte, port uint32) [][]byte {
	// The library wants a multiple of 4 bytes and the length in the header; the kernel takes what
	// the header says.
	const header = unix.SizeofNlMsghdr
	if len(request) < header {
		return nil
	}
	n := int(binary.NativeEndian.Uint32(request))
	if n < header || n > len(request) {
		return nil
	}
	var m netlink.Message
	padded := make([]byte, (n+3)&^3)
	copy(padded, request[:n])
	binary.NativeEndian.PutUint32(padded, uint32(len(padded)))
	if m.UnmarshalBinary(padded) != nil {
		return nil
	}
	a := answer{to: m.Header, port: port}
	err := s.answer(&a, &m)
	switch {
	case err != 0:
		a.result(-int32(err), request[:header])
	case a.dump():
		a.add(netlink.Done, make([]byte, 4))
	case m.Header.Flags&netlink.Acknowledge != 0:
		a.result(0, request[:header])
	}
	return a.datagrams
}

func (s *System) answer(a *answer, m *netlink.Message) syscall.Errno {
	q, err := parse(m.Data)
	if err != nil {
		return unix.EINVAL
	}
	switch m.Header.Type {
	case cmdDevices:
		return a.each(s, q, (*Device).putDevice)
	case cmdPorts:
		if !q.hasDevice || !a.dump() && !q.hasPort || q.hasPort && q.port != 1 {
			return unix.EINVAL
		}
		return a.each(s, q, (*Device).putPort)
	case cmdSystem:
		a.message(func(e *netlink.AttributeEncoder) {
			e.Uint8(attrNetnsMode, netnsShared)
			e.Uint8(attrCopyOnFork, 1) // the device copies memory of the process that owns it
		})
		return 0
	case cmdNode:
		node, errno := s.node(q)
		if errno == 0 {
			a.message(node.put)
		}
		return errno
	}
	return unix.EOPNOTSUPP
}

// query holds the attributes of a request.
type query struct {
	device, port       uint32
	hasDevice, hasPort bool
	client             string
}

func parse(attributes []byte) (q query, err error) {
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return q, err
	}
	for d.Next() {
		switch d.Type() {
		case attrDevice:
			q.device, q.hasDevice = d.Uint32(), true
		case attrPort:
			q.port, q.hasPort = d.Uint32(), true
		case attrNodeClient:
			q.client = d.String()
		}
	}
	return q, d.Err()
}

// node finds the character device that a client has for a device.
func (s *System) node(q query) (Node, syscall.Errno) {
	switch q.client {
	case "uverbs":
		for i := range s.Devices {
			if d := &s.Devices[i]; q.hasDevice && d.Index == q.device {
				return d.Verbs, 0
			}
		}
		return Node{}, unix.EINVAL
	case "rdma_cm":
		return s.CM, 0
	}
	return Node{}, unix.ENOENT
}

func (n Node) put(e *netlink.AttributeEncoder) {
	e.Uint64(attrNodeDev, n.dev())
	e.Uint64(attrNodeABI, n.ABI)
	e.String(attrNode, n.Name)
}

func (d *Device) putDevice(e *netlink.AttributeEncoder) {
	e.Uint32(attrDevice, d.Index)
	e.String(attrName, d.Name)
	e.Uint32(attrPort, 1)
	e.Uint64(attrCapabilities, d.Capabilities)
	e.String(attrFirmware, d.Firmware)
	e.Uint64(attrNodeGUID, d.NodeGUID)
	e.Uint64(attrSystemGUID, d.SystemGUID)
	e.Uint8(attrNodeType, nodeTypeCA)
	e.String(attrProtocol, "roce")
}

func (d *Device) putPort(e *netlink.AttributeEncoder) {
	e.Uint32(attrDevice, d.Index)
	e.String(attrName, d.Name)
	e.Uint32(attrPort, 1)
	if d.Down {
		e.Uint8(attrState, stateDown)
		e.Uint8(attrPhysState, stateDisabled)
	} else {
		e.Uint8(attrState, stateActive)
		e.Uint8(attrPhysState, stateLinkUp)
	}
	if d.Interface.Name != "" {
		e.Uint32(attrNetdev, uint32(d.Interface.Index))
		e.String(attrNetdevName, d.Interface.Name)
	}
}

// answer collects the datagrams of an answer.
type answer struct {
	to        netlink.Header
	port      uint32
	datagrams [][]byte
}

func (a *answer) dump() bool { return a.to.Flags&netlink.Dump == netlink.Dump }

// each adds a message for each device of a dump, or for the one that the query names.
func (a *answer) each(s *System, q query, put func(*Device, *netlink.AttributeEncoder)) syscall.Errno {
	found := false
	for i := range s.Devices {
		d := &s.Devices[i]
		if q.hasDevice && d.Index != q.device || !q.hasDevice && !a.dump() {
			continue
		}
		found = true
		a.message(func(e *netlink.AttributeEncoder) { put(d, e) })
	}
	if !found && !(a.dump() && !q.hasDevice) {
		return unix.EINVAL
	}
	return 0
}

// message adds a message of the request's type.
func (a *answer) message(put func(*netlink.AttributeEncoder)) {
	e := netlink.NewAttributeEncoder()
	put(e)
	data, err := e.Encode()
	if err != nil {
		panic(err) // only names of 64 KiB cannot be encoded
	}
	a.add(a.to.Type, data)
}

// result adds an error, or an acknowledgement if number is 0.
func (a *answer) result(number int32, header []byte) {
	a.add(netlink.Error, append(binary.NativeEndian.AppendUint32(nil, uint32(number)), header...))
}

func (a *answer) add(typ netlink.HeaderType, data []byte) {
	m := netlink.Message{
		Header: netlink.Header{Type: typ, Sequence: a.to.Sequence, PID: a.port},
		Data:   data,
	}
	if a.dump() && typ != netlink.Error {
		m.Header.Flags = netlink.Multi
	}
	m.Header.Length = uint32(unix.SizeofNlMsghdr + (len(data)+3)&^3)
	b, err := m.MarshalBinary()
	if err != nil {
		panic(err) // the length is right
	}
	a.datagrams = append(a.datagrams, b)
}
