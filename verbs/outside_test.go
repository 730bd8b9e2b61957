package verbs_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestOutsideModule builds and runs a program of another module, which can use only
// public packages: two devices over its own packetconn.Conn.
func TestOutsideModule(t *testing.T) {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "testdata/outside"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`the peer has "a block from another module" with the field `,
		"then it has a wire domain: ",
		"close the PD: still in use: 1 MKey, 1 MR, QP 0x",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the program printed\n%s\nwithout %q", out, want)
		}
	}
}
