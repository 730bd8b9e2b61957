package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// targetScript is the /script of a guest whose kernel is a host of softmkey target, and does what the
// test says.
const targetScript = `
disk=/dev/nvme0n1
seq 1 100000 | head -c 262144 >/tmp/data
found() { [ -b $disk ]; }
gone() { ! [ -b $disk ]; }
# Each host has a name of its own, and writes to a part of the disk of its own.
host=${addr##*.}
id=11111111-2222-3333-4444-55555555555$host
use="-t rdma -a $peer -s 4420 -q nqn.2014-08.org.nvmexpress:uuid:$id -I $id"
discover() { nvme discover $use >/tmp/found; cat /tmp/found; grep "subnqn: *disks" /tmp/found && grep "trtype: *rdma" /tmp/found; }
connect() { nvme connect $use -n disks --nr-io-queues=2 --ctrl-loss-tmo=120 --reconnect-delay=1 --keep-alive-tmo=60 && eventually found; }
leave() { nvme disconnect -n disks && eventually gone; }
integrity() { cat /sys/block/nvme0n1/integrity/format; grep T10-DIF-TYPE1-CRC /sys/block/nvme0n1/integrity/format && grep -x 512 /sys/block/nvme0n1/queue/logical_block_size; }
# same SIZE: 256 KiB are written and read in requests of a size, and compared.
same() { dd if=/tmp/data of=$disk bs=$1 oflag=direct && dd if=$disk of=/tmp/back bs=$1 count=$((262144 / $1)) iflag=direct && cmp /tmp/data /tmp/back; }
# verified SIZE: fio verifies what it has written, with 16 requests in flight.
verified() { fio --name=verify --filename=$disk --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=$1 --size=2m --offset=$((2 * host - 2))m --verify=crc32c --verify_fatal=1; }
zeros() { head -c $1 /dev/zero >/tmp/zeros; dd if=$disk of=/tmp/back bs=$1 count=1 iflag=direct && cmp /tmp/zeros /tmp/back; }
write_zeroes() { same 4096 && nvme write-zeroes $disk -s 0 -c 15 -p 8 && zeros 8192; }
deallocate() { same 4096 && nvme dsm $disk -d -s 0 -b 16 && dd if=$disk of=/tmp/back bs=8192 count=1 iflag=direct; }
# ones: block 0 has the tags of a deallocated one.
ones() { nvme read $disk -s 0 -c 0 -z 520 -p 7 -r 0 -d /tmp/block && tail -c 6 /tmp/block | od -An -tx1 | grep "ff ff ff ff ff ff"; }
again() { for i in $(seq $1); do connect && leave || return; done; }
# status WANT COMMAND...: an NVMe command ends with a status.
status() { want=$1; shift; "$@" >/tmp/end 2>&1; cat /tmp/end; grep -i "$want" /tmp/end; }
# bad N: the Nth 4096 bytes cannot be read, and the ones after that can. The block layer's own check needs
# buffers that begin at a block, which dd has for this size.
bad() { dd if=$disk of=/tmp/back bs=4096 skip=$1 count=1 iflag=direct && return 1; dd if=$disk of=/tmp/back bs=4096 skip=$(($1 + 1)) count=1 iflag=direct; }
step gids eventually gid ffff 3
obey
`

// nvmeTarget is a running softmkey target.
type nvmeTarget struct {
	t      *testing.T
	cmd    *exec.Cmd
	errors *bytes.Buffer
}

// startTarget starts softmkey target, and waits until it listens.
func startTarget(t *testing.T, softmkey string, args ...string) *nvmeTarget {
	t.Helper()
	s := &nvmeTarget{t: t, cmd: exec.Command(softmkey, append([]string{"target"}, args...)...), errors: &bytes.Buffer{}}
	s.cmd.Stderr = s.errors
	out, err := s.cmd.StdoutPipe()
	check(t, err)
	check(t, s.cmd.Start())
	t.Cleanup(s.kill)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		s.cmd.Wait()
		t.Fatalf("the target said %q: %v\n%s", line, err, s.errors)
	}
	return s
}

// kill kills the target.
func (s *nvmeTarget) kill() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.t.Logf("the target said:\n%s", s.errors)
	}
}

