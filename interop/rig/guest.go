package rig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
	"github.com/softmkey/softmkey/interop/peer"
)

// Guest is a virtual machine with the soft-RoCE device rxe0 on eth0.
type Guest struct {
	Addr4 netip.Addr
	Addr6 netip.Addr
	Tap   string // tap device of this namespace, the other end of eth0
	Log   string // log file of the serial console

	process *os.Process
	ended   <-chan error
	done    chan struct{} // closed when qemu has ended
}

// start runs qemu without KVM: the host is usually a virtual machine itself, and
// emulation behaves the same everywhere.
func (g *Guest) start(image guest.Image) error {
	console, err := os.Create(g.Log)
	if err != nil {
		return err
	}
	defer console.Close()
	last := g.Addr4.As4()[3]
	cmd := exec.Command("qemu-system-x86_64",
		"-accel", "tcg", "-cpu", "max,la57=off", "-smp", "1", "-m", strconv.Itoa(memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", image.Kernel, "-initrd", image.Initramfs, "-append", g.commandLine(),
		"-netdev", "tap,id=net0,script=no,downscript=no,ifname="+g.Tap,
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,romfile=,rx_queue_size=1024,host_mtu=%d,mac=52:54:00:91:00:%02x", mtu, last))
	cmd.Stdout, cmd.Stderr = console, console
	g.process, g.ended, err = startBound(cmd)
	if err != nil {
		return err
	}
	g.done = make(chan struct{})
	go func() {
		<-g.ended
		close(g.done)
	}()
	return nil
}

// commandLine is the kernel's command line. /init reads the parameters that the kernel
// does not know. panic=-1 ends the machine at once when the kernel panics.
func (g *Guest) commandLine() string {
	return strings.Join([]string{
		"console=ttyS0", "panic=-1", "mitigations=off", "random.trust_cpu=on",
		fmt.Sprintf("rig.mtu=%d", mtu),
		"rig.addr=" + g.Addr4.String() + prefix4, "rig.gid=" + gidPattern(g.Addr4),
		"rig.addr=" + g.Addr6.String() + prefix6, "rig.gid=" + gidPattern(g.Addr6),
	}, " ")
}

// The patience for a guest that boots. An emulated guest on a busy machine may need
// minutes, but it prints lines all the time.
const (
	mostBoot  = 4 * time.Minute // for all of it
	mostQuiet = time.Minute     // without a new line on the console
)

// waitReady returns when rxepeer accepts connections over IPv4 and over IPv6. It fails when
// the patience for the guest is over.
//
// Both sides then know each other's Ethernet address, which matters: if a queue pair is
// connected to an unresolved address and the answer comes too early, the guest's ib_core
// misses it and waits for a second.
func (g *Guest) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, mostBoot)
	defer cancel()
	for _, addr := range []netip.Addr{g.Addr4, g.Addr6} {
		if err := g.waitAnswer(ctx, addr); err != nil {
			return err
		}
	}
	return nil
}

func (g *Guest) waitAnswer(ctx context.Context, addr netip.Addr) error {
	dialer := net.Dialer{Timeout: 200 * time.Millisecond}
	target := netip.AddrPortFrom(addr, peer.Port).String()
	var printed int64
	last := time.Now()
	for {
		if size := g.consoleSize(); size != printed {
			printed, last = size, time.Now()
		}
		if quiet := time.Since(last); quiet > mostQuiet {
			return fmt.Errorf("rig: guest %s has printed nothing for %v while booting: %s", g.Addr4, quiet.Round(time.Second), g.ConsoleTail())
		}
		if conn, err := dialer.DialContext(ctx, "tcp", target); err == nil {
			return conn.Close()
		}
		select {
		case <-g.done:
			return fmt.Errorf("rig: guest %s ended while booting: %s", g.Addr4, g.ConsoleTail())
		case <-ctx.Done():
			return fmt.Errorf("rig: guest %s did not come up: %w: %s", g.Addr4, ctx.Err(), g.ConsoleTail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// consoleSize returns the number of bytes that the guest has printed.
func (g *Guest) consoleSize() int64 {
	info, err := os.Stat(g.Log)
	if err != nil {
		return 0
	}
	return info.Size()
}

// stop ends qemu and waits until it has exited.
func (g *Guest) stop() {
	if g.process == nil {
		return
	}
	_ = g.process.Kill() // fails only if qemu has exited
	<-g.done
}

// ConsoleTail returns the end of the console's log, for error messages: it shows why a
// guest has ended.
func (g *Guest) ConsoleTail() string {
	const most = 3000
	text, err := os.ReadFile(g.Log)
	if err != nil {
		return err.Error()
	}
	return "the end of " + g.Log + ":\n" + string(text[max(0, len(text)-most):])
}

// Shell runs a command in the guest's shell and returns its output. If the command fails,
// the error contains the output.
func (g *Guest) Shell(ctx context.Context, command string) (string, error) {
	session, err := peer.Dial(ctx, g.Addr4)
	if err != nil {
		return "", err
	}
	defer session.Close()
	return session.Shell(ctx, command)
}
