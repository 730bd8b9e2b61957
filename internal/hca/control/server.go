//go:build linux

package control

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
)

// Devices are the devices of a run.
type Devices interface {
	// DEKs returns the data encryption keys that programs have made.
	DEKs() []DEK
	// Change executes FailDEK or a fault. ENOENT: the device, or an object of it with that number, does
	// not exist.
	Change(r *Request) error
}

// requestTime is how long the server waits for the request of a connection, and for the reader of the answer.
const requestTime = 5 * time.Second

// guests is the largest number of connections. If there are more, the one leaves that has sent no request for longest.
const guests = 16

// Server executes the requests of a crypto officer, and of testers who want faults, on a UNIX socket.
type Server struct {
	listener *unixsocket.Listener
	store    *dek.Store
	devices  Devices
	begin    chan func() // executes a request; one after the other
	wg       sync.WaitGroup

	mu     sync.Mutex
	silent []*net.UnixConn // have not sent their requests, the oldest first
}

// Listen starts a server on a new socket at path. A socket that a killed run has left there is
// replaced. EADDRINUSE: a run listens there. EEXIST: the file at path is
// not a socket, or is a socket of another user.
func Listen(path string, store *dek.Store, devices Devices) (*Server, error) {
	l, err := unixsocket.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	s := &Server{listener: l, store: store, devices: devices, begin: make(chan func())}
	s.wg.Go(s.serve)
	return s, nil
}

// Close removes the socket and waits for the end of the server.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.wg.Wait()
	return err
}

// serve receives requests, and executes one after the other, so that they have an order.
func (s *Server) serve() {
	var executing, serving sync.WaitGroup
	executing.Go(func() {
		for execute := range s.begin {
			execute()
		}
	})
	room := make(chan struct{}, guests)
	for {
		c, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil { // no descriptor is free
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			s.dismiss(1)
			room <- struct{}{}
		}
		c.SetReadDeadline(time.Now().Add(requestTime))
		s.mu.Lock()
		s.silent = append(s.silent, c)
		s.mu.Unlock()
		serving.Go(func() {
			s.handle(c)
			c.Close()
			<-room
		})
	}
	s.dismiss(guests)
	serving.Wait()
	close(s.begin)
	executing.Wait()
}

// dismiss ends the wait for the requests of the n oldest connections.
func (s *Server) dismiss(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.silent[:min(n, len(s.silent))] {
		c.SetReadDeadline(time.Unix(1, 0))
	}
}

func (s *Server) handle(c *net.UnixConn) {
	// The request is read before it is refused: the end of a socket with unread bytes would
	// overtake the answer.
	r, err := receive(c)
	s.mu.Lock()
	s.silent = slices.DeleteFunc(s.silent, func(other *net.UnixConn) bool { return other == c })
	s.mu.Unlock()
	if err == nil {
		err = mayConnect(c)
	}
	var answer Reply
	if err == nil {
		done := make(chan struct{})
		s.begin <- func() {
			answer, err = s.executeFor(c, &r)
			close(done)
		}
		<-done
	}
	clear(r.Secret)
	if err != nil {
		answer = Reply{Error: err.Error()}
	}
	c.SetWriteDeadline(time.Now().Add(requestTime))
	send(c, &answer, nil) // an officer who has gone needs no answer
}

// executeFor announces the execution of a request, and executes it unless the client has withdrawn it before: see Do.
func (s *Server) executeFor(c *net.UnixConn, r *Request) (answer Reply, err error) {
	c.SetWriteDeadline(time.Now().Add(requestTime))
	if err := send(c, &Reply{Begun: true}, nil); err != nil {
		return answer, err
	}
	if atEnd(c) {
		return answer, failure.New("control", syscall.ECANCELED, "the request was withdrawn before it was executed")
	}
	return s.execute(r)
}

// mayConnect refuses users other than the one of this process, and root.
func mayConnect(c *net.UnixConn) error {
	user, err := userOf(c)
	if err == nil && user != 0 && user != os.Geteuid() {
		err = failure.New("officer", syscall.EPERM, "user %d: the run belongs to user %d", user, os.Geteuid())
	}
	return err
}

// execute executes a request.
func (s *Server) execute(r *Request) (answer Reply, err error) {
	switch r.Op {
	case AddKEK:
		err = s.store.AddKEK(r.ID, r.Secret)
	case ReplaceKEK:
		err = s.store.ReplaceKEK(r.ID, r.Secret)
	case ReplaceCredential:
		err = s.store.ReplaceCredential(r.ID, r.Secret)
	case AddCredential:
		err = s.store.AddCredential(r.ID, r.Secret)
	case DeleteKEK:
		err = s.store.DeleteKEK(r.ID)
	case DeleteCredential:
		err = s.store.DeleteCredential(r.ID)
	case FailDEK, PortDown, PortUp, DeviceFatal, GIDChange, QPError, Clear:
		err = s.devices.Change(r)
	case Loss:
		if !(r.Share >= 0 && r.Share <= 1) {
			return answer, failure.New("loss", syscall.EINVAL, "a share of %g: must be from 0 to 1", r.Share)
		}
		err = s.devices.Change(r)
	case List:
		answer.Mode = s.store.Mode().String()
		answer.KEKs, answer.Credentials = s.store.Secrets()
		answer.DEKs = s.devices.DEKs()
	default:
		err = failure.New("officer", syscall.EINVAL, "request %q is not known", r.Op)
	}
	return answer, err
}
