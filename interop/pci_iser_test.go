package interop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// iserScript is the /script of both ends of iSCSI over RDMA (iSER) with T10-PI. The target has a
// disk in memory with integrity; BLOCK is the size of its blocks.
var iserScript = strings.NewReplacer("DISK", "/dev/sda", "ERRORS", `PI error\\|Sense Key\\|Enabling DI`).Replace(piScript) + `
iqn=iqn.2018-04.test:disk
target() {
	mount -t configfs configfs /sys/kernel/config
	cd /sys/kernel/config/target
	mkdir -p core/rd_mcp_0/disk
	echo rd_pages=2048 >core/rd_mcp_0/disk/control
	echo 1 >core/rd_mcp_0/disk/enable
	echo BLOCK >core/rd_mcp_0/disk/attrib/block_size
	echo 1 >core/rd_mcp_0/disk/attrib/pi_prot_type
	mkdir iscsi
	mkdir -p iscsi/$iqn/tpgt_1/lun/lun_0 iscsi/$iqn/tpgt_1/np/$addr:3260
	cd iscsi/$iqn/tpgt_1
	ln -s /sys/kernel/config/target/core/rd_mcp_0/disk lun/lun_0/disk
	echo 1 >attrib/t10_pi
	echo 0 >attrib/authentication
	echo 1 >attrib/generate_node_acls
	echo 1 >attrib/cache_dynamic_acls
	echo 0 >attrib/demo_mode_write_protect
	echo 1 >np/$addr:3260/iser
	echo 1 >enable
	grep 1 np/$addr:3260/iser
}
initiator() {
	# /init has loaded the driver without integrity.
	rmmod ib_iser
	insmod /modules/ib_iser.ko pi_enable=1
	mkdir -p /etc/iscsi /run/lock/iscsi /var/lock
	ln -s /run/lock/iscsi /var/lock/iscsi
	echo InitiatorName=iqn.2018-04.test:initiator >/etc/iscsi/initiatorname.iscsi
	echo "node.startup = manual" >/etc/iscsi/iscsid.conf
	echo root:x:0:0::/:/bin/sh >/etc/passwd # the daemon asks who its clients are
	iscsid
	iscsiadm -m node -T $iqn -p $peer:3260 -I iser -o new
}
login() { iscsiadm -m node -T $iqn -p $peer:3260 -I iser -l; }
integrity() {
	eventually [ -b /dev/sda ] && cat /sys/block/sda/integrity/format && grep T10-DIF-TYPE1 /sys/block/sda/integrity/format && grep -x BLOCK /sys/block/sda/queue/logical_block_size
}
# found PART WAY: the error of a bad block reaches the program, and the next transfer is right.
found() {
	if damaged $1 $2 2>/tmp/error; then return 1; fi
	cat /tmp/error
	grep "Invalid or incomplete" /tmp/error && # EILSEQ
		transfer /tmp/block 4096 1
}
if [ $role = target ]; then
	step target target
else
	seq 1 100000 | head -c 262144 >/tmp/data
	step initiator initiator
	step login try login
	step integrity integrity
	for size in 4096 8192 65536; do step compare-$size compare $size; done
	for way in write read; do
		for part in data guard ref; do step $part-$way found $part $way; done
		step app-$way APP app $way
	done
	step logout iscsiadm -m node -T $iqn -u
	sleep 2
fi
`

// The kernel's iSCSI over RDMA with T10-PI between two guests: what was written is read, with
// blocks of 512 and 4096 bytes. The guard is an IP checksum in the initiator's memory, and a CRC on
// the wire. A part of a block that is damaged on the wire is found by the adapter that it arrives
// at, and the program gets the error. Like that of NVMe, the kernel does not let the adapter check
// the application tag.
func TestPCIISER(t *testing.T) {
	eachBlock(t, func(t *testing.T, block int) {
		app, found := "damaged", []string{"data", "guard", "ref"}
		if block == 4096 { // a packet ends before the tuple: all parts are data
			app, found = "found", append(found, "app")
		}
		iser := guest.PCI{
			RDMA: true, Script: strings.NewReplacer("BLOCK", fmt.Sprint(block), "APP", app).Replace(iserScript),
			Modules: []string{"crc32c_generic?", "ib_iser", "ib_isert", "sd_mod"}, Programs: []string{"iscsid", "iscsiadm"},
		}
		eachKernel(t, iser, func(t *testing.T, softmkey, dir string, image guest.Image) {
			target, host, wire := storagePair(t, softmkey, dir, image)
			steps := []string{"ping", "gids", "initiator", "login", "integrity", "compare-4096", "compare-8192", "compare-65536", "logout"}
			for part := range partOffsets {
				steps = append(steps, part+"-write", part+"-read")
			}
			host.done(steps...)
			target.done("ping", "gids", "target")
			wire.found(t, target, host, found, 1)
		})
	})
}
