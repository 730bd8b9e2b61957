package ibv

import (
	"fmt"

	"github.com/softmkey/softmkey/internal/flags"
	"github.com/softmkey/softmkey/rdma"
)

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

// Opcode returns the opcode of the completion of a send request.
func (o WROp) Opcode() rdma.Opcode {
	switch o {
	case WRWrite, WRWriteImm:
		return rdma.OpRDMAWrite
	case WRRead:
		return rdma.OpRDMARead
	case WRCmpSwap, WRMaskedCmpSwap:
		return rdma.OpCompSwap
	case WRFetchAdd, WRMaskedFetchAdd:
		return rdma.OpFetchAdd
	case WRLocalInv:
		return rdma.OpLocalInv
	case WRBindMW:
		return OpBindMW
	case WRConfigure, WRSetPSV:
		return rdma.OpMKeyConfigure
	}
	return rdma.OpSend
}

// OpBindMW is the opcode of the completion that a memory window was bound.
const OpBindMW rdma.Opcode = 5

// SendFlags are the flags of a send request. The values are those of enum
// ibv_send_flags.
type SendFlags uint32

// The flags of a send request.
const (
	SendFence     SendFlags = 1 << 0 // the request waits for earlier READs, atomics and signature results
	SendSignaled  SendFlags = 1 << 1 // the request gives a completion also on success
	SendSolicited SendFlags = 1 << 2 // the peer's completion is a solicited one
	SendInline    SendFlags = 1 << 3 // the data is copied when the request is posted
)

var sendFlagNames = flags.Names{"FENCE", "SIGNALED", "SOLICITED", "INLINE"}

// String returns the names of the flags, joined by "|".
func (f SendFlags) String() string { return sendFlagNames.Join(uint32(f)) }
