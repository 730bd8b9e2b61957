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
		programs[name]()
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
func aroundTree() {
	open := func(dir int, path string) int {
		fd, err := unix.Openat(dir, path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return -1
		}
		return fd
	}
	same := func(dir int, path, as string) {
		var got, real, again unix.Stat_t
		want("stat of "+path, unix.Fstatat(dir, path, &got, 0), nil)
		want("stat of "+as, unix.Stat(as, &real), nil)
		fd := open(dir, path)
		want("open of "+path, unix.Fstat(fd, &again), nil)
		defer unix.Close(fd)
		if got.Ino != real.Ino || got.Dev != real.Dev || again.Ino != real.Ino {
			want(path, "another file", as)
		}
		link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		want("the name of the descriptor of "+path, fmt.Sprint(link, err), as+"<nil>")
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
		same(v.dir, v.path, v.as)
	}
	for _, path := range []string{"/sys/class/infiniband", name} {
		var fs, open unix.Statfs_t
		fd, err := unix.Open(path, unix.O_RDONLY, 0)
		if err == nil {
			err = errors.Join(unix.Statfs(path, &fs), unix.Fstatfs(fd, &open))
		}
		want("the file system of "+path, fmt.Sprint(fs.Type, open.Type, err), fmt.Sprint(unix.SYSFS_MAGIC, unix.SYSFS_MAGIC, nil))
	}
	// O_PATH, with which libraries take one step of a path after the other.
	step, err := unix.Openat(tree, "mlx5_0", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	want("a link with O_PATH", err, nil)
	buf := make([]byte, 100)
	n, err := unix.Readlinkat(step, "", buf)
	want("the link", fmt.Sprint(string(buf[:max(n, 0)]), err), "../../devices/pci7f00:00<nil>")
	step, err = unix.Open("/sys/class/infiniband/mlx5_0/name", unix.O_PATH, 0)
	want("a file with O_PATH", err, nil)
	unix.Close(step)
	// The current folder: by its path, by a descriptor, and out again.
	for _, enter := range []func() error{
		func() error { return unix.Chdir("/sys/class/infiniband") },
		func() error { return unix.Chdir("/sys/class/infiniband/mlx5_0/../../class/infiniband") },
		func() error { return unix.Fchdir(tree) },
		func() error { return errors.Join(unix.Chdir("/sys/class"), unix.Chdir("infiniband")) },
	} {
		want("chdir", enter(), nil)
		wd, err := unix.Getwd()
		want("getcwd", fmt.Sprint(wd, err), "/sys/class/infiniband<nil>")
		wd, err = os.Readlink("/proc/self/cwd")
		want("/proc/self/cwd", fmt.Sprint(wd, err), "/sys/class/infiniband<nil>")
		for path, as := range map[string]string{"mlx5_0/name": name, "..": "/sys/class", "../net": "/sys/class/net", "mlx5_0/..": "/sys/devices"} {
			same(unix.AT_FDCWD, path, as)
		}
		want("chdir out of the tree", unix.Chdir("../net"), nil)
		wd, err = unix.Getwd()
		want("getcwd", fmt.Sprint(wd, err), "/sys/class/net<nil>")
	}
	want("chdir to a folder that is not there", unix.Chdir("/sys/class/infiniband/mlx5_1"), unix.ENOENT)
	want("chdir to a file", unix.Chdir(name), unix.ENOTDIR)
	want("chdir to /", unix.Chdir("/"), nil)
}

// want ends the test's program with status 1 if got and wanted differ. what names the value.
func want(what string, got, wanted any) {
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		fmt.Printf("program: %s: %v, want %v\n", what, got, wanted)
		os.Exit(1)
	}
}

// ioctl returns the result of an ioctl with its error.
func ioctl(fd int, arg uintptr) string {
	n, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), verbsIoctl, arg)
	if errno != 0 {
		return errno.Error()
	}
	return fmt.Sprint(n)
}

const nodePath = "/dev/infiniband/uverbs0"

