package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/interop/link"
)

const (
	largest  = 1 << 30
	smallest = 1 << 20
)

// with creates the row's link for one measurement, so that none starts with packets of
// another.
func (o options) with(r row, round int, f func(*link.Link) error) error {
	k, err := link.New(r.mtu, r.link, o.seed+uint64(round)*100)
	if err != nil {
		return err
	}
	// A link with a rate is slower than the programs. Without a rate, the programs and the processors limit what is
	// measured, so the programs may use all processors.
	if r.link.Rate > 0 {
		err = k.Separate()
	}
	if err == nil {
		err = f(k)
	}
	err = errors.Join(err, k.Close())
	if o.verbose {
		ab, ba := k.Counters()
		fmt.Fprintf(os.Stderr, "%s, round %d: A to B %+v, B to A %+v\n", r.name, round, ab, ba)
	}
	return err
}

// process is a program on a host.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

func start(ctx context.Context, h *link.Host, name string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	return p, h.Start(p.cmd)
}

func (p *process) wait() error {
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s%s", filepath.Base(p.cmd.Path), err, &p.stderr, &p.stdout)
	}
	return nil
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// tcp measures iperf3 from A to B with a congestion control, in Mbit/s.
func (o options) tcp(ctx context.Context, r row, round int, control string) (rate float64, err error) {
	err = o.with(r, round, func(k *link.Link) error {
		rate, err = o.tcpOn(ctx, k, control, iperfPort)
		return err
	})
	return rate, err
}

// iperfPort is iperf3's port. Another stream at the same time uses the next one.
const iperfPort = 5201

func (o options) tcpOn(ctx context.Context, k *link.Link, control string, port uint16) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*o.time+30*time.Second)
	defer cancel()
	for try := 1; ; try++ {
		// A server that a client reached and left ends (-1), so each try has its own.
		server, err := start(ctx, k.B, "iperf3", "-s", "-1", "--forceflush", "-p", fmt.Sprint(port))
		if err != nil {
			return 0, err
		}
		time.Sleep(time.Duration(try) * 50 * time.Millisecond) // lets the server start to listen
		rate, err := o.iperf3(ctx, k, control, port)
		server.kill()
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return 0, nil // a link that loses many packets holds up the end of iperf3, too
		case err == nil || try == 20 || ctx.Err() != nil:
			return rate, err
		}
	}
}

