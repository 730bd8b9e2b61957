package dek

import (
	"runtime"
	"sync"

	"github.com/softmkey/softmkey/xts"
)

// spare encrypts nothing secret.
var spare = sync.OnceValues(func() (*xts.Cipher, error) {
	key := make([]byte, 64)
	for i := range key {
		key[i] = byte(i)
	}
	return xts.New(key)
})

// oneThread begins work with secrets, which stays on one thread. The returned function ends it and overwrites the
// vector registers, in which copies and key schedules leave secrets. The system keeps the registers of a thread that
// does nothing more, and writes them into a core dump.
func oneThread() (end func()) {
	runtime.LockOSThread()
	return func() {
		if c, err := spare(); err == nil {
			b := make([]byte, 512)
			c.Encrypt(b, b, len(b), xts.Tweak{})
			copy(b[256:], b[:64])
		}
		runtime.UnlockOSThread()
	}
}
