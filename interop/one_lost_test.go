package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/rig"
)

// fewPackets are the programs of TestUnmodified that connect with rdma_cm, with few
// messages.
var fewPackets = []programPair{
	{name: "rdma_server", server: "rdma_server", client: "rdma_client -s %s"},
	{name: "rping", server: "rping -s -C 2 -S 1000 -V", client: "rping -c -a %s -C 2 -S 1000 -V", long: true},
	{name: "ucmatose", server: "ucmatose -c 1 -C 3", client: "ucmatose -c 1 -C 3 -s %s", long: true},
	{name: "ib_write_bw rdma_cm", server: "ib_write_bw -R -s 4096 -t 4 -n 10 -F", client: "ib_write_bw -R -s 4096 -t 4 -n 10 -F %s", long: true},
}

// TestOneLostKernel runs each pair of programs once for every packet of a direction, with
// one side in the guest: that packet is lost, and both programs end.
func TestOneLostKernel(t *testing.T) {
	if testing.Short() {
		t.Skip("NOT RUN: a lost message of the guest costs seconds; this belongs to the long form")
	}
	r := sharedRig(t)
	g := r.Guest
	for _, p := range fewPackets {
		for _, guestServes := range []bool{false, true} {
			for _, toGuest := range []bool{true, false} {
				name := sided(p.name, guestServes)
				from, to := g.Addr4, r.Addr4
				if toGuest {
					name += "/to the guest"
					from, to = to, from
				}
				t.Run(name, func(t *testing.T) {
					for n, packets := 1, 1; n <= packets; n++ {
						began := time.Now()
						var err error
						packets, err = losing(t, from, to, n, func() error { return runLossyPair(t, r, guestServes, p) })
						if err != nil {
							t.Errorf("packet %d lost: %v", n, err)
						}
						t.Logf("packet %d of %d lost: %v", n, packets, time.Since(began).Round(time.Millisecond))
					}
				})
			}
		}
	}
}

// losing calls f while the nth packet from one address to another is lost, and returns the
// number of packets.
func losing(t *testing.T, from, to netip.Addr, n int, f func() error) (packets int, err error) {
	err = racing(t, func() error {
		loss, err := rig.LoseOne(from, to, n)
		if err != nil {
			return err
		}
		err = f()
		var stopping error
		packets, stopping = loss.Stop()
		return errors.Join(err, stopping)
	})
	return packets, err
}

// TestOneLost does the same with both programs under softmkey run, each on a loopback
// address of its own.
func TestOneLost(t *testing.T) {
	next := netip.MustParseAddr("127.91.0.1")
	for _, p := range fewPackets {
		if testing.Short() && p.long {
			continue
		}
		for _, toServer := range []bool{false, true} {
			name := p.name + "/to the client"
			if toServer {
				name = p.name + "/to the server"
			}
			// lose runs the programs and returns the number of packets.
			lose := func(t *testing.T, server netip.Addr, n int) int {
				from, to := server, server.Next()
				if toServer {
					from, to = to, from
				}
				packets, err := losing(t, from, to, n, func() error { return runTwo(t, server, server.Next(), p) })
				if err != nil {
					t.Error(err)
				}
				return packets
			}
			t.Run(name, func(t *testing.T) {
				for n := range lose(t, next, never) {
					next = next.Next().Next()
					server := next
					t.Run(fmt.Sprint("packet ", n+1), func(t *testing.T) {
						t.Parallel()
						lose(t, server, n+1)
					})
				}
			})
		}
	}
}

// never is the number of a packet that no program sends.
const never = 1 << 30

// runTwo runs a server and, once it listens, its client, both under softmkey run, and
// returns their results.
func runTwo(t *testing.T, server, client netip.Addr, p programPair) error {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	listening := make(chan struct{})
	servers := underRun(ctx, t, server.String(), p.server, listening)
	if err := awaitServer(servers, listening); err != nil {
		return err
	}
	clients := underRun(ctx, t, client.String(), fmt.Sprintf(p.client, server), nil)
	select {
	case err := <-clients:
		return endOther(cancel, err, servers)
	case err := <-servers:
		return endOther(cancel, err, clients)
	}
}
