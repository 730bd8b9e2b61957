package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/tool/tcpport"
	"github.com/softmkey/softmkey/interop/rig"
)

// command builds the softmkey command once, and the library of run beside it.
var command = madeOnce(func(dir string) (string, error) {
	file := filepath.Join(dir, "softmkey")
	build := exec.Command("go", "build", "-o", file, "./cmd/softmkey")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building softmkey: %w\n%s", err, text)
	}
	if text, err := exec.Command("../scripts/library.sh", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building libsoftmkey-run.so: %w\n%s", err, text)
	}
	return file, nil
})

// madeOnce returns a function that makes a program on its first call, in a folder that exists until all tests have ended.
func madeOnce(program func(dir string) (string, error)) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "softmkey-interop-")
		if err != nil {
			return "", err
		}
		cleanups = append(cleanups, func() { os.RemoveAll(dir) })
		return program(dir)
	})
}

// cleanups run after all tests.
var cleanups []func()

// underRun runs a program on our device and sends its result on the channel. listening,
// if not nil, is closed when the program listens with rdma_cm.
func underRun(ctx context.Context, t *testing.T, addr, program string, listening chan<- struct{}) <-chan error {
	t.Helper()
	file, err := command()
	check(t, err)
	args := []string{"run", "--device", addr}
	if listening != nil {
		args = append(args, "--trace="+awaitListen(t, listening), "--trace-object=cm_id")
	}
	cmd := exec.CommandContext(ctx, file, append(append(args, "--"), strings.Fields(program)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return resultOf(cmd)
}

// resultOf runs a command and sends its result on the channel.
func resultOf(cmd *exec.Cmd) <-chan error {
	ended := make(chan error, 1)
	go func() {
		text, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("softmkey %q: %w: %s", cmd.Args[1:], err, text)
		}
		ended <- err
	}()
	return ended
}

// awaitListen creates a pipe for a trace and returns its name. listening is closed when a
// record of the trace reports a listener.
func awaitListen(t *testing.T, listening chan<- struct{}) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "trace")
	check(t, syscall.Mkfifo(name, 0o600))
	// If the pipe is also open for writing, opening it does not block and reading it
	// does not end.
	pipe, err := os.OpenFile(name, os.O_RDWR, 0)
	check(t, err)
	var reader sync.WaitGroup
	reader.Go(func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if listening != nil && strings.Contains(lines.Text(), " listen ") {
				close(listening)
				listening = nil
			}
		}
	})
	t.Cleanup(func() {
		pipe.Close()
		reader.Wait()
	})
	return name
}

// guestListens returns when a program in the guest listens: with rdma_cm, or on a TCP
// port that is not 0.
func guestListens(ctx context.Context, g *rig.Guest, port int) error {
	test := "rdma res show cm_id | grep -q LISTEN"
	if port != 0 {
		test = fmt.Sprintf("netstat -ltn | grep -q :%d", port)
	}
	_, err := g.Shell(ctx, "until "+test+"; do sleep 0.05; done")
	return err
}

// pingPongPort is the TCP port of ibv_rc_pingpong and of perftest.
const pingPongPort = 18515

// guestProgram runs a program in the guest and sends its result on the channel.
func guestProgram(ctx context.Context, g *rig.Guest, command string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := g.Shell(ctx, command+" 2>&1")
		ended <- err
	}()
	return ended
}

// guestServer is guestProgram for a server. It returns when the server listens; see guestListens.
func guestServer(ctx context.Context, t *testing.T, g *rig.Guest, port int, command string) <-chan error {
	t.Helper()
	server := guestProgram(ctx, g, command)
	if err := guestListens(ctx, g, port); err != nil {
		t.Fatal(errors.Join(err, <-server))
	}
	return server
}

// programPair is a program of Debian that connects with rdma_cm or over TCP: one side runs in the
// guest on soft-RoCE, the other under softmkey run.
type programPair struct {
	name           string
	server, client string        // the server's address replaces %s in the client's command
	guest, run     string        // arguments that select the device, if rdma_cm does not
	tcp            int           // port on which the server listens without rdma_cm
	limit          time.Duration // of both programs; 0 means patience
	prints         string        // what the server prints when its data was right, if it is checked
	long           bool
}

