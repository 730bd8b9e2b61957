package share

import (
	"crypto/rand"
	"errors"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// secretSize is the number of bytes of a secret.
const secretSize = 16

// secret has bytes that all processes of this process's user, in its user namespace, can read, and strangers cannot. nil:
// this process may not use the kernel's keys, as in some containers.
var secret = sync.OnceValue(ownSecret)

func ownSecret() []byte {
	b, err := readSecret()
	if errors.Is(err, unix.ENOKEY) {
		makeSecret()
		b, _ = readSecret() // of another process, if that was faster
	}
	return b
}

// secretName is the name of the key in the user's keyring.
const secretName = "softmkey"

func readSecret() ([]byte, error) {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", secretName, 0)
	if err != nil {
		return nil, err
	}
	b := make([]byte, secretSize)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, b, 0)
	if err == nil && n != secretSize {
		err = unix.EINVAL
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// makeSecret makes the key, unless there is one. It makes it in the keyring of a thread and then moves it: a key that is
// added where there is one would replace the bytes that other processes have read.
func makeSecret() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var b [secretSize]byte
	rand.Read(b[:])
	id, err := unix.AddKey("user", secretName, b[:], unix.KEY_SPEC_THREAD_KEYRING)
	if err != nil {
		return
	}
	const perm = 0x3f0b0000 // key_perm_t: everything for who possesses the key; view, read and search for the user
	err = unix.KeyctlSetperm(id, perm)
	if err == nil {
		_, err = unix.KeyctlInt(unix.KEYCTL_MOVE, id, unix.KEY_SPEC_THREAD_KEYRING, unix.KEY_SPEC_USER_KEYRING, unix.KEYCTL_MOVE_EXCL)
	}
	if err != nil {
		unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_THREAD_KEYRING, 0, 0)
	}
}
