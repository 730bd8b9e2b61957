// Package overrdma is the transport of an NVMe target over RDMA (NVMe RDMA Transport Specification 1.0):
// the connections of queues, command and response capsules, and the data of commands by RDMA READ and
// RDMA WRITE. Protection information passes through a memory key.
//
// # Memory
//
// A connection has receive buffers for its commands: at most 128, of 64 bytes and the data of a capsule
// (CapsuleData), 541 KB together. A host, that is an address, has at most HostQueues connections, and
// MaxData bytes of buffers for the data of commands; further commands wait. All hosts together have
// at most MaxQueues connections, and MaxAllData bytes of buffers. A host that has connected must send its first
// command within patience. Where connections are too many, the newest one gets in, and one that has not sent a command
// ends, or one of the host that has the most.
package overrdma

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/tool/nvmet"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/verbs"
)

// CapsuleData is the number of bytes of data in a command capsule: 4 KiB, and the fields of 8 blocks.
const CapsuleData = 4096 + 64

// Limits of connections.
const (
	HostQueues = 2 * (1 + nvmet.MaxIOQueues)
	MaxQueues  = 8 * HostQueues
)

// patience is the time that a host has from the connection to its first command: as long as Linux waits
// for an answer to an admin command (NVME_ADMIN_TIMEOUT). Linux makes all queues of a controller before the first
// Connect of an I/O queue, which takes tens of seconds in a guest whose processors are emulated.
var patience = time.Minute

// farewell is the time that a host has to answer a disconnect request.
var farewell = 3 * time.Second

// Server accepts the connections of hosts.
type Server struct {
	target   *nvmet.Target
	failed   func(net.Addr, error)
	listener *cm.Listener
	pd       *verbs.PD
	dev      *verbs.Device
	memory   pool
	running  sync.WaitGroup

	mu     sync.Mutex // guards the following fields
	hosts  map[netip.Addr]*host
	queues int
	most   int // of queues: MaxQueues, and less in a test

	data atomic.Int64 // bytes of the buffers of all hosts
}

// Listen listens for hosts at a port of a device. Failed, if not nil, is called for every connection that
// ended by an error.
func Listen(dev *verbs.Device, port uint16, target *nvmet.Target, failed func(net.Addr, error)) (*Server, error) {
	pd, err := dev.NewPD()
	if err != nil {
		return nil, err
	}
	l, err := cm.Listen(dev, port, nil)
	if err != nil {
		pd.Close()
		return nil, err
	}
	s := &Server{target: target, failed: failed, listener: l, pd: pd, dev: dev, memory: pool{pd: pd}, hosts: make(map[netip.Addr]*host), most: MaxQueues}
	return s, nil
}

// Addr returns the address at which hosts connect.
func (s *Server) Addr() netip.AddrPort { return s.listener.Addr().(cm.Addr).AddrPort() }

// Serve accepts connections until the context ends. Then it ends all of them, and returns when the
// commands that are being executed have ended.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var err error
	for {
		var request *cm.Request
		if request, err = s.listener.Accept(ctx); err != nil {
			break
		}
		s.running.Go(func() { s.handle(ctx, request) })
	}
	cancel()
	s.listener.Close()
	s.running.Wait()
	s.memory.close()
	s.pd.Close()
	if errors.Is(err, context.Canceled) {
		err = context.Cause(ctx)
	}
	return err
}

// maxLeaving bounds the connections beyond HostQueues and MaxQueues, which end so that others find room.
const maxLeaving = 16

// reserve counts a connection from an address, and ends another one if there are too many. It returns nil if there is
// none that could end.
func (s *Server) reserve(addr netip.Addr) *host {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hosts[addr]
	if h == nil {
		h = newHost(&s.data)
	}
	if h.queues >= HostQueues || s.queues >= s.most {
		leaves := s.dispensableLocked(h)
		if leaves == nil || h.queues >= HostQueues+maxLeaving || s.queues >= s.most+maxLeaving {
			return nil
		}
		leaves.fail(errCrowded)
	}
	s.hosts[addr] = h
	h.queues++
	s.queues++
	return h
}

// dispensableLocked returns a connection that ends so that a host gets another one: the oldest whose host has not sent
// Connect. If the host itself has its share, that must be one of its own. Otherwise it may be the youngest connection
// of the host that has the most, and at least two more than this one. It returns nil if there is none.
func (s *Server) dispensableLocked(h *host) (found *connection) {
	hosts := []*host{h}
	if h.queues < HostQueues {
		hosts = slices.Collect(maps.Values(s.hosts))
	}
	most := h
	for _, x := range hosts {
		for _, c := range x.open {
			if !c.leaves() && !c.queue.Connected() && (found == nil || c.began.Before(found.began)) {
				found = c
			}
		}
		if x.queues > most.queues {
			most = x
		}
	}
	if found != nil || most.queues < h.queues+2 {
		return found
	}
	for _, c := range slices.Backward(most.open) {
		if !c.leaves() {
			return c
		}
	}
	return nil
}

// release ends the count of a connection, which is nil if it could not be made.
func (s *Server) release(addr netip.Addr, h *host, c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.open = slices.DeleteFunc(h.open, func(x *connection) bool { return x == c })
	s.queues--
	if h.queues--; h.queues == 0 {
		delete(s.hosts, addr)
	}
}

// handle accepts or refuses a connection, and serves it to its end.
func (s *Server) handle(ctx context.Context, request *cm.Request) {
	peer := request.RemoteAddr().(cm.Addr).AddrPort().Addr()
	refuse := func(reason uint16) {
		_ = request.Reject(cm.ReasonConsumer, nvme.AppendCMReject(nil, reason)) // the host may be gone
	}
	r, err := nvme.ParseCMRequest(request.PrivateData)
	size := int(r.HSQSize) + 1
	switch {
	case err != nil:
		refuse(nvme.CMInvalidLength)
		return
	case r.Format != 0:
		refuse(nvme.CMInvalidFormat)
		return
	case r.QID > nvmet.MaxIOQueues:
		refuse(nvme.CMInvalidQID)
		return
	case size < 2, size > nvmet.MaxQueueSize, r.QID == 0 && size > nvme.AdminQueueSize:
		refuse(nvme.CMInvalidHSQSize)
		return
	case r.HRQSize < 2:
		refuse(nvme.CMInvalidHRQSize)
		return
	}
	h := s.reserve(peer)
	if h == nil {
		refuse(nvme.CMNoResources)
		return
	}
	c, err := s.newConnection(h, r.QID, size)
	defer func() { s.release(peer, h, c) }()
	if err != nil {
		refuse(nvme.CMNoResources)
		s.report(request.RemoteAddr(), err)
		return
	}
	defer c.close()
	local := request.LocalAddr().(cm.Addr).AddrPort()
	c.queue = s.target.NewQueue(r.QID, size, nvmet.Peer{Local: netip.AddrPortFrom(local.Addr().Unmap(), s.Addr().Port()), Host: peer, End: c.fail, Ended: c.ended, Probe: c.probe})
	s.mu.Lock()
	h.open = append(h.open, c)
	s.mu.Unlock()
	conn, err := request.Accept(ctx, c.qp, &cm.ConnOptions{PrivateData: nvme.AppendCMAccept(nil, uint16(size))})
	if err != nil {
		s.report(request.RemoteAddr(), err)
		return
	}
	if err := c.serve(ctx, conn); err != nil {
		s.report(request.RemoteAddr(), err)
	}
}

func (s *Server) report(peer net.Addr, err error) {
	if s.failed != nil && !errors.Is(err, context.Canceled) {
		s.failed(peer, err)
	}
}
