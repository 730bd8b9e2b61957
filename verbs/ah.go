package verbs

import (
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/rdma"
)

// GRHLen is the length of the global route header before every datagram in the
// buffer of its receive request.
const GRHLen = 40

// AddressHandle is the destination of datagrams (struct ibv_ah). It does not change and
// holds no resources.
type AddressHandle struct {
	pd *PD
	ah *roce.AH
}

// NewAddressHandle creates an address handle for a device (ibv_create_ah(3)). It returns
// EINVAL for an address to which the device cannot send.
func (pd *PD) NewAddressHandle(to rdma.AH) (*AddressHandle, error) {
	if pd.e == nil {
		return nil, failure.Zero("create an address handle", "Device.NewPD")
	}
	ah, err := pd.dev.e.NewAH(to)
	if err != nil {
		return nil, err
	}
	return &AddressHandle{pd, ah}, nil
}
