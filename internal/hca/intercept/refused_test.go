//go:build linux && (amd64 || arm64)

package intercept

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	programs["forbidden"] = func() {
		nr, _ := strconv.Atoi(os.Getenv("INTERCEPT_TEST_CALL"))
		errno, _ := strconv.Atoi(os.Getenv("INTERCEPT_TEST_ERRNO"))
		want("a filter", forbid(uint32(nr), syscall.Errno(errno)), nil)
		startHere()
	}
	programs["nested"] = startHere
	programs["few descriptors"] = func() {
		limitFiles(150, 150)
		startHere()
	}
	programs["low limit"] = func() {
		var limit unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
		limitFiles(100, limit.Max)
		want("a number of a device", open() >= fdRanges[usualRange].first, true)
	}
	programs["low hard limit"] = func() {
		limitFiles(500, 500)
		fd := open()
		want("a number below the limit", fd >= fdRanges[0].first && fd < 500, true)
		served(fd)
	}
	programs["no number"] = func() {
		limitFiles(150, 150)
		_, err := unix.Open(nodePath, unix.O_RDWR, 0)
		want("open", err, unix.EMFILE)
	}
	programs["many files"] = func() {
		var limit unix.Rlimit
		unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
		if limit.Max < 4096 {
			return
		}
		limitFiles(4096, limit.Max)
		for fd := 0; fd < 1200; {
			var err error
			fd, err = unix.Open("/dev/null", unix.O_RDWR, 0)
			want("open of /dev/null", err, nil)
		}
		fd := open()
		want("a number above the files", fd > 1200, true)
		// The program's own files in the ranges of devices stay its own.
		for own := fdRanges[usualRange].first; own <= fdRanges[usualRange].last; own++ {
			var st unix.Stat_t
			err := unix.Fstat(own, &st)
			want(fmt.Sprint("fstat of descriptor ", own), fmt.Sprint(st.Rdev, err), fmt.Sprint(unix.Mkdev(1, 3), nil))
			n, err := unix.Write(own, []byte("own"))
			want(fmt.Sprint("write to descriptor ", own), fmt.Sprint(n, err), "3 <nil>")
		}
		served(fd)
	}
	programs["undumpable"] = func() {
		want("prctl", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0), nil)
		_, err := unix.Open(nodePath, unix.O_RDWR, 0)
		want("open", err, unix.ENOENT)
	}
}

// limitFiles sets the limits of open files.
func limitFiles(soft, hard uint64) {
	want("setrlimit", unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: hard}), nil)
}

// served checks that a descriptor is the device: its ioctl, fstat and write, and those of a copy.
func served(fd int) {
	again, err := unix.Dup(fd)
	want("dup", err, nil)
	for _, fd := range []int{fd, again} {
		want("ioctl", ioctl(fd, 1), 2)
		var st unix.Stat_t
		wantNode("fstat", &st, unix.Fstat(fd, &st))
		n, err := unix.Write(fd, []byte("command"))
		want("write", fmt.Sprint(n, err), "7 <nil>")
	}
}

// startHere prints why this process cannot be a supervisor.
func startHere() {
	s, err := Start(Config{Path: "/bin/true", Args: []string{"true"}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Root: "/"})
	if err == nil {
		s.Wait()
	}
	fmt.Print(err)
}

// forbid makes a system call fail in this process and those that it starts.
func forbid(nr uint32, errno syscall.Errno) error {
	p := &program{labels: map[string]int{}}
	p.load(dataNr)
	p.jumpIf(unix.BPF_JEQ, nr, "refuse", "")
	p.ret(retAllow)
	p.label("refuse")
	p.ret(unix.SECCOMP_RET_ERRNO | uint32(errno))
	code := p.link()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	const everyThread = 1 // SECCOMP_FILTER_FLAG_TSYNC
	if _, _, errno := syscall.Syscall(unix.SYS_SECCOMP, setModeFilter, everyThread, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return errno
	}
	return nil
}

// TestForbidden runs a supervisor where the kernel, or a container's profile,
// refuses a system call that it needs.
func TestForbidden(t *testing.T) {
	for _, test := range []struct {
		name  string
		call  int
		errno syscall.Errno
		says  string
	}{
		{"old kernel", unix.SYS_SECCOMP, unix.EINVAL, "Linux 5.19 or newer is needed"},
		{"no seccomp", unix.SYS_SECCOMP, unix.EPERM, "seccomp is forbidden here"},
		{"no seccomp in the kernel", unix.SYS_SECCOMP, unix.ENOSYS, "seccomp is forbidden here"},
		{"another supervisor", unix.SYS_SECCOMP, unix.EBUSY, "already under a supervisor"},
		{"no memory of others", unix.SYS_PROCESS_VM_READV, unix.EPERM, "process_vm_readv"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := exec.Command("/proc/self/exe")
			c.Env = append(os.Environ(), "INTERCEPT_TEST_PROGRAM=forbidden",
				fmt.Sprintf("INTERCEPT_TEST_CALL=%d", test.call), fmt.Sprintf("INTERCEPT_TEST_ERRNO=%d", test.errno))
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), test.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func TestNested(t *testing.T) {
	_, end := start(t, "nested", &fakeDevice{})
	if out, state := end(); state != 0 || !strings.Contains(out, "already under a supervisor") {
		t.Errorf("%v: %s", state, out)
	}
}

func TestFewDescriptors(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), "INTERCEPT_TEST_PROGRAM=few descriptors")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "the hard limit of open files is 150") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestLowLimit opens the device in a process whose soft limit of descriptors is
// lower than the numbers of devices.
func TestLowLimit(t *testing.T) {
	_, end := start(t, "low limit", &fakeDevice{})
	endsWell(t, end)
}

// TestDescriptors opens the device in processes whose hard limit is low, and which have many files
// open. The last one finds no number, and the supervisor says why.
func TestDescriptors(t *testing.T) {
	for _, program := range []string{"low hard limit", "many files", "no number"} {
		var mu sync.Mutex // several calls may be refused at a time
		var refused []string
		_, end := startWith(t, program, &fakeDevice{}, func(cfg *Config) {
			cfg.Refused = func(_ int, what string, err error) {
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, what+": "+err.Error())
			}
		})
		if out, state := end(); state != 0 {
			t.Errorf("%s: %v: %s", program, state, out)
		}
		mu.Lock()
		why := strings.Join(refused, "\n")
		mu.Unlock()
		if want := program == "no number"; want != strings.Contains(why, "open /dev/infiniband/uverbs0: ") || want != strings.Contains(why, "open files is 150") {
			t.Errorf("%s: the reason %q", program, why)
		}
	}
}

// TestUndumpable runs a process whose memory the kernel keeps from its user.
func TestUndumpable(t *testing.T) {
	if os.Geteuid() == 0 { // who may read every process's memory
		c := exec.Command("/proc/self/exe", "-test.run=^TestUndumpable$")
		c.Dir = "/"
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("as an ordinary user: %v: %s", err, out)
		}
		return
	}
	warned := make(chan error, 1)
	_, end := startWith(t, "undumpable", &fakeDevice{}, func(cfg *Config) { cfg.Warn = func(err error) { warned <- err } })
	endsWell(t, end)
	if err := <-warned; !errors.Is(err, unix.EPERM) {
		t.Errorf("the warning: %v", err)
	}
}
