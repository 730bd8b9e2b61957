package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/net/udp"
	"github.com/softmkey/softmkey/verbs"
)

// acceptVar is an environment variable that makes this program a process that accepts all
// connections. Its value is the UDP port of both devices. It prints a line when it listens,
// and ends when its standard input does.
const acceptVar = "SOFTMKEY_BENCH_ACCEPT"

var (
	dialAddr   = netip.MustParseAddr("127.0.0.1")
	acceptAddr = netip.MustParseAddr("127.0.0.2")
)

const acceptPort = 7471

// acceptors is the number of goroutines that accept requests.
const acceptors = 64

// acceptAll accepts connections until the standard input ends.
func acceptAll(port string) {
	d := openDialer(acceptAddr, uint16(must(strconv.ParseUint(port, 10, 16))))
	l := must(cm.Listen(d.dev, acceptPort, &cm.ListenOptions{Backlog: 1024}))
	for range acceptors {
		go func() {
			for {
				r, err := l.Accept(context.Background())
				if err != nil {
					return
				}
				qp, err := d.newQP()
				if err != nil {
					_ = r.Reject(cm.ReasonNoQP, nil) // the other process reports it
					continue
				}
				c, err := r.Accept(context.Background(), qp, nil)
				if err != nil {
					qp.Close()
					continue
				}
				go func() {
					<-c.Done()
					qp.Close()
				}()
			}
		}()
	}
	fmt.Println("ready")
	must(io.Copy(io.Discard, os.Stdin))
}

// dialer is a device whose queue pairs are connected by the connection manager.
type dialer struct {
	dev *verbs.Device
	pd  *verbs.PD
	cq  *verbs.CQ
}

func openDialer(addr netip.Addr, port uint16) *dialer {
	dev := openOn(must(udp.Listen(netip.AddrPortFrom(addr, port), nil)))
	return &dialer{dev, must(dev.NewPD()), must(dev.NewCQ(16))}
}

func (d *dialer) newQP() (*verbs.QP, error) { return d.pd.NewQP(verbs.QPAttr{SendCQ: d.cq}) }

// dial opens a connection of a new queue pair.
func (d *dialer) dial(ctx context.Context) (*cm.Conn, error) {
	qp, err := d.newQP()
	if err != nil {
		return nil, err
	}
	c, err := cm.Dial(ctx, qp, netip.AddrPortFrom(acceptAddr, acceptPort), nil)
	if err != nil {
		qp.Close()
	}
	return c, err
}

// hangUp ends a connection and closes its queue pair.
func hangUp(ctx context.Context, c *cm.Conn) error {
	return errors.Join(c.Disconnect(ctx), c.QP().Close())
}

// meeting is a pair of processes: this one dials, the other one accepts.
type meeting struct {
	*dialer
	cmd   *exec.Cmd
	stdin io.Closer
}

func newMeeting() *meeting {
	m := &meeting{dialer: openDialer(dialAddr, 0), cmd: exec.Command(must(os.Executable()))}
	m.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", acceptVar, m.dev.UDPPort()))
	m.cmd.Stderr = os.Stderr
	out := must(m.cmd.StdoutPipe())
	m.stdin = must(m.cmd.StdinPipe())
	check(m.cmd.Start())
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		check(errors.Join(err, m.cmd.Wait()))
	}
	return m
}

// close ends the other process. Connections of this one end with the device.
func (m *meeting) close() error {
	err := errors.Join(m.stdin.Close(), m.cmd.Wait())
	m.cq.Close()
	m.pd.Close()
	m.dev.Close()
	return err
}

// open opens n connections, at most width at a time.
func (m *meeting) open(ctx context.Context, n, width int) []*cm.Conn {
	conns := make([]*cm.Conn, n)
	each(n, width, func(i int) (err error) { conns[i], err = m.dial(ctx); return err })
	return conns
}

// each calls f with 0 to n-1, from width goroutines.
func each(n, width int, f func(i int) error) {
	var wg sync.WaitGroup
	next, errs := make(chan int), make([]error, n)
	for range width {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	check(errors.Join(errs...))
}

// cycles opens and closes n connections, at most width at a time. It returns the rate for one
// second, and the processor time of both processes for one connection in microseconds.
func (m *meeting) cycles(ctx context.Context, n, width int) (rate, cost float64) {
	there := ticks(m.cmd.Process.Pid)
	start, here := time.Now(), processTime()
	each(n, width, func(int) error {
		c, err := m.dial(ctx)
		if err == nil {
			err = hangUp(ctx, c)
		}
		return err
	})
	took, here := time.Since(start), processTime()-here
	used := here + time.Duration(ticks(m.cmd.Process.Pid)-there)*tick
	return float64(n) / took.Seconds(), micros(used, n)
}

// connectionSeries measure connections between two processes, by the connection manager.
func connectionSeries() []series {
	return []series{
		{
			name:    "connections at a time",
			columns: []string{"requests at a time", "connections opened and closed a second", "µs of processor time of both sides for one"},
			sizes:   []int{1, 4, 16, 64, 256},
			measure: func(width int) []float64 {
				m := newMeeting()
				defer m.close()
				ctx, cancel := context.WithTimeout(context.Background(), 6*patience)
				defer cancel()
				m.cycles(ctx, width, width)
				rate, cost := m.cycles(ctx, 3000*min(width, 4), width)
				return []float64{rate, cost}
			},
		},
		{
			name:    "open connections",
			columns: []string{"open connections", "KiB for each, dialing side", "opened a second", "further ones, opened and closed a second", "µs of processor time for one of these", "closed a second"},
			sizes:   []int{1, 10, 100, 1000, 10_000, 25_000},
			measure: func(n int) []float64 {
				m := newMeeting()
				defer m.close()
				const width = 64
				ctx, cancel := context.WithTimeout(context.Background(), 12*patience)
				defer cancel()
				m.cycles(ctx, 100, width)
				base := memory()
				start := time.Now()
				conns := m.open(ctx, n, width)
				opened := time.Since(start)
				bytes := memory() - base
				rate, cost := m.cycles(ctx, 6000, width)
				start = time.Now()
				each(n, width, func(i int) error { return hangUp(ctx, conns[i]) })
				closed := time.Since(start)
				return []float64{bytes / float64(n) / 1024, float64(n) / opened.Seconds(), rate, cost, float64(n) / closed.Seconds()}
			},
		},
	}
}
