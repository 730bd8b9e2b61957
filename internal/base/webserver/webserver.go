// Package webserver serves HTTP to clients that may be hostile: connections, their headers and their times are
// bounded.
package webserver

import (
	"net"
	"net/http"
	"time"
)

// Server serves a handler until Close is called.
type Server struct {
	http  http.Server
	addr  net.Addr
	ended chan struct{}
}

// Listen serves h at a TCP address, HOST:PORT, to as many connections as most. A new one takes the place of the
// oldest one that waits for its client. A client has 10 seconds for its request, and as many to take the answer; a
// handler that takes longer sets its own deadlines (http.ResponseController).
func Listen(addr string, most int, h http.Handler) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &Server{addr: l.Addr(), ended: make(chan struct{})}
	open := clients{most: most}
	s.http = http.Server{ConnContext: withClient, ConnState: open.changed, Handler: answering(h), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 14}
	go func() {
		defer close(s.ended)
		s.http.Serve(&limitListener{l, &open}) // returns after Close
	}()
	return s, nil
}

// Addr returns the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.addr }

// Close ends the server and its connections.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.ended
	return err
}
