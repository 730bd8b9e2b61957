package udpbench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/softmkey/softmkey/packetconn"
)

// pinger is one end of a ping-pong.
type pinger interface {
	addr() netip.AddrPort
	// recv waits for a datagram and returns its size, or net.ErrClosed after close.
	recv() (int, error)
	// send sends n bytes to the source of the last datagram, or to the address set by
	// first.
	send(n int) error
	first(to netip.AddrPort)
	// close unblocks recv.
	close()
}

func newPinger(c Config) (pinger, error) {
	switch c.Variant {
	case Raw:
		return newRawPinger(c.addr())
	case Net:
		return newNetPinger(c.addr())
	case Batched:
		return newBatchedPinger(c)
	}
	return nil, ErrUnsupported
}

// Server returns the datagrams that it receives to their senders.
type Server struct {
	p   pinger
	wg  sync.WaitGroup
	err error
}

// Serve opens a socket and returns every datagram, of any size, to its sender. It is the
// far end for Ping, in this process or another.
func Serve(c Config) (*Server, error) {
	p, err := newPinger(c)
	if err != nil {
		return nil, err
	}
	s := &Server{p: p}
	s.wg.Go(func() {
		for s.err == nil {
			var n int
			if n, s.err = p.recv(); s.err == nil {
				s.err = p.send(n)
			}
		}
	})
	return s, nil
}

// Addr returns the server's address.
func (s *Server) Addr() netip.AddrPort { return s.p.addr() }

// Close ends the server and returns the error that stopped it earlier, if any.
func (s *Server) Close() error {
	s.p.close()
	s.wg.Wait()
	if errors.Is(s.err, net.ErrClosed) {
		return nil
	}
	return s.err
}

// maxSamples limits the memory for round-trip times to 8 MiB.
const maxSamples = 1 << 20

// Ping sends a datagram to a Server and waits for its return, repeatedly while more
// returns true. Config.Data is the size of the datagram, which has no headers.
func Ping(c Config, server netip.AddrPort, more func() bool) (Result, error) {
	if c.Data < 0 || c.Data > packetconn.MaxBytes(c.addr().Addr()) {
		return Result{}, fmt.Errorf("udpbench: datagrams of %d bytes", c.Data)
	}
	p, err := newPinger(c)
	if err != nil {
		return Result{}, err
	}
	p.first(server)
	r := Result{RTT: make([]time.Duration, 0, maxSamples)}

	var count atomic.Uint64
	stop := watch(&count, p.close)
	start := time.Now()
	last := start
	for more() {
		if err = p.send(c.Data); err != nil {
			break
		}
		if _, err = p.recv(); err != nil {
			break
		}
		// One clock reading serves as the end of a round trip and the start of
		// the next.
		now := time.Now()
		if len(r.RTT) < maxSamples {
			r.RTT = append(r.RTT, now.Sub(last))
		}
		last = now
		count.Add(1)
	}
	if !stop() {
		err = errors.New("udpbench: a datagram did not come back")
	}
	p.close()
	r.Elapsed = last.Sub(start)
	r.Count = count.Load()
	r.Bytes = 2 * r.Count * uint64(c.Data)
	slices.Sort(r.RTT)
	return r, err
}

// watch calls hung if count does not change within patience. The returned function stops
// the watch and reports whether hung was not called.
func watch(count *atomic.Uint64, hung func()) (stop func() bool) {
	done := make(chan struct{})
	well := make(chan bool, 1)
	go func() {
		tick := time.NewTicker(patience)
		defer tick.Stop()
		for last := uint64(0); ; last = count.Load() {
			select {
			case <-done:
				well <- true
				return
			case <-tick.C:
				if n := count.Load(); n == last {
					hung()
					well <- false
					return
				}
			}
		}
	}()
	return func() bool {
		close(done)
		return <-well
	}
}

// PingPong is Ping with a Server in this process. Goroutines of one process wake each
// other differently than two processes do. To compare with a device's latency between two
// processes, use Serve and Ping.
func PingPong(c Config, more func() bool) (Result, error) {
	s, err := Serve(c)
	if err != nil {
		return Result{}, err
	}
	r, err := Ping(c, s.Addr(), more)
	return r, errors.Join(err, s.Close())
}

// netPinger uses a connection of package net, the fastest way without package udp.
type netPinger struct {
	c    *net.UDPConn
	peer netip.AddrPort
	buf  []byte
}

func newNetPinger(addr netip.AddrPort) (pinger, error) {
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return &netPinger{c: c, buf: make([]byte, packetconn.RecvSize)}, nil
}

func (p *netPinger) addr() netip.AddrPort    { return p.c.LocalAddr().(*net.UDPAddr).AddrPort() }
func (p *netPinger) first(to netip.AddrPort) { p.peer = to }
func (p *netPinger) close()                  { p.c.Close() }

func (p *netPinger) send(n int) error {
	_, err := p.c.WriteToUDPAddrPort(p.buf[:n], p.peer)
	return err
}

func (p *netPinger) recv() (n int, err error) {
	n, p.peer, err = p.c.ReadFromUDPAddrPort(p.buf)
	return n, err
}
