package jsonline

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// maxLine is the longest line that is read from a peer, in bytes.
const maxLine = 8192

// Conn is one end of a conversation. Reads are buffered, so all reading must go
// through the Conn. It is for one goroutine at a time.
type Conn struct {
	net.Conn

	// Timeout limits each call of Tell, Hear, Swap and Agree; 0 is no limit.
	Timeout time.Duration

	in *bufio.Reader
}

// New returns a Conn on a connection of any kind, without a limit of time.
func New(c net.Conn) *Conn { return &Conn{Conn: c, in: bufio.NewReader(c)} }

// Read reads from the peer.
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Swap sends mine to the peer and reads the peer's line into theirs, which must be a
// pointer. Both sides call Swap at the same step of the conversation, and neither waits for
// the other to send first.
func (c *Conn) Swap(ctx context.Context, mine, theirs any) error {
	return c.step(ctx, func() error {
		if err := c.send(mine); err != nil {
			return err
		}
		return c.receive(theirs)
	})
}

// Tell sends v to the peer.
func (c *Conn) Tell(ctx context.Context, v any) error {
	return c.step(ctx, func() error { return c.send(v) })
}

// Hear reads a line of the peer into v, which must be a pointer. A field that v
// does not have is an error.
func (c *Conn) Hear(ctx context.Context, v any) error {
	return c.step(ctx, func() error { return c.receive(v) })
}

// Agree sends the peer this side's verdict, which is nil or the reason for which
// this side refuses, and receives the peer's. It returns this side's error or else
// the peer's.
func (c *Conn) Agree(ctx context.Context, err error) error {
	type verdict struct {
		Error string `json:"error,omitempty"`
	}
	var mine, theirs verdict
	if err != nil {
		mine.Error = err.Error()
	}
	if swapErr := c.Swap(ctx, mine, &theirs); err == nil && swapErr != nil {
		return swapErr
	}
	if err == nil && theirs.Error != "" {
		err = fmt.Errorf("the other side: %s", Clean(theirs.Error))
	}
	return err
}

// Gone returns a channel that is closed when the peer closes the connection or the
// connection breaks. The Conn must not be read afterwards.
func (c *Conn) Gone() <-chan struct{} {
	gone := make(chan struct{})
	_ = c.SetDeadline(time.Time{})
	go func() {
		_, _ = io.Copy(io.Discard, c)
		close(gone)
	}()
	return gone
}

// ErrStranger is wrapped by the errors for a peer whose first line is not that of the
// same program.
var ErrStranger = errors.New("not a peer of this program")

// ErrHungUp is returned when the peer has closed the connection.
var ErrHungUp = errors.New("the other side hung up")

// step calls f, which uses the connection, and interrupts it when the context or the
// time for a step ends.
func (c *Conn) step(ctx context.Context, f func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var end time.Time
	if c.Timeout > 0 {
		end = time.Now().Add(c.Timeout)
	}
	_ = c.SetDeadline(end) // fails only on a closed connection, for which f returns an error
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := f()
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the other side was silent for %v: %w", c.Timeout, err)
	}
	return err
}

func (c *Conn) send(v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = c.Write(append(line, '\n'))
	}
	return err
}

func (c *Conn) receive(v any) error {
	line, err := c.readLine()
	if err != nil {
		return err
	}
	return unmarshal(line, v)
}

// readLine reads to the end of a line.
func (c *Conn) readLine() ([]byte, error) {
	var line []byte
	for len(line) < maxLine {
		b, err := c.in.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil, ErrHungUp
		case err != nil:
			return nil, err
		case b == '\n':
			return line, nil
		}
		line = append(line, b)
	}
	return nil, fmt.Errorf("the other side sent a line of more than %d bytes", maxLine)
}
