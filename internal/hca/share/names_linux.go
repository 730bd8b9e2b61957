package share

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/base/failure"
)

// Abstract names belong to nobody: any user in the network namespace can bind any name. So a process
// binds one of several variants of a name, and looks for others at all of them. A socket counts only if
// the kernel says that a process of the same user, in the same user namespace, listens there. A variant
// that a stranger has bound is passed over. Strangers cannot guess the variants after the first one.
const variants = 4

// variant returns variant i of a name.
func variant(name string, i int) string {
	switch s := secret(); {
	case i == 0:
		return name
	case s == nil:
		return fmt.Sprintf("%s/+%d", name, i)
	default:
		sum := sha256.Sum256(fmt.Appendf(s[:len(s):len(s)], "%s/%d", name, i))
		return fmt.Sprintf("%s/%x", name, sum[:6])
	}
}

// errHeld says that a process of the user has a name.
var errHeld = errors.New("another process of this user has the name")

// listenTime is the time that a process is expected to need between binding a name and listening there.
const listenTime = 20 * time.Millisecond

// hold listens at a name. The error is errHeld if a process of the user has the name, and EADDRINUSE if
// strangers have all variants.
func hold(name string) (*net.UnixListener, error) {
	var who stranger
	for i := range variants {
		c, err := dial(variant(name, i), &who)
		if err == nil {
			c.Close()
			return nil, errHeld
		}
	}
	for i := range variants {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: variant(name, i), Net: "unixpacket"})
		if errors.Is(err, unix.EADDRINUSE) {
			// A process of the user may have bound it a moment ago.
			for end := time.Now().Add(listenTime); time.Now().Before(end); time.Sleep(time.Millisecond) {
				c, err := dial(variant(name, i), &who)
				if err == nil {
					c.Close()
					return nil, errHeld
				}
				if who.name == variant(name, i) {
					break
				}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for before := range i { // somebody may have bound an earlier variant meanwhile
			if c, err := dial(variant(name, before), &who); err == nil {
				c.Close()
				l.Close()
				return nil, errHeld
			}
		}
		return l, nil
	}
	if who.name == "" {
		who.text = cmp.Or(nameOwner(name), "a program that does not listen there")
	}
	return nil, failure.New("share an address", syscall.EADDRINUSE, "the abstract UNIX socket %s and %d variants of the name are bound by %s: end it, or use another address", name, variants-1, who.text)
}

// find connects to the process of the user that listens at a name.
func find(name string) (*net.UnixConn, error) {
	var err error
	for i := range variants {
		var c *net.UnixConn
		if c, err = dial(variant(name, i), nil); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// stranger describes a process that has bound a name and is not the user's.
type stranger struct {
	name string // empty: none was found
	text string
}

// dial connects to a process of the user at exactly one name. A stranger is noted in who, unless it is nil.
func dial(name string, who *stranger) (*net.UnixConn, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	u, err := ours(c)
	if err == nil {
		return c, nil
	}
	if u != nil && who != nil {
		*who = stranger{name, fmt.Sprintf("process %d of user %d (%v)", u.Pid, u.Uid, err)}
	}
	c.Close()
	return nil, err
}

// ours returns the credentials of the process at the other end of c, which called listen or connect. The error is nil
// if the process is one of this process's user, in this process's user namespace.
func ours(c *net.UnixConn) (u *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { u, err = oursAt(int(fd)) }); e != nil {
		return nil, e
	}
	return u, err
}

// oursAt is ours for a descriptor. The number of the user is not enough: in a container that shares the host's network,
// root has the number 0, or the number of the user who started the container.
func oursAt(fd int) (*unix.Ucred, error) {
	const op = "share an address"
	u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	switch {
	case err != nil:
		return nil, err
	case int(u.Uid) != os.Geteuid():
		return u, failure.New(op, syscall.EACCES, "another user than %d", os.Geteuid())
	case int(u.Pid) == os.Getpid():
		return u, nil
	}
	own, err := userNamespace()
	if err != nil {
		return u, err
	}
	theirs, err := userNamespaceOf(fd, int(u.Pid))
	switch {
	case err != nil && u.Pid == 0:
		return u, failure.New(op, syscall.EACCES, "in another PID namespace, and its user namespace cannot be read, which needs Linux 6.11: %v", err)
	case err != nil:
		return u, failure.New(op, syscall.EACCES, "its user namespace cannot be read: %v", err)
	case theirs != own:
		return u, failure.New(op, syscall.EACCES, "in user namespace %s, this process is in %s", theirs, own)
	}
	return u, nil
}

// userNamespace names the user namespace of this process.
var userNamespace = sync.OnceValues(func() (string, error) { return os.Readlink("/proc/self/ns/user") })

// pidfdGetUserNamespace is the ioctl PIDFD_GET_USER_NAMESPACE, _IO(0xff, 9), of Linux 6.11 (include/uapi/linux/pidfd.h).
// The upper half of _IO differs between processors; NS_GET_USERNS is an _IO too.
const pidfdGetUserNamespace = unix.NS_GET_USERNS&^0xffff | 0xff<<8 | 9

// userNamespaceOf names the user namespace of the process at the other end of the socket fd. The process has the number
// pid, which is 0 if it is in a PID namespace that this process does not see: another container of a pod, for example.
func userNamespaceOf(fd, pid int) (string, error) {
	if pid != 0 {
		return os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	}
	process, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return "", os.NewSyscallError("SO_PEERPIDFD", err)
	}
	defer unix.Close(process)
	namespace, err := unix.IoctlRetInt(process, pidfdGetUserNamespace)
	if err != nil {
		return "", os.NewSyscallError("PIDFD_GET_USER_NAMESPACE", err)
	}
	defer unix.Close(namespace)
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", namespace))
}

// sameUser reports whether the process at the other end of c is one of this process's user.
func sameUser(c *net.UnixConn) bool {
	_, err := ours(c)
	return err == nil
}

// lock is a name that one process of the user has at a time.
type lock struct {
	l       *net.UnixListener
	serving sync.WaitGroup
}

// take takes the lock with a name. The error is errHeld if another process has it.
func (k *lock) take(name string) (err error) {
	if k.l, err = hold(name); err != nil {
		return err
	}
	k.serving.Go(func() { // a full backlog would hide the owner of the lock
		accept(k.l, &k.serving, func(c *net.UnixConn) { c.Close() })
	})
	return nil
}

// release lets go of the lock, if it was taken.
func (k *lock) release() {
	if k.l != nil {
		k.l.Close()
		k.serving.Wait()
		k.l = nil
	}
}
