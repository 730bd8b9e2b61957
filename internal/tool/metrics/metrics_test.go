package metrics

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/softmkey/softmkey/roce"
)

// TestServe reads the counters of two devices over HTTP, and checks them with Prometheus' linter.
func TestServe(t *testing.T) {
	sent := uint64(7)
	s, err := Serve("127.0.0.1:0", func() []Device {
		return []Device{
			{"mlx5_0", netip.MustParseAddr("127.0.0.1"), roce.Counters{SentPackets: sent}},
			{"mlx5_1", netip.MustParseAddr("fd00::1"), roce.Counters{BadICRC: 1<<53 - 1}},
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

// TestConnections opens more connections than the server serves at a time, and sends nothing on them. A
// request that waits behind them is answered when one of them ends.
func TestConnections(t *testing.T) {
	s, err := Serve("127.0.0.1:0", func() []Device { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var open []net.Conn
	for range connections {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		open = append(open, c)
	}
	got := make(chan error, 1)
	go func() {
		r, err := http.Get("http://" + s.Addr().String() + "/metrics")
		if err == nil {
			r.Body.Close()
		}
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("a connection more than %d was served: %v", connections, err)
	case <-time.After(100 * time.Millisecond):
	}
	open[0].Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}
