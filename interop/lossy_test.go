package interop

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/rig"
)

// TestUnmodifiedLoss runs the programs of TestUnmodified that connect with rdma_cm while
// the link loses a twentieth of the packets in each direction.
//
// udaddy expects every datagram, so only messages of the connection manager are lost, one
// in five. If it serves in the guest, only its requests are lost: Linux forgets a request
// when it has answered, and passes the repeated request to the program as a new one, for
// which udaddy no longer waits.
func TestUnmodifiedLoss(t *testing.T) {
	r := sharedRig(t)
	g := r.Guest
	for _, p := range unmodified {
		if p.tcp != 0 {
			continue
		}
		for _, guestServes := range []bool{true, false} {
			// A lost message of the kernel costs 4 s, and most messages are its
			// own if it has the client.
			if testing.Short() && (!guestServes || p.name != "udaddy" && p.name != "rdma_server") {
				continue
			}
			toGuest := rig.Impairment{Loss: 5}
			if p.name == "udaddy" {
				toGuest = rig.Impairment{Loss: 20, MADs: true}
			}
			fromGuest := toGuest
			if guestServes && p.name == "udaddy" {
				fromGuest = rig.Impairment{}
			}
			t.Run(sided(p.name, guestServes), func(t *testing.T) {
				defer impair(t, g, toGuest, fromGuest)()
				check(t, racing(t, func() error { return runLossyPair(t, r, guestServes, p) }))
				logLost(t, g)
			})
		}
	}
}

// logLost logs how many packets the link of a guest has lost.
func logLost(t *testing.T, g *rig.Guest) {
	t.Helper()
	to, from, err := g.Impairments(t.Context())
	check(t, err)
	t.Logf("lost: %d of %d packets to the guest, %d of %d from it", to.Dropped, to.Packets+to.Dropped, from.Dropped, from.Packets+from.Dropped)
}

// lossyProgram compiles a program of the command's tests, once: many messages in flight, SEND, WRITE
// and READ, whose every byte is compared.
var lossyProgram = madeOnce(func(dir string) (string, error) {
	file := filepath.Join(dir, "lossy")
	compile := exec.Command("gcc", "-O2", "-Wall", "-o", file, "../cmd/softmkey/testdata/lossy/lossy.c", "-libverbs", "-lrdmacm")
	if text, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compiling lossy: %w\n%s", err, text)
	}
	return file, nil
})

// TestLossyMessages runs lossy between the guest and softmkey run while the link loses and
// reorders packets in both directions.
func TestLossyMessages(t *testing.T) {
	lossy, err := lossyProgram()
	check(t, err)
	r := sharedRig(t)
	g := r.Guest
	impairments, messages := []rig.Impairment{{Loss: 1, Reorder: 1, DelayMS: 1}}, 500
	if !testing.Short() {
		impairments, messages = []rig.Impairment{{Loss: 1}, {Loss: 3}, {Reorder: 5, DelayMS: 1}}, 1500
	}
	for _, bad := range impairments {
		for _, guestServes := range []bool{true, false} {
			p := programPair{name: "lossy", prints: " 0 wrong", limit: 3 * time.Minute}
			p.server, p.client = "lossy", lossy
			if !guestServes {
				p.server, p.client = lossy, "lossy"
			}
			p.server += fmt.Sprintf(" server 0.0.0.0 1024 32 %d", messages)
			p.client += fmt.Sprintf(" client %%s 1024 32 %d", messages)
			t.Run(fmt.Sprintf("%+v, server in the guest: %v", bad, guestServes), func(t *testing.T) {
				defer impair(t, g, bad, bad)()
				check(t, runLossyPair(t, r, guestServes, p))
				logLost(t, g)
			})
		}
	}
}

// The causes for which one side can wait without limit although the other has ended. Two
// kernels have them as well, because the connection of a program ends with it.
var (
	// Linux does not repeat the DREQ of a program that has ended.
	errLostDREQ = errors.New("the guest's DREQ was lost")

	// The program has destroyed its QP, and nobody acknowledges the message again.
	// soft-RoCE repeats it without limit if retry_cnt is 7.
	errLostAck = errors.New("the acknowledgement of the guest's last message was lost")
)

