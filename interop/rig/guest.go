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

// Guest is one virtual machine whose eth0 carries the soft-RoCE device rxe0.
type Guest struct {
	Addr4 netip.Addr
	Addr6 netip.Addr
	Tap   string // the device of this namespace that is the other end of its eth0
	Log   string // the file that its serial console is written to

	process *os.Process
	ended   <-chan error
	done    chan struct{} // closed when qemu has ended
}

// start runs qemu. KVM is not asked for: the machines that this runs on are
// virtual themselves, and emulation behaves the same everywhere.
func (g *Guest) start(image guest.Image, o Options) error {
	console, err := os.Create(g.Log)
	if err != nil {
		return err
	}
	defer console.Close()
	last := g.Addr4.As4()[3]
	cmd := exec.Command("qemu-system-x86_64",
		"-accel", "tcg", "-cpu", "max,la57=off", "-smp", "1", "-m", strconv.Itoa(o.Memory),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", image.Kernel, "-initrd", image.Initramfs, "-append", g.commandLine(o),
		"-netdev", "tap,id=net0,script=no,downscript=no,ifname="+g.Tap,
		"-device", fmt.Sprintf("virtio-net-pci,netdev=net0,romfile=,rx_queue_size=1024,host_mtu=%d,mac=52:54:00:91:00:%02x", o.MTU, last))
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

// commandLine is the kernel's: what the kernel does not know, /init reads.
// panic=-1 ends the machine at once when the kernel panics.
func (g *Guest) commandLine(o Options) string {
	return strings.Join([]string{
		"console=ttyS0", "panic=-1", "mitigations=off", "random.trust_cpu=on",
		fmt.Sprintf("rig.mtu=%d", o.MTU),
		"rig.addr=" + g.Addr4.String() + prefix4, "rig.gid=" + gidPattern(g.Addr4),
		"rig.addr=" + g.Addr6.String() + prefix6, "rig.gid=" + gidPattern(g.Addr6),
	}, " ")
}

// waitReady returns when rxepeer takes connections over IPv4 and over IPv6.
//
// That both sides then know each other's Ethernet address matters: when a queue
// pair is connected to an address that has yet to be resolved and the answer
// comes too soon, the guest's ib_core misses it and waits for a second.
func (g *Guest) waitReady(ctx context.Context) error {
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
	for {
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

// stop ends qemu and waits for its end.
func (g *Guest) stop() {
	if g.process == nil {
		return
	}
	_ = g.process.Kill() // fails only if it has ended by itself
	<-g.done
}

// ConsoleTail is the end of the console's log, for error messages: a guest that
// went away says there why.
func (g *Guest) ConsoleTail() string {
	const most = 3000
	text, err := os.ReadFile(g.Log)
	if err != nil {
		return err.Error()
	}
	return "the end of " + g.Log + ":\n" + string(text[max(0, len(text)-most):])
}

// Shell runs a command in the guest's shell and returns its output; a command
// that fails is an error that holds it.
func (g *Guest) Shell(ctx context.Context, command string) (string, error) {
	session, err := peer.Dial(ctx, g.Addr4)
	if err != nil {
		return "", err
	}
	defer session.Close()
	return session.Shell(ctx, command)
}
