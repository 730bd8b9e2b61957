//go:build linux && (amd64 || arm64)

package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/fatal"
)

// The test binary is also the program that runs under the supervisor. programs holds
// the functions that it executes then, by name.
func TestMain(m *testing.M) {
	if os.Getenv(noCgroups) != "" {
		cgroupRoots = nil
	}
	Child()
	if name := os.Getenv("INTERCEPT_TEST_PROGRAM"); name != "" {
		if err := programs[name](); err != nil {
			fmt.Println("program:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// fakeDevice is a node whose files count the calls on them.
type fakeDevice struct {
	mu       sync.Mutex
	opened   int
	ioctls   []uint64
	writes   []string
	mapped   []*os.File
	unmapped int
	waiting  chan *Call
	released chan struct{}
	meeting  sync.WaitGroup // of ioctls that wait for each other
}

func (d *fakeDevice) Major() uint32 { return 231 }
func (d *fakeDevice) Minor() uint32 { return 192 }

func (d *fakeDevice) Open(c *Call) (File, error) {
	fd, err := unix.MemfdCreate("fake", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	unix.Ftruncate(fd, 1<<20)
	unix.Pwrite(fd, []byte("page 2"), 2*4096)
	d.mu.Lock()
	d.opened++
	d.mu.Unlock()
	return &fakeFile{d, os.NewFile(uintptr(fd), "fake")}, nil
}

type fakeFile struct {
	d  *fakeDevice
	fd *os.File
}

func (f *fakeFile) Descriptor() *os.File { return f.fd }

func (f *fakeFile) Ioctl(c *Call, arg uint64) {
	f.d.mu.Lock()
	f.d.ioctls = append(f.d.ioctls, arg)
	f.d.mu.Unlock()
	switch arg {
	case 0xbad:
		c.Fail(unix.EPROTONOSUPPORT)
		return
	case meetsLong:
		c.MayTakeLong()
		fallthrough
	case meets:
		f.d.meeting.Done()
		f.d.meeting.Wait()
	}
	c.Return(int64(arg) + 1)
}

func (f *fakeFile) Write(c *Call, data []byte) {
	f.d.mu.Lock()
	f.d.writes = append(f.d.writes, string(data))
	f.d.mu.Unlock()
	if string(data) == "wait" {
		c.Defer(c.Interrupt)
		f.d.waiting <- c
		return
	}
	if string(data) == "channel" {
		r, w, _ := os.Pipe()
		n, err := c.Inject(r, func() { r.Close(); w.Close() })
		if err != nil {
			c.Fail(failure.Errno(err, syscall.EIO))
			return
		}
		c.Return(int64(n))
		return
	}
	c.Return(int64(len(data)))
}

// Mapping gives offsets from 256 pages on a file of their own.
func (f *fakeFile) Mapping(offset, length uint64) (*os.File, error) {
	if offset < 256*4096 {
		return f.fd, nil
	}
	fd, err := unix.MemfdCreate("queue", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	unix.Ftruncate(fd, int64(offset+length))
	q := os.NewFile(uintptr(fd), "queue")
	f.d.mu.Lock()
	unix.Pwrite(fd, fmt.Appendf(nil, "queue %d", len(f.d.mapped)), int64(offset))
	f.d.mapped = append(f.d.mapped, q)
	f.d.mu.Unlock()
	return q, nil
}

func (f *fakeFile) Unmapped(q *os.File) {
	f.d.mu.Lock()
	f.d.unmapped++
	f.d.mu.Unlock()
	q.Close()
}

func (f *fakeFile) OwnerEnded() {}
func (f *fakeFile) MayWait()    {}

func (f *fakeFile) Released() {
	f.fd.Close()
	f.d.released <- struct{}{}
}

// start runs a program of this binary. The function that it returns waits for the end
// and returns the output and the wait status.
func start(t *testing.T, program string, d *fakeDevice) (*Supervisor, func() (string, syscall.WaitStatus)) {
	t.Helper()
	return startWith(t, program, d, func(*Config) {})
}

// endsWell waits for the end of a program, which must have found no error.
func endsWell(t *testing.T, end func() (string, syscall.WaitStatus)) {
	t.Helper()
	if out, status := end(); status != 0 {
		t.Errorf("%v: %s", status, out)
	}
}

// TestNetlink lets a program send requests of NETLINK_RDMA.
func TestNetlink(t *testing.T) {
	_, wait := startWith(t, "netlink", &fakeDevice{}, func(c *Config) {
		c.Netlink = func(request []byte, port uint32) [][]byte {
			if port == 0 {
				t.Error("a request of port 0")
			}
			return [][]byte{request}
		}
	})
	endsWell(t, wait)
}

// portOfSender returns the port of a netlink address, -1 if it is none.
func portOfSender(a unix.Sockaddr) int {
	if nl, ok := a.(*unix.SockaddrNetlink); ok {
		return int(nl.Pid)
	}
	return -1
}

// startWith is start with changes to the configuration.
func startWith(t *testing.T, program string, d *fakeDevice, change func(*Config)) (*Supervisor, func() (string, syscall.WaitStatus)) {
	t.Helper()
	d.released, d.waiting = make(chan struct{}, 100), make(chan *Call, 100)
	root := t.TempDir()
	for path, text := range map[string]string{
		"/sys/devices/pci7f00:00/name": "mlx5_0\n",
		"/dev/infiniband/uverbs0":      "",
	} {
		os.MkdirAll(filepath.Dir(root+path), 0o755)
		fatal.If(t, os.WriteFile(root+path, []byte(text), 0o444))
	}
	os.MkdirAll(root+"/sys/class/infiniband", 0o755)
	fatal.If(t, os.Symlink("../../devices/pci7f00:00", root+"/sys/class/infiniband/mlx5_0"))
	r, w, err := os.Pipe()
	fatal.If(t, err)
	cfg := Config{
		Path: "/proc/self/exe", Args: []string{"program"},
		Env:   append(os.Environ(), "INTERCEPT_TEST_PROGRAM="+program),
		Stdin: os.Stdin, Stdout: w, Stderr: os.Stderr,
		Root: root, Owned: []string{"/sys/class/infiniband", "/sys/devices/pci7f00:00", "/dev/infiniband"},
		Node: func(path string) Node {
			if path == "/dev/infiniband/uverbs0" {
				return d
			}
			return nil
		},
	}
	change(&cfg)
	s, err := Start(cfg)
	w.Close()
	if err != nil {
		if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) {
			t.Skipf("NOT RUN: %v", err)
		}
		t.Fatal(err)
	}
	return s, func() (string, syscall.WaitStatus) {
		out, _ := io.ReadAll(r)
		return string(out), s.Wait()
	}
}

// aroundTree follows paths into the tree and out of it, in all the ways in which they can be named.
func aroundTree() error {
	open := func(dir int, path string) int {
		fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1
		}
		return fd
	}
	same := func(dir int, path, as string) error {
		var got, want, again unix.Stat_t
		if err := unix.Fstatat(dir, path, &got, 0); err != nil {
			return fmt.Errorf("stat of %s: %v", path, err)
		}
		if err := unix.Stat(as, &want); err != nil {
			return fmt.Errorf("stat of %s: %v", as, err)
		}
		fd := open(dir, path)
		if err := unix.Fstat(fd, &again); err != nil {
			return fmt.Errorf("open of %s: %v", path, err)
		}
		defer unix.Close(fd)
		if got.Ino != want.Ino || got.Dev != want.Dev || again.Ino != want.Ino {
			return fmt.Errorf("%s is not %s", path, as)
		}
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		return expect("the name of the descriptor of "+path, fmt.Sprint(link, err), as+"<nil>")
	}
	const name = "/sys/devices/pci7f00:00/name"
	slash, class, tree, devices := open(unix.AT_FDCWD, "/"), open(unix.AT_FDCWD, "/sys/class"), open(unix.AT_FDCWD, "/sys/class/infiniband"), open(unix.AT_FDCWD, "/sys/devices")
	for _, v := range []struct {
		dir      int
		path, as string
	}{
		{unix.AT_FDCWD, "/sys/class/infiniband/..", "/sys/class"},
		{unix.AT_FDCWD, "/sys/class/infiniband/../net", "/sys/class/net"},
		{unix.AT_FDCWD, "/sys/class/infiniband/mlx5_0/..", "/sys/devices"},
		{unix.AT_FDCWD, "/sys/class/infiniband/mlx5_0/../pci7f00:00/name", name},
		{unix.AT_FDCWD, "/sys/class/infiniband/mlx5_0/../../class/infiniband/mlx5_0/name", name},
		{unix.AT_FDCWD, "/sys/class/infiniband/mlx5_0/../..", "/sys"},
		{unix.AT_FDCWD, "/sys/class/infiniband/mlx5_0/../../..", "/"},
		{unix.AT_FDCWD, "/sys/class/infiniband/", "/sys/class/infiniband"},
		{slash, "sys/class/infiniband/mlx5_0/name", name},
		{class, "infiniband/mlx5_0/name", name},
		{class, "./infiniband//mlx5_0/name", name},
		{class, "infiniband", "/sys/class/infiniband"},
		{class, "infiniband/mlx5_0/..", "/sys/devices"},
		{class, "net", "/sys/class/net"},
		{devices, "pci7f00:00/name", name},
		{tree, "mlx5_0/name", name},
		{tree, "..", "/sys/class"},
		{tree, "../net", "/sys/class/net"},
		{tree, "../../../sys", "/sys"},
		{tree, "mlx5_0/..", "/sys/devices"},
		{tree, ".", "/sys/class/infiniband"},
	} {
		if err := same(v.dir, v.path, v.as); err != nil {
			return err
		}
	}
	for _, path := range []string{"/sys/class/infiniband", name} {
		var fs, open unix.Statfs_t
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err == nil {
			err = errors.Join(unix.Statfs(path, &fs), unix.Fstatfs(fd, &open))
		}
		if err != nil || fs.Type != unix.SYSFS_MAGIC || open.Type != unix.SYSFS_MAGIC {
			return fmt.Errorf("the file system of %s: %#x, %#x, %v", path, fs.Type, open.Type, err)
		}
	}
	// O_PATH, with which libraries take one step of a path after the other.
	step, err := unix.Openat(tree, "mlx5_0", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("a link with O_PATH: %v", err)
	}
	buf := make([]byte, 100)
	n, err := unix.Readlinkat(step, "", buf)
	if err := expect("the link", fmt.Sprint(string(buf[:max(n, 0)]), err), "../../devices/pci7f00:00<nil>"); err != nil {
		return err
	}
	if step, err = unix.Open("/sys/class/infiniband/mlx5_0/name", unix.O_PATH, 0); err != nil {
		return fmt.Errorf("a file with O_PATH: %v", err)
	}
	unix.Close(step)
	// The current folder: by its path, by a descriptor, and out again.
	for _, enter := range []func() error{
		func() error { return unix.Chdir("/sys/class/infiniband") },
		func() error { return unix.Chdir("/sys/class/infiniband/mlx5_0/../../class/infiniband") },
		func() error { return unix.Fchdir(tree) },
		func() error { return errors.Join(unix.Chdir("/sys/class"), unix.Chdir("infiniband")) },
	} {
		if err := enter(); err != nil {
			return fmt.Errorf("chdir: %v", err)
		}
		wd, err := unix.Getwd()
		if err := expect("getcwd", fmt.Sprint(wd, err), "/sys/class/infiniband<nil>"); err != nil {
			return err
		}
		wd, err = os.Readlink("/proc/self/cwd")
		if err := expect("/proc/self/cwd", fmt.Sprint(wd, err), "/sys/class/infiniband<nil>"); err != nil {
			return err
		}
		for path, as := range map[string]string{"mlx5_0/name": name, "..": "/sys/class", "../net": "/sys/class/net", "mlx5_0/..": "/sys/devices"} {
			if err := same(unix.AT_FDCWD, path, as); err != nil {
				return err
			}
		}
		if err := unix.Chdir("../net"); err != nil {
			return fmt.Errorf("chdir out of the tree: %v", err)
		}
		wd, err = unix.Getwd()
		if err := expect("getcwd", fmt.Sprint(wd, err), "/sys/class/net<nil>"); err != nil {
			return err
		}
	}
	if err := unix.Chdir("/sys/class/infiniband/mlx5_1"); err != unix.ENOENT {
		return fmt.Errorf("chdir to a folder that is not there: %v", err)
	}
	if err := unix.Chdir(name); err != unix.ENOTDIR {
		return fmt.Errorf("chdir to a file: %v", err)
	}
	return unix.Chdir("/")
}

func expect(what string, got, want any) error {
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

func ioctl(fd int, arg uintptr) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), verbsIoctl, arg)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

const nodePath = "/dev/infiniband/uverbs0"

var programs = map[string]func() error{
	"tree": func() error {
		text, err := os.ReadFile("/sys/class/infiniband/mlx5_0/name")
		if err := expect("a file behind a link", fmt.Sprintf("%s%v", text, err), "mlx5_0\n<nil>"); err != nil {
			return err
		}
		link, err := os.Readlink("/sys/class/../class//infiniband/mlx5_0")
		if err := expect("a link", fmt.Sprint(link, err), "../../devices/pci7f00:00<nil>"); err != nil {
			return err
		}
		if _, err := os.Readlink("/sys/class/infiniband"); !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("readlink of a folder: %v", err)
		}
		real, err := filepath.EvalSymlinks("/sys/class/infiniband/mlx5_0/name")
		if err := expect("the real path", fmt.Sprint(real, err), "/sys/devices/pci7f00:00/name<nil>"); err != nil {
			return err
		}
		entries, err := os.ReadDir("/sys/class/infiniband")
		if err != nil || len(entries) != 1 || entries[0].Name() != "mlx5_0" {
			return fmt.Errorf("the folder: %v %v", entries, err)
		}
		if _, err := os.Stat("/sys/class/infiniband/mlx5_1"); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("a device that is not there: %v", err)
		}
		if err := os.WriteFile("/sys/class/infiniband/mlx5_0/name", nil, 0); !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("a write to the tree: %v", err)
		}
		if _, err := os.ReadDir("/sys/class/net"); err != nil {
			return fmt.Errorf("a folder of the system: %v", err)
		}
		if _, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, netlinkRDMA); err != unix.EPROTONOSUPPORT {
			return fmt.Errorf("RDMA's netlink: %v", err)
		}
		var st unix.Stat_t
		if err := unix.Stat(nodePath, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(231, 192) {
			return fmt.Errorf("stat of the node: mode %#o, device %#x, %v", st.Mode, st.Rdev, err)
		}
		if err := unix.Access(nodePath, unix.W_OK); err != nil {
			return fmt.Errorf("access: %v", err)
		}
		if err := aroundTree(); err != nil {
			return err
		}
		long := "/sys/class/infiniband/" + strings.Repeat("x", 400)
		if err := unix.Stat(long, &st); err != unix.ENAMETOOLONG && err != unix.ENOENT {
			return fmt.Errorf("a long path: %v", err)
		}
		return nil
	},
	"device": func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil || fd < fdRanges[usualRange].first {
			return fmt.Errorf("open: %d, %v", fd, err)
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(231, 192) {
			return fmt.Errorf("fstat: mode %#o, device %#x, %v", st.Mode, st.Rdev, err)
		}
		dup, err := unix.Dup(fd)
		if err != nil {
			return fmt.Errorf("dup: %d, %v", dup, err)
		}
		fcntl, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("fcntl: %d, %v", fcntl, err)
		}
		for _, d := range []int{fd, dup, fcntl} {
			if err := unix.Fstat(d, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(231, 192) {
				return fmt.Errorf("fstat of %d: mode %#o, device %#x, %v", d, st.Mode, st.Rdev, err)
			}
			if flags, err := unix.FcntlInt(uintptr(d), unix.F_GETFD, 0); err != nil || (flags == unix.FD_CLOEXEC) != (d != dup) {
				return fmt.Errorf("descriptor %d: close on exec %d, %v", d, flags, err)
			}
			n, err := ioctl(d, 41)
			if err := expect("ioctl", fmt.Sprint(n, err), "42 <nil>"); err != nil {
				return err
			}
			if _, err := ioctl(d, 0xbad); err != unix.EPROTONOSUPPORT {
				return fmt.Errorf("a bad ioctl: %v", err)
			}
		}
		n, err := unix.Write(fd, []byte("command"))
		if err := expect("write", fmt.Sprint(n, err), "7 <nil>"); err != nil {
			return err
		}
		if _, err := ioctl(0, 1); err == nil {
			return errors.New("an ioctl of a descriptor that is no device worked")
		}
		page, err := unix.Mmap(fd, 2*4096, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil || !bytes.HasPrefix(page, []byte("page 2")) {
			return fmt.Errorf("mmap: %q %v", page[:8], err)
		}
		var queues [][]byte
		for i := range 3 {
			q, err := unix.Mmap(fd, 257*4096, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil || !bytes.HasPrefix(q, fmt.Appendf(nil, "queue %d", i)) {
				return fmt.Errorf("mmap of queue %d: %v", i, err)
			}
			queues = append(queues, q)
		}
		again, err := unix.Mmap(fd, 2*4096, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil || !bytes.HasPrefix(again, []byte("page 2")) {
			return fmt.Errorf("mmap of a page after a queue: %v", err)
		}
		if n, err := ioctl(fd, 1); n != 2 || err != nil {
			return fmt.Errorf("ioctl after mmap: %d, %v", n, err)
		}
		for _, q := range queues {
			unix.Munmap(q)
		}
		unix.Munmap(page)
		unix.Munmap(again)
		unix.Close(fd)
		unix.Close(dup)
		unix.Close(fcntl)
		// The last reference is gone. The supervisor must learn of it while the
		// program lives on.
		fmt.Println("closed")
		_, err = unix.Read(0, make([]byte, 1))
		return err
	},
	"threads": func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		errs := make(chan error, 8)
		for range cap(errs) {
			go func() {
				for range 50 {
					q, err := unix.Mmap(fd, 300*4096, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
					if err != nil || !bytes.HasPrefix(q, []byte("queue ")) {
						errs <- fmt.Errorf("mmap: %v", err)
						return
					}
					// A queue that two threads share would hold the other's mark.
					if q[100] != 0 {
						errs <- errors.New("two threads got one queue")
						return
					}
					q[100] = 1
					ioctl(fd, 1)
					unix.Munmap(q)
				}
				errs <- nil
			}()
		}
		for range cap(errs) {
			if err := <-errs; err != nil {
				return err
			}
		}
		return nil
	},
	"wait": func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte("wait"))
		return err
	},
	"wait with a handler": func() error {
		// The Go runtime sets all handlers with SA_RESTART.
		signal.Notify(make(chan os.Signal, 10), unix.SIGUSR1)
		fd, err := unix.Open(nodePath, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		n, err := unix.Write(fd, []byte("wait"))
		return expect("write", fmt.Sprint(n, err), "4 <nil>")
	},
	"netlink": func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, netlinkRDMA)
		if err != nil || fd < fdRanges[usualRange].first {
			return fmt.Errorf("the socket: %d %v", fd, err)
		}
		kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
		buf := make([]byte, 100)
		if err := unix.Sendto(fd, []byte("one"), 0, kernel); err != nil { // an unbound socket gets a number
			return fmt.Errorf("sendto: %v", err)
		}
		if name, err := unix.Getsockname(fd); portOfSender(name) != os.Getpid() {
			return fmt.Errorf("its number: %d %v", portOfSender(name), err)
		}
		// The sender is the kernel, for each way to receive, and datagrams that are longer than the buffer end.
		n, from, err := unix.Recvfrom(fd, buf[:2], unix.MSG_PEEK|unix.MSG_TRUNC)
		if err := expect("a look at the answer", fmt.Sprint(string(buf[:2]), n, portOfSender(from), err), "on3 0 <nil>"); err != nil {
			return err
		}
		n, _, flags, from, err := unix.RecvmsgBuffers(fd, [][]byte{buf[:1], buf[1:2]}, nil, unix.MSG_PEEK)
		if err := expect("a look at the answer by recvmsg", fmt.Sprint(string(buf[:n]), flags, portOfSender(from), err), "on32 0 <nil>"); err != nil {
			return err
		}
		n, _, flags, from, err = unix.RecvmsgBuffers(fd, [][]byte{buf[:1], buf[1:]}, make([]byte, 64), 0)
		if err := expect("the answer by recvmsg", fmt.Sprint(string(buf[:n]), flags, portOfSender(from), err), "one0 0 <nil>"); err != nil {
			return err
		}
		if _, _, err := unix.Recvfrom(fd, buf, 0); err != unix.EAGAIN {
			return fmt.Errorf("a second answer: %v", err)
		}
		if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); protocol != netlinkRDMA || err != nil {
			return fmt.Errorf("the protocol: %d %v", protocol, err)
		}
		// Datagrams of others keep their sender, also in a socket of the program's own with such a number.
		foreign, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, netlinkUser)
		if err != nil {
			return err
		}
		own, err := unix.Getsockname(fd)
		if err == nil {
			err = unix.Sendto(foreign, []byte("foreign"), 0, own)
		}
		if err != nil {
			return fmt.Errorf("from another socket: %v", err)
		}
		other, _ := unix.Getsockname(foreign)
		n, from, err = unix.Recvfrom(fd, buf, 0)
		if err := expect("another's datagram", fmt.Sprint(string(buf[:n]), portOfSender(from), err), fmt.Sprint("foreign", portOfSender(other), " <nil>")); err != nil {
			return err
		}
		for _, nr := range []uintptr{unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_GETSOCKOPT} {
			unix.Sendto(fd, []byte("lost"), 0, kernel)
			if _, _, errno := unix.Syscall6(nr, uintptr(fd), 8, 100, 0, 8, 8); errno == 0 {
				return fmt.Errorf("call %d at address 8 succeeds", nr)
			}
			unix.Recvfrom(fd, buf, 0)
		}
		if n, err := unix.SendmsgBuffers(fd, [][]byte{[]byte("t"), []byte("wo")}, nil, nil, 0); n != 3 || err != nil {
			return fmt.Errorf("sendmsg: %d %v", n, err)
		}
		n, _, err = unix.Recvfrom(fd, buf, 0)
		if err := expect("the answer", fmt.Sprint(string(buf[:n]), err), "two<nil>"); err != nil {
			return err
		}
		// What the supervisor does not take, the kernel refuses.
		if err := unix.Sendto(fd, make([]byte, mostNetlink+1), 0, kernel); err == nil {
			return errors.New("a request that is too long was taken")
		}
		if _, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), 8, 100, 0, 0, 0); errno == 0 {
			return errors.New("a request at address 8 was taken")
		}
		if _, _, errno := unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), 8, 0); errno == 0 {
			return errors.New("a message at address 8 was taken")
		}
		if err := unix.Connect(fd, kernel); err != nil { // answers arrive afterwards, too
			return fmt.Errorf("connect: %v", err)
		}
		// A receiver that waits has the kernel as the sender, and its limit of time ends it.
		unix.SetNonblock(fd, false)
		late := make(chan string)
		go func() {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			late <- fmt.Sprint(string(buf[:max(n, 0)]), portOfSender(from), err)
		}()
		time.Sleep(20 * time.Millisecond)
		n, err = unix.Write(fd, []byte("late"))
		if err := expect("what a receiver waits for", fmt.Sprint(n, err, <-late), "4 <nil>late0 <nil>"); err != nil {
			return err
		}
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000})
		if _, _, err := unix.Recvfrom(fd, buf, 0); err != unix.EAGAIN {
			return fmt.Errorf("a receiver with a limit: %v", err)
		}
		if typ, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_STREAM, netlinkRDMA); err != unix.ESOCKTNOSUPPORT {
			return fmt.Errorf("a stream: %d %v", typ, err)
		}
		// Answers that nobody reads are lost, and nobody waits for the reader.
		for range 1000 {
			if err := unix.Sendto(fd, []byte("unread"), 0, kernel); err != nil {
				return fmt.Errorf("with a full queue: %v", err)
			}
		}
		// A socket of the program's own with such a number stays its own.
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Dup2(pair[0], fdRanges[usualRange].sockets().last); err != nil {
			return err
		}
		if err := unix.Sendto(fdRanges[usualRange].sockets().last, []byte("own"), 0, nil); err != nil {
			return fmt.Errorf("a socket of the program's own: %v", err)
		}
		n, _, err = unix.Recvfrom(pair[1], buf, 0)
		return expect("its datagram", fmt.Sprint(string(buf[:n]), err), "own<nil>")
	},
	"killed": func() error {
		fd, err := unix.Open(nodePath, unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		ioctl(fd, 1)
		return unix.Kill(unix.Getpid(), unix.SIGKILL)
	},
	"opens": func() error {
		for range 100 {
			fd, err := unix.Open(nodePath, unix.O_RDWR, 0)
			if err != nil {
				return err
			}
			unix.Close(fd)
		}
		return nil
	},
}

