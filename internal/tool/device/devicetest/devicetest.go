// Package devicetest opens devices for tests.
package devicetest

import (
	"testing"

	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
)

// Pair returns two devices on an in-process network. They are closed at the end of the test.
func Pair(t testing.TB) (a, b *verbs.Device) {
	t.Helper()
	na, nb := inproc.Pair(nil)
	var devs [2]*verbs.Device
	for i, conn := range []*inproc.Conn{na, nb} {
		dev, err := verbs.Open(conn.LocalAddr().Addr(), &verbs.DeviceOptions{Conn: conn})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
		devs[i] = dev
	}
	return devs[0], devs[1]
}
