package wire

// CNPLen is the length of a congestion notification packet: a BTH, 16 reserved
// bytes of 0 and the invariant CRC (annex A17.9.3).
const CNPLen = BTHLen + cnpReserved + ICRCLen

const cnpReserved = 16

// PutCNP writes a congestion notification packet to b[:CNPLen], except for the CRC. The packet asks
// the sender of packets that arrived with an ECN mark, QP destQP, to send more slowly. Its only
// header is the BTH.
func PutCNP(b []byte, destQP uint32) {
	PutBTH(b, &BTH{Opcode: CongestionNotification, PKey: DefaultPKey, BECN: true, DestQP: destQP})
	clear(b[BTHLen : BTHLen+cnpReserved])
}
