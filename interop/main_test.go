package interop

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/softmkey/softmkey/interop/rig"
)

// shared is the rig of all tests of this package; booting takes longer than most of them.
var shared = sync.OnceValues(func() (*rig.Rig, error) {
	return rig.Start(context.Background(), rig.Options{Guests: 2})
})

// sharedRig returns the rig, booted by whoever asks first.
func sharedRig(t *testing.T) *rig.Rig {
	t.Helper()
	r, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMain(m *testing.M) { os.Exit(rig.Main(closing{m})) }

// closing closes the shared rig after the tests.
type closing struct{ m *testing.M }

func (c closing) Run() int {
	status := c.m.Run()
	if r, err := shared(); err == nil {
		if err := r.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}
