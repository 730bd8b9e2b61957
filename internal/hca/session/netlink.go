//go:build linux && (amd64 || arm64)

package session

import (
	"github.com/softmkey/softmkey/internal/hca/nldev"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// answerNetlink answers a request of NETLINK_RDMA.
func (r *run) answerNetlink(request []byte, port uint32) [][]byte {
	s := nldev.System{CM: nldev.Node{Name: "rdma_cm", ABI: uverbs.CMABI, Major: uverbs.CMMajor, Minor: uverbs.CMMinor}}
	for _, d := range r.snapshot() {
		s.Devices = append(s.Devices, d.Netlink())
	}
	return s.Answer(request, port)
}