func TestProcessTree(t *testing.T) {
	_, end := start(t, "tree", &fakeDevice{})
	endsWell(t, end)
}

func TestDevice(t *testing.T) {
	d := &fakeDevice{}
	r, w, err := os.Pipe()
	fatal.If(t, err)
	stdin := os.Stdin
	os.Stdin = r
	_, end := start(t, "device", d)
	os.Stdin = stdin
	r.Close()
	<-d.released // before the program ends
	w.Close()
	endsWell(t, end)
	if got := fmt.Sprint(d.opened, d.ioctls, d.writes, len(d.mapped), d.unmapped); got != "1 [41 2989 41 2989 41 2989 1] [command] 3 3" {
		t.Errorf("the device saw %s", got)
	}
}

func TestMappingThreads(t *testing.T) {
	d := &fakeDevice{}
	_, end := start(t, "threads", d)
	endsWell(t, end)
	<-d.released
}

func TestDeferredCall(t *testing.T) {
	d := &fakeDevice{}
	_, end := start(t, "wait", d)
	(<-d.waiting).Return(4)
	endsWell(t, end)
}

// TestRestartedCall sends a signal to a thread whose call waits. The handler was set with SA_RESTART,
// so that the kernel makes the call once more.
func TestRestartedCall(t *testing.T) {
	d := &fakeDevice{}
	s, end := start(t, "wait with a handler", d)
	c := <-d.waiting
	for range 2 {
		fatal.If(t, unix.Tgkill(s.Pid(), c.Thread(), unix.SIGUSR1))
		c = <-d.waiting
	}
	c.Return(4)
	endsWell(t, end)
}

func TestKilledWhileWaiting(t *testing.T) {
	d := &fakeDevice{}
	s, end := start(t, "wait", d)
	c := <-d.waiting
	s.Signal(syscall.SIGKILL)
	if _, state := end(); state.Signal() != syscall.SIGKILL {
		t.Errorf("ended with %#x", state)
	}
	<-d.released
	c.Return(0) // too late, and harmless
}

func TestReleasedByKill(t *testing.T) {
	d := &fakeDevice{}
	_, end := start(t, "killed", d)
	if _, state := end(); state.Signal() != syscall.SIGKILL {
		t.Errorf("ended with %#x", state)
	}
	<-d.released
}

func TestReleasedByEachClose(t *testing.T) {
	d := &fakeDevice{}
	_, end := start(t, "opens", d)
	for range 100 {
		<-d.released
	}
	endsWell(t, end)
}
