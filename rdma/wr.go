package rdma

import "fmt"

// WROp is the operation of a send request. The values are those of enum
// ibv_wr_opcode; the operations of mlx5 begin at 0xf0.
type WROp uint8

// The operations of send requests.
const (
	WRWrite    WROp = 0
	WRWriteImm WROp = 1
	WRSend     WROp = 2
	WRSendImm  WROp = 3
	WRRead     WROp = 4
	WRCmpSwap  WROp = 5
	WRFetchAdd WROp = 6
	WRLocalInv WROp = 7
	WRBindMW   WROp = 8
	WRSendInv  WROp = 9

	// Masked atomics are operations of kernel drivers (enum ib_wr_opcode) and of mlx5.
	WRMaskedCmpSwap  WROp = 12 // compares and swaps the bits of masks
	WRMaskedFetchAdd WROp = 13 // adds fields of any number of bits

	WRConfigure WROp = 0xf0 // configures a memory key
	WRSetPSV    WROp = 0xf1 // sets a protection signature value; this device does nothing
	WRNop       WROp = 0xf2 // does nothing
	WRMemcpy    WROp = 0xf3 // copies one local range to another
)

var wrOpNames = map[WROp]string{
	WRWrite: "RDMA_WRITE", WRWriteImm: "RDMA_WRITE_WITH_IMM", WRSend: "SEND", WRSendImm: "SEND_WITH_IMM",
	WRRead: "RDMA_READ", WRCmpSwap: "ATOMIC_CMP_AND_SWP", WRFetchAdd: "ATOMIC_FETCH_AND_ADD",
	WRLocalInv: "LOCAL_INV", WRBindMW: "BIND_MW", WRSendInv: "SEND_WITH_INV",
	WRMaskedCmpSwap: "MASKED_ATOMIC_CMP_AND_SWP", WRMaskedFetchAdd: "MASKED_ATOMIC_FETCH_AND_ADD",
	WRConfigure: "MKEY_CONFIGURE", WRSetPSV: "SET_PSV", WRNop: "NOP", WRMemcpy: "MEMCPY",
}

// Atomic reports whether the operation is an atomic, masked or not.
func (o WROp) Atomic() bool { return o == WRCmpSwap || o == WRFetchAdd || o.Masked() }

// Masked reports whether the operation is a masked atomic.
func (o WROp) Masked() bool { return o == WRMaskedCmpSwap || o == WRMaskedFetchAdd }

// String returns the name of enum ibv_wr_opcode without its prefix.
func (o WROp) String() string {
	if s, ok := wrOpNames[o]; ok {
		return s
	}
	return fmt.Sprintf("wr_opcode(%d)", uint8(o))
}

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
	OpBindMW          Opcode = 5
	OpLocalInv        Opcode = 6
	OpRecv            Opcode = 128
	OpRecvRDMAWithImm Opcode = 129
	OpMKeyConfigure   Opcode = 135 // IBV_WC_DRIVER1
)

var opcodeNames = [...]string{
	OpSend: "SEND", OpRDMAWrite: "RDMA_WRITE", OpRDMARead: "RDMA_READ", OpCompSwap: "COMP_SWAP",
	OpFetchAdd: "FETCH_ADD", OpBindMW: "BIND_MW", OpLocalInv: "LOCAL_INV", OpRecv: "RECV",
	OpRecvRDMAWithImm: "RECV_RDMA_WITH_IMM", OpMKeyConfigure: "DRIVER1",
}

// String returns the name of enum ibv_wc_opcode without its prefix.
func (o Opcode) String() string {
	if int(o) < len(opcodeNames) && opcodeNames[o] != "" {
		return opcodeNames[o]
	}
	return fmt.Sprintf("opcode(%d)", uint8(o))
}

// Opcode returns the opcode of the completion of a send request.
func (o WROp) Opcode() Opcode {
	switch o {
	case WRWrite, WRWriteImm:
		return OpRDMAWrite
	case WRRead:
		return OpRDMARead
	case WRCmpSwap, WRMaskedCmpSwap:
		return OpCompSwap
	case WRFetchAdd, WRMaskedFetchAdd:
		return OpFetchAdd
	case WRLocalInv:
		return OpLocalInv
	case WRBindMW:
		return OpBindMW
	case WRConfigure, WRSetPSV:
		return OpMKeyConfigure
	}
	return OpSend
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
