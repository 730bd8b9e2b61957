//go:build linux

package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/dek"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fatal"
)

type devices struct {
	changes []string
	hold    func() // called by Clear
}

func (d *devices) DEKs() []DEK { return []DEK{{"mlx5_0", 7, 256, 42}} }

// Change notes a request, and refuses those of a device or of a DEK that is not there.
func (d *devices) Change(r *Request) error {
	switch {
	case r.Device == "none":
		return failure.New("device", syscall.ENOENT, "device %q does not exist", r.Device)
	case r.Op == FailDEK && r.ID != 7:
		return failure.New("dek fail", syscall.ENOENT, "DEK %#x does not exist", r.ID)
	case r.Op == Clear && d.hold != nil:
		d.hold()
	}
	d.changes = append(d.changes, fmt.Sprint(r.Op, " ", r.Device, " ", r.ID, " ", r.Share))
	return nil
}

func listen(t *testing.T) (path string, store *dek.Store, d *devices) {
	path, store, d = filepath.Join(t.TempDir(), "s"), dek.NewStore(dek.Wrapped), &devices{}
	s, err := Listen(path, store, d)
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return path, store, d
}

// TestRequests sends every request, and requests that must be refused.
func TestRequests(t *testing.T) {
	path, store, d := listen(t)
	kek, credential := make([]byte, 16), make([]byte, 40)
	for _, v := range []struct {
		r      Request
		refuse string
	}{
		{r: Request{Op: AddKEK, ID: 1, Secret: kek}},
		{r: Request{Op: AddKEK, ID: 1, Secret: kek}, refuse: "kek add: id 0x1 is taken"},
		{r: Request{Op: AddKEK, ID: 2, Secret: kek[:15]}, refuse: "KEK of 15 bytes: must be 16 or 32"},
		{r: Request{Op: AddKEK, ID: 2, Secret: make([]byte, 65)}, refuse: "a secret of 65 bytes: at most 64"},
		{r: Request{Op: ReplaceKEK, ID: 1, Secret: make([]byte, 32)}},
		{r: Request{Op: ReplaceKEK, ID: 2, Secret: kek}, refuse: "kek replace: id 0x2 is not on the device"},
		{r: Request{Op: AddCredential, ID: 3, Secret: credential}},
		{r: Request{Op: ReplaceCredential, ID: 3, Secret: credential}},
		{r: Request{Op: AddCredential, ID: 4, Secret: credential}},
		{r: Request{Op: DeleteCredential, ID: 3}},
		{r: Request{Op: DeleteKEK, ID: 9}, refuse: "kek delete: id 0x9 is not on the device"},
		{r: Request{Op: FailDEK, Device: "mlx5_0", ID: 7}},
		{r: Request{Op: FailDEK, Device: "mlx5_0", ID: 8}, refuse: "DEK 0x8 does not exist"},
		{r: Request{Op: PortDown, Device: "mlx5_0"}},
		{r: Request{Op: PortUp}},
		{r: Request{Op: DeviceFatal, Device: "mlx5_1"}},
		{r: Request{Op: GIDChange, Device: "mlx5_1"}},
		{r: Request{Op: QPError, ID: 0x12, Device: "mlx5_0"}},
		{r: Request{Op: Loss, Share: 0.05, Device: "mlx5_0"}},
		{r: Request{Op: Loss, Share: 1.5}, refuse: "a share of 1.5"},
		{r: Request{Op: Loss, Share: -1}, refuse: "a share of -1"},
		{r: Request{Op: Clear, Device: "mlx5_0"}},
		{r: Request{Op: PortDown, Device: "none"}, refuse: `device "none" does not exist`},
		{r: Request{Op: "burn"}, refuse: `request "burn" is not known`},
	} {
		_, err := Do(path, &v.r)
		switch {
		case v.refuse == "" && err != nil:
			t.Errorf("%+v: %v", v.r, err)
		case v.refuse != "" && (err == nil || !strings.Contains(err.Error(), v.refuse)):
			t.Errorf("%+v: %v, want %q", v.r, err, v.refuse)
		}
	}
	got, err := Do(path, &Request{Op: List})
	want := &Reply{Mode: "wrapped", KEKs: []uint32{1}, Credentials: []uint32{4}, DEKs: []DEK{{"mlx5_0", 7, 256, 42}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("list: %+v, %v, want %+v", got, err, want)
	}
	changes := []string{"fail-dek mlx5_0 7 0", "port-down mlx5_0 0 0", "port-up  0 0", "device-fatal mlx5_1 0 0", "gid-change mlx5_1 0 0", "qp-error mlx5_0 18 0", "loss mlx5_0 0 0.05", "clear mlx5_0 0 0"}
	if !reflect.DeepEqual(d.changes, changes) {
		t.Errorf("the devices saw %q, want %q", d.changes, changes)
	}
	if keks, credentials := store.Secrets(); len(keks) != 1 || len(credentials) != 1 {
		t.Errorf("on the device: KEKs %v, credentials %v", keks, credentials)
	}
}

// TestGarbage sends bytes that are no request. The server answers the next request.
func TestGarbage(t *testing.T) {
	path, _, _ := listen(t)
	for _, b := range []string{"", "\n", "{}\n", "null\n", "[1]\n", `{"op":"list","secret":-1}` + "\n", `{"op":"add-kek","secret":16}` + "\nshort", strings.Repeat("x", 1<<16)} {
		c, err := net.Dial("unix", path)
		fatal.If(t, err)
		c.Write([]byte(b)) // the server may have closed the connection
		c.(*net.UnixConn).CloseWrite()
		c.Close()
	}
	if _, err := Do(path, &Request{Op: List}); err != nil {
		t.Error(err)
	}
}

// TestSilent opens connections that send nothing, or half a request, and as many again while requests are sent. The
// requests are executed, and the server ends without them.
func TestSilent(t *testing.T) {
	path, _, d := listen(t)
	for i := range 5 * guests {
		c, err := net.Dial("unix", path)
		fatal.If(t, err)
		defer c.Close()
		if i%2 == 0 {
			io.WriteString(c, `{"op":"port-down",`)
		}
		if i%guests == 0 {
			if _, err := Do(path, &Request{Op: PortUp}); err != nil {
				t.Fatalf("behind %d connections: %v", i+1, err)
			}
		}
	}
	if len(d.changes) != 5 {
		t.Errorf("the devices saw %q", d.changes)
	}
}

// TestWithdrawn sends requests to a run that is busy. The client gives up: a request that has not begun is never
// executed, also if the client has gone, and the error says so. A request that has begun is waited for.
func TestWithdrawn(t *testing.T) {
	path, _, d := listen(t)
	began, release := make(chan struct{}), make(chan struct{})
	d.hold = func() {
		close(began)
		<-release
	}
	first := make(chan error)
	go func() {
		_, err := Do(path, &Request{Op: Clear, Device: "mlx5_0"})
		first <- err
	}()
	<-began
	for _, patience := range []time.Duration{-1, time.Millisecond} { // -1: it ends before the request is sent
		if _, err := do(path, &Request{Op: PortDown}, patience); err == nil || !strings.Contains(err.Error(), "does not execute it") {
			t.Errorf("a run that is busy, patience %v: %v", patience, err)
		}
	}
	gone, err := net.Dial("unix", path)
	fatal.If(t, err)
	io.WriteString(gone, `{"op":"port-down"}`+"\n")
	gone.Close()
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if _, err := Do(path, &Request{Op: PortUp}); err != nil {
		t.Error(err)
	}
	if want := []string{"clear mlx5_0 0 0", "port-up  0 0"}; !reflect.DeepEqual(d.changes, want) {
		t.Errorf("the devices saw %q, want %q", d.changes, want)
	}
}

// TestSocket starts servers at paths that hold a socket in use, the socket of a dead run, and
// another file.
func TestSocket(t *testing.T) {
	path, store, d := listen(t)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v, want mode 0600", st, err)
	}
	if _, err := Listen(path, store, d); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second run: %v, want EADDRINUSE", err)
	}
	dead := filepath.Join(t.TempDir(), "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	fatal.If(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	if _, err := Do(dead, &Request{Op: List}); err == nil || !strings.Contains(err.Error(), "no run listens") {
		t.Errorf("a request to a dead run: %v", err)
	}
	s, err := Listen(dead, store, d)
	fatal.If(t, err)
	s.Close()
	if _, err := os.Lstat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of an ended run: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	fatal.If(t, os.WriteFile(file, []byte("x"), 0o600))
	if _, err := Listen(file, store, d); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("a file that is no socket: %v, want EEXIST", err)
	}
}

// TestForeignListener sends a secret to a path at which another user listens: nothing is sent.
func TestForeignListener(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: becoming another user needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread's user is another one
	become := func(user int) {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(user), ^uintptr(0)); errno != 0 {
			t.Fatal(errno)
		}
	}
	name := fmt.Sprintf("@softmkey-officer-test-%d", os.Getpid())
	const first = 65530
	become(first)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	fatal.If(t, err)
	defer l.Close()
	become(0)
	become(first + 1)
	_, err = Do(name, &Request{Op: AddKEK, ID: 1, Secret: make([]byte, 16)})
	become(0)
	if !errors.Is(err, syscall.EPERM) {
		t.Errorf("a request to another user's socket: %v, want EPERM", err)
	}
	c, err := l.Accept()
	fatal.If(t, err)
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("the other user received %d bytes, %v", n, err)
	}
}
