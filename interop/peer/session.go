package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Port is the TCP port that rxepeer listens on.
const Port = 4791

// patience limits the time of a command that waits for nothing. The guest is emulated and
// may process many megabytes, but it always answers.
const patience = 2 * time.Minute

// Session is a connection to rxepeer.
type Session struct {
	Addr netip.Addr // address of the guest

	conn net.Conn
	r    *bufio.Reader
}

// Dial opens a session with the guest at addr.
func Dial(ctx context.Context, addr netip.Addr) (*Session, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, Port).String())
	if err != nil {
		return nil, err
	}
	return &Session{Addr: addr, conn: conn, r: bufio.NewReader(conn)}, nil
}

// Close ends the session and frees its objects in the guest.
func (s *Session) Close() error { return s.conn.Close() }

// values holds the KEY=VALUE words of a reply.
type values map[string]string

// uint returns a number, or 0 if it is missing.
func (v values) uint(key string) uint64 {
	n, _ := strconv.ParseUint(v[key], 0, 64) // rxepeer writes numbers only
	return n
}

// command sends a request line and reads the reply line. If the guest refuses the
// request, the error names it.
func (s *Session) command(request string) (values, error) {
	return s.commandWithin(patience, request, nil)
}

// commandWithin is command with a deadline and raw bytes after the request.
func (s *Session) commandWithin(limit time.Duration, request string, body []byte) (values, error) {
	fail := func(err error) (values, error) { return nil, fmt.Errorf("rxepeer: %q: %w", request, err) }
	if err := s.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return fail(err)
	}
	if _, err := s.conn.Write(append([]byte(request+"\n"), body...)); err != nil {
		return fail(err)
	}
	reply, err := s.readLine()
	if err != nil {
		return fail(err)
	}
	status, rest, _ := strings.Cut(reply, " ")
	if status != "ok" {
		return fail(errors.New(rest))
	}
	return parseValues(rest), nil
}

func (s *Session) readLine() (string, error) {
	text, err := s.r.ReadString('\n')
	return strings.TrimSuffix(text, "\n"), err
}

func parseValues(words string) values {
	v := values{}
	for word := range strings.FieldsSeq(words) {
		key, value, _ := strings.Cut(word, "=")
		v[key] = value
	}
	return v
}

// Counters returns the driver's counters for the device: sent_pkts, rcvd_pkts,
// duplicate_request, out_of_seq_request, rcvd_seq_err, completer_retry_err, …
func (s *Session) Counters(ctx context.Context) (map[string]uint64, error) {
	text, err := s.Shell(ctx, "cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *")
	if err != nil {
		return nil, err
	}
	counters := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if counters[name], err = strconv.ParseUint(value, 10, 64); err != nil {
			return nil, err
		}
	}
	return counters, nil
}

// ShellError is the error of a command that failed in the guest.
type ShellError struct {
	Command string
	Status  int
	Output  string
}

// Error returns the command, its status and its output.
func (e *ShellError) Error() string {
	if e.Status == statusKilled {
		return fmt.Sprintf("guest: %s: did not end and was killed; its output: %s", e.Command, e.Output)
	}
	return fmt.Sprintf("guest: %s: exit status %d: %s", e.Command, e.Status, e.Output)
}

// statusKilled is the exit status of a command that was killed because it took too long.
const statusKilled = 124

// Shell runs a command of one line in the guest's shell, returns its standard
// output and reports an exit status other than 0 as a *ShellError. The guest kills
// the command and everything that it started two seconds before the context's
// deadline, or after two minutes, and when the context is cancelled.
//
// The shell takes busybox's ip and tc unless they are called as /sbin/ip and /sbin/tc.
func (s *Session) Shell(ctx context.Context, command string) (string, error) {
	limit := patience
	if deadline, ok := ctx.Deadline(); ok {
		limit = max(time.Until(deadline)-2*time.Second, time.Millisecond)
	}
	stop := context.AfterFunc(ctx, func() { s.conn.Close() })
	defer stop()
	v, err := s.commandWithin(limit+5*time.Second, fmt.Sprintf("sh ms=%d cmd=%s", limit.Milliseconds(), command), nil)
	if err != nil {
		return "", errors.Join(err, ctx.Err())
	}
	output := make([]byte, v.uint("len"))
	if _, err := io.ReadFull(s.r, output); err != nil {
		return "", err
	}
	if status := int(v.uint("status")); status != 0 {
		return string(output), &ShellError{Command: command, Status: status, Output: string(output)}
	}
	return string(output), nil
}