// iperf3 runs the client. With --json it reports an error in its output and exits with 0.
func (o options) iperf3(ctx context.Context, k *link.Link, control string, port uint16) (float64, error) {
	client, err := start(ctx, k.A, "iperf3", "-c", k.B.Addrs[0].String(), "-p", fmt.Sprint(port), "-t", fmt.Sprint(int(o.time.Seconds())), "--json", "--congestion", control)
	if err == nil {
		err = client.wait()
	}
	if err != nil {
		return 0, err
	}
	var report struct {
		Error string `json:"error"`
		End   struct {
			SumReceived struct {
				BitsPerSecond float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(client.stdout.Bytes(), &report); err != nil {
		return 0, err
	}
	if report.Error != "" || report.End.SumReceived.BitsPerSecond == 0 {
		return 0, fmt.Errorf("iperf3 measured nothing: %s", report.Error)
	}
	return report.End.SumReceived.BitsPerSecond / mbit, nil
}

// copy measures softmkey copy from A to B, in Mbit/s. The size of the file follows from
// the previous rate, so that a copy fills the time; size keeps it for the next
// measurement.
func (o options) copy(ctx context.Context, r row, round int, size *int64) (rate float64, err error) {
	for {
		n := *size
		err := o.with(r, round, func(k *link.Link) error {
			rate, err = o.copyOn(ctx, k, n, 0)
			return err
		})
		if err != nil {
			return 0, err
		}
		if o.verbose {
			fmt.Fprintf(os.Stderr, "%s, round %d: copy of %d MiB at %.4g Mbit/s\n", r.name, round, n>>20, rate)
		}
		want := int64(rate * mbit / 8 * o.time.Seconds())
		*size = min(max(want, smallest), largest)
		if n == largest || want < 2*n {
			return rate, nil
		}
	}
}

// copyOn copies a file of size bytes between the addresses with a given number, and returns the rate, in
// Mbit/s. The time is the command's own, which is that of the data, as iperf3's is: how long the two sides
// take to meet over TCP on a line with loss says nothing about copies or TCP. The side that has to wait for the
// other one at first has the longer time.
func (o options) copyOn(ctx context.Context, k *link.Link, size int64, number int) (float64, error) {
	limit := 10*o.time + 60*time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	src := filepath.Join(o.scratch, fmt.Sprintf("src%d", number))
	dst := filepath.Join(o.scratch, fmt.Sprintf("dst%d", number))
	defer os.Remove(dst)
	defer os.Remove(src)
	// A virtual machine gets memory from its host slowly. The memory of the destination is therefore used
	// once before the measurement: iperf3, which is compared with, writes no file.
	if err := errors.Join(fill(src, size), fill(dst, size), os.Remove(dst)); err != nil {
		return 0, err
	}
	local, remote := k.A.Addrs[number].String(), k.B.Addrs[number].String()
	server, err := start(ctx, k.B, o.softmkey, "copy", "--json", "--listen", remote, dst)
	if err != nil {
		return 0, err
	}
	client, err := start(ctx, k.A, o.softmkey, "copy", "--json", "--connect", remote, "--device", local, src)
	if err != nil {
		server.kill()
		return 0, err
	}
	if err = client.wait(); err == nil {
		err = server.wait()
	} else {
		server.kill()
		err = fmt.Errorf("%w; the listener: %s", err, bytes.TrimSpace(server.stderr.Bytes()))
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return 0, fmt.Errorf("%d MiB not in %.0f s", size>>20, limit.Seconds())
	case err != nil:
		return 0, err
	}
	same, err := equal(src, dst)
	if err == nil && !same {
		err = errors.New("the copy differs from its source")
	}
	var sender, receiver struct {
		Seconds float64 `json:"seconds"`
	}
	if err == nil {
		err = errors.Join(json.Unmarshal(client.stdout.Bytes(), &sender), json.Unmarshal(server.stdout.Bytes(), &receiver))
	}
	seconds := min(sender.Seconds, receiver.Seconds)
	if err == nil && seconds <= 0 {
		err = errors.New("a side of the copy reports no time")
	}
	return float64(size) * 8 / seconds / mbit, err
}

// stream is a program that sends over a link for longer than it is measured, and the flow of its packets.
type stream struct {
	flow link.Flow
	run  func(context.Context) error
}

// copying is a copy of a file of size bytes, between the addresses with a given number.
func (o options) copying(k *link.Link, size int64, number int) stream {
	return stream{
		flow: link.Flow{To: k.B.Addrs[number], Protocol: unix.IPPROTO_UDP, Port: roce.UDPPort},
		run:  func(ctx context.Context) error { _, err := o.copyOn(ctx, k, size, number); return err },
	}
}

// tcping is an iperf3 with a congestion control.
func (o options) tcping(k *link.Link, control string, port uint16) stream {
	o.time = time.Minute
	return stream{
		flow: link.Flow{To: k.B.Addrs[0], Protocol: unix.IPPROTO_TCP, Port: port},
		run:  func(ctx context.Context) error { _, err := o.tcpOn(ctx, k, control, port); return err },
	}
}

const (
	beginning = 1 << 20         // a stream has begun when the link has carried so many bytes for it
	settle    = 2 * time.Second // for which two streams share the link before they are measured
)

// shares runs two streams at the same time, and returns the shares that they have of the bytes that the link
// carried while both ran.
func (o options) shares(ctx context.Context, r row, streams func(*link.Link) [2]stream) (of [2]float64, err error) {
	err = o.with(r, 0, func(k *link.Link) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		both, ended := streams(k), make(chan error, 2)
		for _, s := range both {
			go func() { ended <- s.run(ctx) }()
		}
		pause := func(d time.Duration) error {
			select {
			case err := <-ended:
				stop()
				return errors.Join(errors.New("a stream ended before it was measured"), err, <-ended)
			case <-time.After(d):
				return nil
			}
		}
		count := func() (n [2]float64) {
			carried := k.Carried()
			return [2]float64{float64(carried[both[0].flow]), float64(carried[both[1].flow])}
		}
		for n := count(); min(n[0], n[1]) < beginning; n = count() {
			if err := pause(10 * time.Millisecond); err != nil {
				return err
			}
		}
		if err := pause(settle); err != nil {
			return err
		}
		before := count()
		if err := pause(o.time); err != nil {
			return err
		}
		after := count()
		stop()
		<-ended
		<-ended
		first, second := after[0]-before[0], after[1]-before[1]
		of = [2]float64{first / (first + second), second / (first + second)}
		return nil
	})
	return of, err
}

// fill writes a file of random bytes, which do not repeat within a packet or a message.
func fill(name string, size int64) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), size)
	return errors.Join(err, f.Close())
}

// equal compares two files.
func equal(a, b string) (bool, error) {
	x, err := os.ReadFile(a)
	if err != nil {
		return false, err
	}
	y, err := os.ReadFile(b)
	return bytes.Equal(x, y), err
}
