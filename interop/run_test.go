package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/rig"
)

// command builds the softmkey command once.
var command = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "softmkey-interop-")
	if err != nil {
		return "", err
	}
	cleanups = append(cleanups, func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "softmkey")
	build := exec.Command("go", "build", "-o", file, "./cmd/softmkey")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building softmkey: %w\n%s", err, text)
	}
	return file, nil
})

// cleanups run when all tests have ended.
var cleanups []func()

// persistent makes a command of one that fails until its peer listens.
func persistent(command string) string {
	return "n=0; until " + command + "; do n=$((n+1)); [ $n -lt 40 ] || exit 1; sleep 0.25; done"
}

// underRun runs a program on our device; its end comes on the channel.
func underRun(ctx context.Context, t *testing.T, addr, program string) <-chan error {
	t.Helper()
	file, err := command()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	cmd := exec.CommandContext(ctx, file, "run", "--device", addr, "--", "sh", "-c", program)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	go func() {
		text, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("softmkey run -- %s: %w: %s", program, err, text)
		}
		ended <- err
	}()
	return ended
}

// unmodified are programs of Debian that find each other with rdma_cm or over TCP:
// on one side in the guest, on soft-RoCE, and on the other under softmkey run.
// The client's command gets the server's address at its %s.
var unmodified = []struct {
	name           string
	server, client string
	guest, run     string // arguments that choose the device, where it is not rdma_cm's choice
	long           bool
}{
	{name: "rping", server: "rping -s -C 20 -S 1000 -V", client: "rping -c -a %s -C 20 -S 1000 -V"},
	{name: "rdma_server", server: "rdma_server", client: "rdma_client -s %s", long: true},
	{name: "ucmatose", server: "ucmatose -c 3 -C 20", client: "ucmatose -c 3 -C 20 -s %s", long: true},
	{name: "udaddy", server: "udaddy -C 5", client: "udaddy -C 5 -s %s"},
	{name: "ibv_ud_pingpong", server: "ibv_ud_pingpong -n 100", client: "ibv_ud_pingpong -n 100 %s", guest: " -d rxe0 -g 1", run: " -d mlx5_0 -g 3"},
	{name: "ib_send_bw UD", server: "ib_send_bw -c UD -n 200 -F -m 1024", client: "ib_send_bw -c UD -n 200 -F -m 1024 %s", guest: " -d rxe0 -x 1", run: " -d mlx5_0 -x 3", long: true},
	// Few bytes in flight: an emulated guest on a busy machine can take longer than all
	// retries to acknowledge 8 MB, and here rdma_cm is under test.
	{name: "ib_write_bw rdma_cm", server: "ib_write_bw -R -s 4096 -t 16 -n 200 -F", client: "ib_write_bw -R -s 4096 -t 16 -n 200 -F %s"},
}

// TestUnmodified runs programs of Debian between the guest and softmkey run, each
// as the server and as the client.
func TestUnmodified(t *testing.T) {
	r := sharedRig(t)
	g := r.Guests[0]
	for _, p := range unmodified {
		if p.long && testing.Short() {
			continue
		}
		for _, guestServes := range []bool{true, false} {
			name := p.name + "/server under run"
			if guestServes {
				name = p.name + "/server in the guest"
			}
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				var server, client <-chan error
				if guestServes {
					server = inGuest(ctx, g, p.server+p.guest)
					client = underRun(ctx, t, r.Addr4.String(), persistent(fmt.Sprintf(p.client, g.Addr4)+p.run))
				} else {
					server = underRun(ctx, t, r.Addr4.String(), p.server+p.run)
					client = inGuest(ctx, g, persistent(fmt.Sprintf(p.client, r.Addr4)+p.guest))
				}
				if err := errors.Join(<-client, <-server); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// inGuest runs a command in the guest, which ends it when it hangs.
func inGuest(ctx context.Context, g *rig.Guest, command string) <-chan error {
	return program(ctx, g, "sh -c '"+strings.ReplaceAll(command, "'", `'\''`)+"'")
}
