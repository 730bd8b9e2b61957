#!/bin/sh
# Brings what the interoperability tests need: Debian packages, and Debian's
# kernel unpacked (never installed) in .cache/interop/kernel of the checkout.
# Run as root on Debian 12. A second run finds everything and touches no network.
set -eu
cd "$(dirname "$0")/.."
cache=$PWD/.cache/interop

packages="
	gcc libc6-dev libibverbs-dev librdmacm-dev
	qemu-system-x86 busybox-static iproute2 nftables
	ibverbs-providers ibverbs-utils perftest rdmacm-utils
	tshark
"
missing=
for package in $packages; do
	dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
if [ -n "$missing" ]; then
	apt-get update -q
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

if ! [ -e "$cache/kernel/boot" ]; then
	# linux-image-amd64 is empty and depends on the kernel of the day.
	[ -n "$missing" ] || apt-get update -q
	kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
	rm -rf "$cache/kernel.new"
	mkdir -p "$cache/kernel.new"
	(cd "$cache/kernel.new" && apt-get download -q "$kernel" && dpkg -x ./*.deb . && rm ./*.deb)
	rm -rf "$cache/kernel"
	mv "$cache/kernel.new" "$cache/kernel"
fi
echo "interop: ready, kernel $(cd "$cache/kernel/lib/modules" && echo *)"
