//go:build linux && (amd64 || arm64)

package session

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/softmkey/softmkey/internal/hca/uverbs"
)

// linkWatch gives the ports of devices the state of the network interfaces that have their addresses: a
// port is down while its interface is down or has no carrier, and its GID table has the addresses that the
// interface has.
type linkWatch struct {
	socket *os.File // of NETLINK_ROUTE, readable when an interface has changed
	ended  sync.WaitGroup
}

// watchLinks starts to watch the interfaces of the devices of r; nil if there is nothing to watch.
func watchLinks(r *run) *linkWatch {
	devices := r.interfaces()
	if len(devices) == 0 {
		return nil
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil // a container may forbid it: the ports stay up
	}
	w := &linkWatch{socket: os.NewFile(uintptr(fd), "links")}
	if unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}) != nil {
		w.socket.Close()
		return nil
	}
	update := func() {
		for index, list := range devices {
			i, err := net.InterfaceByIndex(index)
			const needs = net.FlagUp | net.FlagRunning
			linkless := err != nil || i.Flags&needs != needs
			var addrs []netip.Addr
			if err == nil {
				if addrs, err = uverbs.Addresses(i.Addrs()); err != nil {
					continue // unknown: the next message may tell more
				}
			}
			for _, f := range list {
				f.mu.Lock()
				f.linkless = linkless
				f.setLink(r.root) // an error: the tree is being removed
				f.setAddresses(r, addrs)
				f.mu.Unlock()
			}
		}
	}
	update()
	w.ended.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			// The messages are not parsed: the state that counts is the present one. ENOBUFS says
			// that messages were lost.
			if _, err := w.socket.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
			update()
		}
	})
	return w
}

func (w *linkWatch) close() {
	if w != nil {
		w.socket.Close()
		w.ended.Wait()
	}
}
