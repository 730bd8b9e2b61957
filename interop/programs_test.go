package interop

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/rdma"
)

// TestPrograms runs Debian's programs between the two kernels. It tests the guests, not
// the device.
func TestPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("two kernels without us: the long form tests the rig")
	}
	r := sharedRig(t)
	for _, program := range []string{
		"ibv_rc_pingpong -d rxe0 -g 1 -m 4096 -n 200 -c",
		"ib_send_bw -d rxe0 -x 1 -m 1024 -n 200 -F",
		"ib_write_bw -d rxe0 -x 1 -m 4096 -n 200 -F",
		"ib_read_bw -d rxe0 -x 1 -m 256 -n 200 -F",
		"ib_atomic_bw -d rxe0 -x 1 -n 200 -F",
		"ib_write_lat -d rxe0 -x 1 -m 1024 -n 200 -F",
	} {
		t.Run(strings.Fields(program)[0], func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			server := guestServer(ctx, t, r.Guests[1], pingPongPort, program)
			if _, err := r.Guests[0].Shell(ctx, program+" "+r.Guests[1].Addr4.String()+" 2>&1"); err != nil {
				t.Error(err)
			}
			if err := <-server; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPingPong implements the server of ibv_rc_pingpong on our device. The program
// itself, in the guest, checks every byte that it receives.
func TestPingPong(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		for _, mtu := range []int{256, 1024, 4096} {
			t.Run(fmt.Sprintf("mtu=%d", mtu), func(t *testing.T) { pingPong(t, v6, mtu) })
		}
	})
}

const (
	pingPongPort  = 18515
	pingPongSize  = 10_000
	pingPongCount = 300

	// pingPongAddress is the number of bytes that the program sends for
	// "LID:QPN:PSN:GID", including the zero byte.
	pingPongAddress = len("0000:000000:000000:00000000000000000000000000000000") + 1
)

func pingPong(t *testing.T, v6 bool, mtu int) {
	n := newNetwork(t)
	e := n.open(t, ours, v6).(*deviceEnd)
	guest := n.r.Guests[0]
	index, addr := 1, guest.Addr4
	if v6 {
		index, addr = 2, guest.Addr6
	}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(e.addr(v6), pingPongPort)))
	check(t, err)
	defer listener.Close()

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := make(chan error, 1)
	go func() {
		text, err := guest.Shell(ctx, fmt.Sprintf("ibv_rc_pingpong -d rxe0 -g %d -m %d -s %d -n %d -c %s 2>&1",
			index, mtu, pingPongSize, pingPongCount, e.addr(v6)))
		if err == nil && !strings.Contains(text, fmt.Sprintf("%d iters in", pingPongCount)) {
			err = fmt.Errorf("unexpected output: %s", text)
		}
		client <- err
	}()

	conn, err := listener.AcceptTCP()
	check(t, err)
	defer conn.Close()
	c := peer.Defaults()
	c.Destination, c.MTU, c.SendPSN = addr, mtu, 0xabcdef
	in := bufio.NewReader(conn)
	c.QPN, c.RecvPSN, err = readPingPong(in)
	check(t, err)
	check(t, e.connect(c))
	check(t, e.post(peer.Work{Op: peer.Recv, Count: 2, Len: pingPongSize}))
	gid := rdma.GIDOf(e.addr(v6))
	fmt.Fprintf(conn, "0000:%06x:%06x:%s\x00", e.qpn(), c.SendPSN, hex.EncodeToString(gid[:]))

	for i := range pingPongCount {
		got, err := e.wait(1) // sends are unsignaled, so this completion is a message
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if got[0].Status != 0 || got[0].Len != pingPongSize {
			t.Fatalf("message %d: %+v", i, got[0])
		}
		for _, w := range []peer.Work{{Op: peer.Recv, Len: pingPongSize}, {Op: peer.Send, Len: pingPongSize, Flags: "u"}} {
			check(t, e.post(w))
		}
	}
	if err := <-client; err != nil {
		t.Error(err)
	}
}

// readPingPong reads the queue pair address that ibv_rc_pingpong sends.
func readPingPong(r io.Reader) (qpn, psn uint32, err error) {
	text := make([]byte, pingPongAddress)
	if _, err := io.ReadFull(r, text); err != nil {
		return 0, 0, err
	}
	var lid uint32
	_, err = fmt.Sscanf(string(text), "%x:%x:%x:", &lid, &qpn, &psn)
	return qpn, psn, err
}
