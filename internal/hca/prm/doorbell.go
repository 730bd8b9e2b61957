package prm

// A doorbell record has 8 bytes. For a QP it has the count of receive requests and the
// count of send queue blocks, of 16 bits each. For a CQ it has the consumer index and the
// arm word, for an SRQ the count of requests.
const (
	DoorbellSize = 8
	DoorbellRecv = 0 // of a QP or SRQ
	DoorbellSend = 4
	DoorbellCI   = 0 // of a CQ
	DoorbellArm  = 4
)

// Offsets in a UAR page.
const (
	UARSize     = 4096
	UARArmCQ    = 0x20
	UARBlue     = 0x800 // first BlueFlame register
	UARBlueSize = 0x100
	UARBlueEnd  = 0xc00
)

// Arm is the arm word of a CQ.
type Arm struct {
	Sequence  uint8 // 2 bits: counts the events that the program has seen
	Solicited bool  // only for solicited and failed completions
	CI        uint32
}

// ParseArm decodes an arm word.
func ParseArm(w uint32) Arm {
	return Arm{Sequence: uint8(w >> 28 & 3), Solicited: w>>24&1 != 0, CI: w & 0xffffff}
}

// Word encodes an arm word.
func (a Arm) Word() uint32 {
	w := uint32(a.Sequence&3)<<28 | a.CI&0xffffff
	if a.Solicited {
		w |= 1 << 24
	}
	return w
}

// Uint32 decodes 4 bytes of a queue or a doorbell record.
func Uint32(b []byte) uint32 { return be.Uint32(b) }

// PutUint32 encodes 4 bytes.
func PutUint32(b []byte, v uint32) { be.PutUint32(b, v) }
