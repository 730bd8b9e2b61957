package verbs

import (
	"fmt"
	"strings"

	"github.com/softmkey/softmkey/mkey"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/sig"
)

// Access says what may be done to memory, or through a QP. The values are those of
// enum ibv_access_flags. Reading locally needs no flag.
type Access = mkey.Access

// The access flags. ZeroBased makes the addresses of a region offsets into it.
const (
	LocalWrite   = mkey.LocalWrite
	RemoteWrite  = mkey.RemoteWrite
	RemoteRead   = mkey.RemoteRead
	RemoteAtomic = mkey.RemoteAtomic
	ZeroBased    = Access(1 << 5)
)

// Status is how a work request ended; the values are those of enum ibv_wc_status.
type Status = roce.Status

// The statuses of completions on a reliable connection.
const (
	StatusSuccess        = roce.StatusSuccess
	StatusLocLenErr      = roce.StatusLocLenErr
	StatusLocQPOpErr     = roce.StatusLocQPOpErr
	StatusLocProtErr     = roce.StatusLocProtErr
	StatusWRFlushErr     = roce.StatusWRFlushErr
	StatusMWBindErr      = roce.StatusMWBindErr
	StatusBadRespErr     = roce.StatusBadRespErr
	StatusLocAccessErr   = roce.StatusLocAccessErr
	StatusRemInvReqErr   = roce.StatusRemInvReqErr
	StatusRemAccessErr   = roce.StatusRemAccessErr
	StatusRemOpErr       = roce.StatusRemOpErr
	StatusRetryExcErr    = roce.StatusRetryExcErr
	StatusRNRRetryExcErr = roce.StatusRNRRetryExcErr
)

// Opcode is what a completion tells of; the values are those of enum ibv_wc_opcode.
type Opcode uint8

// The opcodes of completions.
const (
	OpSend             Opcode = 0
	OpRDMAWrite        Opcode = 1
	OpRDMARead         Opcode = 2
	OpCompSwap         Opcode = 3
	OpFetchAdd         Opcode = 4
	OpLocalInv         Opcode = 6
	OpRecv             Opcode = 128
	OpRecvRDMAWithImm  Opcode = 129
	OpMKeyConfigure    Opcode = 135 // IBV_WC_DRIVER1
	opcodeNameTableEnd        = 136
)

var opcodeNames = [opcodeNameTableEnd]string{
	OpSend: "SEND", OpRDMAWrite: "RDMA_WRITE", OpRDMARead: "RDMA_READ", OpCompSwap: "COMP_SWAP",
	OpFetchAdd: "FETCH_ADD", OpLocalInv: "LOCAL_INV", OpRecv: "RECV",
	OpRecvRDMAWithImm: "RECV_RDMA_WITH_IMM", OpMKeyConfigure: "DRIVER1",
}

// String returns the name of enum ibv_wc_opcode without its prefix.
func (o Opcode) String() string {
	if int(o) < len(opcodeNames) && opcodeNames[o] != "" {
		return opcodeNames[o]
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// SendFlags are the flags of a send request; the values are those of enum
// ibv_send_flags.
type SendFlags uint32

// The flags of a send request.
const (
	SendFence     SendFlags = 1 << 0 // waits for earlier reads, atomics and signature results
	SendSignaled  SendFlags = 1 << 1 // makes a completion also when it succeeds
	SendSolicited SendFlags = 1 << 2 // asks for a solicited event at the peer
	SendInline    SendFlags = 1 << 3 // the data is copied when the request is posted
)

// WCFlags tell which fields of a WC are valid; the values are those of enum
// ibv_wc_flags.
type WCFlags uint32

// The flags of a completion.
const (
	WithImm WCFlags = 1 << 1
	WithInv WCFlags = 1 << 3
)

// WC is a work completion (struct ibv_wc). With a Status other than
// StatusSuccess, only ID, Status, QPNum and Opcode are valid.
type WC struct {
	ID             uint64
	Status         Status
	Opcode         Opcode
	Flags          WCFlags
	ByteLen        uint32 // bytes received, read or written
	Imm            uint32 // in host order, with WithImm
	InvalidatedKey uint32 // with WithInv
	QPNum          uint32
	SrcQP          uint32
}

// SGE is an entry of a scatter/gather list: Length bytes from Addr of the region
// or memory key LKey. For a memory key Addr is an offset, and both count bytes of
// its wire domain.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// State is the state of a QP; the values are those of enum ibv_qp_state.
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

// MTU is a path MTU; the values are those of enum ibv_mtu.
type MTU uint8

// The path MTUs.
const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Bytes returns the MTU's payload in bytes, 0 if it is none.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// MTUOf returns the MTU of that many bytes.
func MTUOf(bytes int) (MTU, bool) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == bytes {
			return m, true
		}
	}
	return 0, false
}

// Names that programs with memory keys use beside those of this package.
type (
	// Signature is the block signature attributes of a memory key.
	Signature = mkey.Signature
	// Crypto is the crypto attributes of a memory key.
	Crypto = mkey.Crypto
	// BadBlock is what a memory key remembers of a bad signature.
	BadBlock = mkey.BadBlock
	// Format is the signature of one domain.
	Format = sig.Format
)

// list joins what is still in use into the reason of an EBUSY.
func list(counts map[string]int) string {
	var s []string
	for _, name := range []string{"PD", "CQ", "MR", "MKey", "QP", "SRQ", "unacknowledged event"} {
		if n := counts[name]; n > 0 {
			s = append(s, fmt.Sprintf("%d %s", n, name))
		}
	}
	return strings.Join(s, ", ")
}
