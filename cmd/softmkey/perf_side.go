package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/perf"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/roce/inproc"
	"github.com/softmkey/softmkey/verbs"
)

// otherSide is the client's view of the server of a measurement: the connection to it, this
// side's device, and a function that ends both.
type otherSide struct {
	conn  *jsonline.Conn
	dev   *verbs.Device
	close func() error
}

// dial connects to the process that --connect names.
func (f *perfFlags) dial(ctx context.Context) (*otherSide, error) {
	conn, dev, err := f.meetPeer(ctx, f.openDevice)
	if err == nil && dev == nil {
		dev, err = f.openDevice(rendezvous.LocalAddr(conn))
	}
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		if dev != nil {
			dev.Close()
		}
		return nil, err
	}
	return &otherSide{conn, dev, func() error { return cmp.Or(conn.Close(), dev.Close()) }}, nil
}

// child starts this program again as the server, and connects to it.
func (f *perfFlags) child(ctx context.Context) (*otherSide, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"softmkey", "perf", "--listen", "127.0.0.1:0", "--until-eof", "--spin", f.spin.String()}
	if f.profile != "" {
		args = append(args, "--cpuprofile", string(f.profile)+".server")
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args, cmd.Stderr = args, &stderr
	cmd.Env = perf.ShareEnv()
	perf.Share()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe() // closing it ends the child
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	wait := func() error {
		in.Close()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("the other process: %w: %s", err, strings.TrimSpace(stderr.String()))
		}
		return nil
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	fields := strings.Fields(line)
	if err != nil || len(fields) < 3 {
		return nil, cmp.Or(context.Cause(ctx), wait(), fmt.Errorf("the other process said %q", line))
	}
	peer := *f
	peer.connect = strings.TrimSuffix(fields[2], ",")
	side, err := peer.dial(ctx)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	hangUp := side.close
	side.close = func() error { return cmp.Or(hangUp(), wait()) }
	return side, nil
}

// sameProcess starts the server in this process, on a network without sockets.
func (f *perfFlags) sameProcess(ctx context.Context) (*otherSide, error) {
	network := inproc.NewNetwork(nil)
	var devs [2]*verbs.Device
	for i, addr := range []string{"192.0.2.1:4791", "192.0.2.2:4791"} { // addresses for documentation (RFC 5737)
		conn, err := network.Listen(netip.MustParseAddrPort(addr))
		if err != nil {
			return nil, err
		}
		if devs[i], err = verbs.Open(conn.LocalAddr().Addr(), &verbs.Options{Conn: conn}); err != nil {
			return nil, err
		}
	}
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		server := perf.Server{Dev: devs[1], Spin: f.spin}
		served <- server.ServeConn(ctx, jsonline.New(there))
	}()
	return &otherSide{jsonline.New(here), devs[0], func() error {
		return cmp.Or(here.Close(), <-served, devs[0].Close(), devs[1].Close())
	}}, nil
}
