package wire

import "strconv"

// Opcode is the first byte of a packet: the service in the upper three bits and the
// operation in the lower five (table 38).
type Opcode uint8

// Opcodes of the reliable connection service, and the congestion notification
// packet of annex A17.9.
const (
	SendFirst              Opcode = 0x00
	SendMiddle             Opcode = 0x01
	SendLast               Opcode = 0x02
	SendLastImm            Opcode = 0x03
	SendOnly               Opcode = 0x04
	SendOnlyImm            Opcode = 0x05
	WriteFirst             Opcode = 0x06
	WriteMiddle            Opcode = 0x07
	WriteLast              Opcode = 0x08
	WriteLastImm           Opcode = 0x09
	WriteOnly              Opcode = 0x0a
	WriteOnlyImm           Opcode = 0x0b
	ReadRequest            Opcode = 0x0c
	ReadResponseFirst      Opcode = 0x0d
	ReadResponseMiddle     Opcode = 0x0e
	ReadResponseLast       Opcode = 0x0f
	ReadResponseOnly       Opcode = 0x10
	Acknowledge            Opcode = 0x11
	AtomicAcknowledge      Opcode = 0x12
	CompareSwap            Opcode = 0x13
	FetchAdd               Opcode = 0x14
	SendLastInv            Opcode = 0x16
	SendOnlyInv            Opcode = 0x17
	CongestionNotification Opcode = 0x81
)

// Services, in the upper three bits of an Opcode.
const (
	ServiceRC  uint8 = 0 // reliable connection
	ServiceUC  uint8 = 1 // unreliable connection
	ServiceRD  uint8 = 2 // reliable datagram
	ServiceUD  uint8 = 3 // unreliable datagram
	ServiceXRC uint8 = 5 // extended reliable connection
)

// Opcodes of the unreliable datagram service, which carries the messages of the
// connection manager.
const (
	UDSendOnly    Opcode = 0x64
	UDSendOnlyImm Opcode = 0x65
)

// Layout is a set of bits that describes a packet of an opcode.
type Layout uint32

// The bits of a Layout. The extended headers follow the BTH in the order of their bits.
const (
	HasDETH Layout = 1 << iota
	HasXRCETH
	HasRETH
	HasAtomicETH
	HasMaskETH
	HasAETH
	HasAtomicAckETH
	HasImmDt
	HasIETH
	HasPayload // the packet may have message bytes
	IsRequest  // sent from requester to responder
	IsResponse
	IsFirst // first packet of a message of several
	IsMiddle
	IsLast // last packet of a message of several
	IsOnly // only packet of a message
	IsSend
	IsWrite
)

const (
	sendReq  = IsRequest | IsSend | HasPayload
	writeReq = IsRequest | IsWrite | HasPayload
	readResp = IsResponse | HasPayload
)

// operations holds the layouts of the reliable connection service, indexed with the lower
// five bits of an opcode.
var operations = [32]Layout{
	SendFirst:          sendReq | IsFirst,
	SendMiddle:         sendReq | IsMiddle,
	SendLast:           sendReq | IsLast,
	SendLastImm:        sendReq | IsLast | HasImmDt,
	SendOnly:           sendReq | IsOnly,
	SendOnlyImm:        sendReq | IsOnly | HasImmDt,
	SendLastInv:        sendReq | IsLast | HasIETH,
	SendOnlyInv:        sendReq | IsOnly | HasIETH,
	WriteFirst:         writeReq | IsFirst | HasRETH,
	WriteMiddle:        writeReq | IsMiddle,
	WriteLast:          writeReq | IsLast,
	WriteLastImm:       writeReq | IsLast | HasImmDt,
	WriteOnly:          writeReq | IsOnly | HasRETH,
	WriteOnlyImm:       writeReq | IsOnly | HasRETH | HasImmDt,
	ReadRequest:        IsRequest | IsOnly | HasRETH,
	CompareSwap:        IsRequest | IsOnly | HasAtomicETH,
	FetchAdd:           IsRequest | IsOnly | HasAtomicETH,
	ReadResponseFirst:  readResp | IsFirst | HasAETH,
	ReadResponseMiddle: readResp | IsMiddle,
	ReadResponseLast:   readResp | IsLast | HasAETH,
	ReadResponseOnly:   readResp | IsOnly | HasAETH,
	Acknowledge:        IsResponse | IsOnly | HasAETH,
	AtomicAcknowledge:  IsResponse | IsOnly | HasAETH | HasAtomicAckETH,
}

