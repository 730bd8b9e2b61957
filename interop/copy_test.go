package interop

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/tool/rendezvous"
)

// copySize is the length of the copied files: some chunks of 1 MiB, and a piece.
const copySize = 3<<20 + 12345

// TestCopyKernel copies a file between softmkey copy --cm and copypeer, a C program on
// librdmacm in the guest. The guest's kernel makes the connection, with its own
// connection manager, and carries the data.
func TestCopyKernel(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		n := newNetwork(t)
		guest, device := n.host(v6)
		t.Run("send/from us", func(t *testing.T) { copyToKernel(t, "send", guest, device) })
		t.Run("write/from the kernel", func(t *testing.T) { copyFromKernel(t, "write", device) })
		if !testing.Short() {
			t.Run("write/from us", func(t *testing.T) { copyToKernel(t, "write", guest, device) })
			t.Run("send/from the kernel", func(t *testing.T) { copyFromKernel(t, "send", device) })
		}
	})
}

// softmkeyCopy runs softmkey copy and sends its result on the channel.
func softmkeyCopy(ctx context.Context, t *testing.T, args ...string) <-chan error {
	t.Helper()
	file, err := command()
	check(t, err)
	return resultOf(exec.CommandContext(ctx, file, append([]string{"copy", "--cm"}, args...)...))
}

func copyToKernel(t *testing.T, op string, guest, device netip.Addr) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := sharedRig(t).Guest
	data := make([]byte, copySize)
	rand.Read(data)
	src := filepath.Join(t.TempDir(), "src")
	check(t, os.WriteFile(src, data, 0o600))
	receiver := guestServer(ctx, t, g, 0, fmt.Sprintf("copypeer receive %d /tmp/dst", rendezvous.Port))
	err := <-softmkeyCopy(ctx, t, "--connect", guest.String(), "--device", device.String(), "--op", op, src)
	if err != nil {
		cancel() // the receiver may wait without limit
	}
	check(t, errors.Join(err, <-receiver))
	wantSum(t, ctx, data, "/tmp/dst")
}

func copyFromKernel(t *testing.T, op string, device netip.Addr) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g := sharedRig(t).Guest
	if _, err := g.Shell(ctx, fmt.Sprintf("head -c %d /dev/urandom >/tmp/src", copySize)); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "dst")
	receiver := softmkeyCopy(ctx, t, "--listen", device.String(), dst)
	// A client that comes before the listener is refused, and tries again.
	try := fmt.Sprintf("copypeer send %s %d /tmp/src %s", device, rendezvous.Port, op)
	sender := guestProgram(ctx, g, "for i in 1 2 3 4 5 6 7 8; do "+try+" && exit 0; sleep 1; done; exit 1")
	err := <-sender
	if err != nil {
		cancel()
	}
	check(t, errors.Join(err, <-receiver))
	data, err := os.ReadFile(dst)
	if err != nil || len(data) != copySize {
		t.Fatalf("%d bytes: %v", len(data), err)
	}
	wantSum(t, ctx, data, "/tmp/src")
}

// wantSum compares data with a file of the guest.
func wantSum(t *testing.T, ctx context.Context, data []byte, file string) {
	t.Helper()
	text, err := sharedRig(t).Guest.Shell(ctx, "sha256sum "+file)
	check(t, err)
	sum := sha256.Sum256(data)
	if !strings.HasPrefix(text, hex.EncodeToString(sum[:])) {
		t.Errorf("the copy differs from the file: the guest says %s", text)
	}
}
