package share

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
)

// wantSockets is the request for the sockets of an address. The answer is the same byte, with
// the descriptors.
const wantSockets = 's'

// guests is the largest number of connections that accept serves at a time.
const guests = 16

// door accepts the connections of processes that join.
type door struct {
	m       *member
	l       *net.UnixListener
	serving sync.WaitGroup
}

// open opens the door of m.
func (d *door) open(m *member) (err error) {
	d.m = m
	if d.l, err = hold(m.name(m.number, "door")); err != nil {
		return err
	}
	d.serving.Go(func() { accept(d.l, &d.serving, d.serve) })
	return nil
}

// accept calls serve in a goroutine of serving for each connection to l, until l is closed.
func accept(l *net.UnixListener, serving *sync.WaitGroup, serve func(*net.UnixConn)) {
	room := make(chan struct{}, guests)
	for {
		c, err := l.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the process has no free descriptors
			time.Sleep(10 * time.Millisecond)
			continue
		}
		room <- struct{}{}
		serving.Go(func() {
			serve(c)
			<-room
		})
	}
}

// close ends the door and the connections that it serves.
func (d *door) close() {
	if d.l != nil {
		d.l.Close()
	}
	d.serving.Wait() // a connection has a deadline of patience
}

// serve answers one process.
func (d *door) serve(c *net.UnixConn) {
	defer c.Close()
	if !sameUser(c) {
		return // at once: connections of others would fill the room of those that join
	}
	c.SetDeadline(time.Now().Add(patience))
	var b [1]byte
	if n, err := c.Read(b[:]); err != nil || n != 1 || b[0] != wantSockets {
		return
	}
	list, err := d.m.group()
	if err != nil {
		c.Write([]byte(err.Error())) // an error text is longer than the normal answer, which is one byte
		return
	}
	var fds []int
	for _, f := range list {
		fds = append(fds, int(f.Fd()))
	}
	c.WriteMsgUnix(b[:], unix.UnixRights(fds...), nil)
}

// ask asks the other processes at the address for the sockets. It returns nil if there is no
// other process.
func (m *member) ask() ([]*os.File, error) {
	for number := range numbers {
		if number == m.number {
			continue
		}
		c, err := find(m.name(number, "door"))
		if err != nil {
			continue
		}
		list, err := askOne(c)
		c.Close()
		// A process that ends meanwhile, or is stopped, does not answer. Another one may.
		if list != nil || err != nil {
			return list, err
		}
	}
	return nil, nil
}

// askOne returns the sockets that the process at the other end of c gives, or nil.
func askOne(c *net.UnixConn) ([]*os.File, error) {
	c.SetDeadline(time.Now().Add(patience / 2))
	if _, err := c.Write([]byte{wantSockets}); err != nil {
		return nil, nil
	}
	b, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4*sockets))
	n, oobn, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil || n == 0 {
		return nil, nil
	}
	if n > 1 {
		return nil, failure.New("share an address", syscall.EADDRINUSE, "the process that uses the address could not open further sockets: %s", b[:n])
	}
	fds, err := unixsocket.Descriptors(oob[:oobn])
	list := asFiles(fds, "udp")
	if err != nil || flags&unix.MSG_CTRUNC != 0 || len(list) != sockets {
		closeAll(list)
		return nil, failure.New("share an address", syscall.EMFILE, "%d of %d sockets of the address arrived: a process needs that many descriptors", len(list), sockets)
	}
	return list, nil
}
