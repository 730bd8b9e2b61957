package wire

// CNPLen is the length of a congestion notification packet: a BTH, 16 reserved
// bytes of 0 and the invariant CRC (annex A17.9.3).
const CNPLen = BTHLen + cnpReserved + ICRCLen

const cnpReserved = 16

// CNP is a congestion notification packet. It asks the sender of packets that arrived
// with an ECN mark to send more slowly. Its only header is the BTH.
type CNP struct {
	DestQP uint32 // QP that sent the marked packets, 24 bits
}

// PutCNP writes h to b[:CNPLen], except for the CRC.
func PutCNP(b []byte, h *CNP) {
	PutBTH(b, &BTH{Opcode: CongestionNotification, PKey: DefaultPKey, BECN: true, DestQP: h.DestQP})
	clear(b[BTHLen : BTHLen+cnpReserved])
}

// AppendCNP appends h to b, with a CRC of 0.
func AppendCNP(b []byte, h *CNP) []byte {
	b = append(b, make([]byte, CNPLen)...)
	PutCNP(b[len(b)-CNPLen:], h)
	return b
}

// ParseCNP reads a packet with the opcode [CongestionNotification] from the start of b,
// which includes the BTH.
func ParseCNP(b []byte) (h CNP, n int, err error) {
	if len(b) < CNPLen {
		return CNP{}, 0, ErrShort
	}
	bth, _, err := ParseBTH(b)
	return CNP{DestQP: bth.DestQP}, CNPLen, err
}
