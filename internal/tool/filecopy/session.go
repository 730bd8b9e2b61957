package filecopy

import (
	"context"
	"errors"
	"fmt"

	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/verbs"
)

// Local copies between two devices of this process. It returns what the sender and
// the receiver know in the end, and the error that explains it best.
func Local(ctx context.Context, from, to *verbs.Device, p *Plan, sc SenderConfig, rc ReceiverConfig) (*Outcome, *Outcome, error) {
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

// first returns the error of the side that failed first: the other one only knows
// that there was one.
func first(a, b error) error {
	var stopped *stoppedError
	if a == nil || b != nil && (errors.As(a, &stopped) || errors.Is(a, errGone)) {
		return b
	}
	return a
}

// Hello is the first line that two programs tell each other.
type Hello struct {
	Program string `json:"program"`
	Version int    `json:"version"`
	Role    string `json:"role"` // "sender" or "receiver"
	Terms   Terms  `json:"terms"`
	Size    int64  `json:"size"` // of SRC; -1: not known, or not this side's to know
}

const (
	program = "softmkey copy"
	version = 1
)

// HelloSender and HelloReceiver return the first line of a side.
func HelloSender(t Terms, size int64) Hello { return Hello{program, version, senderName, t, size} }

// HelloReceiver returns the first line of a receiver.
func HelloReceiver(t Terms) Hello { return Hello{program, version, receiverName, t, -1} }

// Greet exchanges the first lines with the other side.
func Greet(ctx context.Context, conn *rendezvous.Conn, mine Hello) (theirs Hello, err error) {
	if err = conn.Swap(ctx, mine, &theirs); err == nil && (theirs.Program != program || theirs.Version != version) {
		err = fmt.Errorf("the other side is %.80q version %d, this is %q version %d", theirs.Program, theirs.Version, program, version)
	}
	return theirs, err
}

// Settle turns what both sides have said into a plan. prepare does what this side
// needs besides, and may refuse. The other side is told of any error, and its
// own is returned.
func Settle(ctx context.Context, conn *rendezvous.Conn, mine, theirs Hello, prepare func(*Plan) error) (*Plan, error) {
	p, err := settle(mine, theirs)
	if err == nil {
		err = prepare(p)
	}
	return p, conn.Agree(ctx, err)
}

func settle(mine, theirs Hello) (*Plan, error) {
	if theirs.Role == mine.Role {
		return nil, fmt.Errorf("this side is the %s, and so is the other", mine.Role)
	}
	terms, err := mine.Terms.Join(theirs.Terms)
	if err != nil {
		return nil, err
	}
	return NewPlan(terms)
}

// peer is what Send and Receive have in common.
type peer interface {
	Endpoints() Endpoints
	Connect(Endpoints) error
	Run(context.Context, <-chan struct{}) (*Outcome, error)
	Close()
}

// SendTo sends a file to the other side of a connection, on a device of this one.
func SendTo(ctx context.Context, conn *rendezvous.Conn, dev *verbs.Device, p *Plan, c SenderConfig) (*Outcome, error) {
	s, err := NewSender(dev, p, c)
	if err := conn.Agree(ctx, err); err != nil {
		return nil, err
	}
	return over(ctx, conn, s)
}

// ReceiveFrom receives a file from the other side of a connection, on a device of
// this one.
func ReceiveFrom(ctx context.Context, conn *rendezvous.Conn, dev *verbs.Device, p *Plan, c ReceiverConfig) (*Outcome, error) {
	r, err := NewReceiver(dev, p, c)
	if err := conn.Agree(ctx, err); err != nil {
		return nil, err
	}
	return over(ctx, conn, r)
}

// over connects one side to the other and runs it. Neither begins before both are
// ready.
func over(ctx context.Context, conn *rendezvous.Conn, side peer) (*Outcome, error) {
	defer side.Close()
	var theirs Endpoints
	var err error
	for i, mine := range side.Endpoints() {
		if theirs[i], err = verbs.Exchange(ctx, conn, mine); err != nil {
			return nil, err
		}
	}
	if err := conn.Agree(ctx, side.Connect(theirs)); err != nil {
		return nil, err
	}
	return side.Run(ctx, conn.Gone())
}
