package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/softmkey/softmkey/cm"
	"github.com/softmkey/softmkey/internal/roce/inproc"
	"github.com/softmkey/softmkey/internal/tool/pcap"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/rdma"
	"github.com/softmkey/softmkey/verbs"
)

// cmNames are tshark's names of all messages that package cm sends, by attribute. The device
// has no alternate paths, so package cm sends no LAP and no APR.
var cmNames = map[string]string{
	"0x0010": "CM: ConnectRequest",
	"0x0011": "CM: MsgRcptAck",
	"0x0012": "CM: ConnectReject",
	"0x0013": "CM: ConnectReply",
	"0x0014": "CM: ReadyToUse",
	"0x0015": "CM: DisconnectRequest",
	"0x0016": "CM: DisconnectReply",
	"0x0017": "CM: ServiceIDResReq",
	"0x0018": "CM: ServiceIDResReqResp",
}

// TestDissectOwnCM records a conversation between two devices of ours that contains every
// message of the connection manager, and checks tshark's name for each one.
func TestDissectOwnCM(t *testing.T) {
	for family, addrs := range map[string][2]string{"IPv4": {"192.0.2.1", "192.0.2.2"}, "IPv6": {"2001:db8::1", "2001:db8::2"}} {
		t.Run(family, func(t *testing.T) {
			t.Parallel() // the MRA comes after 0.54 s
			file := filepath.Join(t.TempDir(), "cm.pcapng")
			converse(t, file, netip.MustParseAddr(addrs[0]), netip.MustParseAddr(addrs[1]))
			seen := map[string]int{}
			text := tshark(t, file, "-T", "fields", "-E", "separator=|", "-e", "infiniband.mad.attributeid", "-e", "_ws.col.Info", "-e", "_ws.malformed", "-e", "_ws.expert.message")
			for line := range bytes.Lines(text) {
				f := strings.Split(strings.TrimSpace(string(line)), "|")
				if len(f) != 4 || f[2] != "" || f[3] != "" || cmNames[f[0]] == "" || f[1] != cmNames[f[0]] {
					t.Errorf("tshark says %q", line)
					continue
				}
				seen[f[0]]++
			}
			fields := string(tshark(t, file, "-Y", "infiniband.cm.req", "-T", "fields", "-E", "separator=,", "-e", "infiniband.cm.req.serviceid.dport",
				"-e", "infiniband.cm.req.ip_cm.sip4", "-e", "infiniband.cm.req.ip_cm.dip4", "-e", "infiniband.cm.req.pkey"))
			if want := fmt.Sprintf("0x%04x,%s,%s,0xffff\n", 7471, addrs[1], addrs[0]); family == "IPv4" && !strings.HasPrefix(fields, want) {
				t.Errorf("tshark reads %q in the REQ, want %q", fields, want)
			}
			for attr, name := range cmNames {
				if seen[attr] == 0 {
					t.Errorf("the conversation has no %s", name)
				}
			}
		})
	}
}

// converse records a conversation between two devices of this process in a file.
func converse(t *testing.T, file string, serverAddr, clientAddr netip.Addr) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	recorder, err := pcap.Create(file, nil)
	check(t, err)
	n := inproc.NewNetwork(nil)
	open := func(addr netip.Addr) (*verbs.Device, *verbs.QP) {
		listening, err := n.Listen(netip.AddrPortFrom(addr, 4791))
		check(t, err)
		var conn packetconn.Conn = listening
		if addr == clientAddr {
			conn = recorder.Wrap(conn)
		}
		dev, err := verbs.Open(addr, &verbs.DeviceOptions{Conn: conn})
		check(t, err)
		pd, cq, qp := newQP(t, dev, verbs.QPAttr{})
		closeLater(t, qp, cq, pd, dev)
		return dev, qp
	}
	server, accepting := open(serverAddr)
	client, dialing := open(clientAddr)
	l, err := cm.Listen(server, 7471, nil)
	check(t, err)
	served := make(chan error, 1)
	go func() {
		req, err := l.Accept(context.Background())
		if err != nil {
			served <- err
			return
		}
		// The second REQ is answered with an MRA: three packets.
		for recorder.Packets() < 3 && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		c, err := req.Accept(ctx, accepting, &cm.ConnOptions{PrivateData: []byte("welcome")})
		if err == nil {
			<-c.Done()
			err = c.Err()
		}
		served <- err
	}()
	c, err := cm.Dial(ctx, dialing, netip.AddrPortFrom(serverAddr, 7471), &cm.ConnOptions{PrivateData: []byte("hello")})
	check(t, err)
	check(t, errors.Join(c.Close(), <-served))
	check(t, dialing.SetState(rdma.StateReset))
	if _, err := cm.Dial(ctx, dialing, netip.AddrPortFrom(serverAddr, 7472), nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a port without a listener: %v", err)
	}
	if _, err := cm.Resolve(ctx, client, netip.AddrPortFrom(serverAddr, 7471), nil); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a datagram port without a listener: %v", err)
	}
	d, err := cm.ListenDatagram(server, 7471, nil)
	check(t, err)
	go func() {
		if q, err := d.Accept(context.Background()); err == nil {
			_ = q.Reply(0x77, cm.DefaultQKey, []byte("here")) // Resolve reports a failure
		}
	}()
	if _, err := cm.Resolve(ctx, client, netip.AddrPortFrom(serverAddr, 7471), []byte("where")); err != nil {
		t.Error(err)
	}
	l.Close()
	d.Close()
	check(t, recorder.Close())
}
