//go:build linux && (amd64 || arm64)

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/softmkey/softmkey/internal/base/fatal"
	"github.com/softmkey/softmkey/internal/net/netconn"
	"github.com/softmkey/softmkey/internal/roce"
	"github.com/softmkey/softmkey/internal/tool/nvmet/nvme"
	"github.com/softmkey/softmkey/internal/tool/nvmet/pitable"
	"github.com/softmkey/softmkey/verbs"
)

// startTarget starts softmkey target in a folder, and waits until it listens. It is killed with the test.
func startTarget(t *testing.T, program, dir, addr string, args ...string) (target *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	said = &bytes.Buffer{}
	return startTargetTo(t, said, program, dir, addr, args...), said
}

// startTargetTo starts a target whose standard error is a writer.
func startTargetTo(t *testing.T, errs io.Writer, program, dir, addr string, args ...string) (target *exec.Cmd) {
	t.Helper()
	target = exec.Command(program, append([]string{"target", "--device", addr, "--nqn", "n"}, args...)...)
	target.Dir, target.Stderr = dir, errs
	out, err := target.StdoutPipe()
	fatal.If(t, err)
	fatal.If(t, target.Start())
	t.Cleanup(func() {
		target.Process.Kill()
		target.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != addr+" 4420 n\n" && line[0] != '{' {
		t.Fatalf("%q %v %s", line, err, errs)
	}
	return target
}

// targetHost returns a host of the target that startTarget starts at an address.
func targetHost(t *testing.T, addr, target, nqn string) *pitable.Host {
	t.Helper()
	dev, err := verbs.Open(netip.MustParseAddr(addr), nil)
	fatal.If(t, err)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return &pitable.Host{TB: t, Dev: dev, At: netip.AddrPortFrom(netip.MustParseAddr(target), 4420), Subsystem: "n", NQN: nqn}
}

// readBlock reads a block of a namespace with T10-PI of type 1 and checks guard and reference tag.
func readBlock(lba uint32) nvme.Command {
	return nvme.Command{Opcode: nvme.Read, NSID: 1, DW: [6]uint32{lba, 0, uint32(nvme.PRGuard|nvme.PRRef) << 26, 0, lba}}
}

// protectedImage makes an image of 128 blocks with T10-DIF in a folder.
func protectedImage(t *testing.T, program, dir, name string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "clean"), bytes.Repeat([]byte("target. "), 8192), 0o600)
	runIn(t, dir, program, "protect", "-q", "--sig", "t10dif", "clean", name)
}

// TestTargetUnread has a standard error that nobody reads. Thousands of commands that fail, each with a line, are
// answered, and the target ends after a signal.
func TestTargetUnread(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	protectedImage(t, program, dir, "dif")
	for i, args := range [][]string{{}, {"--json"}} {
		unread, errs, err := os.Pipe()
		fatal.If(t, err)
		defer unread.Close()
		addr := fmt.Sprintf("127.37.4.%d", 2*i+1)
		target := exec.Command(program, append([]string{"target", "--device", addr, "--nqn", "n", "--damage", "guard@3", "--sig", "t10dif", "dif"}, args...)...)
		target.Dir, target.Stdout, target.Stderr = dir, errs, errs
		fatal.If(t, target.Start())
		defer target.Process.Kill()
		errs.Close()
		if _, err := unread.Read(make([]byte, 200)); err != nil { // the first line
			t.Fatal(err)
		}
		_, q := targetHost(t, fmt.Sprintf("127.37.4.%d", 2*i+2), addr, "nqn."+strings.Repeat("x", 200)).Connect()
		for n := range 2000 {
			if _, status := q.Exec(readBlock(3), make([]byte, pitable.Stride)); status != nvme.GuardCheck {
				t.Fatalf("read %d: %v", n, status)
			}
		}
		fatal.If(t, target.Process.Signal(os.Interrupt))
		var ended *exec.ExitError
		if err := target.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitFailed {
			t.Errorf("the end of a target whose last lines nobody takes: %v", err)
		}
	}
}

// TestTargetNames has a host whose name would forge lines and control the terminal.
func TestTargetNames(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	protectedImage(t, program, dir, "dif")
	for i, args := range [][]string{{}, {"--json"}} {
		addr := fmt.Sprintf("127.37.5.%d", 2*i+1)
		target, said := startTarget(t, program, dir, addr, append([]string{"--damage", "guard@3", "--sig", "t10dif", "dif"}, args...)...)
		const name = "nqn.x)\nsoftmkey: namespace 1, block 4711: forged\n\x1b[2J\u009b31m\u202e"
		_, q := targetHost(t, fmt.Sprintf("127.37.5.%d", 2*i+2), addr, name).Connect()
		if _, status := q.Exec(readBlock(3), make([]byte, pitable.Stride)); status != nvme.GuardCheck {
			t.Fatal(status)
		}
		fatal.If(t, target.Process.Signal(os.Interrupt))
		target.Wait()
		if n := strings.Count(said.String(), "\n"); n != 1 || strings.ContainsFunc(strings.TrimSpace(said.String()), func(r rune) bool { return !unicode.IsPrint(r) }) || !strings.Contains(said.String(), "forged") {
			t.Errorf("the target said %q", said)
		}
	}
}

