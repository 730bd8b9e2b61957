package interop

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
	"github.com/softmkey/softmkey/interop/rig"
)

// cmpeer compiles cmpeer for programs under softmkey run.
var cmpeer = madeOnce(func(dir string) (string, error) { return guest.Compile(dir, "cmpeer") })

// cmSide is a running cmpeer.
type cmSide struct {
	t     *testing.T
	lines chan string
	input *os.File       // standard input, under softmkey run
	run   *os.Process    // softmkey run, nil in the guest
	pid   int            // of the program under softmkey run
	g     *rig.Guest     // nil under softmkey run
	ended sync.WaitGroup // for the goroutine that reads the output
}

// cmSideUnderRun starts cmpeer on a device.
func cmSideUnderRun(ctx context.Context, t *testing.T, addr, args string) *cmSide {
	t.Helper()
	file, err := command()
	check(t, err)
	program, err := cmpeer()
	check(t, err)
	in, out, err := os.Pipe()
	check(t, err)
	cmd := exec.CommandContext(ctx, file, append([]string{"run", "--device", addr, "--", program}, strings.Fields(args)...)...)
	cmd.Stdin, cmd.Stderr = in, os.Stderr
	output, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	in.Close()
	s := &cmSide{t: t, lines: make(chan string, 100), input: out, run: cmd.Process}
	s.ended.Go(func() {
		defer close(s.lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			s.lines <- scanner.Text()
		}
		if err := cmd.Wait(); err != nil {
			s.lines <- err.Error()
		}
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended
		out.Close()
		s.ended.Wait()
	})
	if _, err := fmt.Sscanf(s.line(ctx), "pid %d", &s.pid); err != nil {
		t.Fatal(err)
	}
	return s
}

// cmSideInGuest starts cmpeer in the guest.
func cmSideInGuest(ctx context.Context, t *testing.T, g *rig.Guest, args string) *cmSide {
	t.Helper()
	const log = "/tmp/cmpeer.log"
	s := &cmSide{t: t, lines: make(chan string, 100), g: g}
	if _, err := g.Shell(ctx, ">"+log); err != nil {
		t.Fatal(err)
	}
	program := guestProgram(ctx, g, "cmpeer "+args+" >"+log)
	s.ended.Go(func() {
		defer close(s.lines)
		seen := 0
		for over := false; !over; {
			select {
			case err := <-program:
				over = true
				if err != nil {
					defer func() { s.lines <- err.Error() }()
				}
			case <-time.After(50 * time.Millisecond):
			}
			text, err := g.Shell(ctx, "cat "+log)
			if err != nil {
				return
			}
			// A line that is written now is not complete.
			complete := text[:strings.LastIndexByte(text, '\n')+1]
			for line := range strings.Lines(complete[seen:]) {
				s.lines <- strings.TrimSpace(line)
			}
			seen = len(complete)
		}
	})
	t.Cleanup(func() {
		_, _ = g.Shell(context.Background(), "killall -KILL cmpeer")
		s.ended.Wait()
	})
	s.line(ctx)
	return s
}

// line returns the next line of output, or "end" after the last one.
func (s *cmSide) line(ctx context.Context) string {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			return "end"
		}
		return strings.TrimSuffix(line, " data=")
	case <-ctx.Done():
		s.t.Fatal("cmpeer printed nothing more")
	}
	panic("unreachable")
}

// until reads lines until one begins with prefix.
func (s *cmSide) until(ctx context.Context, prefix string) {
	s.t.Helper()
	for {
		line := s.line(ctx)
		if strings.HasPrefix(line, prefix) {
			return
		}
		if line == "end" {
			s.t.Fatalf("cmpeer ended without %q", prefix)
		}
	}
}

// rest returns the lines up to the end, without those that resolve the address.
func (s *cmSide) rest(ctx context.Context) (lines []string) {
	s.t.Helper()
	for {
		line := s.line(ctx)
		if !strings.HasPrefix(line, "ADDR_RESOLVED") && !strings.HasPrefix(line, "ROUTE_RESOLVED") {
			lines = append(lines, line)
		}
		if line == "end" {
			return lines
		}
	}
}

// kill kills the program. Its kernel, or softmkey run, stays.
func (s *cmSide) kill(ctx context.Context) {
	s.t.Helper()
	var err error
	if s.g != nil {
		_, err = s.g.Shell(ctx, "killall -KILL cmpeer")
	} else {
		err = syscall.Kill(s.pid, syscall.SIGKILL)
	}
	check(s.t, err)
}

