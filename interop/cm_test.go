package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/interop/rig"
)

// cmPort is the port on which programs of librdmacm listen.
const cmPort = 7471

// guestProgram runs a program in the guest and sends its result on the channel.
func guestProgram(ctx context.Context, g *rig.Guest, command string) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := g.Shell(ctx, command+" 2>&1")
		ended <- err
	}()
	return ended
}

// guestServer is guestProgram for a server. It returns when the server listens; see guestListens.
func guestServer(ctx context.Context, t *testing.T, g *rig.Guest, port int, command string) <-chan error {
	t.Helper()
	server := guestProgram(ctx, g, command)
	if err := guestListens(ctx, g, port); err != nil {
		t.Fatal(errors.Join(err, <-server))
	}
	return server
}

// TestRping runs rping's client against our server, and rping's server against our
// client, for each address family.
func TestRping(t *testing.T) {
	n := newNetwork(t)
	families(t, func(t *testing.T, v6 bool) {
		t.Run("server", func(t *testing.T) { rpingServer(t, n, v6, false, 20, 1000) })
		t.Run("client", func(t *testing.T) { rpingClient(t, n, v6, 20, 1000) })
	})
}

// rpingServer serves rping in the guest. On a lossy link the connection may end without a
// word: a program that ends right after rdma_disconnect takes its connection along, and
// Linux does not repeat a DREQ that was lost. Then the end of the program ends the
// serving, and the last message may stay without its acknowledgement.
func rpingServer(t *testing.T, n *network, v6, lossy bool, rounds, size int) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dev := n.device(v6)
	l, err := cm.Listen(dev, cmPort, nil)
	check(t, err)
	defer l.Close()
	_, device := n.host(v6)
	client := guestProgram(ctx, n.r.Guests[0], fmt.Sprintf("rping -c -a %s -p %d -C %d -S %d -V", device, cmPort, rounds, size))
	req, err := l.Accept(context.Background())
	check(t, err)
	if req.MaxRdAtomic != 1 || req.MaxDestRdAtomic != 1 {
		t.Errorf("rping asks for 1 READ each way, the request says %d and %d", req.MaxRdAtomic, req.MaxDestRdAtomic)
	}
	e := newRpingEnd(t, dev, size)
	conn, err := req.Accept(ctx, e.qp, nil)
	check(t, err)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	said := make(chan error, 1)
	go func() {
		said <- <-client
		if lossy {
			stop()
		}
	}()
	got, err := e.serve(serving, conn)
	if lossy && got == rounds {
		err = nil
	}
	if err != nil || got != rounds {
		t.Errorf("%d rounds of %d: %v", got, rounds, err)
	}
	if err := errors.Join(<-said, conn.Close()); err != nil {
		t.Error(err)
	}
}

// rpingClient pings rping in the guest.
func rpingClient(t *testing.T, n *network, v6 bool, rounds, size int) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	guest, _ := n.host(v6)
	server := guestServer(ctx, t, n.r.Guests[0], 0, fmt.Sprintf("rping -s -a %s -p %d -C %d -S %d -V", guest, cmPort, rounds, size))
	e := newRpingEnd(t, n.device(v6), 2*size)
	conn, err := cm.Dial(ctx, e.qp, netip.AddrPortFrom(guest, cmPort), nil)
	check(t, err)
	if err := errors.Join(e.ping(ctx, rounds), conn.Close(), <-server); err != nil {
		t.Error(err)
	}
}

// TestRejectKernel rejects a request of rdma_client in the guest, which must report it,
// and connects to a port of the guest without a listener.
func TestRejectKernel(t *testing.T) { rejectKernel(t, newNetwork(t)) }

func rejectKernel(t *testing.T, n *network) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	guest, device := n.host(false)
	dev := n.device(false)
	l, err := cm.Listen(dev, cmPort, nil)
	check(t, err)
	defer l.Close()
	client := guestProgram(ctx, n.r.Guests[0], fmt.Sprintf("rdma_client -s %s -p %d", device, cmPort))
	req, err := l.Accept(context.Background())
	check(t, err)
	check(t, req.Reject(cm.ReasonConsumer, []byte("not today")))
	if err := <-client; err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("rdma_client says %v, not that it was refused", err)
	}
	e := newRpingEnd(t, dev, 100)
	_, err = cm.Dial(ctx, e.qp, netip.AddrPortFrom(guest, cmPort+1), nil)
	var reject *cm.RejectError
	if !errors.As(err, &reject) || reject.Reason != cm.ReasonNoListener || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port of the guest where nobody listens: %v", err)
	}
}

// TestConnectionLoss connects and pings while the link loses a tenth of the packets in
// each direction. Linux waits for 4 s before it repeats its messages.
func TestConnectionLoss(t *testing.T) {
	if testing.Short() {
		t.Skip("a lost message of the kernel costs 4 s")
	}
	n := newNetwork(t)
	defer impair(t, n.r.Guests[0], rig.Impairment{Loss: 10}, rig.Impairment{Loss: 10})()
	for range 2 {
		rpingServer(t, n, false, true, 5, 5000)
		rpingClient(t, n, false, 5, 5000)
	}
}

