package engine

import "github.com/softmkey/softmkey/rdma"

// execution is the engine's part of a send request.
type execution struct {
	refused rdma.Status // the status that the front refused the request with
	err     error
}

// Refuse makes the request fail in its turn, with a status and the reason in words: the
// front could not decode it.
func (r *SendRequest) Refuse(st rdma.Status, err error) { r.exec.refused, r.exec.err = st, err }