// vanishings are connections that end early. Each lists the events of the side that
// remains, as librdmacm documents them; "end" is the end of the program with status 0.
var vanishings = []struct {
	name           string
	server, client string // arguments of cmpeer

	// After its event stop, the victim ("server" or "client") is killed: the program, or
	// with machine also softmkey run, so that nothing answers any more. Without a stop,
	// nobody is killed.
	victim, stop string
	machine      bool
	ask          string // side that disconnects after the victim was killed

	survivor string
	want     []string
}{
	{name: "no listener", client: "connect %s 7999", survivor: "client", want: []string{"REJECTED status=8", "end"}},
	{name: "rejected", server: "reject=no", client: "private=please", survivor: "client", want: []string{"REJECTED status=28 data=no", "end"}},
	{name: "the other side of rejected", server: "reject=no", client: "private=please", survivor: "server", want: []string{"CONNECT_REQUEST status=0 data=please", "end"}},
	{name: "server killed with the request", server: "hold=CONNECT_REQUEST", victim: "server", stop: "CONNECT_REQUEST", survivor: "client", want: []string{"REJECTED status=28", "end"}},
	{name: "client killed with the reply", client: "noqp hold=CONNECT_RESPONSE", victim: "client", stop: "CONNECT_RESPONSE", survivor: "server", want: []string{"CONNECT_REQUEST status=0", "REJECTED status=28", "end"}},
	{name: "server killed, connected", server: "stay", client: "stay", victim: "server", stop: "ESTABLISHED", survivor: "client", want: []string{"ESTABLISHED status=0", "DISCONNECTED status=0", "end"}},
	{name: "client killed, connected", server: "stay", client: "stay", victim: "client", stop: "ESTABLISHED", survivor: "server", want: []string{"CONNECT_REQUEST status=0", "ESTABLISHED status=0", "DISCONNECTED status=0", "end"}},
	{name: "datagrams, no listener", client: "connect %s 7999 udp", survivor: "client", want: []string{"UNREACHABLE status=1", "end"}},
	{name: "datagrams, rejected", server: "udp reject=no", client: "udp", survivor: "client", want: []string{"UNREACHABLE status=2 data=no", "end"}},
	{name: "datagrams, server killed with the request", server: "udp hold=CONNECT_REQUEST", client: "udp", victim: "server", stop: "CONNECT_REQUEST", survivor: "client", want: []string{"UNREACHABLE status=2", "end"}},

	{name: "no machine", client: "connect 127.0.0.99 7471", survivor: "client", want: []string{"UNREACHABLE status=-110", "end"}, machine: true},
	{name: "server's machine gone with the request", server: "hold=CONNECT_REQUEST", victim: "server", stop: "CONNECT_REQUEST", machine: true, survivor: "client", want: []string{"UNREACHABLE status=-110", "end"}},
	{name: "client's machine gone with the reply", client: "noqp hold=CONNECT_RESPONSE", victim: "client", stop: "CONNECT_RESPONSE", machine: true, survivor: "server", want: []string{"CONNECT_REQUEST status=0", "UNREACHABLE status=-110", "end"}},
	{name: "server's machine gone, connected", server: "stay", client: "ask", victim: "server", stop: "ESTABLISHED", machine: true, ask: "client", survivor: "client", want: []string{"ESTABLISHED status=0", "DISCONNECTED status=-110", "end"}},
	{name: "client's machine gone, connected", server: "ask", client: "stay", victim: "client", stop: "ESTABLISHED", machine: true, ask: "server", survivor: "server", want: []string{"CONNECT_REQUEST status=0", "ESTABLISHED status=0", "DISCONNECTED status=-110", "end"}},
	{name: "datagrams, no machine", client: "connect 127.0.0.99 7471 udp", survivor: "client", want: []string{"UNREACHABLE status=-110", "end"}, machine: true},
}

// TestVanishedSide kills one side of a connection in each of its states, with each side of it
// under softmkey run or in the guest, and compares the events of the side that is left.
// The events between two runs, and those of Linux, are the same.
func TestVanishedSide(t *testing.T) {
	for _, sides := range []string{"run and run", "run and guest", "guest and run"} {
		for i, v := range vanishings {
			if v.machine && (testing.Short() || sides != "run and run") {
				continue // these take 9 s each, and the guest's machine is needed
			}
			if testing.Short() && sides == "run and guest" {
				continue
			}
			t.Run(sides+"/"+v.name, func(t *testing.T) {
				if sides == "run and run" {
					t.Parallel()
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
				defer cancel()
				var r *rig.Rig
				if sides != "run and run" {
					r = sharedRig(t)
				}
				at := func(side int, args string) *cmSide {
					switch {
					case r == nil:
						return cmSideUnderRun(ctx, t, fmt.Sprintf("127.0.%d.%d", i+1, side+1), args)
					case (sides == "guest and run") == (side == 0):
						return cmSideInGuest(ctx, t, r.Guest, args)
					}
					return cmSideUnderRun(ctx, t, r.Addr4.String(), args)
				}
				target := fmt.Sprintf("127.0.%d.1", i+1)
				if sides == "guest and run" {
					target = r.Guest.Addr4.String()
				} else if r != nil {
					target = r.Addr4.String()
				}
				side := map[string]*cmSide{}
				server, client := v.server, v.client
				side["server"] = at(0, "listen 7471 "+server)
				side["server"].until(ctx, "listening")
				if !strings.HasPrefix(client, "connect") {
					client = "connect %s 7471 " + client
				}
				side["client"] = at(1, strings.Replace(client, "%s", target, 1))
				if victim := side[v.victim]; victim != nil {
					victim.until(ctx, v.stop)
					if v.machine {
						check(t, victim.run.Kill())
						victim.ended.Wait()
					} else {
						victim.kill(ctx)
					}
				}
				if v.ask != "" {
					if _, err := side[v.ask].input.Write([]byte("\n")); err != nil {
						t.Fatal(err)
					}
				}
				if got := side[v.survivor].rest(ctx); !slices.Equal(got, v.want) {
					t.Errorf("the %s printed %q, not %q", v.survivor, got, v.want)
				}
			})
		}
	}
}