// TestServersJSON has a client that speaks no NBD, and an image that becomes shorter under a target. With --json, each
// line on standard error is an object.
func TestServersJSON(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	protectedImage(t, program, dir, "dif")
	said := &bytes.Buffer{}
	socket := filepath.Join(dir, "socket")
	server := startNBDTo(t, said, program, filepath.Join(dir, "dif"), socket, "--json")
	defer server.Process.Kill()
	client, err := net.Dial("unix", socket)
	fatal.If(t, err)
	if _, err := client.Write(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, client) // ends with the connection
	client.Close()
	fatal.If(t, server.Process.Signal(os.Interrupt))
	fatal.If(t, server.Wait())
	wantObjects(t, said, "peer", "error")

	target, said := startTarget(t, program, dir, "127.37.7.1", "--json", "--sig", "t10dif", "dif")
	_, q := targetHost(t, "127.37.7.2", "127.37.7.1", "nqn.h").Connect()
	fatal.If(t, os.Truncate(filepath.Join(dir, "dif"), 0))
	if _, status := q.Exec(readBlock(3), make([]byte, pitable.Stride)); status != nvme.UnrecoveredRead {
		t.Error(status)
	}
	fatal.If(t, target.Process.Signal(os.Interrupt))
	fatal.If(t, target.Wait())
	wantObjects(t, said, "file", "operation", "offset", "error")
}

// wantObjects checks that each line of a text is an object, and that the first one has these members.
func wantObjects(t *testing.T, text *bytes.Buffer, members ...string) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(text.String()), "\n") {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		for _, name := range members {
			if _, ok := object[name]; i == 0 && !ok {
				t.Errorf("%q has no %s", line, name)
			}
		}
	}
}

// identities starts a target of an image in a folder, and returns what a host takes for the identity of its disk:
// serial number, NGUID and UUID.
func identities(t *testing.T, program, dir, addr, host, image string, args ...string) (serial, nguid, uuid string) {
	t.Helper()
	target, said := startTarget(t, program, dir, addr, append(args, image)...)
	admin, _ := targetHost(t, host, addr, "nqn.h").Connect()
	b := make([]byte, nvme.IdentifySize)
	admin.Must(nvme.Command{Opcode: nvme.Identify, DW: [6]uint32{nvme.CNSController}}, b)
	serial = string(b[4:24])
	admin.Must(nvme.Command{Opcode: nvme.Identify, NSID: 1, DW: [6]uint32{nvme.CNSDescriptors}}, b)
	nguid, uuid = fmt.Sprintf("%x", b[4:20]), fmt.Sprintf("%x", b[24:40])
	admin.Must(nvme.Command{Opcode: nvme.Identify, NSID: 1, DW: [6]uint32{nvme.CNSNamespace}}, b)
	if got := fmt.Sprintf("%x", b[104:120]); got != nguid {
		t.Errorf("NGUID is %s and %s", got, nguid)
	}
	fatal.If(t, target.Process.Signal(os.Interrupt))
	if err := target.Wait(); err != nil {
		t.Errorf("%v: %s", err, said)
	}
	return serial, nguid, uuid
}

// TestTargetIdentity has images that are one disk for multipath of a host, and others that must not be.
func TestTargetIdentity(t *testing.T) {
	program, one, two := builtProgram(t), t.TempDir(), t.TempDir()
	for _, dir := range []string{one, two} {
		writeFile(t, filepath.Join(dir, "disk"), make([]byte, 1<<16), 0o600)
	}
	serial, nguid, uuid := identities(t, program, one, "127.37.6.1", "127.37.6.2", "disk")
	if s, n, u := identities(t, program, two, "127.37.6.3", "127.37.6.4", "disk"); s == serial || n == nguid || u == uuid {
		t.Errorf("two images have serial numbers %q and %q, NGUIDs %s and %s, UUIDs %s and %s", serial, s, nguid, n, uuid, u)
	}
	fatal.If(t, os.Rename(filepath.Join(one, "disk"), filepath.Join(one, "moved")))
	if s, n, u := identities(t, program, one, "127.37.6.5", "127.37.6.6", "moved"); s != serial || n != nguid || u != uuid {
		t.Errorf("the image has another identity after a restart under another name: %q %s %s", s, n, u)
	}
	const own = "0123456789abcdef0123456789abcdef"
	if s, n, u := identities(t, program, one, "127.37.6.7", "127.37.6.8", "moved", "--serial", "S1", "--uuid", own); strings.TrimSpace(s) != "S1" || n != own || u != own {
		t.Errorf("chosen identity: %q %s %s", s, n, u)
	}
}

