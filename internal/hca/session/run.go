//go:build linux && (amd64 || arm64)

package session

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"

	"github.com/softmkey/softmkey/internal/hca/intercept"
	"github.com/softmkey/softmkey/internal/hca/procmem"
	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// Run runs a program and returns its exit status, 128 and its number if a signal ended it; -1 if it
// was not started. The signals that this process gets go to the program. The error is a
// [StartError] if the program cannot be executed, a [DeviceError] if a device of cfg was not opened,
// or the first error of closing what Run has opened.
//
// The process that Run starts is this executable again: its main package calls intercept.Child.
func Run(cfg Config) (status int, err error) {
	path, err := intercept.LookPath(cfg.Args[0])
	if err != nil {
		return -1, notStarted(err)
	}
	if err := needLibraries(); err != nil {
		return -1, err
	}
	if lost := intercept.LosesPrivilege(path); lost != "" {
		cfg.Warn(fmt.Errorf("run: %s %s, and runs with this user's rights nevertheless: the kernel gives none to a program whose system calls are intercepted", path, lost))
	}
	intercept.ShortSlices()
	r := &run{cfg: cfg}
	defer func() {
		if err2 := r.close(); err == nil {
			err = err2
		}
	}()
	if r.root, r.lock, err = newTree(); err != nil {
		return -1, err
	}
	env := append(os.Environ(), "MLX_QP_ALLOC_TYPE=PREFER_CONTIG", "MLX_CQ_ALLOC_TYPE=PREFER_CONTIG")
	if cfg.Library != "" && cfg.inside() {
		env = preloaded(env, cfg.Library)
	}
	signals := make(chan os.Signal, 16)
	for _, sig := range forwarded {
		if !signal.Ignored(sig) { // the program inherits an ignored signal, as under nohup
			signal.Notify(signals, sig)
		}
	}
	var memory func(procmem.Change)
	if cfg.StrictMemory {
		memory = r.memoryChanged
	}
	s, err := intercept.Start(intercept.Config{
		Memory: memory,
		Path:   path, Args: cfg.Args, Env: env,
		Stdin: cfg.Stdin, Stdout: cfg.Stdout, Stderr: cfg.Stderr,
		Prepare: r.open,
		Root:    r.root, Remove: r.root, Reap: cfg.Alone, Owned: uverbs.Owned(), Listed: uverbs.Listed(), Refresh: r.refresh, Node: r.node, Netlink: r.answerNetlink, Warn: cfg.Warn, Refused: r.refused,
	})
	if err != nil {
		signal.Stop(signals)
		return -1, notStarted(err)
	}
	if cfg.Alone {
		intercept.OwnSession()
	}
	var forwarding sync.WaitGroup
	forwarding.Go(func() { forward(s, signals) })
	end := s.Wait()
	signal.Stop(signals)
	close(signals) // nothing sends to it any more
	forwarding.Wait()
	if end.Signaled() {
		return 128 + int(end.Signal()), nil
	}
	return end.ExitStatus(), nil
}

// notStarted gives the error of a program that cannot be executed the exit status of shells.
func notStarted(err error) error {
	var e *intercept.ExecError
	if errors.As(err, &e) {
		return &StartError{e.Status(), fmt.Errorf("run: %w", err)}
	}
	return err
}

// needLibraries refuses to start where no program could find the device.
func needLibraries() error {
	found, _ := filepath.Glob("/etc/libibverbs.d/*mlx5*")
	if len(found) > 0 || os.Getenv("SOFTMKEY_NO_LIBRARY_CHECK") != "" {
		return nil
	}
	return errors.New("run: libibverbs has no mlx5 driver here (/etc/libibverbs.d has no mlx5.driver): install rdma-core's libraries (Debian: ibverbs-providers), or set SOFTMKEY_NO_LIBRARY_CHECK=1 if the program brings its own")
}
