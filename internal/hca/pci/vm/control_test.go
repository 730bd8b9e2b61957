//go:build linux

package vm

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/internal/hca/control"
	"github.com/softmkey/softmkey/internal/hca/pci"
)

// TestControl asks for each fault of an adapter that has no guest yet.
func TestControl(t *testing.T) {
	dir := t.TempDir()
	path, socket := filepath.Join(dir, "control"), filepath.Join(dir, "vm")
	l, link := listen(t, socket, filepath.Join(dir, "net"))
	mac, _ := MAC(socket)
	ctx, cancel := context.WithCancel(context.Background())
	comes, done := make(chan struct{}), make(chan error, 1)
	came := sync.OnceFunc(func() { close(comes) }) // the guest also goes
	go func() {
		done <- Serve(ctx, l, Options{Link: link, Device: pci.Config{MAC: mac}, Control: path, Client: func(bool, error) { came() }})
	}()
	defer func() {
		cancel()
		<-done
	}()
	guest, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	<-comes // the control socket is there before a guest is served
	for _, test := range []struct {
		r    control.Request
		want string
	}{
		{control.Request{Op: control.PortDown}, ""},
		{control.Request{Op: control.PortUp}, ""},
		{control.Request{Op: control.PortUp, Device: "mlx5_0"}, `device "mlx5_0" does not exist`},
		{control.Request{Op: control.DeviceFatal}, ""},
		{control.Request{Op: control.QPError, ID: 7}, "QP 0x7 does not exist"},
		{control.Request{Op: control.GIDChange}, "the guest sets the GIDs"},
		{control.Request{Op: control.Loss, Share: 0.1}, "are lost by the command line alone"},
		{control.Request{Op: control.FailDEK, ID: 1}, "cannot be changed from outside"},
		{control.Request{Op: control.Clear}, ""},
	} {
		_, err := control.Do(path, &test.r)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.r, err, test.want)
		}
	}
}