// runLossyPair runs a pair of programs on a lossy link and returns their result. It ends
// the second program if the capture shows that it waits for one of these causes.
func runLossyPair(t *testing.T, r *rig.Rig, guestServes bool, p programPair) error {
	// In the folder of the guest's log, so that the capture of a failure can be kept.
	pcap := filepath.Join(filepath.Dir(r.Guest.Log), "running.pcapng")
	defer os.Remove(pcap)
	capture, err := r.Capture(r.Guest, pcap)
	if err != nil {
		return err
	}
	defer capture.Stop()
	ctx, cancel := context.WithCancelCause(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel(nil)
	err = runPair(ctx, t, r, guestServes, p, func(guestLeft bool) {
		alone := func() error { return lostDREQ(r, pcap) }
		if guestLeft {
			alone = func() error { return lostAck(r, pcap) }
		}
		watching.Go(func() {
			for {
				select {
				case <-time.After(3 * time.Second):
				case <-ctx.Done():
					return
				}
				if err := alone(); err != nil {
					cancel(err)
				}
			}
		})
	})
	if cause := context.Cause(ctx); err != nil && cause != nil && strings.Contains(err.Error(), p.prints) {
		t.Logf("the last program was ended: %v", cause)
		return nil
	}
	if err != nil {
		kept := filepath.Join(filepath.Dir(r.Guest.Log), "pair.pcapng")
		err = errors.Join(err, capture.Stop(), os.Rename(pcap, kept))
		t.Logf("the capture is in %s", kept)
	}
	return err
}

// packets returns fields of the packets of a capture that match a filter. The file may be
// incomplete, because it is still written.
func packets(pcap, filter string, fields ...string) (lines []string) {
	args := []string{"-r", pcap, "-Y", filter, "-T", "fields", "-E", "separator=,"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	text, _ := exec.Command("tshark", args...).Output() // fails on an incomplete packet
	return strings.Fields(string(text))
}

// lostDREQ returns errLostDREQ if we have answered fewer DREQs of the guest than we have
// accepted connections.
func lostDREQ(r *rig.Rig, pcap string) error {
	const rep, drep = "0x0013", "0x0016"
	if messages(r.Addr4, drep, pcap) < messages(r.Addr4, rep, pcap) {
		return errLostDREQ
	}
	return nil
}

// messages returns the number of different messages of a kind that an address has sent to
// the peer's connection manager.
func messages(from netip.Addr, attr, pcap string) int {
	list := packets(pcap, "ip.src == "+from.String()+" && infiniband.mad.attributeid == "+attr, "infiniband.mad.transactionid")
	slices.Sort(list)
	return len(slices.Compact(list))
}

// lostAck returns errLostAck if the guest repeats a message that we have acknowledged, or
// that nobody acknowledges any more because our program has disconnected.
func lostAck(r *rig.Rig, pcap string) error {
	const ack = "infiniband.bth.opcode == 17"
	sent := packets(pcap, "ip.src == "+r.Guest.Addr4.String()+" && infiniband.bth.destqp != 1 && !("+ack+")", "infiniband.bth.psn")
	if len(sent) == 0 {
		return nil
	}
	last, times := sent[len(sent)-1], 0
	for _, psn := range sent {
		if psn == last {
			times++
		}
	}
	if times < 4 {
		return nil
	}
	const dreq = "0x0015"
	if messages(r.Addr4, dreq, pcap) > 0 {
		return errLostAck
	}
	for _, psn := range packets(pcap, "ip.src == "+r.Addr4.String()+" && "+ack, "infiniband.bth.psn") {
		a, err := strconv.Atoi(psn)
		b, err2 := strconv.Atoi(last)
		if err == nil && err2 == nil && uint32(a-b)<<8 < 1<<31 { // PSNs have 24 bits
			return errLostAck
		}
	}
	return nil
}