// layouts holds the layouts of all opcodes. The unreliable connection service has SEND
// and WRITE, but not SEND with invalidate. The unreliable datagram service has SEND of
// one packet. The extended reliable connection service has the same operations as the
// reliable one. The masked atomics are not of the specification.
var layouts = func() (t [256]Layout) {
	for i, l := range operations {
		if l == 0 {
			continue
		}
		t[int(ServiceRC)<<5|i] = l
		if l&(IsSend|IsWrite) != 0 && l&HasIETH == 0 {
			t[int(ServiceUC)<<5|i] = l
		}
		if l&IsSend != 0 && l&IsOnly != 0 && l&HasIETH == 0 {
			t[int(ServiceUD)<<5|i] = l | HasDETH
		}
		if l&IsRequest != 0 {
			l |= HasXRCETH
		}
		t[int(ServiceXRC)<<5|i] = l
	}
	for _, o := range []Opcode{MaskedCompareSwap, MaskedFetchAdd} {
		t[o] = IsRequest | IsOnly | HasAtomicETH | HasMaskETH
		t[o|maskedXRC] = t[o] | HasXRCETH
	}
	return t
}()

// headerLens holds the length of BTH and extended headers for each opcode.
var headerLens = func() (n [256]uint8) {
	for i, l := range layouts {
		if l == 0 {
			continue
		}
		n[i] = BTHLen
		for _, h := range []struct {
			bit Layout
			len uint8
		}{{HasDETH, DETHLen}, {HasXRCETH, XRCETHLen}, {HasRETH, RETHLen}, {HasAtomicETH, AtomicETHLen}, {HasMaskETH, MaskETHLen}, {HasAETH, AETHLen},
			{HasAtomicAckETH, AtomicAckETHLen}, {HasImmDt, ImmDtLen}, {HasIETH, IETHLen}} {
			if l&h.bit != 0 {
				n[i] += h.len
			}
		}
	}
	return n
}()

// Service returns the service, the upper three bits. For a masked atomic it is the service
// that uses the opcode.
func (o Opcode) Service() uint8 {
	switch {
	case !o.masked():
		return uint8(o >> 5)
	case o&maskedXRC != 0:
		return ServiceXRC
	}
	return ServiceRC
}

// Layout returns the layout of packets with this opcode, or 0 if it is not an opcode of
// the services RC, UC, UD and XRC.
func (o Opcode) Layout() Layout { return layouts[o] }

// HeaderLen returns the length of BTH and extended headers, or 0 if Layout returns 0.
func (o Opcode) HeaderLen() int { return int(headerLens[o]) }

// Operation returns the opcode of the same operation in the reliable connection service.
func (o Opcode) Operation() Opcode {
	if o.masked() {
		return o &^ maskedXRC
	}
	return o & 31
}

// With returns the opcode of the same operation in service s. o must be an opcode of the
// reliable connection service. If o is a masked atomic, s must be ServiceRC or ServiceXRC.
func (o Opcode) With(s uint8) Opcode {
	if o.masked() {
		if s == ServiceXRC {
			o |= maskedXRC
		}
		return o
	}
	return o | Opcode(s)<<5
}

var opcodeNames = map[Opcode]string{
	SendFirst: "SEND First", SendMiddle: "SEND Middle", SendLast: "SEND Last",
	SendLastImm: "SEND Last with Immediate", SendOnly: "SEND Only", SendOnlyImm: "SEND Only with Immediate",
	SendLastInv: "SEND Last with Invalidate", SendOnlyInv: "SEND Only with Invalidate",
	WriteFirst: "RDMA WRITE First", WriteMiddle: "RDMA WRITE Middle", WriteLast: "RDMA WRITE Last",
	WriteLastImm: "RDMA WRITE Last with Immediate", WriteOnly: "RDMA WRITE Only",
	WriteOnlyImm: "RDMA WRITE Only with Immediate", ReadRequest: "RDMA READ Request",
	ReadResponseFirst: "RDMA READ Response First", ReadResponseMiddle: "RDMA READ Response Middle",
	ReadResponseLast: "RDMA READ Response Last", ReadResponseOnly: "RDMA READ Response Only",
	Acknowledge: "Acknowledge", AtomicAcknowledge: "Atomic Acknowledge",
	CompareSwap: "CmpSwap", FetchAdd: "FetchAdd", MaskedCompareSwap: "Masked CmpSwap", MaskedFetchAdd: "Masked FetchAdd", CongestionNotification: "CNP",
}

var serviceNames = [8]string{ServiceUC: "UC ", ServiceUD: "UD ", ServiceXRC: "XRC "}

// String returns the name of the operation in the specification, after the name of the
// service if that is not RC.
func (o Opcode) String() string {
	if s, ok := opcodeNames[o]; ok {
		return s
	}
	if o.Layout() != 0 {
		return serviceNames[o.Service()] + opcodeNames[o.Operation()]
	}
	return "opcode 0x" + strconv.FormatUint(uint64(o), 16)
}
