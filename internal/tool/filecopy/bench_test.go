package filecopy

import (
	"bytes"
	"io"
	"net/netip"
	"testing"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/tool/keyplan"
	"github.com/softmkey/softmkey/internal/tool/keyplan/plantest"
	"github.com/softmkey/softmkey/verbs"
)

// BenchmarkCopy copies 64 MiB from memory over UDP on loopback and discards them.
func BenchmarkCopy(b *testing.B) {
	data := random(1, 64<<20)
	var devs [2]*verbs.Device
	for i, addr := range []string{"127.0.9.1", "127.0.9.2"} {
		dev, err := verbs.Open(netip.MustParseAddr(addr), nil)
		fatal.If(b, err)
		defer dev.Close()
		devs[i] = dev
	}
	side := SideConfig{Secret: Secret{DEK: newDEK(b)}}
	for _, row := range []string{"plain", "wire", "row C to ciphertext", "row C to C"} {
		for _, op := range []string{keyplan.Write, keyplan.Send, keyplan.Read} {
			b.Run(row+"/"+op, func(b *testing.B) {
				var terms keyplan.Terms
				for _, r := range plantest.Rows {
					if r.Name == row {
						terms = r.Terms
					}
				}
				terms.Op = op
				p, err := keyplan.New(terms, 0)
				fatal.If(b, err)
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					_, _, err := Local(timeout(b), devs[0], devs[1], p,
						SenderConfig{SideConfig: side, Src: bytes.NewReader(data), Flip: -1},
						ReceiverConfig{SideConfig: side, Dst: io.Discard})
					fatal.If(b, err)
				}
			})
		}
	}
}
