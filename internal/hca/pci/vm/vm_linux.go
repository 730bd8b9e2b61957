package vm

import (
	"context"
	"crypto/sha256"
	"errors"
	"net"
	"path/filepath"
	"sync"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/loan"
	"github.com/softmkey/softmkey/internal/base/unixsocket"
	"github.com/softmkey/softmkey/internal/hca/control"
	"github.com/softmkey/softmkey/internal/hca/frames"
	"github.com/softmkey/softmkey/internal/hca/pci"
	"github.com/softmkey/softmkey/internal/hca/pci/transport"
	"github.com/softmkey/softmkey/internal/hca/pci/vfiouser"
)

// Options configure Serve.
type Options struct {
	Link   frames.Link // the network; Serve closes it
	Device pci.Config  // Transmit is set by Serve
	Server Server      // the protocol of the clients; nil: vfiouser.Serve

	// Control is the path of a socket for softmkey control; empty: none. The server ends with Serve.
	Control string

	// Ready is called when clients may come; if the socket of Control cannot be made, Serve returns the reason
	// without a call. It may be nil.
	Ready func()

	// Client is called when a client comes (nil) and when it goes, with the reason if it
	// was sent away; it may be nil.
	Client func(comes bool, err error)

	// Down is called with the reason when the network goes down; it may be nil.
	Down func(error)

	// Refused is called with the reason of each request of a client that is refused, from several
	// goroutines; it may be nil.
	Refused func(error)
}

// Server serves a device to the client at the other end of a socket until that ends, as [vfiouser.Serve] does.
type Server func(ctx context.Context, socket *net.UnixConn, dev transport.Device, refused func(error)) error

// MAC returns the address of the adapter behind a socket: a locally administered one, which
// depends on the path only.
func MAC(socket string) (net.HardwareAddr, error) {
	path, err := filepath.Abs(socket)
	if err != nil {
		return nil, err
	}
	h := sha256.Sum256([]byte(path))
	return net.HardwareAddr{h[0]&^3 | 2, h[1], h[2], h[3], h[4], h[5]}, nil
}

// Serve serves an adapter to one client after another until the context ends, and closes
// the listener and the network then. It returns the cause of the end.
func Serve(ctx context.Context, l *unixsocket.Listener, o Options) error {
	o.Device.Transmit = func(frame []byte) { o.Link.Send(frame) } // a frame that cannot be sent is lost
	if o.Device.KeyStore == nil {
		o.Device.KeyStore = dek.NewStore(dek.Plaintext)
	}
	dev := pci.New(o.Device)
	if o.Control != "" {
		server, err := control.Listen(o.Control, o.Device.KeyStore, faults{dev})
		if err != nil {
			l.Close()
			o.Link.Close()
			dev.Close()
			return err
		}
		defer server.Close()
	}
	serve := o.Server
	if serve == nil {
		serve = vfiouser.Serve
	}
	var receiving sync.WaitGroup
	receiving.Go(func() { o.receive(dev) })
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer func() {
		stop()
		l.Close()
		o.Link.Close()
		receiving.Wait()
		dev.Close()
	}()
	if o.Ready != nil {
		o.Ready()
	}
	for {
		socket, err := l.AcceptUnix()
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		o.client(true, nil)
		err = serve(ctx, socket, dev, o.Refused)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		o.client(false, err)
	}
}

func (o *Options) client(comes bool, err error) {
	if o.Client != nil {
		o.Client(comes, err)
	}
}

// receive hands the frames of the network to the adapter until the network is closed.
func (o *Options) receive(dev *pci.Device) {
	b := make([]byte, frames.MaxFrame)
	for {
		n, err := o.Link.Recv(b)
		switch {
		case err == nil:
			dev.Receive(b[:n])
			loan.End(b[:n])
		case errors.Is(err, net.ErrClosed):
			return
		case o.Down != nil:
			o.Down(err)
		}
	}
}
