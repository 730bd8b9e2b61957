package metrics

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/softmkey/softmkey/rdma"
)

// TestServe reads the counters of two devices over HTTP, and checks them with Prometheus' linter.
func TestServe(t *testing.T) {
	sent := uint64(7)
	s, err := Serve("127.0.0.1:0", func() []Device {
		return []Device{
			{"mlx5_0", netip.MustParseAddr("127.0.0.1"), rdma.Counters{SentPackets: sent}},
			{"mlx5_1", netip.MustParseAddr("fd00::1"), rdma.Counters{BadICRC: 1<<53 - 1}},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func() string {
		r, err := http.Get("http://" + s.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != 200 {
			t.Fatalf("%v, %v", r.Status, err)
		}
		return string(b)
	}
	for range 2 {
		text := get()
		for _, line := range []string{
			`softmkey_sent_packets_total{address="127.0.0.1",device="mlx5_0"} ` + map[uint64]string{7: "7", 8: "8"}[sent] + "\n",
			`softmkey_bad_icrc_total{address="fd00::1",device="mlx5_1"} 9.007199254740991e+15` + "\n",
		} {
			if !strings.Contains(text, line) {
				t.Errorf("no %q in %s", line, text)
			}
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
		sent++
	}
	if _, err := Serve(s.Addr().String(), nil); err == nil {
		t.Error("a second server at the address")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestConnections opens as many connections as the server has, and sends nothing or half a request on them. A
// request beside them is answered at once, in the place of the oldest one; the others stay open.
func TestConnections(t *testing.T) {
	s, err := Serve("127.0.0.1:0", func() []Device { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var open []net.Conn
	for i := range connections {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			if _, err := io.WriteString(c, "GET /metrics HTTP/1.1\r\nHost: a\r\nX: "); err != nil {
				t.Fatal(err)
			}
		}
		open = append(open, c)
	}
	one := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 3 {
		r, err := one.Get("http://" + s.Addr().String() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	// The server has closed one connection for the first request, and none for the others.
	open[0].SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := open[0].Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the oldest connection: %v", err)
	}
	last := open[connections-2] // half a request
	if _, err := io.WriteString(last, "b\r\nConnection: close\r\n\r\n"); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(last); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200 ") {
		t.Errorf("the rest of a request: %q, %v", b[:min(len(b), 40)], err)
	}
}
