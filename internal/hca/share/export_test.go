//go:build linux

package share

// Rings returns the number of rings to other processes, and from them.
func (c *Conn) Rings() (to, from int) {
	n := c.m.near
	n.rx.Lock()
	defer n.rx.Unlock()
	n.tx.Lock()
	defer n.tx.Unlock()
	return len(n.out), len(n.in)
}

var (
	ReadSecret = readSecret
	MakeSecret = makeSecret
)

// HasSecret reports whether names have variants that strangers cannot guess.
func HasSecret() bool { return secret() != nil }

// ForgetSecret makes names as if the process had no secret, until restore is called.
func ForgetSecret() (restore func()) {
	secret = func() []byte { return nil }
	return func() { secret = ownSecret }
}
