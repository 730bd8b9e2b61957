#!/usr/bin/env bash
# Checks the import order of the packages (docs/architecture.md). Each package has a row below,
# which lists the packages that it may import directly, of this module and of others. A pattern
# that ends in /* stands for a folder and all packages below it. Tests may import more.
set -euo pipefail -f
cd "$(dirname "$0")/.."

# The rows are in order from the bottom to the top. The row of a package is the first one whose
# pattern matches it.
rows='
operr
rdma
internal/base/failure            operr
internal/base/kernel/ref
internal/base/cpu                golang.org/x/sys/cpu
internal/base/cpu/tiers          internal/base/cpu
internal/base/kernel/aesxts      internal/base/cpu
internal/base/kernel/aesxts/roundlimit internal/base/cpu
internal/base/kernel/crc         internal/base/cpu golang.org/x/sys/cpu
internal/base/kernel/fused       internal/base/cpu
internal/base/kernel/icrc        internal/base/cpu
internal/base/geometry           operr internal/base/failure
internal/base/fifo
internal/base/loan
internal/base/fullio
internal/base/random
internal/base/bytesize
internal/base/summary
sig                              operr internal/base/failure internal/base/fullio internal/base/geometry internal/base/bytesize internal/base/cpu internal/base/kernel/crc
xts                              operr internal/base/failure internal/base/cpu internal/base/kernel/aesxts
internal/base/keydoor             operr internal/base/failure rdma sig xts
dek                              operr internal/base/failure internal/base/cpu internal/base/kernel/aesxts internal/base/keydoor xts golang.org/x/sys/*
mkey                             operr internal/base/failure rdma internal/base/geometry internal/base/loan internal/base/cpu internal/base/kernel/* internal/base/keydoor sig xts
mkey/mkeytest                    operr internal/base/failure rdma sig xts mkey internal/base/kernel/ref
mkeyio                           operr internal/base/failure internal/base/fullio internal/base/loan rdma internal/base/geometry sig xts mkey golang.org/x/sys/unix
roce/packetconn                  operr internal/base/failure
internal/base/wire               operr internal/base/failure internal/base/kernel/icrc
internal/base/unixsocket         internal/base/failure golang.org/x/sys/unix
internal/base/frames             operr internal/base/failure internal/base/unixsocket golang.org/x/sys/unix
internal/base/framenet           operr internal/base/failure internal/base/loan internal/base/wire roce/packetconn
internal/base/udp                operr internal/base/failure roce/packetconn golang.org/x/sys/*
internal/base/udp/udptest
internal/base/fair
roce                             operr internal/base/failure rdma internal/base/loan internal/base/random internal/base/kernel/icrc internal/base/fair internal/base/wire internal/base/udp roce/packetconn
roce/inproc                      operr internal/base/failure internal/base/udp roce/packetconn
roce/udpconn                     operr internal/base/failure internal/base/udp roce/packetconn
roce/rocetest                    operr internal/base/failure internal/base/udp roce/packetconn roce/inproc
internal/base/mad
internal/base/share              operr internal/base/failure internal/base/mad internal/base/udp internal/base/wire roce/packetconn golang.org/x/sys/unix
internal/base/cmcore             operr internal/base/failure rdma internal/base/random internal/base/mad internal/base/fair roce roce/packetconn
internal/base/engine             operr sig xts dek mkey roce/* internal/base/* rdma
verbs                            operr sig xts dek mkey roce/* internal/base/* rdma
cm                               operr sig xts dek mkey roce/* internal/base/* rdma verbs
internal/hca/pump                roce/* golang.org/x/sys/unix
internal/hca/nldev               github.com/mdlayher/netlink/* golang.org/x/sys/unix
internal/hca/uverbs              operr roce/* internal/base/* rdma internal/hca/adapter internal/hca/prm internal/hca/procmem internal/hca/pump internal/hca/nldev golang.org/x/sys/unix
internal/hca/session             operr dek roce/* internal/base/* internal/hca/* golang.org/x/sys/unix
internal/hca/*                   operr sig xts dek mkey roce/* internal/base/* rdma verbs cm internal/hca/* golang.org/x/sys/unix
internal/tool/pcap               operr roce/packetconn internal/base/* internal/tool/outfile github.com/gopacket/gopacket/*
internal/tool/metrics            roce github.com/prometheus/client_golang/prometheus/*
internal/tool/draw               internal/base/wire internal/tool/pcap
internal/tool/udpbench             operr internal/base/failure roce/packetconn internal/base/udp golang.org/x/sys/unix
internal/tool/nvmet/nvme
internal/tool/nvmet              sig mkey mkeyio internal/tool/nvmet/nvme
internal/tool/nvmet/overrdma     mkey verbs cm internal/tool/nvmet internal/tool/nvmet/nvme
internal/tool/*                  operr sig xts dek mkey/* mkeyio roce/* internal/base/* rdma verbs cm internal/tool/* golang.org/x/sys/unix
cmd/softmkey                     operr sig xts dek mkey/* mkeyio roce/* internal/* rdma verbs cm golang.org/x/sys/* golang.org/x/term github.com/spf13/* github.com/schollz/progressbar/*
github.com/softmkey/softmkey
examples/*                       operr sig xts dek mkey/* mkeyio roce/* rdma verbs cm
'

# matches NAME PATTERN succeeds if NAME is PATTERN, or below the folder of a PATTERN that ends in /*.
matches() {
	[ "$1" = "$2" ] && return 0
	case "$2" in
	*/\*) case "$1/" in "${2%\*}"*) return 0 ;; esac ;;
	esac
	return 1
}

module=$(go list -m)
bad=0
imports=$(
	for os in linux windows; do
		GOOS=$os go list -f '{{.ImportPath}} {{join .Imports " "}}' ./...
	done | sort -u
)
while read -r package uses; do
	package=${package#"$module/"}
	row=""
	while read -r pattern allowed; do
		if [ -n "$pattern" ] && matches "$package" "$pattern"; then
			row="yes $allowed"
			break
		fi
	done <<<"$rows"
	if [ -z "$row" ]; then
		echo "import order: $package has no row in scripts/layers.sh" >&2
		bad=1
		continue
	fi
	for use in $uses; do
		case "$use" in
		"$module"/*) use=${use#"$module/"} ;;
		*.*/*) ;;
		*) continue ;; # the standard library
		esac
		for pattern in ${row#yes}; do
			matches "$use" "$pattern" && continue 2
		done
		echo "import order: $package must not import $use" >&2
		bad=1
	done
done <<<"$imports"
exit $bad
