package share

import (
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
// that a stranger has bound is passed over.
const variants = 4

// variant returns variant i of a name.
func variant(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s/+%d", name, i)
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
		who.text = "a program that does not listen there"
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
	u, err := peer(c)
	if err == nil {
		if err = ours(u); err == nil {
			return c, nil
		}
		if who != nil {
			*who = stranger{name, fmt.Sprintf("process %d of user %d (%v)", u.Pid, u.Uid, err)}
		}
	}
	c.Close()
	return nil, err
}

// peer returns the credentials of the process at the other end of c: of the one that called listen, or
// connect.
func peer(c *net.UnixConn) (u *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) { u, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil {
		return nil, e
	}
	return u, err
}

// ours returns nil for the credentials of this process's user, in this process's user namespace. The number of the user is
// not enough: in a container that shares the host's network, root has the number 0, or the number of the user who
// started the container.
func ours(u *unix.Ucred) error {
	const op = "share an address"
	switch {
	case int(u.Uid) != os.Geteuid():
		return failure.New(op, syscall.EACCES, "another user than %d", os.Geteuid())
	case int(u.Pid) == os.Getpid():
		return nil
	case u.Pid == 0:
		return failure.New(op, syscall.EACCES, "in another PID namespace, so that its user namespace cannot be compared")
	}
	own, err := userNamespace()
	if err != nil {
		return err
	}
	theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", u.Pid))
	switch {
	case err != nil:
		return failure.New(op, syscall.EACCES, "its user namespace cannot be read: %v", err)
	case theirs != own:
		return failure.New(op, syscall.EACCES, "in user namespace %s, this process is in %s", theirs, own)
	}
	return nil
}

// userNamespace names the user namespace of this process.
var userNamespace = sync.OnceValues(func() (string, error) { return os.Readlink("/proc/self/ns/user") })

// sameUser reports whether the process at the other end of c is one of this process's user.
func sameUser(c *net.UnixConn) bool {
	u, err := peer(c)
	return err == nil && ours(u) == nil
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
	k.serving.Go(func() {
		for { // a full backlog would hide the owner of the lock
			c, err := k.l.AcceptUnix()
			switch {
			case err == nil:
				c.Close()
			case errors.Is(err, net.ErrClosed):
				return
			default: // the process has no free descriptors
				time.Sleep(10 * time.Millisecond)
			}
		}
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
