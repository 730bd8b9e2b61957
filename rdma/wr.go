package rdma

import "fmt"

// Opcode is the operation that a completion reports. The values are those of enum
// ibv_wc_opcode.
type Opcode uint8

// The opcodes of completions.
const (
	OpSend            Opcode = 0
	OpRDMAWrite       Opcode = 1
	OpRDMARead        Opcode = 2
	OpCompSwap        Opcode = 3
	OpFetchAdd        Opcode = 4
	OpLocalInv        Opcode = 6
	OpRecv            Opcode = 128
	OpRecvRDMAWithImm Opcode = 129
	OpMKeyConfigure   Opcode = 135 // IBV_WC_DRIVER1
)

var opcodeNames = [...]string{
	OpSend: "SEND", OpRDMAWrite: "RDMA_WRITE", OpRDMARead: "RDMA_READ", OpCompSwap: "COMP_SWAP",
	OpFetchAdd: "FETCH_ADD", 5: "BIND_MW", OpLocalInv: "LOCAL_INV", OpRecv: "RECV",
	OpRecvRDMAWithImm: "RECV_RDMA_WITH_IMM", OpMKeyConfigure: "DRIVER1",
}

// String returns the name of enum ibv_wc_opcode without its prefix.
func (o Opcode) String() string {
	if int(o) < len(opcodeNames) && opcodeNames[o] != "" {
		return opcodeNames[o]
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// WC is a work completion (struct ibv_wc). With a Status other than StatusSuccess,
// only ID, Status, Opcode, QPNum and Err are valid.
type WC struct {
	ID             uint64
	Status         Status
	Opcode         Opcode
	Flags          WCFlags
	ByteLen        uint32 // bytes that were received, read or written
	Imm            uint32 // immediate data in host order; with WithImm
	InvalidatedKey uint32 // with WithInv
	QPNum          uint32
	SrcQP          uint32
	Err            error // reason of a failure in words, which wraps the StatusError; not nil if Status is not StatusSuccess
}

// SGE is an entry of a scatter/gather list: Length bytes from address Addr of
// the region or memory key LKey. For a memory key, Addr is an offset, and Addr
// and Length count bytes of the key's wire domain.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Strided is an entry of an interleaved layout of a memory key (struct
// mlx5dv_mr_interleaved).
type Strided struct {
	Addr       uint64
	BytesCount uint32 // bytes used in each repetition
	BytesSkip  uint32 // bytes skipped before the next repetition
	LKey       uint32
}
