package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// The MTU of the link in bytes of an IP packet, of which rxe leaves 80 bytes free, and the guest's memory in MiB.
const (
	mtu    = 9000
	memory = 768
)

// Rig is a running guest, and the network between it and this process.
type Rig struct {
	Guest *Guest

	Addr4 netip.Addr // address of this process, for the device
	Addr6 netip.Addr

	BootTime time.Duration // time until the guest answered

	captures []*Capture
}

// Start boots the guest and waits until rxepeer answers: for four minutes, or until
// the guest has printed nothing for one. programs are files of further programs that the guest has in /sbin.
// The context limits the booting only; the guest then runs until Close.
//
// The calling process must have been started through [Main], and can have only one rig at
// a time.
func Start(ctx context.Context, programs ...string) (*Rig, error) {
	if os.Getenv(insideEnv) == "" {
		return nil, errors.New("rig: not in a network namespace of its own; TestMain must go through rig.Main")
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	g := &Guest{Addr4: hostAddr4.Next(), Addr6: hostAddr6.Next(), Tap: "rigtap0", Log: filepath.Join(cache, "guest0.log")}
	r := &Rig{Guest: g, Addr4: hostAddr4, Addr6: hostAddr6}
	if err := r.boot(ctx, cache, programs); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) boot(ctx context.Context, cache string, programs []string) error {
	dir, err := os.MkdirTemp("", "softmkey-rig-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a running guest no longer needs its image
	image, err := guest.Build(filepath.Join(cache, "kernel"), dir, programs...)
	if err != nil {
		return fmt.Errorf("rig: building the guest (has interop/setup.sh been run?): %w", err)
	}
	if err := buildNetwork(r.Guest.Tap); err != nil {
		return err
	}
	began := time.Now()
	if err := r.Guest.start(image); err != nil {
		return err
	}
	err = r.Guest.waitReady(ctx)
	r.BootTime = time.Since(began)
	return err
}

// Close stops captures and the guest. The network ends with the namespace; the guest's log file remains.
func (r *Rig) Close() error {
	var errs []error
	for _, c := range r.captures {
		errs = append(errs, c.Stop())
	}
	r.Guest.stop()
	return errors.Join(errs...)
}

// cacheDir returns the cache folder of the checkout that contains the working directory.
// Tests run in the folder of their package.
func cacheDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "interop", "setup.sh")); err == nil {
			return filepath.Join(dir, ".cache", "interop"), nil
		}
	}
	return "", errors.New("rig: the working directory is not in a checkout of softmkey")
}
