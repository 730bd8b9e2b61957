package interop

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/peer"
	"github.com/softmkey/softmkey/interop/rig"
)

// TestLossSpeed measures the rate of messages of 64 KiB between our device and soft-RoCE
// in the guest over a link that loses packets. It prints a row per operation, and does
// not check the rate.
func TestLossSpeed(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv("SOFTMKEY_LOSS_SPEED"))
	if err != nil {
		t.Skip("a measurement, NOT RUN: set SOFTMKEY_LOSS_SPEED to the time for each row, such as 3s")
	}
	const (
		size     = 64 << 10
		inFlight = 16
	)
	for _, loss := range []float64{0, 1, 10} {
		for _, op := range []peer.Op{peer.Write, peer.Send, peer.Read} {
			for _, fromDevice := range []bool{true, false} {
				name := fmt.Sprintf("loss %g %%, %v by the kernel", loss, op)
				if fromDevice {
					name = fmt.Sprintf("loss %g %%, %v by the device", loss, op)
				}
				t.Run(name, func(t *testing.T) {
					c := peer.Defaults()
					c.MTU, c.Timeout, c.RetryCount = 1024, 14, 7 // 67 ms
					a, b := talk(t, fromDevice, c)
					guest := sharedRig(t).Guests[0]
					bad := rig.Impairment{Loss: loss}
					defer impair(t, guest, bad, bad)()
					addr, rkey := b.region()
					work := peer.Work{Op: op, Count: 1, Len: size, RemoteAddr: addr, RKey: rkey}
					post := func() {
						if op == peer.Send {
							check(t, b.post(peer.Work{Op: peer.Recv, Count: 1, Len: size}))
						}
						check(t, a.post(work))
					}
					began := time.Now()
					posted, done := 0, 0
					for ; posted < inFlight; posted++ {
						post()
					}
					for done < posted {
						got, err := a.wait(1)
						check(t, err)
						if got[0].Status != success {
							t.Fatalf("completion %d after %v: %+v", done, time.Since(began), got[0])
						}
						done++
						if time.Since(began) < duration {
							post()
							posted++
						}
					}
					took := time.Since(began)
					fmt.Printf("| %s | %.3g Mbit/s |\n", name, float64(done)*size*8/1e6/took.Seconds())
				})
			}
		}
	}
}
