package main

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// screen collects what is written to a terminal. Goroutines may share it.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// last returns the line that a terminal shows after all writes.
func (s *screen) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.Split(strings.TrimRight(s.b.String(), "\r\n"), "\r")
	return strings.TrimSpace(lines[len(lines)-1])
}

// TestProgressStall has an input that delivers 20 MB before the bar appears, and then stalls. The
// bar must show the 20 MB.
func TestProgressStall(t *testing.T) {
	for name, total := range map[string]int64{"known": 40e6, "unknown": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s screen
				p := startProgress(&s, 80, "standard input", total)
				p.set(20e6)
				time.Sleep(patience - time.Millisecond)
				synctest.Wait()
				if got := s.last(); got != "" {
					t.Errorf("before its time it shows %q", got)
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if got := s.last(); !strings.Contains(got, "20 MB") && !strings.Contains(got, "20/40 MB") {
					t.Errorf("it shows %q", got)
				}
				show := p.hide()
				s.Write([]byte("a line\n"))
				show()
				p.end()
				p.end()
				if got := s.last(); got != "" && got != "a line" {
					t.Errorf("at the end it shows %q", got)
				}
			})
		})
	}
}
