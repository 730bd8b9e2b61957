package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/softmkey/softmkey/interop/guest"
)

// cable connects two adapters, each of which listens on a socket of its own, and damages some
// of the frames between them; see damage.
type cable struct {
	ends [2]*net.UnixConn
	wg   sync.WaitGroup

	mu      sync.Mutex
	damaged map[string]int // number of frames to damage so far, by PART WAY, such as "guard write"
}

// newCable connects the sockets, once adapters listen there.
func newCable(t *testing.T, paths [2]string) *cable {
	c := &cable{damaged: map[string]int{}}
	for i, path := range paths {
		for end := time.Now().Add(time.Minute); c.ends[i] == nil; time.Sleep(10 * time.Millisecond) {
			conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
			if err == nil {
				c.ends[i] = conn
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	for i := range c.ends {
		c.wg.Go(func() { c.carry(c.ends[i], c.ends[1-i]) })
	}
	t.Cleanup(func() {
		for _, conn := range c.ends {
			conn.Close()
		}
		c.wg.Wait()
	})
	return c
}

// carry carries frames in one direction until a socket is closed.
func (c *cable) carry(from, to *net.UnixConn) {
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil || n == 0 {
			return
		}
		c.damage(b[:n])
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

// partOffsets are the offsets on the wire of the bytes that the test changes, in the first block of
// 512 bytes and in its tuple.
var partOffsets = map[string]int{"data": 100, "guard": 512, "app": 514, "ref": 519}

// damage changes a byte of the first frame whose payload begins with "damage PART WAY", for each
// PART of partOffsets and each WAY. The WAY "write" is a write by the host, whose data is in READ
// responses; "read" is a read by the host, whose data is in RDMA WRITEs. The packet's ICRC is
// computed anew, so that only the block's protection information shows the damage.
func (c *cable) damage(frame []byte) {
	const eth, ip, udp, bth, reth, aeth = 14, 20, 8, 12, 16, 4
	const payload = eth + ip + udp + bth
	if len(frame) < payload+600 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 || frame[eth] != 0x45 || frame[eth+9] != 17 || binary.BigEndian.Uint16(frame[eth+ip+2:]) != 4791 {
		return
	}
	way, at := "", payload
	switch frame[eth+ip+udp] {
	case 0x06, 0x0a: // RDMA WRITE first, only
		way, at = "read", payload+reth
	case 0x0d, 0x10: // RDMA READ response first, only
		way, at = "write", payload+aeth
	}
	for part, off := range partOffsets {
		name := part + " " + way
		if way == "" || !bytes.HasPrefix(frame[at:], []byte("damage "+name+" ")) {
			continue
		}
		c.mu.Lock()
		c.damaged[name]++
		first := c.damaged[name] == 1
		c.mu.Unlock()
		if first {
			frame[at+off] ^= 0x20
			putICRC(frame[eth : eth+int(binary.BigEndian.Uint16(frame[eth+2:]))])
		}
	}
}

// putICRC computes the invariant CRC of an IPv4 packet (InfiniBand Architecture
// Specification, annex A17): fields that routers change count as ones.
func putICRC(packet []byte) {
	b := append(bytes.Repeat([]byte{0xff}, 8), packet[:len(packet)-4]...)
	p := b[8:]
	for _, i := range []int{1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4} { // TOS, TTL, checksums, the BTH's reserved byte
		p[i] = 0xff
	}
	binary.LittleEndian.PutUint32(packet[len(packet)-4:], crc32.ChecksumIEEE(b))
}

// piScript are functions for the /script of both ends of a storage protocol with T10-PI. DISK is
// the initiator's disk, and ERRORS what the kernel says of bad integrity.
const piScript = `
watch() {
	told=0
	while sleep 1; do
		dmesg | grep "ERRORS" >/tmp/kernel
		tail -n +$((told + 1)) /tmp/kernel | sed 's/^/pci: kernel: /'
		told=$(wc -l </tmp/kernel)
	done
}
# transfer FILE SIZE COUNT: a file is written and read in requests of a size, and compared.
transfer() {
	[ -b DISK ] && dd if=$1 of=DISK bs=$2 count=$3 oflag=direct && dd if=DISK of=/tmp/back bs=$2 count=$3 iflag=direct && cmp $1 /tmp/back
}
# compare SIZE
compare() { transfer /tmp/data $1 $((262144 / $1)); }
# damaged PART WAY: a block that the test damages on the way, by the words that it begins with.
damaged() {
	{ echo "damage $1 $2 "; cat /tmp/data; } | head -c 4096 >/tmp/block
	transfer /tmp/block 4096 1
}
step gids eventually gid ffff 3
watch &
`

// nvmeScript is the /script of both ends of NVMe over RDMA with T10-PI. The target has a disk
// of scsi_debug; BLOCK is the size of its blocks. MODE is wire, where the test damages frames,
// memory, where the host damages its own, ordered, where the test says what to do, or alone, where
// one guest has both ends.
var nvmeScript = strings.NewReplacer("DISK", "/dev/nvme0n1", "ERRORS", `PI error\\|rotection error\\|I/O error`).Replace(piScript) + `
target() {
	# The disk of the other block size that /init has made goes.
	rmmod scsi_debug
	insmod /modules/scsi_debug.ko dif=1 dix=1 dev_size_mb=8 sector_size=BLOCK
	eventually [ -b /dev/sda ]
	stale || return
	mount -t configfs configfs /sys/kernel/config
	cd /sys/kernel/config/nvmet
	mkdir subsystems/s1 subsystems/s1/namespaces/1 ports/1
	echo 1 >subsystems/s1/attr_allow_any_host
	echo 1 >subsystems/s1/attr_pi_enable
	echo /dev/sda >subsystems/s1/namespaces/1/device_path
	echo 1 >subsystems/s1/namespaces/1/enable
	cd ports/1
	echo rdma >addr_trtype
	echo ipv4 >addr_adrfam
	echo $addr >addr_traddr
	echo 4420 >addr_trsvcid
	echo 1 >param_pi_enable
	ln -s /sys/kernel/config/nvmet/subsystems/s1 subsystems/s1
}
connect() {
	id=11111111-2222-3333-4444-555555555555
	echo "transport=rdma,traddr=$peer,trsvcid=4420,nqn=s1,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id,nr_io_queues=1" >/dev/nvme-fabrics
}
integrity() {
	eventually [ -b /dev/nvme0n1 ] && grep T10-DIF-TYPE1-CRC /sys/block/nvme0n1/integrity/format && grep -x BLOCK /sys/block/nvme0n1/queue/logical_block_size
}
# stale leaves two blocks on the target's disk whose integrity is that of older blocks.
stale() {
	seq 1 100000 | head -c 8192 >/tmp/old
	dd if=/tmp/old of=/dev/sda bs=8192 seek=100 oflag=direct || return
	echo 0 >/sys/block/sda/integrity/write_generate
	tr 1 2 </tmp/old >/tmp/new
	dd if=/tmp/new of=/dev/sda bs=8192 seek=100 oflag=direct
	code=$?
	echo 1 >/sys/block/sda/integrity/write_generate
	return $code
}
# refused: such blocks are not read.
refused() {
	dd if=/dev/nvme0n1 of=/tmp/back bs=8192 skip=100 count=1 iflag=direct && return 1
	dd if=/dev/nvme0n1 of=/tmp/back bs=8192 skip=99 count=1 iflag=direct
}
# wire: 8192 bytes that the test looks for in a recording.
wire() {
	{ echo "one I/O on the wire"; cat /tmp/data; } | head -c 8192 >/tmp/block
	transfer /tmp/block 8192 1
}
# verified SIZE: fio writes with 16 requests in flight, and reads what it has written.
verified() {
	fio --name=verify --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=$1 --size=2m --offset=4m --verify=crc32c --verify_fatal=1
}
# put FILE and get FILE: 8 blocks are written, or read and compared.
put() { dd if=$1 of=/dev/nvme0n1 bs=$((8 * BLOCK)) count=1 oflag=direct; }
get() { dd if=/dev/nvme0n1 of=/tmp/back bs=$((8 * BLOCK)) count=1 iflag=direct && cmp $1 /tmp/back; }
# make NAME: a file of 8 blocks that begins with its name.
make() { { echo "$1"; cat /tmp/data; } | head -c $((8 * BLOCK)) >"/tmp/$1"; }
# With writes held, the disk gets none before they are let go.
held=/tmp/blkio/blkio.throttle.write_bps_device
hold() { echo "8:0 1" >$held; }
release() { echo "8:0 0" >$held; }
# slow JIFFIES: the time from a read of the disk to its completion.
slow() { echo $1 >/sys/bus/pseudo/drivers/scsi_debug/delay; }
if [ MODE = alone ]; then
	step devinfo ibv_devinfo -v
	peer=$addr
	seq 1 100000 | head -c 262144 >/tmp/data
	step target target
	step connect try connect
	step integrity integrity
	step compare compare 65536
	step memory nvmepass /dev/nvme0n1
elif [ $role = target ]; then
	step target target
	if [ MODE = ordered ]; then
		mkdir /tmp/blkio
		step blkio mount -t cgroup -o blkio none /tmp/blkio
		obey
	fi
else
	seq 1 100000 | head -c 262144 >/tmp/data
	step connect try connect
	step integrity integrity
	case MODE in
	ordered) obey ;;
	memory)
		step wire wire
		step memory nvmepass /dev/nvme0n1
		step stale refused
		for size in 4096 65536; do step fio-$size verified $size; done
		sleep 2
		;;
	wire)
		for size in 4096 8192 65536; do step compare-$size compare $size; done
		for way in write read; do
			for part in data guard app ref; do step $part-$way damaged $part $way; done
		done
		sleep 2
		;;
	esac
fi
`

// nvmeGuest describes a guest with either end of NVMe over RDMA with T10-PI; see nvmeScript.
func nvmeGuest(block int, mode string, programs ...string) guest.PCI {
	return guest.PCI{
		RDMA: true, Script: strings.NewReplacer("BLOCK", fmt.Sprint(block), "MODE", mode).Replace(nvmeScript),
		Modules: []string{"nvme_rdma", "nvmet_rdma", "sd_mod", "scsi_debug"}, Programs: programs,
	}
}

// eachBlock runs a test with blocks of 512 and of 4096 bytes.
func eachBlock(t *testing.T, f func(t *testing.T, block int)) {
	for _, block := range []int{512, 4096} {
		t.Run(fmt.Sprint(block), func(t *testing.T) { f(t, block) })
	}
}

// TestPCINVMe runs the kernel's NVMe over RDMA with T10-PI between two guests, with blocks of
// 512 and 4096 bytes. The data that is read must be that which was written. The receiving
// adapter must find a part of a block that was damaged on the wire, and the block layer must
// repeat the request. Damaged application tags stay unnoticed, because Linux's host does not ask
// the adapters to check them.
func TestPCINVMe(t *testing.T) {
	eachBlock(t, func(t *testing.T, block int) {
		nvme := nvmeGuest(block, "wire")
		found := []string{"data", "guard", "ref"}
		if block == 4096 { // a packet ends before the tuple: all parts are data
			found = append(found, "app")
		}
		eachKernel(t, nvme, func(t *testing.T, softmkey, dir string, image guest.Image) {
			target, host, wire := storagePair(t, softmkey, dir, image)
			steps := []string{"ping", "gids", "connect", "integrity", "compare-4096", "compare-8192", "compare-65536"}
			for part := range partOffsets {
				steps = append(steps, part+"-write", part+"-read")
			}
			host.done(steps...)
			target.done("ping", "gids", "target")
			wire.found(t, target, host, found, 2) // and once more
		})
	})
}

// storagePair starts the two ends of a storage protocol, and a cable between them that damages
// blocks.
func storagePair(t *testing.T, softmkey, dir string, image guest.Image, hostFlags ...string) (target, host *pciGuest, wire *cable) {
	paths := [2]string{filepath.Join(dir, "target.cable"), filepath.Join(dir, "host.cable")}
	target = startPCI(t, softmkey, dir, "target", "unix:"+paths[0], "pci.addr=10.94.0.1 pci.peer=10.94.0.2 pci.role=target oops=panic", image)
	host = startPCI(t, softmkey, dir, "host", "unix:"+paths[1], "pci.addr=10.94.0.2 pci.peer=10.94.0.1 pci.role=host oops=panic", image, hostFlags...)
	return target, host, newCable(t, paths)
}

// damagedRef matches what Linux prints for the reference tag 0 that the cable has changed to 0x20. Reports of an adapter
// have the tag that was received as the actual value, and the one that the key computes as the expected value.
var damagedRef = regexp.MustCompile(`PI error found type 1 .*expected (0x)?0 vs actual (0x)?20\b`)

// found checks that the parts of a block that the cable has damaged were found by the adapter that
// they arrived at, and how often a block was transferred whose damage was found.
func (c *cable) found(t *testing.T, target, host *pciGuest, parts []string, transfers int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for way, finder := range map[string]*pciGuest{"write": target, "read": host} {
		lines := finder.lines("pci: ready")
		if n := strings.Count(lines, "PI error"); n != len(parts) {
			t.Errorf("%d errors in a %s, want %d", n, way, len(parts))
		}
		if strings.Contains(lines, "PI error found type 1 ") && !damagedRef.MatchString(lines) { // in a block of 4096 bytes, the cable changes data there
			t.Errorf("%s: no line matches %v", way, damagedRef)
		}
		for part := range partOffsets {
			want := 1
			if slices.Contains(parts, part) {
				want = transfers
			}
			if n := c.damaged[part+" "+way]; n < want { // more if packets are retransmitted on a loaded machine
				t.Errorf("%s %s: %d transfers, want %d or more", part, way, n, want)
			}
		}
	}
}

// TestPCINVMeMemory runs NVMe over RDMA with T10-PI between two guests. fio verifies what it has
// written, with 16 requests in flight. Blocks that are damaged in the host's memory must get the
// statuses of the NVMe specification, and the disk must keep the old blocks. Blocks whose
// protection information on the target's disk is wrong must not be read. The bytes of one write
// and of one read on the wire, as tshark shows them, must be the data and the tuples that a
// model computes.
func TestPCINVMeMemory(t *testing.T) {
	withoutUML(t, "its adapter writes no capture")
	eachBlock(t, func(t *testing.T, block int) {
		nvme := nvmeGuest(block, "memory", "fio")
		eachKernel(t, nvme, func(t *testing.T, softmkey, dir string, image guest.Image) {
			record := filepath.Join(dir, "host.pcapng")
			t.Run("guests", func(t *testing.T) { // the recording is complete when the adapter has ended
				target, host, _ := storagePair(t, softmkey, dir, image, "--pcap", record)
				host.done("ping", "gids", "connect", "integrity", "wire", "memory", "stale", "fio-4096", "fio-65536")
				target.done("ping", "gids", "target")
				if n := strings.Count(host.lines("pci: ready"), "PI error"); n != 5 {
					t.Errorf("the host's adapter has found %d errors, want the 5 of nvmepass", n)
				}
			})
			data := bytes.NewBufferString("one I/O on the wire\n")
			for i := 1; data.Len() < 8192; i++ {
				fmt.Fprintln(data, i)
			}
			var want []byte
			tuples := tuplesOf(data.Bytes()[:8192], block)
			for i := range 8192 / block {
				want = append(want, data.Bytes()[i*block:][:block]...)
				want = append(want, tuples[i*8:][:8]...)
			}
			for way, opcodes := range map[string][3]string{"write": {"13", "14", "15"}, "read": {"6", "7", "8"}} {
				if got := transferred(t, record, opcodes, want[:20]); !bytes.Equal(got, want) {
					t.Errorf("%s: on the wire are %d bytes\n%x\nwant %d\n%x", way, len(got), got, len(want), want)
				}
			}
		})
	})
}

// transferred returns the payload of the first message in a recording that begins with prefix and
// whose packets have the opcodes first, middle and last.
func transferred(t *testing.T, record string, opcodes [3]string, prefix []byte) (message []byte) {
	t.Helper()
	text := string(tshark(t, record, "-Y", "infiniband.bth.opcode in {"+strings.Join(opcodes[:], ",")+"}", "-T", "fields", "-e", "infiniband.bth.opcode", "-e", "infiniband.bth.psn", "-e", "udp.payload"))
	next := -1
	for line := range strings.Lines(text) {
		var opcode, payload string
		var psn int
		if _, err := fmt.Sscan(line, &opcode, &psn, &payload); err != nil {
			t.Fatalf("tshark says %q: %v", line, err)
		}
		b, err := hex.DecodeString(strings.ReplaceAll(payload, ":", ""))
		check(t, err)
		headers := 12 + map[string]int{"6": 16, "13": 4, "15": 4}[opcode] // BTH, RETH or AETH
		b = b[headers : len(b)-4]                                         // ICRC
		if next < 0 && (opcode != opcodes[0] || !bytes.HasPrefix(b, prefix)) || next >= 0 && psn != next {
			continue
		}
		message, next = append(message, b...), (psn+1)&0xffffff
		if opcode == opcodes[2] {
			break
		}
	}
	return message
}

// The kernel's target in a guest, and examples/nvmepi on the host. The adapter in the guest finds
// the bad guard of a write, and the key of the example the wrong reference tag of a read.
func TestPCIExample(t *testing.T) {
	eachBlock(t, func(t *testing.T, block int) {
		target := nvmeGuest(block, "wire")
		eachKernel(t, target, func(t *testing.T, softmkey, dir string, image guest.Image) {
			example := filepath.Join(dir, "nvmepi")
			mustRun(t, "..", "go", "build", "-o", example, "./examples/nvmepi")
			tap(t, "pcitap0", "10.92.0.1/24")
			g := startPCI(t, softmkey, dir, "target", "pcitap0", "pci.addr=10.92.0.2 pci.peer=10.92.0.1 pci.role=target oops=panic", image)
			g.done("ping", "gids", "target")
			got, err := exec.Command("timeout", "120", example, "-device", "10.92.0.1", "-target", "10.92.0.2:4420", "-subsystem", "s1").CombinedOutput()
			text := string(got)
			want := fmt.Sprintf(`controller 1, namespace 1: %d blocks of %d+8 bytes, protection type 1
write of blocks 0 to 7: status 0x0, bad: false
read of blocks 0 to 7: status 0x0, bad: false, equal: true
write of blocks 8 to 15: status 0x0, bad: false
read of blocks 8 to 15: status 0x0, bad: false, equal: true
write with a bad guard: status `, 8<<20/block, block)
			if err != nil || !strings.HasPrefix(text, want) || !strings.Contains(text, "guard check error: true, bad: false") || !strings.Contains(text, "bad reference tag") {
				t.Fatalf("%v, the example printed:\n%s", err, text)
			}
			g.lines("PI error")
			t.Log(text)
		})
	})
}
