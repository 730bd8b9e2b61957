//go:build linux

package share_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/hca/share"
)

// asOther calls f as another user, and returns its error.
func asOther(t *testing.T, f func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becoming another user needs root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread has another user from here on, and ends with the goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	return <-done
}

// squat binds names as another user, and listens there if the socket can. It returns the descriptors.
func squat(t *testing.T, kind int, names ...string) (fds []int) {
	t.Helper()
	err := asOther(t, func() error {
		for _, name := range names {
			fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err == nil {
				fds = append(fds, fd)
				err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
			}
			if err == nil && kind == unix.SOCK_SEQPACKET {
				err = unix.Listen(fd, 10)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	t.Cleanup(func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	})
	fatal.If(t, err)
	return fds
}

// allNames returns the names that processes at an address bind first.
func allNames(addr netip.AddrPort, service uint64) []string {
	prefix := fmt.Sprintf("@softmkey/0/%v", addr)
	names := []string{prefix + "/join", fmt.Sprintf("%s/service/%x", prefix, service)}
	for number := range 64 {
		for _, what := range []string{"number", "inbox", "door", "ring"} {
			names = append(names, fmt.Sprintf("%s/%d/%s", prefix, number, what))
		}
	}
	return names
}

// TestSquattedNames binds every name that processes at an address use, as another user. The processes join,
// connect and hand packets over all the same, and the stranger receives nothing.
func TestSquattedNames(t *testing.T) {
	for _, kind := range []int{unix.SOCK_DGRAM, unix.SOCK_SEQPACKET} {
		t.Run(fmt.Sprint("type ", kind), func(t *testing.T) {
			addr := at(byte(40 + kind))
			const service = 0x0106_0000 + 7005
			fds := squat(t, kind, allNames(addr, service)...)
			a, b := join(t, addr), join(t, addr)
			if a.conn.Member() != 0 || b.conn.Member() != 1 {
				t.Errorf("numbers %d and %d", a.conn.Member(), b.conn.Member())
			}
			run(t, []*flow{a.flowTo(b), b.flowTo(a)}, 5)
			// A request to a service of either, which any process may read from the socket of QP 1.
			l, err := cm.Listen(b.dev, 7005, nil)
			fatal.If(t, err)
			defer l.Close()
			accepted := make(chan error, 1)
			go func() {
				r, err := l.Accept(t.Context())
				if err == nil {
					_, err = r.Accept(t.Context(), b.qp(), nil)
				}
				accepted <- err
			}()
			from := join(t, at(byte(50+kind)))
			if _, err := cm.Dial(t.Context(), from.qp(), netip.AddrPortFrom(addr.Addr(), 7005), nil); err != nil {
				t.Errorf("connecting to the service: %v", err)
			}
			if err := <-accepted; err != nil {
				t.Error(err)
			}
			for _, fd := range fds {
				b := make([]byte, 4096)
				if kind == unix.SOCK_SEQPACKET {
					c, _, err := unix.Accept(fd)
					if err != nil {
						continue
					}
					fd = c
					defer unix.Close(c)
				}
				if n, _, err := unix.Recvfrom(fd, b, unix.MSG_DONTWAIT); n > 0 {
					t.Errorf("the stranger received %d bytes: %x, %v", n, b[:min(n, 64)], err)
				}
			}
		})
	}
}

// TestAllVariantsSquatted binds all variants of a name that strangers can know. Processes join all the same. Without a
// secret, joining fails at once, and says who has the names.
func TestAllVariantsSquatted(t *testing.T) {
	for i, kind := range []int{unix.SOCK_SEQPACKET, unix.SOCK_SEQPACKET | unix.SOCK_CLOEXEC} { // the second one does not listen
		addr := at(byte(60 + 10*i))
		name := fmt.Sprintf("@softmkey/0/%v/join", addr)
		squat(t, kind, name, name+"/+1", name+"/+2", name+"/+3")
		if share.HasSecret() {
			a, b := join(t, addr), join(t, addr)
			if a.conn.Member() != 0 || b.conn.Member() != 1 {
				t.Errorf("numbers %d and %d", a.conn.Member(), b.conn.Member())
			}
			continue
		}
		_, err := share.Listen(addr, nil, false)
		if !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) || !strings.Contains(err.Error(), name) {
			t.Errorf("type %d: %v", kind, err)
		}
	}
}

// TestWithoutSecret tries the names of a process that may not use the kernel's keys.
func TestWithoutSecret(t *testing.T) {
	defer share.ForgetSecret()()
	t.Run("some", TestSquattedNames)
	t.Run("all", TestAllVariantsSquatted)
}

// TestSecret: processes of the user have one secret, and another user another one.
func TestSecret(t *testing.T) {
	if !share.HasSecret() {
		t.Skip("NOT RUN: the kernel's keys cannot be used here")
	}
	own, err := share.ReadSecret()
	fatal.If(t, err)
	if again, err := share.ReadSecret(); err != nil || !bytes.Equal(own, again) {
		t.Errorf("%x, and then %x, %v", own, again, err)
	}
	share.MakeSecret() // as a second process that has found none
	if again, err := share.ReadSecret(); err != nil || !bytes.Equal(own, again) {
		t.Errorf("%x, and after a second one was made %x, %v", own, again, err)
	}
	if err := asOther(t, func() error {
		if theirs, err := share.ReadSecret(); err == nil && bytes.Equal(own, theirs) {
			return errors.New("another user reads the secret")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestPortTaken joins where another program has the UDP port. The error names it.
func TestPortTaken(t *testing.T) {
	for _, local := range []string{"127.0.0.80:14791", "[::1]:14791"} {
		for _, wildcard := range []bool{false, true} {
			addr := netip.MustParseAddrPort(local)
			bound := addr
			if wildcard {
				bound = netip.AddrPortFrom(netip.IPv6Unspecified(), addr.Port())
			}
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(bound))
			fatal.If(t, err)
			_, err = share.Listen(addr, nil, false)
			if want := fmt.Sprint("UDP port 14791 is taken by process ", os.Getpid()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, bound at %v: %v, want %q", addr, bound, err, want)
			}
			c.Close()
		}
	}
}

// TestOtherUserNamespace starts a process in a user namespace of its own, whose root is this process's user,
// as root of a container can be, and one that has a PID namespace besides. They do not get the sockets, and learn that
// the address is in use.
func TestOtherUserNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a user namespace with root needs root")
	}
	for i, flags := range []uintptr{syscall.CLONE_NEWUSER, syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID} {
		addr := at(byte(61 + i))
		a := join(t, addr)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SHARE_TEST_ADDR="+addr.String())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  flags,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}},
		}
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
				t.Skipf("no user namespaces here: %v", err)
			}
			t.Fatalf("it has joined: %q, %v", out, err)
		}
		if !strings.Contains(string(out), addr.String()) || !strings.Contains(string(out), "address already in use") {
			t.Errorf("it says %q", out)
		}
		if a.conn.Shared() {
			t.Error("the process has opened the sockets for it")
		}
	}
}

// TestOtherPIDNamespaces starts processes in PID namespaces of their own, as the containers of a pod are. They do not
// see each other's numbers, nor this process's, and share its address: whoever opened the sockets, and whoever asks.
func TestOtherPIDNamespaces(t *testing.T) {
	addr := at(63)
	start := func(number int) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SHARE_TEST_ADDR="+addr.String())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		out, err := cmd.StdoutPipe()
		fatal.If(t, err)
		if err := cmd.Start(); err != nil {
			t.Skipf("no PID namespaces here: %v", err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		text, err := bufio.NewReader(out).ReadString('\n')
		if strings.Contains(text, "needs Linux 6.11") {
			t.Skip(text)
		}
		if text != fmt.Sprintln(number) {
			t.Fatalf("it says %q, not %d: %v", text, number, err)
		}
	}
	start(0)
	start(1)
	a := join(t, addr)
	if a.conn.Member() != 2 {
		t.Errorf("number %d, not 2", a.conn.Member())
	}
	start(3)
}
