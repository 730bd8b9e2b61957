package bench

import (
	"fmt"

	"github.com/softmkey/softmkey/xts"
)

// An XTSRow is a row of package xts with its data.
type XTSRow struct {
	Row
	Key      []byte
	Decrypt  bool
	Tweak    uint64 // of the first unit
	Dst, Src []byte // whole units of Size bytes
}

// XTS returns the rows of both key sizes and directions.
func XTS() []XTSRow {
	var rows []XTSRow
	for _, bits := range []int{128, 256} {
		for _, decrypt := range []bool{false, true} {
			for _, unit := range []int{512, 520, 4096} {
				rows = append(rows, newXTSRow(bits, decrypt, unit))
			}
		}
	}
	return rows
}

func newXTSRow(bits int, decrypt bool, unit int) XTSRow {
	n := DataSize / unit * unit
	r := XTSRow{Key: random(bits / 4), Decrypt: decrypt, Tweak: 1 << 20, Dst: make([]byte, n), Src: random(n)}
	c, err := xts.New(r.Key)
	must(err)
	verb, crypt := "encrypt", c.Encrypt
	if decrypt {
		verb, crypt = "decrypt", c.Decrypt
	}
	r.Row = Row{
		Group: "xts", Operation: fmt.Sprintf("AES-XTS-%d %s", bits, verb), Size: unit, Unit: GBps,
		Ours: Case{Name: "softmkey", Work: float64(n), Run: func(times int) {
			for range times {
				crypt(r.Dst, r.Src, unit, xts.Tweak{Lo: r.Tweak})
			}
		}},
	}
	return r
}
