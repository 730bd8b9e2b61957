package rig

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// Options configure Start. The zero value gives one guest that supports path MTU 4096.
type Options struct {
	// Guests is the number of guests; 0 means 1.
	Guests int

	// MTU is the MTU of every link, in bytes of an IP packet; 0 means 9000. rxe
	// selects the largest path MTU that leaves 80 bytes free.
	MTU int

	// Memory is the memory of a guest in MiB; 0 means 768.
	Memory int

	// Programs are files of further programs that the guests have in /sbin.
	Programs []string
}

func (o Options) withDefaults() Options {
	if o.Guests == 0 {
		o.Guests = 1
	}
	if o.MTU == 0 {
		o.MTU = 9000
	}
	if o.Memory == 0 {
		o.Memory = 768
	}
	return o
}

// Rig is a set of running guests, and the network between them and this process.
type Rig struct {
	Guests []*Guest

	Addr4 netip.Addr // address of this process, for the device
	Addr6 netip.Addr

	BootTime time.Duration // time until the last guest answered

	captures []*Capture
}

// Start boots the guests and waits until rxepeer answers in each: for four minutes, or until
// a guest has printed nothing for one. The context limits the booting only; the guests then
// run until Close.
//
// The calling process must have been started through [Main], and can have only one rig at
// a time.
func Start(ctx context.Context, options Options) (*Rig, error) {
	o := options.withDefaults()
	if os.Getenv(insideEnv) == "" {
		return nil, errors.New("rig: not in a network namespace of its own; TestMain must go through rig.Main")
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	r := &Rig{Addr4: hostAddr4, Addr6: hostAddr6}
	if err := r.boot(ctx, cache, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) boot(ctx context.Context, cache string, o Options) error {
	dir, err := os.MkdirTemp("", "softmkey-rig-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // a running guest no longer needs its image
	image, err := guest.Build(filepath.Join(cache, "kernel"), dir, o.Programs...)
	if err != nil {
		return fmt.Errorf("rig: building the guest (has interop/setup.sh been run?): %w", err)
	}
	addr4, addr6 := hostAddr4, hostAddr6
	for i := range o.Guests {
		addr4, addr6 = addr4.Next(), addr6.Next()
		r.Guests = append(r.Guests, &Guest{
			Addr4: addr4, Addr6: addr6,
			Tap: fmt.Sprintf("rigtap%d", i),
			Log: filepath.Join(cache, fmt.Sprintf("guest%d.log", i)),
		})
	}
	if err := buildNetwork(o.MTU, r.Guests); err != nil {
		return err
	}
	began := time.Now()
	errs := make([]error, len(r.Guests))
	var wg sync.WaitGroup
	for i, g := range r.Guests {
		if err := g.start(image, o); err != nil {
			return err
		}
		wg.Go(func() { errs[i] = g.waitReady(ctx) })
	}
	wg.Wait()
	r.BootTime = time.Since(began)
	return errors.Join(errs...)
}

// Close stops captures and guests and removes the network. The guests' log files remain.
func (r *Rig) Close() error {
	var errs []error
	for _, c := range r.captures {
		errs = append(errs, c.Stop())
	}
	for _, g := range r.Guests {
		g.stop()
	}
	if len(r.Guests) > 0 {
		errs = append(errs, removeNetwork(r.Guests))
	}
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
