package adapter

import (
	"net/netip"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/roce/packetconn"
)

// Config is what a device is opened with.
type Config struct {
	Addr      netip.Addr      // the local address
	UDPPort   uint16          // 0: RoCEv2's 4791
	Conn      packetconn.Conn // nil: a UDP socket at Addr
	Transport *roce.Options   // nil: the defaults
	KeyStore  *dek.Store      // nil: an empty one that takes plaintext keys
	Tracer    Tracer          // nil: no trace

	// Wake is called when a context may have doorbells to look at again: Busy turned
	// true. It is called from any goroutine and must not block.
	Wake func(*Context)
}

// GIDEntry is an entry of the GID table.
type GIDEntry struct {
	GID    [16]byte
	RoCEv2 bool // false: RoCE v1, which cannot connect
}

// Attr is the limits of the device (ibv_device_attr and ibv_port_attr).
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
	MaxRQWR, MaxSQDesc, MaxRQDesc      int // as alloc_ucontext reports them
	XRC, MW, UD, UC                    bool
}
