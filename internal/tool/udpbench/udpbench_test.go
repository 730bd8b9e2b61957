package udpbench

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// times returns a function that returns true n times.
func times(n int) func() bool {
	return func() bool { n--; return n >= 0 }
}

func TestStream(t *testing.T) {
	for _, v := range []Variant{Raw, Batched} {
		for _, data := range []int{1, 256, 1024, 4096} {
			r, err := Stream(Config{Variant: v, Data: data}, times(100))
			if errors.Is(err, ErrUnsupported) && runtime.GOOS != "linux" {
				continue
			}
			if err != nil {
				t.Errorf("%s, %d bytes: %v", v, data, err)
				continue
			}
			count := min(65507/(data+HeaderBytes), 64)
			if want := uint64(100 * count * data); r.Bytes != want || r.Count != 100 || r.Elapsed <= 0 {
				t.Errorf("%s, %d bytes: %+v, want %d bytes", v, data, r, want)
			}
		}
	}
	for _, bad := range []Config{{Variant: Net, Data: 64}, {Variant: "carrier pigeon", Data: 64}, {Variant: Batched}, {Variant: Batched, Data: 65500}} {
		if _, err := Stream(bad, times(1)); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

func TestPingPong(t *testing.T) {
	for _, v := range []Variant{Raw, Net, Batched} {
		for _, data := range []int{0, 64, 4096} {
			r, err := PingPong(Config{Variant: v, Data: data}, times(100))
			if errors.Is(err, ErrUnsupported) && runtime.GOOS != "linux" {
				continue
			}
			if err != nil {
				t.Errorf("%s, %d bytes: %v", v, data, err)
				continue
			}
			if r.Count != 100 || len(r.RTT) != 100 || !slices.IsSorted(r.RTT) || r.Bytes != uint64(200*data) {
				t.Errorf("%s, %d bytes: %+v", v, data, r)
			}
			if r.RTTQuantile(0) != r.RTT[0] || r.RTTQuantile(1) != r.RTT[99] || r.RTTQuantile(0.5) != r.RTT[50] {
				t.Errorf("%s: quantiles", v)
			}
		}
	}
	if _, err := PingPong(Config{Variant: Batched, Data: 70000}, times(1)); err == nil {
		t.Error("a datagram of 70000 bytes")
	}
}

func TestIPv6(t *testing.T) {
	for _, v := range []Variant{Raw, Batched} {
		c := Config{Variant: v, Data: 1024, Addr: netip.IPv6Loopback()}
		if _, err := PingPong(c, times(10)); err != nil {
			t.Logf("no IPv6 here, or no %s: %v", v, err)
			continue
		}
		if _, err := Stream(c, times(10)); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkStream(b *testing.B) {
	for _, v := range []Variant{Raw, Batched} {
		for _, data := range []int{1024, 2048, 4096} {
			b.Run(fmt.Sprintf("%s/%dB", v, data), func(b *testing.B) {
				r, err := Stream(Config{Variant: v, Data: data}, b.Loop)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(r.Bytes / r.Count))
			})
		}
	}
}

// serveVar is an environment variable that turns the test binary into a server. It prints
// its address and runs until its standard input ends.
const serveVar = "UDPBENCH_SERVE"

// spin is longer than waking an idle processor takes.
const spin = 100 * time.Microsecond

func TestMain(m *testing.M) {
	v := os.Getenv(serveVar)
	if v == "" {
		os.Exit(m.Run())
	}
	c := Config{Variant: Variant(v)}
	if name, spins := strings.CutSuffix(v, "+spin"); spins {
		c = Config{Variant: Variant(name), Spin: spin}
	}
	s, err := Serve(c)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Addr())
	io.Copy(io.Discard, os.Stdin)
	s.Close()
}

// startServer starts a server in another process.
func startServer(tb testing.TB, c Config) netip.AddrPort {
	tb.Helper()
	v := string(c.Variant)
	if c.Spin > 0 {
		v += "+spin"
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serveVar+"="+v)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Error(err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	return netip.MustParseAddrPort(strings.TrimSpace(line))
}

func TestTwoProcesses(t *testing.T) {
	for _, v := range []Variant{Net, Batched} {
		c := Config{Variant: v, Data: 64}
		r, err := Ping(c, startServer(t, c), times(10))
		if err != nil || r.Count != 10 {
			t.Errorf("%s: %+v, %v", v, r, err)
		}
	}
}

// BenchmarkPing uses two processes. BenchmarkPingPong uses two goroutines, which the
// network poller can wake without leaving the process.
func BenchmarkPing(b *testing.B) {
	eachPing(b, func(b *testing.B, c Config) (Result, error) {
		return Ping(c, startServer(b, c), b.Loop)
	})
}

func BenchmarkPingPong(b *testing.B) {
	eachPing(b, func(b *testing.B, c Config) (Result, error) { return PingPong(c, b.Loop) })
}

func eachPing(b *testing.B, ping func(*testing.B, Config) (Result, error)) {
	for _, c := range []Config{{Variant: Raw}, {Variant: Net}, {Variant: Batched}, {Variant: Batched, Spin: spin}} {
		name := string(c.Variant)
		if c.Spin > 0 {
			name += "+spin"
		}
		c.Data = 64
		b.Run(name+"/64B", func(b *testing.B) {
			r, err := ping(b, c)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(64)
			b.ReportMetric(float64(r.RTTQuantile(0.5).Nanoseconds()), "ns/rtt-median")
			b.ReportMetric(float64(r.RTTQuantile(0.99).Nanoseconds()), "ns/rtt-p99")
		})
	}
}

// TestForEndsInTime checks that the function of For returns true until its time is over.
func TestForEndsInTime(t *testing.T) {
	more := For(time.Hour)
	for range 2 {
		if !more() {
			t.Error("an hour is over")
		}
	}
	if more = For(-1); more() {
		t.Error("less than no time is not over")
	}
}
