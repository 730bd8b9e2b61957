package perf

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/softmkey/softmkey/internal/tool/device/devicetest"
	"github.com/softmkey/softmkey/internal/tool/jsonline"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
)

// pair returns a client whose server is in this process.
func pair(t testing.TB) (context.Context, *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	a, b := devicetest.Pair(t)
	here, there := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- (&Server{Dev: b}).ServeConn(ctx, jsonline.New(there))
	}()
	c, err := NewClient(ctx, jsonline.New(here), a, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		here.Close()
		if err := <-done; err != nil {
			t.Errorf("server: %v", err)
		}
	})
	return ctx, c
}

var keys = map[string]keyplan.Terms{
	"plain":      {},
	"wire":       {Wire: "t10dif"},
	"three":      {Mem: "crc32c", Wire: "t10dif:512,ref=7", PeerMem: "crc64"},
	"row A":      {Crypto: "encrypt", PeerCrypto: "decrypt"},
	"row C":      {Wire: "t10dif", Crypto: "encrypt", Order: "before"},
	"row C C":    {Wire: "t10dif", Crypto: "encrypt", Order: "before", PeerCrypto: "decrypt"},
	"row B":      {Wire: "t10dif", Crypto: "encrypt", Order: "after", PeerCrypto: "decrypt"},
	"row H":      {Mem: "t10dif", Crypto: "decrypt", Order: "after"},
	"ciphertext": {Wire: "t10dif", PeerCrypto: "decrypt", PeerOrder: "after"},
}

func TestAllOperations(t *testing.T) {
	ctx, c := pair(t)
	for _, test := range []string{Bandwidth, Latency} {
		for _, op := range Ops() {
			for name, terms := range keys {
				for _, size := range []int{8, 64, 8192, 33280} {
					if (op == FetchAdd) != (size == 8) || op == FetchAdd && name != "plain" {
						continue
					}
					cs := Case{Test: test, Op: op, Key: name, Terms: terms, Size: size, Depth: 8, QPs: 2, Inline: 64, Verify: true}
					r, err := c.Run(ctx, cs, Limit{Messages: 40})
					if err != nil {
						t.Errorf("%+v: %v", cs, err)
						continue
					}
					if r.Messages != 40 || r.Bad != "" || r.Seconds <= 0 {
						t.Errorf("%+v", r)
					}
					if sent := r.Transport.SentPackets; sent == 0 || r.Peer.RecvPackets == 0 || r.Resent != r.Transport.Retransmitted+r.Peer.Retransmitted {
						t.Errorf("%+v", r)
					}
					if (test == Bandwidth) != (r.GBps > 0) || (test == Latency) != (r.Median > 0) {
						t.Errorf("%+v", r)
					}
				}
			}
		}
	}
}