// TestPCITarget has a guest's kernel use softmkey target, with 1 % of its packets lost: discovery, connections, T10-PI
// with the guest's adapter, fio with verification, the other commands by nvme-cli, two hosts at once, damage on command,
// and a target that is killed while the guest writes.
func TestPCITarget(t *testing.T) {
	host := guest.PCI{RDMA: true, Script: targetScript, Modules: []string{"nvme_rdma"}, Programs: []string{"nvme", "fio"}}
	eachKernel(t, host, func(t *testing.T, softmkey, dir string, image guest.Image) {
		clean, dif := filepath.Join(dir, "img"), filepath.Join(dir, "dif")
		check(t, os.WriteFile(clean, make([]byte, 8<<20), 0o600))
		mustRun(t, "", softmkey, "protect", "-q", "--sig", "t10dif", clean, dif)
		bridge(t, "pcibr7", "", "pcitap7", "pcitap8")
		mustRun(t, "", "ip", "addr", "add", "10.97.0.1/24", "dev", "pcibr7")
		serve := func(more ...string) *nvmeTarget {
			return startTarget(t, softmkey, append([]string{"--sig", "t10dif", "--device", "10.97.0.1", "--nqn", "disks", dif}, more...)...)
		}
		target := serve()
		g := startPCI(t, softmkey, dir, "host", "pcitap7", "pci.addr=10.97.0.2 pci.peer=10.97.0.1 oops=panic", image, "--fault", "loss=1%,seed=2")
		g.lines("pci: obeys")
		g.order("discover", "try discover")
		g.order("connect", "connect")
		g.order("identify", "nvme id-ctrl $disk && nvme id-ns $disk && nvme list-ns $disk && nvme ns-descs $disk")
		g.order("integrity", "integrity")
		for _, size := range []int{4096, 65536} {
			g.order(fmt.Sprint("same-", size), fmt.Sprint("same ", size))
		}
		for _, size := range []string{"4k", "128k", "1m"} {
			g.order("fio-"+size, "verified "+size)
		}
		g.order("pass", "nvmepass $disk 0x181") // invalid protection information
		g.order("flush", "nvme flush $disk -n 1")
		g.order("write-zeroes", "write_zeroes")
		g.order("deallocate", "deallocate")
		g.order("logs", "nvme error-log $disk -e 4 && nvme smart-log $disk && nvme effects-log $disk && nvme fw-log $disk")
		g.order("features", "nvme get-feature $disk -f 7 && nvme get-feature $disk -f 6 && nvme set-feature $disk -f 0xb -v 0")
		g.order("leave", "leave")
		g.order("again", "again 50")

		// Two hosts at once.
		other := startPCI(t, softmkey, dir, "other", "pcitap8", "pci.addr=10.97.0.3 pci.peer=10.97.0.1 oops=panic", image, "--fault", "loss=1%,seed=3")
		other.lines("pci: obeys")
		g.order("one-of-two", "connect")
		other.order("other-of-two", "connect")
		g.begin("fio-one", "verified 4k && verified 128k")
		other.begin("fio-other", "verified 4k && verified 128k")
		if !g.succeeded("fio-one") || !other.succeeded("fio-other") {
			t.Error("fio failed on one of two hosts")
		}
		other.order("leave-other", "leave")
		other.begin("end", "")
		g.order("leave-one", "leave")

		// The target is killed while the guest writes. The guest connects again, and the requests that
		// were in flight are repeated.
		g.order("reconnect", "connect")
		g.begin("kill", "verified 4k")
		time.Sleep(2 * time.Second)
		target.kill()
		target = serve()
		if !g.succeeded("kill") {
			t.Error("fio failed when the target was killed")
		}
		g.order("leave-killed", "leave")
		target.kill()

		// Damage on command.
		target = serve("--damage", "guard@803", "--damage", "ref@1600", "--damage", "wire:guard@2400,once")
		g.order("connect-damaged", "try connect")
		g.order("guard", "bad 100")
		g.order("ref", "bad 200")
		g.order("wire", "dd if=$disk of=/tmp/back bs=4096 skip=300 count=1 iflag=direct") // repeated by the block layer
		g.order("leave-damaged", "leave")
		target.kill()
		for _, want := range []string{"block 803: 0x282", "block 1600: 0x284"} {
			if !strings.Contains(target.errors.String(), want) {
				t.Errorf("the target has not said %q", want)
			}
		}

		target = startTarget(t, softmkey, "--pi", "1", "--device", "10.97.0.1", "--nqn", "disks", clean)
		g.order("connect-clean", "connect && integrity")
		g.order("deallocate-clean", "deallocate && zeros 8192 && ones && same 4096 && ! ones")
		g.order("leave-clean", "leave")
		target.kill()
		fmt.Fprintln(g.typed, "end")
		t.Log(g.lines("pci: ready"))
		mustRun(t, "", softmkey, "verify", "--sig", "t10dif", dif) // the image after all that
	})
}