// runIn runs a command of the program in a folder.
func runIn(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// TestTargetDamage has damage of blocks beside others in one data unit, which a write reads and writes back. The image
// keeps the damaged block as it was, and damage that happens once happens to a command that asks for the block.
func TestTargetDamage(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	data := make([]byte, 1<<16)
	rand.NewChaCha8([32]byte{1}).Read(data)
	writeFile(t, filepath.Join(dir, "img"), data, 0o600)
	runIn(t, dir, program, "dek", "generate", "key")
	serve := func(addr string, flags string, image string, use func(q *pitable.Queue)) {
		t.Helper()
		target, said := startTarget(t, program, dir, addr+"1", append(strings.Fields(flags), image)...)
		_, q := targetHost(t, addr+"2", addr+"1", "nqn.h").Connect()
		use(q)
		fatal.If(t, target.Process.Signal(os.Interrupt))
		if err := target.Wait(); err != nil {
			t.Errorf("%v: %s", err, said)
		}
	}
	read := func(q *pitable.Queue, lba uint32) ([]byte, nvme.Status) {
		b := make([]byte, pitable.Stride)
		_, s := q.Exec(readBlock(lba), b)
		return b[:pitable.Block], s
	}
	runIn(t, dir, program, "tx", "-q", "--crypto", "encrypt", "--unit", "4096", "--dek", "key", "img", "enc")
	const encrypted = "--pi 1 --crypto encrypt --order before --unit 4096 --dek key"
	for i, part := range []string{"data", "guard", "ref"} {
		serve(fmt.Sprintf("127.37.%d.", 10+2*i), encrypted+" --damage "+part+"@5", "enc", func(q *pitable.Queue) {
			if _, s := read(q, 5); s != nvme.GuardCheck && (part != "ref" || s != nvme.RefTagCheck) {
				t.Errorf("damaged %s: %v", part, s)
			}
			c := nvme.Command{Opcode: nvme.Write, NSID: 1, DW: [6]uint32{4, 0, nvme.PRAct << 26, 0, 4}}
			q.Must(c, data[4*512:][:512])
		})
		serve(fmt.Sprintf("127.37.%d.", 11+2*i), encrypted, "enc", func(q *pitable.Queue) {
			for lba := range uint32(8) {
				if b, s := read(q, lba); s != nvme.Success || !bytes.Equal(b, data[lba*512:][:512]) {
					t.Errorf("block %d without damage: %v, or other data", lba, s)
				}
			}
		})
	}
	runIn(t, dir, program, "tx", "-q", "--wire", "t10dif", "--crypto", "encrypt", "--order", "before", "--unit", "520", "--dek", "key", "img", "enc2")
	serve("127.37.16.", "--sig t10dif --crypto encrypt --order before --unit 520 --dek key --damage guard@5,once", "enc2", func(q *pitable.Queue) {
		for i, lba := range []uint32{4, 6, 5, 5} {
			if _, s := read(q, lba); s != map[bool]nvme.Status{true: nvme.GuardCheck}[i == 2] {
				t.Errorf("read %d, of block %d: %v", i, lba, s)
			}
		}
	})
	runIn(t, dir, program, "protect", "-q", "--sig", "t10dif", "img", "dif")
	serve("127.37.17.", "--sig t10dif --pi 0 --damage app@5", "dif", func(q *pitable.Queue) {
		for lba, want := range []nvme.Status{5: nvme.UnrecoveredRead, 6: nvme.Success} {
			if _, s := q.Exec(nvme.Command{Opcode: nvme.Read, NSID: 1, DW: [6]uint32{uint32(lba)}}, make([]byte, 512)); s != want {
				t.Errorf("block %d of a namespace without protection information: %v", lba, s)
			}
		}
	})
	out, err := exec.Command(program, "target", "--device", "127.37.18.1", "--sig", "t10dif", "--damage", "guard@120+9", filepath.Join(dir, "dif")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "block 128 is not in") || !strings.Contains(string(out), "128 blocks") {
		t.Errorf("damage beyond the image: %v: %s", err, out)
	}
}

// allocated returns the bytes that a file has on its disk.
func allocated(t *testing.T, name string) int64 {
	t.Helper()
	var s syscall.Stat_t
	fatal.If(t, syscall.Stat(name, &s))
	return s.Blocks * 512
}

// TestTargetTrim deallocates blocks of sparse images. The files do not grow, images without fields get holes, and reads
// with checks succeed, as the tags of deallocated blocks say that nothing is checked.
func TestTargetTrim(t *testing.T) {
	dir, program := t.TempDir(), builtProgram(t)
	for i, c := range []struct{ flags string }{
		{flags: ""}, {flags: "--pi 1 --damage guard@3000"}, {flags: "--sig t10dif"}, {flags: "--pi 2 --sig t10dif"}, {flags: "--pi 3"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			name := filepath.Join(dir, fmt.Sprint("image", i))
			writeFile(t, name, nil, 0o600)
			const size = 520 << 30 // a whole number of blocks with their fields, and without
			if err := os.Truncate(name, size); err != nil {
				t.Skipf("NOT RUN: the file system has no such files: %v", err)
			}
			addr := fmt.Sprintf("127.37.%d.", 20+i)
			startTarget(t, program, dir, addr+"1", append(strings.Fields(c.flags), name)...)
			_, q := targetHost(t, addr+"2", addr+"1", "nqn.h").Connect()
			const group, last = 8, 1 << 21
			for lba := uint32(0); lba < 2048; lba += group {
				q.Must(nvme.Command{Opcode: nvme.Write, NSID: 1, DW: [6]uint32{lba, 0, nvme.PRAct<<26 | group - 1, 0, lba}}, bytes.Repeat([]byte{1}, group*512))
			}
			before := allocated(t, name)
			ranges := make([]byte, 2*nvme.RangeSize)
			binary.LittleEndian.PutUint32(ranges[4:], 64<<30/512)
			binary.LittleEndian.PutUint32(ranges[20:], 1<<31)
			if _, s := q.Exec(nvme.Command{Opcode: nvme.DatasetManagement, NSID: 1, DW: [6]uint32{1, 4}}, ranges); s != nvme.OutOfRange {
				t.Errorf("beyond the end: %v", s)
			}
			q.Must(nvme.Command{Opcode: nvme.DatasetManagement, NSID: 1, DW: [6]uint32{0, 4}}, ranges[:nvme.RangeSize])
			after := allocated(t, name)
			fields := strings.Contains(c.flags, "--sig") // an image with fields keeps them, and its blocks
			if after > before || !fields && after > before/8 {
				t.Errorf("the image has %d bytes on the disk, and had %d before it was trimmed", after, before)
			}
			for _, lba := range []uint32{0, 1, 2047, last} {
				if lba == last && fields {
					continue // never written
				}
				cmd := readBlock(lba)
				if c.flags == "" || strings.HasPrefix(c.flags, "--pi 3") {
					cmd.DW[2], cmd.DW[4] = 0, 0
				}
				block := make([]byte, pitable.Stride)
				if _, s := q.Exec(cmd, block); s != nvme.Success {
					t.Errorf("block %d after the trim: %v", lba, s)
				}
				if ones := binary.BigEndian.Uint64(block[512:]) == 0x0000ffffffffffff; ones != (c.flags != "" && !fields) {
					t.Errorf("block %d after the trim has the field %x", lba, block[512:])
				}
			}
			if strings.Contains(c.flags, "--damage") {
				if _, s := q.Exec(readBlock(3000), make([]byte, pitable.Stride)); s != nvme.GuardCheck {
					t.Errorf("a damaged block after the trim: %v", s)
				}
			}
		})
	}
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
			_, got, _ := strings.Cut(run(t, host, "-device", fmt.Sprintf("127.37.2.%d", 2*i+2), "-target", addr+":4420", "-subsystem", "n"), ", ") // without the controller
			want := `namespace 1: 128 blocks of 512+8 bytes, protection type 1
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
			fatal.If(t, target.Process.Signal(os.Interrupt))
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
	fatal.If(t, err)
	defer f.Close()
	startTarget(t, program, dir, "127.37.3.1", "--sig", "t10dif", "dif")
	host := netip.MustParseAddr("127.37.3.2")
	conn, err := near(netip.AddrPortFrom(host, roce.UDPPort))
	fatal.If(t, err)
	if n, ok := netconn.As[netconn.Neighbor](conn); !ok || !n.Approach(netip.MustParseAddrPort("127.37.3.1:4791"), 2) {
		t.Error("no packet to the target can pass through memory")
	}
	dev, err := verbs.Open(host, &verbs.DeviceOptions{Conn: conn})
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