// open opens the device.
func open() int {
	fd, err := unix.Open(nodePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	want("open", err, nil)
	return fd
}

// wantNode checks that stat has returned a character device with the device's number.
func wantNode(what string, st *unix.Stat_t, err error) {
	want(what, fmt.Sprintf("%#o %#x %v", st.Mode&unix.S_IFMT, st.Rdev, err), fmt.Sprintf("%#o %#x <nil>", unix.S_IFCHR, unix.Mkdev(231, 192)))
}

var programs = map[string]func(){
	"tree": func() {
		text, err := os.ReadFile("/sys/class/infiniband/mlx5_0/name")
		want("a file behind a link", fmt.Sprintf("%s%v", text, err), "mlx5_0\n<nil>")
		link, err := os.Readlink("/sys/class/../class//infiniband/mlx5_0")
		want("a link", fmt.Sprint(link, err), "../../devices/pci7f00:00<nil>")
		_, err = os.Readlink("/sys/class/infiniband")
		want("readlink of a folder", errors.Is(err, unix.EINVAL), true)
		real, err := filepath.EvalSymlinks("/sys/class/infiniband/mlx5_0/name")
		want("the real path", fmt.Sprint(real, err), "/sys/devices/pci7f00:00/name<nil>")
		entries, err := os.ReadDir("/sys/class/infiniband")
		want("the folder", fmt.Sprint(entries, err), "[L mlx5_0] <nil>")
		_, err = os.Stat("/sys/class/infiniband/mlx5_1")
		want("a device that is not there", errors.Is(err, os.ErrNotExist), true)
		want("a write to the tree", errors.Is(os.WriteFile("/sys/class/infiniband/mlx5_0/name", nil, 0), os.ErrPermission), true)
		_, err = os.ReadDir("/sys/class/net")
		want("a folder of the system", err, nil)
		_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, netlinkRDMA)
		want("RDMA's netlink", err, unix.EPROTONOSUPPORT)
		var st unix.Stat_t
		wantNode("stat of the node", &st, unix.Stat(nodePath, &st))
		want("access", unix.Access(nodePath, unix.W_OK), nil)
		aroundTree()
		long := "/sys/class/infiniband/" + strings.Repeat("x", 400)
		if err := unix.Stat(long, &st); err != unix.ENAMETOOLONG {
			want("a long path", err, unix.ENOENT)
		}
	},
	"device": func() {
		fd := open()
		want("a number of a device", fd >= fdRanges[usualRange].first, true)
		var st unix.Stat_t
		wantNode("fstat", &st, unix.Fstat(fd, &st))
		dup, err := unix.Dup(fd)
		want("dup", err, nil)
		fcntl, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		want("fcntl", err, nil)
		for _, d := range []int{fd, dup, fcntl} {
			wantNode(fmt.Sprint("fstat of ", d), &st, unix.Fstat(d, &st))
			flags, err := unix.FcntlInt(uintptr(d), unix.F_GETFD, 0)
			want("close on exec", fmt.Sprint(flags == unix.FD_CLOEXEC, err), fmt.Sprint(d != dup, nil))
			want("ioctl", ioctl(d, 41), 42)
			want("a bad ioctl", ioctl(d, 0xbad), unix.EPROTONOSUPPORT)
		}
		n, err := unix.Write(fd, []byte("command"))
		want("write", fmt.Sprint(n, err), "7 <nil>")
		want("an ioctl of a descriptor that is no device", ioctl(0, 1), unix.ENOTTY)
		page, err := unix.Mmap(fd, 2*4096, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil || !bytes.HasPrefix(page, []byte("page 2")) {
			want("mmap", err, "page 2")
		}
		var queues [][]byte
		for i := range 3 {
			q, err := unix.Mmap(fd, 257*4096, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if text := fmt.Sprint("queue ", i); err != nil || !bytes.HasPrefix(q, []byte(text)) {
				want("mmap of a queue", err, text)
			}
			queues = append(queues, q)
		}
		again, err := unix.Mmap(fd, 2*4096, 4096, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil || !bytes.HasPrefix(again, []byte("page 2")) {
			want("mmap of a page after a queue", err, "page 2")
		}
		want("ioctl after mmap", ioctl(fd, 1), 2)
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
		want("read", err, nil)
	},
	"threads": func() {
		fd := open()
		var threads sync.WaitGroup
		for range 8 {
			threads.Go(func() {
				for range 50 {
					q, err := unix.Mmap(fd, 300*4096, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
					if err != nil || !bytes.HasPrefix(q, []byte("queue ")) {
						want("mmap", err, "a queue")
					}
					// A queue that two threads share would hold the other's mark.
					want("the mark in a queue", q[100], 0)
					q[100] = 1
					ioctl(fd, 1)
					unix.Munmap(q)
				}
			})
		}
		threads.Wait()
	},
	"wait": func() {
		_, err := unix.Write(open(), []byte("wait"))
		want("write", err, nil)
	},
	"wait with a handler": func() {
		// The Go runtime sets all handlers with SA_RESTART.
		signal.Notify(make(chan os.Signal, 10), unix.SIGUSR1)
		n, err := unix.Write(open(), []byte("wait"))
		want("write", fmt.Sprint(n, err), "4 <nil>")
	},
	"netlink": func() {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, netlinkRDMA)
		want("the socket", fmt.Sprint(fd >= fdRanges[usualRange].first, err), "true <nil>")
		kernel := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
		buf := make([]byte, 100)
		want("sendto", unix.Sendto(fd, []byte("one"), 0, kernel), nil) // an unbound socket gets a number
		name, err := unix.Getsockname(fd)
		want("its number", fmt.Sprint(portOfSender(name), err), fmt.Sprint(os.Getpid(), nil))
		// The sender is the kernel, for each way to receive, and datagrams that are longer than the buffer end.
		n, from, err := unix.Recvfrom(fd, buf[:2], unix.MSG_PEEK|unix.MSG_TRUNC)
		want("a look at the answer", fmt.Sprint(string(buf[:2]), n, portOfSender(from), err), "on3 0 <nil>")
		n, _, flags, from, err := unix.RecvmsgBuffers(fd, [][]byte{buf[:1], buf[1:2]}, nil, unix.MSG_PEEK)
		want("a look at the answer by recvmsg", fmt.Sprint(string(buf[:n]), flags, portOfSender(from), err), "on32 0 <nil>")
		n, _, flags, from, err = unix.RecvmsgBuffers(fd, [][]byte{buf[:1], buf[1:]}, make([]byte, 64), 0)
		want("the answer by recvmsg", fmt.Sprint(string(buf[:n]), flags, portOfSender(from), err), "one0 0 <nil>")
		_, _, err = unix.Recvfrom(fd, buf, 0)
		want("a second answer", err, unix.EAGAIN)
		protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
		want("the protocol", fmt.Sprint(protocol, err), fmt.Sprint(netlinkRDMA, nil))
		// Datagrams of others keep their sender, also in a socket of the program's own with such a number.
		foreign, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, netlinkUser)
		want("another socket", err, nil)
		own, err := unix.Getsockname(fd)
		want("the address", err, nil)
		want("from another socket", unix.Sendto(foreign, []byte("foreign"), 0, own), nil)
		other, _ := unix.Getsockname(foreign)
		n, from, err = unix.Recvfrom(fd, buf, 0)
		want("another's datagram", fmt.Sprint(string(buf[:n]), portOfSender(from), err), fmt.Sprint("foreign", portOfSender(other), " <nil>"))
		for _, nr := range []uintptr{unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_GETSOCKOPT} {
			unix.Sendto(fd, []byte("lost"), 0, kernel)
			_, _, errno := unix.Syscall6(nr, uintptr(fd), 8, 100, 0, 8, 8)
			want(fmt.Sprint("success of call ", nr, " at address 8"), errno == 0, false)
			unix.Recvfrom(fd, buf, 0)
		}
		n, err = unix.SendmsgBuffers(fd, [][]byte{[]byte("t"), []byte("wo")}, nil, nil, 0)
		want("sendmsg", fmt.Sprint(n, err), "3 <nil>")
		n, _, err = unix.Recvfrom(fd, buf, 0)
		want("the answer", fmt.Sprint(string(buf[:n]), err), "two<nil>")
		// What the supervisor does not take, the kernel refuses.
		want("success of a request that is too long", unix.Sendto(fd, make([]byte, mostNetlink+1), 0, kernel) == nil, false)
		_, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(fd), 8, 100, 0, 0, 0)
		want("success of a request at address 8", errno == 0, false)
		_, _, errno = unix.Syscall(unix.SYS_SENDMSG, uintptr(fd), 8, 0)
		want("success of a message at address 8", errno == 0, false)
		want("connect", unix.Connect(fd, kernel), nil) // answers arrive afterwards, too
		// A receiver that waits has the kernel as the sender, and its limit of time ends it.
		unix.SetNonblock(fd, false)
		late := make(chan string)
		go func() {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			late <- fmt.Sprint(string(buf[:max(n, 0)]), portOfSender(from), err)
		}()
		time.Sleep(20 * time.Millisecond)
		n, err = unix.Write(fd, []byte("late"))
		want("what a receiver waits for", fmt.Sprint(n, err, <-late), "4 <nil>late0 <nil>")
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 1000})
		_, _, err = unix.Recvfrom(fd, buf, 0)
		want("a receiver with a limit", err, unix.EAGAIN)
		_, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_STREAM, netlinkRDMA)
		want("a stream", err, unix.ESOCKTNOSUPPORT)
		// Answers that nobody reads are lost, and nobody waits for the reader.
		for range 1000 {
			want("with a full queue", unix.Sendto(fd, []byte("unread"), 0, kernel), nil)
		}
		// A socket of the program's own with such a number stays its own.
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		want("a pair of sockets", err, nil)
		want("dup2", unix.Dup2(pair[0], fdRanges[usualRange].sockets().last), nil)
		want("a socket of the program's own", unix.Sendto(fdRanges[usualRange].sockets().last, []byte("own"), 0, nil), nil)
		n, _, err = unix.Recvfrom(pair[1], buf, 0)
		want("its datagram", fmt.Sprint(string(buf[:n]), err), "own<nil>")
	},
	"killed": func() {
		ioctl(open(), 1)
		unix.Kill(unix.Getpid(), unix.SIGKILL)
	},
	"opens": func() {
		for range 100 {
			unix.Close(open())
		}
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