var unmodified = []programPair{
	{name: "rping", server: "rping -s -C 20 -S 1000 -V", client: "rping -c -a %s -C 20 -S 1000 -V"},
	{name: "rdma_server", server: "rdma_server", client: "rdma_client -s %s", long: true},
	{name: "ucmatose", server: "ucmatose -c 3 -C 20", client: "ucmatose -c 3 -C 20 -s %s", long: true},
	{name: "udaddy", server: "udaddy -c 4 -C 5", client: "udaddy -c 4 -C 5 -s %s"},
	{name: "ibv_ud_pingpong", server: "ibv_ud_pingpong -n 100", client: "ibv_ud_pingpong -n 100 %s", guest: " -d rxe0 -g 1", run: " -d mlx5_0 -g 3", tcp: pingPongPort},
	{name: "ib_send_bw UD", server: "ib_send_bw -c UD -n 200 -F -m 1024", client: "ib_send_bw -c UD -n 200 -F -m 1024 %s", guest: " -d rxe0 -x 1", run: " -d mlx5_0 -x 3", tcp: pingPongPort, long: true},
	// Few bytes in flight: an emulated guest on a busy machine may need longer than
	// all retries to acknowledge 8 MB, and this test is about rdma_cm.
	{name: "ib_write_bw rdma_cm", server: "ib_write_bw -R -s 4096 -t 16 -n 200 -F", client: "ib_write_bw -R -s 4096 -t 16 -n 200 -F %s"},
}

// races are messages of programs that fail because of a race condition in the program itself,
// which exists with every kernel and adapter.
var races = []string{
	// perftest with -R opens one connection for the parameters. On it the server
	// reports that it is ready, and only afterwards does it listen for the second
	// connection. On a busy machine the client's request can arrive before that. The
	// client of perftest 4.5 then connects again with ids that it has freed, and crashes,
	// and the server waits for a second connection without limit.
	"RDMA_CM_EVENT_REJECTED; error: 8.",

	// perftest's server leaves when it has the client's last message. If the link loses the
	// acknowledgement, nobody is left to repeat it.
	"Failed to close connection between server and client",

	// The main thread of rping closes the descriptor from which the other one is about to
	// read the next event.
	"rdma_get_cm_event: Bad file descriptor",
}

// mostRaces is the number of times that a pair of programs may lose a race. On a busy
// machine perftest loses its race in up to half of the attempts.
const mostRaces = 30

// racing calls f, and calls it again as long as its programs fail with one of the races.
func racing(t *testing.T, f func() error) (err error) {
	t.Helper()
	for range mostRaces {
		err = f()
		if err == nil || !slices.ContainsFunc(races, func(text string) bool { return strings.Contains(err.Error(), text) }) {
			return err
		}
		t.Logf("a program has lost its race: %v", err)
	}
	return err
}

// sided returns the name of a test of two programs that says where the server runs.
func sided(name string, guestServes bool) string {
	if guestServes {
		return name + "/server in the guest"
	}
	return name + "/server under run"
}

// TestUnmodified runs programs of Debian between the guest and softmkey run, with each
// side as the server.
func TestUnmodified(t *testing.T) {
	r := sharedRig(t)
	for _, p := range unmodified {
		if p.long && testing.Short() {
			continue
		}
		for _, guestServes := range []bool{true, false} {
			t.Run(sided(p.name, guestServes), func(t *testing.T) {
				if err := racing(t, func() error { return runPair(t.Context(), t, r, guestServes, p, nil) }); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// runPair runs a server and, once it listens, its client, and returns their results. first,
// if not nil, is called when the first of the two has ended without an error, with the
// side that is left.
func runPair(ctx context.Context, t *testing.T, r *rig.Rig, guestServes bool, p programPair, first func(guestLeft bool)) error {
	limit := p.limit
	if limit == 0 {
		limit = patience
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g := r.Guest
	var servers, clients <-chan error
	if guestServes {
		servers = guestProgram(ctx, g, p.server+p.guest)
		if err := guestListens(ctx, g, p.tcp); err != nil {
			cancel()
			return errors.Join(err, <-servers)
		}
		clients = underRun(ctx, t, r.Addr4.String(), fmt.Sprintf(p.client, g.Addr4)+p.run, nil)
	} else {
		var listening chan struct{}
		if p.tcp == 0 {
			listening = make(chan struct{})
		}
		servers = underRun(ctx, t, r.Addr4.String(), p.server+p.run, listening)
		if p.tcp != 0 {
			if err := tcpport.Await(ctx, strconv.Itoa(p.tcp)); err != nil {
				return errors.Join(err, <-servers)
			}
		} else if err := awaitServer(servers, listening); err != nil {
			return err
		}
		clients = guestProgram(ctx, g, fmt.Sprintf(p.client, r.Addr4)+p.guest)
	}
	var err error
	guestLeft, left := guestServes, servers
	select {
	case err = <-clients:
	case err = <-servers:
		guestLeft, left = !guestServes, clients
	}
	if err == nil && first != nil {
		first(guestLeft)
	}
	return endOther(cancel, err, left)
}

// awaitServer returns when the server under softmkey run listens with rdma_cm.
func awaitServer(server <-chan error, listening <-chan struct{}) error {
	select {
	case <-listening:
		return nil
	case err := <-server:
		return fmt.Errorf("the server ended before it listened: %w", err)
	}
}

// endOther waits for the second of two programs and returns the results of both. If the
// first has failed, it ends the second, which may wait without limit.
func endOther(cancel func(), first error, second <-chan error) error {
	if first != nil {
		cancel()
	}
	return errors.Join(first, <-second)
}
