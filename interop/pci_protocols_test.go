package interop

import (
	"path/filepath"
	"testing"

	"github.com/softmkey/softmkey/interop/guest"
)

// protocolsScript is the /script of both ends of the kernel's other users of RDMA. Each step compares what it has
// sent or written with what came back.
const protocolsScript = `
count() { cat /sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_packets; }
# by_rdma COMMAND...: the command succeeds, and at least 100 packets of RDMA were sent meanwhile.
by_rdma() {
	before=$(count)
	"$@" || return
	after=$(count)
	echo "$((after - before)) packets"
	[ $((after - before)) -ge 100 ]
}
configfs() { [ -d /sys/kernel/config/target ] || mount -t configfs configfs /sys/kernel/config; }
disk() {
	mkdir -p /sys/kernel/config/target/core/rd_mcp_0/disk
	cd /sys/kernel/config/target/core/rd_mcp_0/disk
	echo rd_pages=2048 >control
	echo 1 >enable
}
# port_guid: the last half of the first GID, which is the name of a port for SRP.
port_guid() { cut -d : -f 5-8 /sys/class/infiniband/mlx5_0/ports/1/gids/0; }
srp_target() {
	configfs
	mkdir -p /sys/kernel/config/target/srpt
	echo 5555 >/sys/kernel/config/target/srpt/discovery_auth/rdma_cm_port || return
	disk || return
	g=$(port_guid)
	mkdir -p /sys/kernel/config/target/srpt/$g/$g/lun/lun_0
	cd /sys/kernel/config/target/srpt/$g/$g
	ln -s /sys/kernel/config/target/core/rd_mcp_0/disk lun/lun_0/disk
	# For rdma_cm, the name of a session is an address.
	mkdir -p acls/$addr/lun_0
	ln -s $PWD/lun/lun_0 acls/$addr/lun_0/default
	# The driver refuses a send queue for the default of 4096 requests, and says so; ib_srpt then tries half of it.
	echo 256 >attrib/srp_sq_size
	echo 1 >enable
	cat /sys/class/infiniband/mlx5_0/node_guid
}
srp() {
	guid=$(echo $1 | tr -d :)
	echo "id_ext=$guid,ioc_guid=$guid,dest=$peer:5555" >/sys/class/infiniband_srp/srp-mlx5_0-1/add_target || return
	eventually [ -b /dev/sda ] && same /dev/sda
}
# same FILE: what is written to it is read from it.
same() { dd if=/tmp/data of=$1 bs=65536 oflag=direct && dd if=$1 of=/tmp/back bs=65536 count=4 iflag=direct && cmp /tmp/data /tmp/back; }
nfs_server() {
	mkdir -p /export
	mount -t tmpfs tmpfs /export
	mount -t nfsd nfsd /proc/fs/nfsd || return
	echo "nfsd $peer 2147483647 dom" >/proc/net/rpc/auth.unix.ip/channel
	echo "dom /export 2147483647 9218 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
	echo 'dom 1 \x00000000 2147483647 /export' >/proc/net/rpc/nfsd.fh/channel
	echo -2 -3 +4.2 >/proc/fs/nfsd/versions
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	echo "rdma 20049" >/proc/fs/nfsd/portlist
	echo 2 >/proc/fs/nfsd/threads
}
nfs() {
	mkdir -p /mnt
	mount -t nfs4 -o vers=4.2,proto=rdma,port=20049,addr=$peer,clientaddr=$addr,sec=sys $peer:/ /mnt || return
	same /mnt/file
}
nvme_target() {
	configfs
	cd /sys/kernel/config/nvmet
	mkdir subsystems/s1 subsystems/s1/namespaces/1
	echo 1 >subsystems/s1/attr_allow_any_host
	echo /dev/ram0 >subsystems/s1/namespaces/1/device_path
	echo 1 >subsystems/s1/namespaces/1/enable
	for n in 1 2; do
		mkdir ports/$n
		echo rdma >ports/$n/addr_trtype
		echo ipv4 >ports/$n/addr_adrfam
		echo $addr >ports/$n/addr_traddr
		echo 442$n >ports/$n/addr_trsvcid
		ln -s /sys/kernel/config/nvmet/subsystems/s1 ports/$n/subsystems/s1
	done
}
nvme_connect() {
	id=11111111-2222-3333-4444-555555555555
	echo "transport=rdma,traddr=$peer,trsvcid=442$1,nqn=s1,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id,nr_io_queues=1" >/dev/nvme-fabrics
}
paths() { [ "$(ls -d /sys/class/nvme-subsystem/nvme-subsys*/nvme[0-9] | wc -l)" = 2 ] && eventually [ -b /dev/nvme0n1 ] && same /dev/nvme0n1; }
step gids eventually gid ffff 3
seq 1 100000 | head -c 262144 >/tmp/data
if [ $role = target ]; then
	step srp-target srp_target
	step nfs-server nfs_server
	step nvme-target nvme_target
	[ ! -d /sys/module/smc ] || talk smc listen $addr >/tmp/smc 2>&1 &
	talk rds listen $addr >/tmp/rds 2>&1 &
fi
obey
`

// TestPCIProtocols runs users of RDMA of the kernels between two guests: SMC-R (which Debian's kernels have up to 6.12),
// RDS, SRP, NFS, and NVMe with two paths, one of which goes away. TestPCINVMe and TestPCIISER run those with T10-PI.
func TestPCIProtocols(t *testing.T) {
	protocols := guest.PCI{
		RDMA: true, Script: protocolsScript, Peers: []string{"talk"},
		Modules: []string{"smc?", "rds_rdma", "target_core_mod", "ib_srpt", "ib_srp", "sd_mod", "rpcrdma", "nfsd", "nfsv4", "nvme_rdma", "nvmet_rdma", "brd"},
	}
	eachKernel(t, protocols, func(t *testing.T, softmkey, dir string, image guest.Image) {
		cable := "unix:" + filepath.Join(dir, "cable")
		target := startPCI(t, softmkey, dir, "target", cable, "pci.addr=10.94.0.1 pci.peer=10.94.0.2 pci.role=target oops=panic", image)
		host := startPCI(t, softmkey, dir, "host", cable, "pci.addr=10.94.0.2 pci.peer=10.94.0.1 pci.role=host oops=panic", image)
		target.lines("pci: obeys")
		host.lines("pci: obeys")
		host.order("smc", "[ ! -d /sys/module/smc ] || by_rdma talk smc connect $addr $peer")
		host.order("rds", "by_rdma talk rds connect $addr $peer")
		host.order("srp", "by_rdma srp "+target.after("srp-target: "))
		host.order("nfs", "by_rdma nfs")
		host.order("nvme-1", "try nvme_connect 1")
		host.order("nvme-2", "try nvme_connect 2")
		host.order("paths", "by_rdma paths")
		target.order("path-down", "rm /sys/kernel/config/nvmet/ports/1/subsystems/s1")
		host.order("one-path", "by_rdma same /dev/nvme0n1")
		for _, g := range []*pciGuest{target, host} {
			g.begin("end", "")
			g.done("ping", "gids")
		}
	})
}
