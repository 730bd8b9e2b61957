package interop

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// healScript is the /script of a guest that mirrors two disks of softmkey target: with T10-PI, which the guest's adapter
// checks, or with dm-integrity. The variables of mkfs.xfs make it accept disks of less than 300 MB.
const healScript = `
export TEST_DIR=1 TEST_DEV=1 QA_CHECK_FS=1 DM_DISABLE_UDEV=1
id=11111111-2222-3333-4444-555555555555
use="-t rdma -a $peer -s 4420 -q nqn.2014-08.org.nvmexpress:uuid:$id -I $id -n disks"
disks() { [ -b /dev/nvme0n1 ] && [ -b /dev/nvme0n2 ]; }
connect() { nvme connect $use && eventually disks; }
integrity() {
	for n in 1 2; do
		integritysetup format -q --integrity crc32c /dev/nvme0n$n && integritysetup open --integrity crc32c /dev/nvme0n$n part$n || return
	done
}
raid() { # DISK DISK
	mdadm --create /dev/md0 --run --level 1 --raid-devices 2 --bitmap none --assume-clean "$@" && mkfs.xfs -q /dev/md0 && mkdir -p /mnt &&
		mount /dev/md0 /mnt && cp /tmp/data /mnt/data && umount /mnt
}
idle() { grep -x idle /sys/block/md0/md/sync_action; }
repair() { echo repair >/sys/block/md0/md/sync_action && eventually idle; }
same() { mount /dev/md0 /mnt && cmp /tmp/data /mnt/data && umount /mnt && grep -F "[2/2]" /proc/mdstat; }
leave() {
	mdadm --stop /dev/md0
	for n in 1 2; do [ ! -b /dev/mapper/part$n ] || integritysetup close part$n; done
	nvme disconnect -n disks && dmesg -c >/tmp/log
}
seq 1 100000 | head -c 262144 >/tmp/data
step gids eventually gid ffff 3
obey
`

// TestPCIHeal damages images under a raid1 with XFS of a guest's kernel. The guest's adapter or dm-integrity finds each
// damaged block, and the raid1 writes what the other disk has.
func TestPCIHeal(t *testing.T) {
	heal := guest.PCI{
		RDMA: true, Script: healScript, Modules: []string{"crc32c_generic?", "nvme_rdma", "raid1", "xfs", "dm_integrity"},
		Programs: []string{"nvme", "mdadm", "mkfs.xfs", "integritysetup"},
	}
	eachKernel(t, heal, func(t *testing.T, softmkey, dir string, image guest.Image) {
		tap(t, "pcitap0", "10.92.0.1/24")
		g := startPCI(t, softmkey, dir, "host", "pcitap0", "pci.addr=10.92.0.2 pci.peer=10.92.0.1 oops=panic", image)
		g.lines("pci: obeys")
		for _, v := range []struct {
			name  string
			disks string
			pi    bool
		}{{"pi", "/dev/nvme0n1 /dev/nvme0n2", true}, {"integrity", "/dev/mapper/part1 /dev/mapper/part2", false}} {
			args := []string{"--device", "10.92.0.1", "--nqn", "disks"}
			if v.pi {
				args = append(args, "--sig", "t10dif")
			}
			var images []string
			for i := range 2 {
				name := filepath.Join(dir, fmt.Sprint(v.name, i))
				check(t, os.WriteFile(name, make([]byte, 64<<20), 0o600))
				if v.pi {
					mustRun(t, "", softmkey, "protect", "-q", "--sig", "t10dif", name, name+".dif")
					name += ".dif"
				}
				images = append(images, name)
			}
			target := startTarget(t, softmkey, append(args, images...)...)
			g.order("connect-"+v.name, "try connect")
			if !v.pi {
				g.order("integrity", "integrity")
			}
			g.order("raid-"+v.name, "raid "+v.disks)
			damage(t, images[0], "\n20000\n20001\n")
			damage(t, images[1], "\n30000\n30001\n")
			g.order("repair-"+v.name, "repair")
			g.order("same-"+v.name, "same")
			g.order("leave-"+v.name, "leave")
			target.kill()
			for _, name := range images {
				if v.pi {
					mustRun(t, "", softmkey, "verify", "--sig", "t10dif", name)
				}
				data, err := os.ReadFile(name)
				check(t, err)
				if !bytes.Contains(data, []byte("\n20000\n20001\n")) || !bytes.Contains(data, []byte("\n30000\n30001\n")) {
					t.Errorf("%s is not healed", name)
				}
			}
		}
		g.begin("end", "")
		t.Log(g.lines("pci: ready"))
	})
}

// damage changes a byte of a file in the place where a text stands.
func damage(t *testing.T, name, text string) {
	t.Helper()
	data, err := os.ReadFile(name)
	check(t, err)
	at := bytes.Index(data, []byte(text))
	if at < 0 {
		t.Fatalf("%s has no %q", name, text)
	}
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	check(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{'x'}, int64(at))
	check(t, err)
}
