#!/usr/bin/env bash
# Holds the import order: a byte walks one way through rooms that each know one
# thing, and no room imports one above it.
set -euo pipefail
cd "$(dirname "$0")/.."
module=$(go list -m)

# package: the packages of this module that it, and what it imports, may reach.
check() {
	local package=$1 allowed=" $2 " bad=""
	for dep in $(go list -deps "./$package" | grep "^$module/" | sed "s|^$module/||"); do
		[ "$dep" = "$package" ] && continue
		case "$allowed" in *" $dep "*) ;; *) bad="$bad $dep" ;; esac
	done
	[ -z "$bad" ] || { echo "import order: $package must not reach:$bad" >&2; exit 1; }
}

base="internal/base/cpu operr"
keydoor="internal/base/keydoor"
check sig "$base internal/base/kernel/crc"
check xts "$base internal/base/kernel/aesxts"
check dek "$base internal/base/kernel/aesxts xts"
check mkey "$base $keydoor internal/base/kernel/fused internal/base/kernel/crc internal/base/kernel/aesxts sig xts"
check internal/base/wire "$base internal/base/kernel/icrc"
check roce/packetconn "$base"
check internal/base/udp "$base roce/packetconn"
check roce "$base internal/base/kernel/icrc internal/base/wire internal/base/udp roce/packetconn"
check roce/inproc "$base internal/base/udp roce/packetconn"
check roce/rocetest "$base internal/base/udp roce/packetconn roce/inproc"
check internal/tool/outfile ""
check internal/tool/pcap "$base internal/base/kernel/icrc internal/base/wire internal/base/udp roce/packetconn internal/tool/outfile"
check verbs "$base $keydoor internal/base/kernel/fused internal/base/kernel/crc internal/base/kernel/aesxts sig xts dek mkey internal/base/kernel/icrc internal/base/wire internal/base/udp roce/packetconn roce"
check mkeyio "$base $keydoor internal/base/kernel/fused internal/base/kernel/crc internal/base/kernel/aesxts sig xts mkey"
