#!/bin/sh
# Installs the Debian packages that the tests need, or says exactly which are
# missing. Nothing here is needed to use softmkey: the library and the command
# are plain Go. What the guests of the interoperability tests need is installed by
# interop/setup.sh.
set -eu

packages="gcc libc6-dev make e2fsprogs gdb libisal-dev libssl-dev openssl qemu-user tshark iperf3 iproute2
	rdma-core ibverbs-utils ibverbs-providers libibverbs-dev librdmacm-dev perftest rdmacm-utils python3-pyverbs python3-jsonschema chromium-driver
	ucx-utils libucx-dev openmpi-bin libopenmpi-dev libfabric-bin fio qperf infiniband-diags
	dpdk dpdk-dev librte-crypto-mlx5-23 python3-scapy squashfs-tools squashfuse fuse3"

missing=""
for p in $packages; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
export DEBIAN_FRONTEND=noninteractive
cat <<END
softmkey's tests use programs of Debian as peers and judges. These packages are missing:
$(echo $missing | fold -s -w 96 | sed 's/^/  /')
They are installed now, if this user may do that (Ctrl-C stops it).
Without them: go test -short ./... skips the tests that need a missing program, and -v says which.
END
if [ "$(id -u)" = 0 ]; then
	apt-get update -q && exec $install
elif sudo -n true 2>/dev/null; then
	sudo apt-get update -q && exec sudo -E $install
fi
echo "This user may not install packages. As root, run:" >&2
echo "  $install" >&2
exit 1