// TestKernelVanishes kills a client in the guest before it disconnects. Its kernel
// disconnects for it, and our side must report that.
func TestKernelVanishes(t *testing.T) {
	n := newNetwork(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, device := n.host(false)
	dev := n.device(false)
	l, err := cm.Listen(dev, cmPort, nil)
	check(t, err)
	defer l.Close()
	client := guestProgram(ctx, n.r.Guests[0], fmt.Sprintf("rping -c -a %s -p %d -C 1000000000", device, cmPort))
	req, err := l.Accept(context.Background())
	check(t, err)
	e := newRpingEnd(t, dev, 100)
	conn, err := req.Accept(ctx, e.qp, nil)
	check(t, err)
	if _, err := n.r.Guests[0].Shell(ctx, "killall -KILL rping"); err != nil {
		t.Fatal(err)
	}
	<-client
	select {
	case <-conn.Done():
		if conn.Err() != nil {
			t.Error(conn.Err())
		}
	case <-ctx.Done():
		t.Error("the connection of a program that was killed stays")
	}
}

// TestDissectCM records conversations of the connection manager and checks how tshark
// decodes each message.
func TestDissectCM(t *testing.T) {
	n := newNetwork(t)
	pcap := filepath.Join(t.TempDir(), "cm.pcapng")
	capture, err := n.r.Capture(n.r.Guests[0], pcap)
	check(t, err)
	rpingServer(t, n, false, false, 1, 100)
	rpingClient(t, n, false, 1, 100)
	rejectKernel(t, n)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	guest, _ := n.host(false)
	if _, err := cm.Resolve(ctx, n.device(false), netip.AddrPortFrom(guest, cmPort), nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a datagram port of the guest where nobody listens: %v", err)
	}
	// Stopping dumpcap loses the frames that it has not read, so wait until the last
	// message is in the file.
	for {
		// An error means that the last frame is only partly written.
		last, _ := exec.Command("tshark", "-r", pcap, "-Y", "infiniband.mad.attributeid == 0x18").Output()
		if len(last) > 0 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the capture has no SIDR_REP")
		}
		time.Sleep(50 * time.Millisecond)
	}
	check(t, capture.Stop())
	text := tshark(t, pcap, "-Y", "infiniband.mad", "-T", "fields", "-E", "separator=,", "-e", "ip.src",
		"-e", "infiniband.mad.mgmtclass", "-e", "infiniband.mad.attributeid", "-e", "infiniband.mad.method", "-e", "infiniband.deth.q_key",
		"-e", "_ws.malformed", "-e", "_ws.expert.message")
	ours, theirs := map[string]int{}, map[string]int{}
	for line := range bytes.Lines(text) {
		f := strings.Split(strings.TrimSpace(string(line)), ",")
		if len(f) != 7 || f[1] != "0x07" || f[3] != "0x03" || f[5] != "" || f[6] != "" {
			t.Errorf("tshark says %q", line)
			continue
		}
		if f[0] == n.r.Addr4.String() {
			ours[f[2]]++
		} else {
			theirs[f[2]]++
		}
	}
	// REQ, REJ, REP, RTU, DREQ or DREP, SIDR_REQ.
	for _, attr := range []string{"0x0010", "0x0012", "0x0013", "0x0014", "0x0017"} {
		if ours[attr] == 0 {
			t.Errorf("no message %s of ours", attr)
		}
	}
	for i, frame := range rawFrames(t, pcap) {
		if err := checkICRC(frame); err != nil {
			t.Fatalf("frame %d: %v", i+1, err)
		}
	}
	t.Logf("messages by attribute: ours %v, the kernel's %v", ours, theirs)

	// The fields of our REQ, by name.
	fields := string(tshark(t, pcap, "-Y", "infiniband.cm.req && ip.src == "+n.r.Addr4.String(), "-T", "fields", "-E", "separator=,",
		"-e", "infiniband.cm.req.serviceid.protocol", "-e", "infiniband.cm.req.serviceid.dport", "-e", "infiniband.cm.req.pppmtu",
		"-e", "infiniband.cm.req.ip_cm.sip4", "-e", "infiniband.cm.req.ip_cm.dip4", "-e", "infiniband.cm.req.prim_localgid_ipv4", "-e", "infiniband.cm.req.prim_remotegid_ipv4",
		"-e", "infiniband.cm.req.retrcount", "-e", "infiniband.cm.req.rnrretrcount", "-e", "infiniband.cm.req.maxcmretr", "-e", "infiniband.cm.req.pkey"))
	line, _, _ := strings.Cut(fields, "\n")
	t.Logf("our REQ: %s", line)
	for _, want := range []string{fmt.Sprintf("0x%04x", cmPort), n.r.Addr4.String() + "," + guest.String(), "0xffff"} {
		if !strings.Contains(line, want) {
			t.Errorf("our REQ has no %q: %s", want, line)
		}
	}
}
