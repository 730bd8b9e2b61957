package bareudp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Server returns the datagrams that it receives to their senders.
type Server struct {
	s   *socket
	wg  sync.WaitGroup
	err error
}

// Serve opens a socket and returns every datagram, of any size, to its sender. It is the
// far end for Ping.
func Serve() (*Server, error) {
	socket, err := newSocket()
	if err != nil {
		return nil, err
	}
	s := &Server{s: socket}
	s.wg.Go(func() {
		for s.err == nil {
			var n int
			if n, s.err = socket.recv(); s.err == nil {
				s.err = socket.send(n)
			}
		}
	})
	return s, nil
}

// Addr returns the server's address.
func (s *Server) Addr() netip.AddrPort { return s.s.addr() }

// Close ends the server and returns the error that stopped it earlier, if any.
func (s *Server) Close() error {
	s.s.close()
	s.wg.Wait()
	if errors.Is(s.err, net.ErrClosed) {
		return nil
	}
	return s.err
}

// maxSamples limits the memory for round-trip times to 8 MiB.
const maxSamples = 1 << 20

// Ping sends a datagram of size bytes to a Server and waits for its return, repeatedly while
// more returns true. It returns the median of the round-trip times.
func Ping(size int, server netip.AddrPort, more func() bool) (time.Duration, error) {
	if size < 0 || size > maxTrain {
		return 0, fmt.Errorf("datagrams of %d bytes", size)
	}
	s, err := newSocket()
	if err != nil {
		return 0, err
	}
	s.first(server)
	trips := make([]time.Duration, 0, maxSamples)
	var count atomic.Uint64
	stop := watch(&count, s.close)
	last := time.Now()
	for more() {
		if err = s.send(size); err != nil {
			break
		}
		if _, err = s.recv(); err != nil {
			break
		}
		// One clock reading serves as the end of a round trip and the start of
		// the next.
		now := time.Now()
		if len(trips) < maxSamples {
			trips = append(trips, now.Sub(last))
		}
		last = now
		count.Add(1)
	}
	if !stop() {
		err = errors.New("a datagram did not come back")
	}
	s.close()
	if err != nil || len(trips) == 0 {
		return 0, err
	}
	slices.Sort(trips)
	return trips[len(trips)/2], nil
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
