package adapter

import (
	"math"
	"math/bits"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/hca/prm"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/sig"
)

// Attr is the limits and the identity of the device (ibv_device_attr, ibv_port_attr and
// the answer of alloc_ucontext).
type Attr struct {
	MaxQP, MaxQPWR, MaxSGE, MaxSGERead int
	MaxCQ, MaxCQE                      int
	MaxMR, MaxMW, MaxPD, MaxAH         int
	MaxQPRdAtom, MaxQPInitRdAtom       int
	MaxResRdAtom                       int
	MaxSRQ, MaxSRQWR, MaxSRQSGE        int
	MaxMcastGroups, MaxMcastQPAttach   int
	MaxPKeys                           int
	LocalCAAckDelay                    int
	MaxMRSize                          uint64
	PageSizeCap                        uint64
	DeviceCapFlags                     uint64 // enum ibv_device_cap_flags
	AtomicCap                          int    // enum ibv_atomic_cap
	NodeGUID, SysImageGUID             uint64 // in host order
	VendorID, VendorPartID, HWVersion  uint32
	FWVersion                          string
	BoardID                            string
	MaxMTU, ActiveMTU                  int // enum ibv_mtu
	MaxMsgSize                         uint32
	TimestampMask                      uint64
	CoreClockKHz                       uint64
	MaxRQWR, MaxSendBlocks             int     // as alloc_ucontext reports them
	MaxSQDesc, MaxRQDesc               int     // bytes of a request
	ODP                                prm.ODP // operations on regions with on-demand paging
}

// logMaxMsg returns the largest length of a message as contexts and capabilities have it.
func logMaxMsg() uint8 { return uint8(bits.TrailingZeros32(roce.MaxMessage)) }

const (
	logMaxObjects = 17
	maxObjects    = 1 << logMaxObjects
	clockKHz      = 1_000_000
	maxSendDesc   = 1024
	maxRecvDesc   = 1 << maxRecvShift

	// Flags of enum ibv_device_cap_flags.
	capBadPKeyCntr       = 1 << 1
	capBadQKeyCntr       = 1 << 2
	capChangePhyPort     = 1 << 5
	capPortActiveEvent   = 1 << 10
	capSysImageGUID      = 1 << 11
	capRCRNRNak          = 1 << 12
	capMemWindow         = 1 << 17
	capXRC               = 1 << 20
	capMemMgtExtensions  = 1 << 21
	capMWType2B          = 1 << 24
	capAtomicHCA         = 1 // enum ibv_atomic_cap: IBV_ATOMIC_HCA
	allPageSizes         = ^uint64(0xfff)
	vendorID             = 0x2c9
	partConnectX6Dx      = 4125 // 0x101d
	localAckDelay        = 16
	ethernetWireHeaders  = 40 + 8 + 12 + 4 + 28 + 4
	smallestMTU, mostMTU = ibv.MTU256, ibv.MTU4096
)

// onDemand are the operations that a region with on-demand paging may be used for: those of
// adapters, which have none on UC.
var onDemand = prm.ODP{
	RC:  prm.ODPSend | prm.ODPReceive | prm.ODPWrite | prm.ODPRead | prm.ODPAtomic | prm.ODPSRQReceive,
	UD:  prm.ODPSend,
	XRC: prm.ODPSend | prm.ODPWrite | prm.ODPRead | prm.ODPAtomic | prm.ODPSRQReceive,
	DC:  prm.ODPSend | prm.ODPWrite | prm.ODPRead | prm.ODPAtomic | prm.ODPSRQReceive,
}

// Attr returns the device's limits. The capability bits are those of the features that the
// device has.
func (d *Device) Attr() Attr {
	guid := guidOf(d.eng.Addr())
	return Attr{
		MaxQP: maxObjects, MaxQPWR: engine.MaxQPWR, MaxSGE: engine.MaxSGE, MaxSGERead: engine.MaxSGE,
		MaxCQ: maxObjects, MaxCQE: maxCQE - 1,
		MaxMR: engine.MaxKeys, MaxMW: engine.MaxKeys, MaxPD: maxObjects, MaxAH: math.MaxInt32,
		MaxQPRdAtom: engine.MaxRdAtomic, MaxQPInitRdAtom: engine.MaxRdAtomic, MaxResRdAtom: engine.MaxRdAtomic * maxObjects,
		MaxSRQ: maxObjects, MaxSRQWR: maxRecvRequests - 1, MaxSRQSGE: maxSRQSGE,
		MaxMcastGroups: roce.MaxMulticastGroups, MaxMcastQPAttach: roce.MaxMulticastQPs,
		MaxPKeys: 1, LocalCAAckDelay: localAckDelay,
		MaxMRSize: math.MaxUint64, PageSizeCap: allPageSizes,
		DeviceCapFlags: capBadPKeyCntr | capBadQKeyCntr | capChangePhyPort | capPortActiveEvent | capSysImageGUID | capRCRNRNak | capMemWindow | capXRC | capMemMgtExtensions | capMWType2B,
		AtomicCap:      capAtomicHCA,
		NodeGUID:       guid, SysImageGUID: guid, VendorID: vendorID, VendorPartID: partConnectX6Dx,
		FWVersion: "22.99.0000", BoardID: "SOFTMKEY000001",
		MaxMTU: int(mostMTU), ActiveMTU: int(d.eng.ActiveMTU()), MaxMsgSize: roce.MaxMessage,
		TimestampMask: math.MaxInt64, CoreClockKHz: clockKHz,
		MaxRQWR: maxRecvRequests, MaxSendBlocks: engine.MaxQPWR, MaxSQDesc: maxSendDesc, MaxRQDesc: maxRecvDesc,
		ODP: onDemand,
	}
}

// Caps returns the capabilities for QUERY_HCA_CAP. A signature whose known-answer test failed is not among
// them. T10-DIF and CRC32 share one capability, so both are missing if one has failed.
func (d *Device) Caps() *prm.Caps {
	t := d.eng.Tests()
	c := &prm.Caps{
		LogMaxQP: logMaxObjects, LogMaxQPSize: 15, LogMaxCQ: logMaxObjects, LogMaxCQSize: 22, LogMaxSRQ: logMaxObjects, LogMaxSRQSize: 15,
		LogMaxMKey: 22, LogMaxPD: logMaxObjects, LogMaxMsg: logMaxMsg(), LogMaxKLMList: 16, LogMaxBSFList: 6, LogMaxRdAtomReq: 4, LogMaxRdAtomRes: 4,
		MaxIndirection: 8, GIDTableSize: 8, LocalCAAckDelay: localAckDelay, FrequencyKHz: clockKHz, MaxSendWQE: maxSendDesc, MaxRecvWQE: maxRecvDesc,
		RC: true, UC: true, UD: true, XRC: true, DC: true, LogMaxXRCD: logMaxObjects, CQResize: true, CQModeration: true, CQOverrunIgnore: true, CQE128: true, AtomicSizes: 4 | 8,
		Signature: !t.Failed(sig.T10DIF) && !t.Failed(sig.CRC32), Block4048: true, CRC32C: !t.Failed(sig.CRC32C), CRC64: !t.Failed(sig.CRC64), DrainSigErr: true,
		ODP: onDemand, LogMaxMemcpy: uint8(bits.Len(engine.MaxMemcpy) - 1), XTS: !t.XTS, SingleBlock: d.cfg.SingleBlock, LogMaxDEKs: 16, LogMaxRMP: logMaxObjects,
	}
	if d.store.Mode() == dek.Wrapped {
		c.WrappedImport, c.CryptoLogin = true, true
	}
	return c
}
