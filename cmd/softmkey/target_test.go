//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/internal/tool/nvmet/pitable"
	"github.com/softmkey/softmkey/packetconn"
	"github.com/softmkey/softmkey/roce"
	"github.com/softmkey/softmkey/verbs"
)

// startTarget starts softmkey target in a folder, and waits until it listens. It is killed with the test.
func startTarget(t *testing.T, program, dir, addr string, args ...string) (target *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	target, said = exec.Command(program, append([]string{"target", "--device", addr, "--nqn", "n"}, args...)...), &bytes.Buffer{}
	target.Dir, target.Stderr = dir, said
	out, err := target.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		target.Process.Kill()
		target.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != addr+" 4420 n\n" {
		t.Fatalf("%q %v %s", line, err, said)
	}
	return target, said
}

// TestTarget serves images of all kinds with T10-PI to examples/nvmepi, which writes and reads blocks 0 to 15,
// and makes a block with a bad guard. The image must then be right, with these blocks.
func TestTarget(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	host := filepath.Join(dir, "nvmepi")
	if out, err := exec.Command("go", "build", "-o", host, "../../examples/nvmepi").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(t *testing.T, name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v: %s", name, args, err, out)
		}
		return string(out)
	}
	writeFile(t, filepath.Join(dir, "img"), bytes.Repeat([]byte("target. "), 8192), 0o600)
	run(t, program, "dek", "generate", "key")
	for i, c := range []struct {
		name   string
		made   string // flags of tx, which makes the image
		served string // flags of target
	}{
		{name: "T10-DIF", made: "--wire t10dif", served: "--sig t10dif"},
		{name: "other reference tags", made: "--wire t10dif:512,ref=100", served: "--sig t10dif:512,ref=100"},
		{name: "IP checksums", made: "--wire t10dif:512,guard=csum", served: "--sig t10dif:512,guard=csum"},
		{name: "CRC32C", made: "--wire crc32c:512", served: "--sig crc32c:512 --pi 1"},
		{name: "clean", served: "--pi 1"},
		{name: "encrypted with its fields", made: "--wire t10dif --crypto encrypt --order before --unit 520 --dek key", served: "--sig t10dif --crypto encrypt --order before --unit 520 --dek key"},
		{name: "encrypted", made: "--crypto encrypt --dek key", served: "--pi 1 --crypto encrypt --order before --unit 512 --dek key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.made == "" {
				run(t, "cp", "img", "image")
			} else {
				run(t, program, append(append([]string{"tx"}, strings.Fields(c.made)...), "img", "image")...)
			}
			addr := fmt.Sprintf("127.37.2.%d", 2*i+1)
			target, said := startTarget(t, program, dir, addr, append(strings.Fields(c.served), "image")...)
			got := run(t, host, "-device", fmt.Sprintf("127.37.2.%d", 2*i+2), "-target", addr+":4420", "-subsystem", "n")
			want := `controller 1, namespace 1: 128 blocks of 512+8 bytes, protection type 1
write of blocks 0 to 7: status 0x0, bad: false
read of blocks 0 to 7: status 0x0, bad: false, equal: true
write of blocks 8 to 15: status 0x0, bad: false
read of blocks 8 to 15: status 0x0, bad: false, equal: true
write with a bad guard: status 0x282, guard check error: true, bad: false
read as if it were from block 0: status 0x0, bad: wire domain: bad reference tag: block 0 at offset 0: stored 0x8, computed 0x0
`
			if got != want {
				t.Errorf("the host printed:\n%swant:\n%s", got, want)
			}
			if err := target.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if err := target.Wait(); err != nil {
				t.Errorf("the target: %v", err)
			}
			if n := strings.Count(said.String(), "namespace 1, block 3: 0x282"); n != 1 || strings.Count(said.String(), "\n") != 1 {
				t.Errorf("the target said:\n%s", said)
			}
			back := "image"
			if c.made != "" {
				back = "back"
				run(t, program, append(append([]string{"rx"}, strings.Fields(c.made)...), "image", "back")...)
			}
			b, err := os.ReadFile(filepath.Join(dir, back))
			if err != nil || len(b) != 1<<16 || !bytes.HasPrefix(b, []byte("softmkey as a host of NVMe")) || !bytes.HasPrefix(b[8*512:], []byte("softmkey as a host of NVMe")) || !bytes.HasPrefix(b[16*512:], []byte("target. ")) {
				t.Errorf("other blocks: %d bytes, %v", len(b), err)
			}
		})
	}
}

// TestTargetProtection executes the commands of pitable: each must end as the specification says. The packets
// pass through memory.
func TestTargetProtection(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	clean, image := filepath.Join(dir, "img"), filepath.Join(dir, "dif")
	writeFile(t, clean, make([]byte, 1<<16), 0o600)
	if out, err := exec.Command(program, "protect", "-q", "--sig", "t10dif", clean, image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	startTarget(t, program, dir, "127.37.3.1", "--sig", "t10dif", "dif")
	host := netip.MustParseAddr("127.37.3.2")
	conn, err := near(netip.AddrPortFrom(host, roce.UDPPort))
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := packetconn.AsNeighbor(conn); !ok || !n.Approach(netip.MustParseAddrPort("127.37.3.1:4791"), 2) {
		t.Error("no packet to the target can pass through memory")
	}
	dev, err := verbs.Open(host, &verbs.Options{Conn: conn})
	if err != nil {
		conn.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	target := &pitable.Target{Queue: pitable.Connect(t, dev, netip.MustParseAddrPort("127.37.3.1:4420"), "n")}
	target.Put = func(n int, block []byte) {
		if _, err := f.WriteAt(block, int64(n)*pitable.Stride); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range target.Run(t) {
		if want := r.Status(r.Wire, r.Medium); r.Got != want {
			t.Errorf("%s, PRINFO %04b: %v, want %v", r.What, r.PRInfo, r.Got, want)
		}
	}
}
