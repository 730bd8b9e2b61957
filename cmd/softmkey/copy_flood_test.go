//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/device/engine"
	"github.com/softmkey/softmkey/internal/net/mad"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/verbs"
)

// stranger sends management datagrams from an address that no connection manager serves.
type stranger struct {
	from, to netip.Addr
	gsi      *roce.GSI
	ah       *roce.AH
}

func newStranger(t *testing.T, from, to string) *stranger {
	t.Helper()
	s := &stranger{from: netip.MustParseAddr(from), to: netip.MustParseAddr(to)}
	dev, err := verbs.Open(s.from, nil)
	fatal.If(t, err)
	t.Cleanup(func() {
		if s.gsi != nil {
			s.gsi.Close()
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	port := engine.PortOf(dev)
	if s.ah, err = port.NewAH(0, netip.AddrPortFrom(s.to, roce.UDPPort), 0); err != nil {
		t.Fatal(err)
	}
	// The stranger answers a REP with an MRA that asks for the longest time, and never confirms.
	s.gsi, err = port.OpenGSI(func(d roce.Datagram) {
		if _, m, _ := mad.Parse(d.Payload); m != nil {
			if rep, ok := m.(*mad.REP); ok {
				s.send(&mad.MRA{LocalID: rep.RemoteID, RemoteID: rep.LocalID, About: mad.AboutREP, ServiceTimeout: 31})
			}
		}
	})
	fatal.If(t, err)
	return s
}

// send sends a message. Errors do not matter, because the message may be lost as well.
func (s *stranger) send(m mad.Message) {
	_ = s.gsi.Send(s.ah, 1, mad.Append(nil, mad.Header{TID: 1}, m))
}

// request sends a request for a connection, whose QP number is derived from i.
func (s *stranger) request(i uint32, port uint16, t mad.Transport) {
	s.send(&mad.REQ{
		LocalID: i, QPN: i & 0xffffff, ServiceID: mad.ServiceID(mad.PortSpaceTCP, port), Transport: t, MTU: 3, MaxCMRetries: 15,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, RetryCount: 7, RNRRetry: 7, InitiatorDepth: 1, ResponderResources: 1,
		Path: mad.PathInfo{AckTimeout: 17}, Private: mad.AppendIPHeader(nil, mad.IPHeader{Port: 5, Src: s.from, Dst: s.to}),
	})
}

// flood sends n requests before it returns, and further ones until stop is called.
func flood(t *testing.T, s *stranger, port uint16, transport mad.Transport, n int) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	sent, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 1; ctx.Err() == nil; i++ {
			s.request(uint32(i), port, transport)
			if i == n {
				close(sent)
			}
			if i >= n {
				time.Sleep(20 * time.Millisecond)
			} else {
				time.Sleep(time.Millisecond)
			}
		}
	}()
	<-sent
	return func() {
		cancel()
		<-ended
	}
}

// TestCopyFlood copies a file with --cm while strangers request connections from the receiver
// that they never confirm.
func TestCopyFlood(t *testing.T) {
	program := builtProgram(t)
	src, want := filepath.Join(t.TempDir(), "src"), bytes.Repeat([]byte("0123456789abcdef"), 1<<12)
	writeFile(t, src, want, 0o600)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for i, transport := range []mad.Transport{mad.RC, mad.UC} {
		dst, to, from := filepath.Join(t.TempDir(), "dst"), ownAddress(24+4*i), ownAddress(25+4*i)
		s := newStranger(t, ownAddress(26+4*i), to)
		receiver := exec.CommandContext(ctx, program, "copy", "--listen", to, "--cm", dst)
		var log bytes.Buffer
		receiver.Stderr = &log
		fatal.If(t, receiver.Start())
		stop := flood(t, s, 18515, transport, 2000)
		begin := time.Now()
		out, err := exec.CommandContext(ctx, program, "copy", "--connect", to, "--cm", "--device", from, src).CombinedOutput()
		t.Logf("transport %d: a copy in %v", transport, time.Since(begin))
		stop()
		if err != nil {
			cancel()
		}
		if other := receiver.Wait(); err != nil || other != nil {
			t.Fatalf("transport %d: %v: %s; the receiver: %v: %.3000s", transport, err, out, other, log.String())
		}
		if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, want) {
			t.Errorf("transport %d: %d bytes arrived, %v", transport, len(got), err)
		}
	}
}
