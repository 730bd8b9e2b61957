package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/softmkey/softmkey/internal/tool/device"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/rendezvous"
	"github.com/softmkey/softmkey/sig"
	"github.com/softmkey/softmkey/verbs"
	"github.com/softmkey/softmkey/xts"
)

// addrFlag is a flag whose value is an IP address.
type addrFlag struct{ netip.Addr }

// String implements pflag.Value.
func (f *addrFlag) String() string {
	if !f.IsValid() {
		return ""
	}
	return f.Addr.String()
}

// Type implements pflag.Value.
func (f *addrFlag) Type() string { return "ADDR" }

// Set implements pflag.Value.
func (f *addrFlag) Set(v string) error {
	a, err := netip.ParseAddr(v)
	if err != nil {
		return errors.New("must be an IP address")
	}
	f.Addr = a.Unmap()
	return nil
}

// deviceFlag is a flag whose value is the address of a device of this host, or the name of an
// interface with that address.
type deviceFlag struct {
	addrFlag
	named bool // by the name of an interface
}

// Set implements pflag.Value.
func (f *deviceFlag) Set(v string) (err error) {
	_, parsed := netip.ParseAddr(v)
	f.named = parsed != nil && v != device.Auto
	f.Addr, err = device.Address(v)
	return err
}

// peerFlags are the flags for a connection to the other side.
type peerFlags struct {
	listen, connect string
	cm              bool
	device          deviceFlag
	peerDevice      addrFlag
	wait            time.Duration
	timeout         time.Duration
	retries         uint8
}

func (f *peerFlags) bind(c *cobra.Command) {
	flags := c.Flags()
	flags.BoolVar(&f.cm, "cm", false, "with --listen or --connect, meet by the connection manager (rdma_cm) instead of TCP: everything goes over UDP port 4791")
	flags.DurationVar(&f.wait, "wait", 5*time.Second, "`TIME` for which --connect tries again if the connection is refused")
	flags.Var(&f.peerDevice, "peer-device", "address of the other side's device, with --listen or --connect (default: the address of the other side's connection)")
	flags.DurationVar(&f.timeout, "timeout", device.DefaultRetry.Timeout, "`TIME` for which a connection waits for an acknowledgement before it sends again, rounded up to 4.096us times a power of two")
	flags.Uint8Var(&f.retries, "retries", device.DefaultRetry.Count, "a connection sends again up to `N` times before it fails, 0 to 7")
}

// check returns an error for values that a connection cannot have.
func (f *peerFlags) check(c *cobra.Command) error {
	switch {
	case f.cm && f.listen == "" && f.connect == "":
		return usage(c, errors.New("--cm goes with --listen or --connect: a copy within this process needs no connection manager"))
	case f.timeout <= 0 || f.timeout > device.MaxTimeout:
		return usage(c, fmt.Errorf("--timeout %v: must be more than 0 and at most %v", f.timeout, device.MaxTimeout))
	case f.retries > 7:
		return usage(c, fmt.Errorf("--retries %d: must be 0 to 7", f.retries))
	}
	if _, port, err := net.SplitHostPort(f.connect); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return usage(c, fmt.Errorf("--connect %s: the port must be a number from 1 to 65535", f.connect))
		}
	}
	return nil
}

// retry returns the flags as the option of a connection.
func (f *peerFlags) retry() device.Retry {
	return device.Retry{Timeout: f.timeout, Count: f.retries}
}

// listenAddr returns the address of --listen. It is an error if that and --device leave open on which address the device
// is or, with --cm, name different addresses.
func (f *peerFlags) listenAddr(c *cobra.Command) (netip.AddrPort, error) {
	at, err := rendezvous.ParseAddr(f.listen)
	switch {
	case err != nil:
		err = usage(c, fmt.Errorf("--listen %w", err))
	case at.Addr().IsUnspecified() && !f.device.IsValid():
		err = usage(c, errors.New("--device is missing: the address of this side's device, when --listen names none"))
	case f.cm && f.device.IsValid() && !at.Addr().IsUnspecified() && at.Addr() != f.device.Addr.Unmap():
		err = usage(c, fmt.Errorf("--listen %v --device %v: must be the same address with --cm, which listens on the device", at, f.device.Addr))
	}
	return at, err
}

// ownDevice returns the address of this side's device: that of --device or, without it, that of the connection. With
// search, a later one that is free will do.
func (f *peerFlags) ownDevice(local netip.Addr) (addr netip.Addr, search bool) {
	if f.device.IsValid() {
		return f.device.Addr, false
	}
	// With --cm, peers connect to the device itself, so it must have the address of --listen.
	return local, !(f.cm && f.listen != "")
}

// meet waits for peers: on a port of the device with --cm, else on a TCP port.
func (f *peerFlags) meet(at netip.AddrPort, dev *verbs.Device) (l *rendezvous.Listener, err error) {
	if f.cm {
		l, err = rendezvous.ListenCM(dev, at.Port())
	} else {
		l, err = rendezvous.Listen(at)
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--listen %v: another program listens there: name another port", at)
	case err != nil:
		return nil, fmt.Errorf("--listen %v: %w", at, err)
	}
	return l, nil
}

