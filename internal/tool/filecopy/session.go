package filecopy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/verbs"
)

// Local copies between two devices of this process. It returns the outcomes of the
// sender and of the receiver, and the error of the side that failed first.
func Local(ctx context.Context, from, to *verbs.Device, p *keyplan.Plan, sc SenderConfig, rc ReceiverConfig) (*Outcome, *Outcome, error) {
	s, err := NewSender(from, p, sc)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	r, err := NewReceiver(to, p, rc)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	if err := errors.Join(s.Connect(r.Endpoints()), r.Connect(s.Endpoints())); err != nil {
		return nil, nil, err
	}
	var received *Outcome
	var rerr error
	senderGone, receiverGone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(receiverGone)
		received, rerr = r.Run(ctx, senderGone)
	}()
	sent, serr := s.Run(ctx, receiverGone)
	close(senderGone)
	<-receiverGone
	return sent, received, first(serr, rerr)
}

// first returns the error of the side that failed first. The error of the other side is a
// stoppedError or errGone.
func first(a, b error) error {
	var stopped *stoppedError
	if a == nil || b != nil && (errors.As(a, &stopped) || errors.Is(a, errGone)) {
		return b
	}
	return a
}

// Hello is the first line that two programs send each other.
type Hello struct {
	Program string        `json:"program"`
	Version int           `json:"version"`
	Role    string        `json:"role"` // "sender" or "receiver"
	Terms   keyplan.Terms `json:"terms"`
	Size    int64         `json:"size"` // of SRC in bytes; -1: not known, or the receiver's hello
}

const (
	program = "softmkey copy"
	version = 3
)

// HelloSender returns the first line of a sender.
func HelloSender(t keyplan.Terms, size int64) Hello {
	return Hello{program, version, senderName, t, size}
}

// HelloReceiver returns the first line of a receiver.
func HelloReceiver(t keyplan.Terms) Hello { return Hello{program, version, receiverName, t, -1} }

// Peer is a side of a copy, a [Sender] or a [Receiver], before it is connected.
type Peer interface {
	Endpoints() Endpoints
	Connect(Endpoints) error
	Run(context.Context, <-chan struct{}) (*Outcome, error)
	Close()
}

// Session is one side of a copy between two processes, connected and ready to run.
type Session struct {
	Plan *keyplan.Plan
	Size int64 // of SRC in bytes; -1: not known

	conn *jsonline.Conn
	side Peer
}

// Begin agrees on a plan with the other side of a connection and connects both devices.
// prepare makes this side for the plan. An error of prepare, or any other reason of one side
// to refuse, is the error of Begin on both sides. device, if valid, is the address that the
// other side's device must have (see [rendezvous.CheckDevice]). Begin leaves conn open.
func Begin(ctx context.Context, conn *jsonline.Conn, mine Hello, device netip.Addr, prepare func(*keyplan.Plan) (Peer, error)) (*Session, error) {
	var theirs Hello
	err := conn.Swap(ctx, mine, &theirs)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", jsonline.ErrStranger, err)
	case theirs.Program != program || theirs.Version != version:
		return nil, fmt.Errorf("%w: the other side is %.80q version %d, this is %q version %d", jsonline.ErrStranger, theirs.Program, theirs.Version, program, version)
	}
	s := &Session{conn: conn, Size: max(mine.Size, theirs.Size)}
	if s.Plan, err = settle(mine, theirs); err == nil {
		s.side, err = prepare(s.Plan)
	}
	if err := conn.Agree(ctx, err); err != nil {
		s.closeSide()
		return nil, err
	}
	if err := s.connect(ctx, device); err != nil {
		s.closeSide()
		return nil, err
	}
	return s, nil
}

func settle(mine, theirs Hello) (*keyplan.Plan, error) {
	if theirs.Role == mine.Role {
		return nil, fmt.Errorf("this side is the %s, and so is the other", mine.Role)
	}
	terms, err := mine.Terms.Join(theirs.Terms)
	if err != nil {
		return nil, err
	}
	return keyplan.New(terms, 0)
}

// connect exchanges the endpoints of the queue pairs. Neither side begins before
// both are ready.
func (s *Session) connect(ctx context.Context, device netip.Addr) error {
	var theirs Endpoints
	if err := s.conn.Swap(ctx, s.side.Endpoints(), &theirs); err != nil {
		return err
	}
	var err error
	for i := range theirs {
		if err == nil {
			err = rendezvous.CheckDevice(s.conn, theirs[i].GID, device)
		}
	}
	if err == nil {
		err = s.side.Connect(theirs)
	}
	return s.conn.Agree(ctx, err)
}

// Run copies, and ends early when the other side closes the connection.
func (s *Session) Run(ctx context.Context) (*Outcome, error) {
	return s.side.Run(ctx, s.conn.Gone())
}

// Close closes this side and the connection.
func (s *Session) Close() error {
	s.closeSide()
	return s.conn.Close()
}

func (s *Session) closeSide() {
	if s.side != nil {
		s.side.Close()
	}
}
