package verbs

import (
	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/ibv"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/sig"
)

// DeviceAttr holds the limits of a device (struct ibv_device_attr).
type DeviceAttr struct {
	MaxQPWR        int // requests in a queue
	MaxSGE         int // entries of a request's list
	MaxInlineData  int // bytes of inline data, and of a configuration
	MaxCQE         int // completions in a CQ
	MaxMR          int // regions and memory keys
	MaxMKeyEntries int // entries of a key's layout
	MaxRdAtomic    int // READs and atomics in flight, as requester and as responder
	MaxMessage     uint32
	AtomicHCA      bool // atomics exclude each other within the device
}

// Attr returns the device's limits.
func (d *Device) Attr() DeviceAttr {
	return DeviceAttr{
		MaxQPWR: engine.MaxQPWR, MaxSGE: engine.MaxSGE, MaxInlineData: engine.MaxInline, MaxCQE: engine.MaxCQE, MaxMR: engine.MaxKeys,
		MaxMKeyEntries: engine.MaxMKeyEntries, MaxRdAtomic: engine.MaxRdAtomic, MaxMessage: roce.MaxMessage, AtomicHCA: true,
	}
}

// PortAttr describes the device's one port (struct ibv_port_attr).
type PortAttr struct {
	Active    bool
	MaxMTU    int // in bytes
	ActiveMTU int // the largest path MTU that the network supports, in bytes
}

// PortAttr returns the description of the port.
func (d *Device) PortAttr() PortAttr {
	return PortAttr{Active: d.e != nil, MaxMTU: ibv.MTU4096.Bytes(), ActiveMTU: ask(d.e, (*engine.Device).ActiveMTU).Bytes()}
}

// SignatureCaps are the block signatures that a device can do (struct
// mlx5dv_sig_caps).
type SignatureCaps struct {
	BlockSizes []int
	Types      []sig.Type
	Guards     []sig.Guard // guards of a T10-DIF
	Failed     []sig.Type  // types that failed the known-answer tests and cannot be used
}

// SignatureCaps returns the block signatures that the device can do.
func (d *Device) SignatureCaps() SignatureCaps {
	if d.e == nil {
		return SignatureCaps{}
	}
	c := SignatureCaps{
		BlockSizes: sig.KeyBlockSizes(),
		Guards:     []sig.Guard{sig.GuardCRC, sig.GuardCSUM},
		Failed:     d.e.Tests().Signatures,
	}
	for t := sig.T10DIF; t <= sig.CRC64; t++ {
		if !d.e.Tests().Failed(t) {
			c.Types = append(c.Types, t)
		}
	}
	return c
}

// CryptoCaps are the crypto capabilities of a device (struct mlx5dv_crypto_caps).
type CryptoCaps struct {
	ImportMode    dek.ImportMode
	AESXTS        bool  // the engine has AES-XTS, with keys of 128 and 256 bits
	FailedTests   bool  // AES-XTS failed its known-answer test and cannot be used
	DataUnitSizes []int // in bytes
}

// CryptoCaps returns the crypto capabilities of the device.
func (d *Device) CryptoCaps() CryptoCaps {
	if d.e == nil {
		return CryptoCaps{}
	}
	failed := d.e.Tests().XTS
	return CryptoCaps{
		ImportMode: d.e.KeyStore().Mode(), AESXTS: !failed, FailedTests: failed,
		DataUnitSizes: sig.KeyBlockSizes(),
	}
}