// explain adds to the error of a conversation with the peer that --connect names what the peer must
// be, if it is another program.
func (f *peerFlags) explain(c *cobra.Command, err error) error {
	if f.connect != "" && errors.Is(err, jsonline.ErrStranger) && c.Context().Err() == nil {
		return fmt.Errorf("--connect %s: %w: it must be 'softmkey %s --listen' of the same version", f.connect, err, c.Name())
	}
	return err
}

// meetPeer connects to the peer that --connect names. With --cm it first opens this side's
// device by open, which gets this side's address, because the connection uses the device. Over
// TCP it does not call open, and dev is nil.
func (f *peerFlags) meetPeer(ctx context.Context, open func(netip.Addr) (*verbs.Device, error)) (conn *jsonline.Conn, dev *verbs.Device, err error) {
	if !f.cm {
		conn, err = rendezvous.Dial(ctx, f.connect, f.device.Addr, f.wait)
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("%w: nobody listens there: start the other side first, with --listen", err)
		}
		return conn, nil, err
	}
	local := f.device.Addr
	if !local.IsValid() {
		if local, err = rendezvous.Source(ctx, f.connect); err != nil {
			return nil, nil, err
		}
	}
	if dev, err = open(local); err != nil {
		return nil, nil, err
	}
	conn, err = rendezvous.DialCM(ctx, dev, f.connect, f.wait)
	if errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w: start the other side first, with --cm and --listen", err)
	}
	return conn, dev, err
}

// sentAway returns a function that prints a warning about a peer that a listener has refused,
// for the first ten of them. Strangers are left out, because port scans are common.
func sentAway(c *cobra.Command) func(net.Addr, error) {
	left := 10
	return func(from net.Addr, err error) {
		if errors.Is(err, jsonline.ErrStranger) || left == 0 {
			return
		}
		left--
		message(c.ErrOrStderr(), "warning: %v was sent away: %v", from, err)
	}
}

// bindMTU adds the flag for the path MTU.
func bindMTU(c *cobra.Command, f *choiceFlag) {
	f.choices = []string{"256", "512", "1024", "2048", "4096"}
	f.bind(c, "mtu", "path MTU in bytes, for a network that carries less than the interface (default: what both interfaces carry)")
}

// keyFlags are the flags for the three domains between two devices and for the key on
// each side.
type keyFlags struct {
	mem, wire, peer       sigFlag
	check, copyMask       parsed[sig.Mask]
	peerCheck, peerCopy   parsed[sig.Mask]
	crypto, order         choiceFlag
	peerCrypto, peerOrder choiceFlag
	unit                  choiceFlag
	tweak                 parsed[xts.Tweak]
}

func (f *keyFlags) bind(c *cobra.Command) {
	f.crypto.choices, f.order.choices = []string{"encrypt", "decrypt"}, []string{"before", "after"}
	f.peerCrypto.choices, f.peerOrder.choices = []string{"none", "encrypt", "decrypt"}, f.order.choices
	f.unit.choices = sizeWords(sig.KeyBlockSizes())
	f.mem.bind(c, "mem", "signature in the sender's memory (default none)")
	f.wire.bind(c, "wire", "signature on the wire (default none)")
	f.peer.bind(c, "peer-mem", "signature in the receiver's memory (default none)")
	masks.bind(c, &f.check, "check-mask", "bytes of a field that are checked (default 0xFF)")
	masks.bind(c, &f.copyMask, "copy-mask", "bytes of the wire's field that the sender copies from its memory's (default: the parts that both have in common)")
	masks.bind(c, &f.peerCheck, "peer-check-mask", "bytes of the wire's field that the receiver checks (default: --check-mask)")
	masks.bind(c, &f.peerCopy, "peer-copy-mask", "bytes of its memory's field that the receiver copies from the wire's (default: the parts that both have in common)")
	f.crypto.bind(c, "crypto", "operation of the sender before the data reaches the wire")
	f.order.bind(c, "order", "whether the sender's signature work comes before its crypto or after it; needed with signatures")
	f.peerCrypto.bind(c, "peer-crypto", "operation of the receiver before the data reaches its memory (default none)")
	f.peerOrder.bind(c, "peer-order", "whether the receiver's signature work comes before its crypto or after it; needed where the other flags leave a choice")
	f.unit.bind(c, "unit", "bytes of a data unit (default: a block, with its field if that is encrypted too)")
	bindTweak(c, &f.tweak)
}

// terms returns the terms that the given flags describe.
func (f *keyFlags) terms(c *cobra.Command) keyplan.Terms {
	sigOf := func(s *sigFlag) string {
		if s.given && s.format.Type == sig.NoSignature {
			return sig.NoSignature.String()
		}
		return s.String()
	}
	t := keyplan.Terms{
		Mem: sigOf(&f.mem), Wire: sigOf(&f.wire), PeerMem: sigOf(&f.peer),
		CheckMask: f.check.String(), CopyMask: f.copyMask.String(), PeerCheckMask: f.peerCheck.String(), PeerCopyMask: f.peerCopy.String(),
		Crypto: f.crypto.value, Order: f.order.value, PeerCrypto: f.peerCrypto.value, PeerOrder: f.peerOrder.value,
		Unit: f.unit.value,
	}
	if c.Flags().Changed("tweak") {
		t.Tweak = f.tweak.String()
	}
	return t
}
