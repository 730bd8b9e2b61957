package jsonline

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
)

func timeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

type line struct {
	Text string `json:"text"`
}

// pair returns both ends of a TCP connection.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	fatal.If(t, err)
	defer l.Close()
	here, err := net.Dial("tcp", l.Addr().String())
	fatal.If(t, err)
	there, err := l.Accept()
	fatal.If(t, err)
	t.Cleanup(func() {
		here.Close()
		there.Close()
	})
	return New(here), New(there)
}

func TestLines(t *testing.T) {
	a, b := pair(t)
	done := make(chan error, 1)
	go func() {
		var got line
		err := b.Swap(timeout(t), line{"from b"}, &got)
		if err == nil && got.Text != "from a" {
			err = errors.New(got.Text)
		}
		done <- err
	}()
	var got line
	if err := a.Swap(timeout(t), line{"from a"}, &got); err != nil || got.Text != "from b" {
		t.Errorf("%q, %v", got.Text, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}

	// A message that is too long.
	for text, want := range map[string]string{
		"nonsense\n":                   "does not fit",
		`{"text":1}` + "\n":            "does not fit",
		`{"other":"x"}` + "\n":         `unknown field "other"`,
		strings.Repeat("x", maxLine+1): "a line of more than",
	} {
		a, b := pair(t)
		if _, err := b.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := a.Hear(timeout(t), &got); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
	b.Close()
	if err := a.Hear(timeout(t), &got); !errors.Is(err, ErrHungUp) {
		t.Errorf("closed: %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("stopped")
	cancel(why)
	a, _ = pair(t)
	if err := a.Hear(ctx, &got); !errors.Is(err, why) {
		t.Errorf("stopped: %v", err)
	}
}

func TestAgreeOnError(t *testing.T) {
	mine, theirs := errors.New("mine"), errors.New("their \"reason\" \x1b[2J")
	for _, tc := range []struct{ a, b, wantA, wantB string }{
		{"", "", "", ""},
		{"mine", "", "mine", "the other side: mine"},
		{"", "theirs", `the other side: their "reason" \x1b[2J`, theirs.Error()},
		{"mine", "theirs", "mine", theirs.Error()},
	} {
		a, b := pair(t)
		pick := func(s string) error { return map[string]error{"mine": mine, "theirs": theirs}[s] }
		done := make(chan error, 1)
		go func() { done <- b.Agree(timeout(t), pick(tc.b)) }()
		text := func(err error) string {
			if err == nil {
				return ""
			}
			return err.Error()
		}
		if got := text(a.Agree(timeout(t), pick(tc.a))); got != tc.wantA {
			t.Errorf("%q, want %q", got, tc.wantA)
		}
		if got := text(<-done); got != tc.wantB {
			t.Errorf("%q, want %q", got, tc.wantB)
		}
	}
}

// TestGoneIsClosedWithThePeer checks that the channel of Gone is closed when the other side
// closes the connection.
func TestGoneIsClosedWithThePeer(t *testing.T) {
	a, b := pair(t)
	gone := a.Gone()
	select {
	case <-gone:
		t.Error("gone too early")
	default:
	}
	b.Close()
	<-gone
}

// TestTimeout waits for a peer that is silent, and then for one that answers.
func TestTimeout(t *testing.T) {
	a, b := pair(t)
	a.Timeout = time.Millisecond
	var got line
	if err := a.Hear(timeout(t), &got); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), "silent for 1ms") {
		t.Error(err)
	}
	a.Timeout = time.Minute
	fatal.If(t, b.Tell(timeout(t), line{"late"}))
	if err := a.Hear(timeout(t), &got); err != nil || got.Text != "late" {
		t.Errorf("%q, %v", got.Text, err)
	}
}
