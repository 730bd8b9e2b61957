// Package recorded has the commands that the driver of a guest's kernel gave the adapter in a
// recorded boot, for tests.
package recorded

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/softmkey/softmkey/internal/hca/prm"
)

// Command is a command and the answer that the driver took.
type Command struct {
	Line    int // in the record
	In, Out []byte
}

//go:embed linux-6.12.107.txt.gz
var linux612 []byte

// Linux612 returns the commands of Debian's kernel 6.12.107 with mlx5_core and mlx5_ib, from the
// boot to the shutdown. The machine has 512 MiB of memory.
func Linux612() ([]Command, error) {
	z, err := gzip.NewReader(bytes.NewReader(linux612))
	if err != nil {
		return nil, err
	}
	var boot []Command
	scan := bufio.NewScanner(z)
	scan.Buffer(nil, 1<<20)
	for n := 1; scan.Scan(); n++ {
		if strings.HasPrefix(scan.Text(), "#") {
			continue
		}
		c, err := parse(scan.Text())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		c.Line = n
		boot = append(boot, c)
	}
	return boot, scan.Err()
}

// parse decodes a line. The record's head describes it.
func parse(line string) (c Command, err error) {
	var op, mod, inLen, outLen int
	var in, out string
	if _, err := fmt.Sscanf(line, "%x %x %d %s %d %s", &op, &mod, &inLen, &in, &outLen, &out); err != nil {
		return c, err
	}
	c = Command{In: make([]byte, inLen), Out: make([]byte, outLen)}
	prm.PutCommand(c.In, prm.Command(op), uint16(mod))
	if err := fill(c.In[min(8, inLen):], in); err != nil {
		return c, err
	}
	return c, fill(c.Out, out)
}

// fill decodes hexadecimal digits, or "-" for none.
func fill(b []byte, digits string) error {
	text, err := hex.DecodeString(strings.Trim(digits, "-"))
	if err == nil && len(text) > len(b) {
		err = fmt.Errorf("%d bytes in %d", len(text), len(b))
	}
	copy(b, text)
	return err
}
